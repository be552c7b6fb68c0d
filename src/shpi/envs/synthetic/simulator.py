"""The synthetic recommendation task of the paper's appendix: slow contexts, delayed effects, a hidden state.

    mu_0     = zeros(d), except one coordinate of the user's own, which is -10
    W_1..W_L ~ N(mu_0, I),  L = max(tau, rho)                  the past before the first decision
    W_{t+1}  = mean_{i<tau} (W_{t-i} + a_{t-i})                a_j = 0 before the first decision
    X_{t+1}  = mean_{i<rho} W_{t+1-i}                          what a policy sees
    Y(x)     = -sum_j (x_j^4 - 16 x_j^2 + 5 x_j)               Styblinski-Tang, without the factor 1/2

The reward of decision t is Y(X_{t+1}), at the context that the decision leads to. The score of a policy is
the improvement Y_T - Y_0; its maximum, 78.33 d - Y_0, differs between users, so the attained fraction of it
is reported, too. The task is partially observed on purpose: X hides the recent W.

The action vectors have mean 0, or else the uniform policy would drift away, and a root mean square of
``action_scale`` / sqrt(2) per coordinate. Under a constant action a, X moves 2a / (tau + 1) per step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.base import check_actions, check_reset, check_running, real_number, whole_number
from shpi.envs.rollout import rollout
from shpi.envs.streams import Streams
from shpi.errors import ConfigError, EpisodeError
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array, IntArray, Policy, Step

if TYPE_CHECKING:
    from shpi.envs.synthetic.release import ReleasedSynthetic

START = -10.0  # the one coordinate of mu_0 that is not 0
PEAK = -2.903534027771177  # the root of 4 x^3 - 32 x + 5 = 0 that maximises Y
PEAK_VALUE = 78.33233140754283  # -(PEAK^4 - 16 PEAK^2 + 5 PEAK)
_COORDINATE, _PAST, _OFFSET, _VECTORS = 0, 1, 2, 3  # labels of the random streams


def landscape(x: FloatArray) -> Float64Array:
    """Y(x) = -sum_j (x_j^4 - 16 x_j^2 + 5 x_j): contexts [n, d] to rewards [n]."""
    square = np.multiply(x, x, dtype=np.float64)
    terms = square - 16.0
    terms *= square
    np.multiply(x, 5.0, out=square, dtype=np.float64)
    terms += square
    if terms.shape[1] > 8:
        total: Float64Array = terms.sum(axis=1)
    else:  # adding columns is several times faster than reducing such short rows
        total = terms[:, 0].copy()
        for column in range(1, terms.shape[1]):
            total += terms[:, column]
    np.negative(total, out=total)
    return total


@dataclass
class _Running:
    """The state of n users. Sums are updated at every step, and recomputed from time to time."""

    streams: Streams
    step: int
    past: Float64Array  # [R, n, d] a ring of W, R = max(tau + 1, rho)
    taken: Int64Array  # [tau, n] a ring of actions; A stands for "none yet"
    now: int  # index of W_t in ``past``
    sum_tau: Float64Array  # [n, d] sum_{i<tau} (W_{t-i} + a_{t-i}) = tau W_{t+1}
    sum_rho: Float64Array  # [n, d] sum_{i<rho} W_{t-i} = rho X_t
    start: Float64Array  # [n] Y_0
    reward: Float64Array  # [n] Y_t
    ended: BoolArray  # [n] all False: nobody leaves
    offset: Float64Array  # [n] bias of the logged reward now


@dataclass(frozen=True, kw_only=True, eq=False)
class Synthetic:
    """The synthetic task for many users at once.

    Args:
        d: the dimension of contexts and action vectors.
        n_actions: |A|.
        tau: number of steps over which the effect of an action is spread.
        rho: number of steps over which a context is averaged.
        horizon: number of decisions T.
        action_scale: s, the root mean square of the action vectors' norm at d = 2.
        seed_world: random seed of the action vectors; users depend on the seed of the reset instead.
        reward_offset: (mean, standard deviation) of a bias of the logged reward, one draw per user for every
            ``offset_every`` steps; the true reward is then logged as the metric ``true_reward``.
        offset_every: number of steps for which the bias stays the same.
    """

    d: int = 2
    n_actions: int = 10
    tau: int = 10
    rho: int = 30
    horizon: int = 150
    action_scale: float = 0.6
    seed_world: int = 0
    reward_offset: tuple[float, float] | None = None
    offset_every: int = 10
    _run: list[_Running] = field(init=False, repr=False, default_factory=list)  # empty before a reset

    def __post_init__(self) -> None:
        for name, least in (
            ("d", 1),
            ("n_actions", 2),
            ("tau", 1),
            ("rho", 1),
            ("horizon", 1),
            ("seed_world", 0),
            ("offset_every", 1),
        ):
            whole_number(name, getattr(self, name), least=least)
        real_number("action_scale", self.action_scale, above=0.0)
        if self.reward_offset is not None:
            pair: Any = self.reward_offset
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ConfigError(
                    expected="reward_offset to be (mean, standard deviation), or None", found=repr(pair)
                )
            real_number("the mean of reward_offset", pair[0])
            real_number("the standard deviation of reward_offset", pair[1], least=0.0)

    @classmethod
    def small(cls, **changes: Any) -> Synthetic:
        """The task of the paper's tables: d = 2, ten actions."""
        return cls(**changes)

    @classmethod
    def large(cls, **changes: Any) -> Synthetic:
        """The task of the paper's appendix: d = 100, three hundred actions."""
        return cls(**{"d": 100, "n_actions": 300, **changes})

    @classmethod
    def biased(cls, **changes: Any) -> Synthetic:
        """The small task with the biased reward of the backshift experiment, N(1e5, 1e4) for 10 steps."""
        return cls(**{"reward_offset": (1e5, 1e4), **changes})

    @staticmethod
    def released(seed: int = 0, **options: Any) -> tuple[ReleasedSynthetic, ReleasedSynthetic]:
        """The train and the test world of the authors' release; see `shpi.envs.synthetic.release.worlds`."""
        from shpi.envs.synthetic.release import worlds

        return worlds(seed, **options)

    # ------------------------------------------------------------------ properties

    @property
    def name(self) -> str:
        """The registered name."""
        return "synthetic-large" if self.d >= 100 else "synthetic"

    @property
    def context_names(self) -> tuple[str, ...]:
        """One name per coordinate: x0, x1 and so on."""
        return tuple(f"x{j}" for j in range(self.d))

    @cached_property
    def action_features(self) -> Float64Array:
        """The action vectors, [A, d]; policies may use them."""
        actions = np.arange(self.n_actions, dtype=np.int64)
        vectors = Streams(self.seed_world, actions).normal(_VECTORS, 0, self.d)
        vectors -= vectors.mean(axis=0)
        vectors *= self.action_scale / np.sqrt(2.0 * np.square(vectors).mean())
        vectors.flags.writeable = False
        return vectors

    @property
    def action_feature_names(self) -> tuple[str, ...]:
        """One name per coordinate of an action vector."""
        return tuple(f"push{j}" for j in range(self.d))

    @cached_property
    def _table(self) -> Float64Array:
        """The action vectors and a row of zeros for "none yet", [A + 1, d]."""
        return np.vstack([self.action_features, np.zeros((1, self.d))])

    @property
    def optimum(self) -> float:
        """The maximum of Y, at x_j = -2.9035."""
        return PEAK_VALUE * self.d

    # ------------------------------------------------------------------ the simulator

    def reset(self, n: int, seed: int, *, first: int = 0) -> Float64Array:
        """Start users first .. first+n-1 and return their contexts [n, d]."""
        users = check_reset(n, seed, first)
        streams = Streams(seed, users)
        length, ring = max(self.tau, self.rho), max(self.tau + 1, self.rho)
        past = np.zeros((ring, n, self.d))
        special = (streams.uniform(_COORDINATE, 0) * self.d).astype(np.int64)
        for j in range(length):
            past[j] = streams.normal(_PAST, j, self.d)
            past[j][np.arange(n), special] += START
        run = _Running(
            streams=streams,
            step=0,
            past=past,
            taken=np.full((self.tau, n), self.n_actions, dtype=np.int64),
            now=length - 1,
            sum_tau=np.empty((n, self.d)),
            sum_rho=np.empty((n, self.d)),
            start=np.empty(n),
            reward=np.empty(n),
            ended=np.zeros(n, dtype=bool),
            offset=np.zeros(n),
        )
        run.ended.flags.writeable = False
        self._refresh(run)
        contexts = run.sum_rho / self.rho
        run.start = run.reward = landscape(contexts)
        self._run[:] = [run]
        return contexts

    def step(self, actions: IntArray) -> Step:
        """Let one decision [n] take effect for every user."""
        run = self._running()
        check_running(run.ended, run.step, self.horizon)
        chosen = check_actions(actions, len(run.ended), self.n_actions)
        contexts = self._move(run, chosen)
        run.reward = landscape(contexts)
        if self.reward_offset is None:
            return Step(contexts, run.reward.copy(), run.ended, {})
        if (run.step - 1) % self.offset_every == 0:
            mean, spread = self.reward_offset
            run.offset = mean + spread * run.streams.normal(_OFFSET, (run.step - 1) // self.offset_every)
        return Step(contexts, run.reward + run.offset, run.ended, {"true_reward": run.reward.copy()})

    def candidates(self) -> None:
        """None: every action is always allowed."""
        return

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``, with its propensities; more options in `shpi.envs.rollout`."""
        return rollout(self, policy, n, seed, first=first)

    def _running(self) -> _Running:
        if not self._run:
            check_running(None)
        return self._run[0]

    def _move(self, run: _Running, chosen: Int64Array) -> Float64Array:
        """Advance W and the sums by one step and return X_{t+1}, [n, d]. O(n d), whatever tau and rho."""
        ring, place = len(run.past), run.step % self.tau
        total = run.sum_tau  # from the steps before this one: still without a_t and W_t
        total += run.past[run.now]
        total -= run.past[(run.now - self.tau) % ring]
        total += np.take(self._table, chosen, axis=0)
        total -= np.take(self._table, run.taken[place], axis=0)
        run.taken[place] = chosen
        following = (run.now + 1) % ring
        run.sum_rho -= run.past[(following - self.rho) % ring]
        np.divide(total, self.tau, out=run.past[following])
        run.sum_rho += run.past[following]
        run.now, run.step = following, run.step + 1
        if run.step % ring == 0:
            self._refresh(run)
        return run.sum_rho / self.rho

    def _refresh(self, run: _Running) -> None:
        """Recompute the sums. A rounding error of sum_tau would act like a constant action for ever.

        Once per turn of the ring costs about one addition per step and keeps every error to what one turn
        can collect. ``sum_tau`` is left as it is between two steps: without W_t, and with W_{t-tau}.
        """
        ring = len(run.past)
        run.sum_rho[:] = 0.0
        for i in range(self.rho):
            run.sum_rho += run.past[(run.now - i) % ring]
        run.sum_tau[:] = 0.0
        for i in range(self.tau):
            run.sum_tau += run.past[(run.now - 1 - i) % ring]
            run.sum_tau += np.take(self._table, run.taken[i], axis=0)

    # ------------------------------------------------------------------ how well a policy did

    def improvement(self) -> Float64Array:
        """Y_t - Y_0 of each running user, [n]: the paper's score once t = T."""
        run = self._running()
        return run.reward - run.start

    def fraction_attained(self) -> Float64Array:
        """(Y_t - Y_0) / (Y* - Y_0) of each running user, [n]: 1 is the maximum."""
        run = self._running()
        return self.improvement() / (self.optimum - run.start)

    def score(self) -> Float64Array:
        """The improvement, which experiments report as the score."""
        return self.improvement()


def improvement(logs: LoggedData) -> Float64Array:
    """Y_T - Y_0 of each trajectory of a log of this world, [N]; from its contexts, so without bias."""
    if not logs.final_observed.all():
        raise EpisodeError(
            expected="the last context of every trajectory", found="a log in which some were not observed"
        )
    return landscape(logs.final_contexts) - landscape(logs.contexts[logs.offsets[:-1]])


def fraction_attained(logs: LoggedData) -> Float64Array:
    """(Y_T - Y_0) / (Y* - Y_0) of each trajectory of a log of this world, [N]."""
    gain = improvement(logs)
    start = landscape(logs.contexts[logs.offsets[:-1]])
    return gain / (PEAK_VALUE * logs.schema.width - start)
