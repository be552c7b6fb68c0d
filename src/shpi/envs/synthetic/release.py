"""The synthetic task of the authors' release; `shpi.envs.synthetic.simulator` follows the printed paper.

    mu_0     = zeros(d), except one coordinate, which is -10: the second for d = 2, else drawn for the world
    W_-149 .. W_0 ~ N(mu_0, I/10)                              the print: N(mu_0, I)
    W_{t+1}  = W_t + a_t                                       tau = 1 everywhere in the release
    X_{t+1}  = mean_{i<rho} W_{t+1-i}
    Y(x)     = -sum_j (x_j^4 - 16 x_j^2 + 5 x_j) + bias

Action vectors: +e_1 .. +e_d, -e_1 .. -e_d, then m = floor((A - 2d) / 2) vectors with entries from
Beta(1/2, 1/2), then their negatives; each is divided by the size of its sum and multiplied by 0.1.

A run has two worlds: policies are learned in the first and scored in the second. They share mu_0 and the 2d
axis actions; the Beta vectors are drawn anew, so that for d = 2 six of ten actions have another effect.

    train, test = Synthetic.released(seed=0)

The score is Y_T - Y_1, from the reward after the first to that after the last step (the print: Y_T - Y_0).
The bias is N(1e5, 1e4^2), drawn once per user ("stationary"), or again with every tenth step
("non-stationary"). The test world has none.

The worlds follow the release's random numbers bit for bit; users of ``reset(n, seed)`` are our own, one
stream each. `replay` draws the release's own users, one after the other, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.base import check_actions, check_reset, check_running, whole_number
from shpi.envs.rollout import rollout
from shpi.envs.streams import Streams
from shpi.envs.synthetic.simulator import START, landscape
from shpi.errors import ConfigError, EpisodeError
from shpi.protocols import BoolArray, Float64Array, IntArray, Policy, Step

Bias = Literal["none", "stationary", "non-stationary"]
HISTORY = 150  # rows of W before the first decision; rho of them are ever used
SPREAD = np.sqrt(0.1)  # standard deviation of W
LENGTH = 0.1  # absolute value of the sum of an action vector's entries
BIAS = (1e5, 1e4)  # mean and standard deviation of the bias
BIAS_STEPS = 10  # a non-stationary bias is drawn again with every tenth step
_PAST, _BIAS = 0, 1  # labels of the random streams


@dataclass
class _Running:
    """The state of n users."""

    streams: Streams | None  # None: all biases are given below
    step: int
    past: Float64Array  # [rho, n, d] a ring of W
    now: int  # index of W_t in it
    first: Float64Array  # [n] Y_1, without bias
    reward: Float64Array  # [n] Y_t, without bias
    bias: Float64Array  # [n] bias of the logged reward now
    later: Float64Array | None  # [periods, n] the biases to come, if they are given
    ended: BoolArray  # [n] all False: nobody leaves


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedSynthetic:
    """One world of a run of the release, for many users at once.

    Args:
        mu: mu_0 [d].
        action_features: the action vectors [A, d].
        bias: bias of the logged reward; the true one is then logged as the metric ``true_reward``.
        rho: number of steps over which a context is averaged.
        horizon: number of decisions T.
    """

    mu: Float64Array
    action_features: Float64Array
    bias: Bias = "none"
    rho: int = 30
    horizon: int = 150
    _run: list[_Running] = field(init=False, repr=False, default_factory=list)  # empty before a reset

    def __post_init__(self) -> None:
        whole_number("rho", self.rho, least=1)
        whole_number("horizon", self.horizon, least=1)
        if self.bias not in get_args(Bias):
            raise ConfigError(
                expected=f"bias to be one of {', '.join(get_args(Bias))}", found=repr(self.bias)
            )
        for name in ("mu", "action_features"):
            table = np.array(getattr(self, name), dtype=np.float64)
            table.flags.writeable = False
            object.__setattr__(self, name, table)
        if self.mu.ndim != 1 or self.action_features.shape[1:] != self.mu.shape:
            raise ConfigError(
                expected="mu [d] and action vectors [A, d]",
                found=f"shapes {self.mu.shape} and {self.action_features.shape}",
            )

    # ------------------------------------------------------------------ properties

    @property
    def name(self) -> str:
        """Not registered: a run has two of these worlds."""
        return "synthetic-released"

    @property
    def d(self) -> int:
        """The dimension of contexts and action vectors."""
        return len(self.mu)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return len(self.action_features)

    @property
    def context_names(self) -> tuple[str, ...]:
        """One name per coordinate: x0, x1 and so on."""
        return tuple(f"x{j}" for j in range(self.d))

    @property
    def action_feature_names(self) -> tuple[str, ...]:
        """One name per coordinate of an action vector."""
        return tuple(f"push{j}" for j in range(self.d))

    # ------------------------------------------------------------------ the simulator

    def reset(self, n: int, seed: int, *, first: int = 0) -> Float64Array:
        """Start users first .. first+n-1 and return their contexts [n, d]."""
        streams = Streams(seed, check_reset(n, seed, first))
        past = np.stack([self.mu + SPREAD * streams.normal(_PAST, i, self.d) for i in range(self.rho)])
        bias = np.zeros(n) if self.bias == "none" else BIAS[0] + BIAS[1] * streams.normal(_BIAS, 0)
        return self._start(past, bias, streams, None)

    def reset_to(self, past: Float64Array, biases: Float64Array | None = None) -> Float64Array:
        """Start users with given histories, and return their contexts [n, d].

        Args:
            past: W [n, L, d], L >= rho, the newest row first.
            biases: [n, periods] biases at the reset and at every tenth step; None for 0.
        """
        if past.ndim != 3 or past.shape[1] < self.rho or past.shape[2] != self.d:
            raise EpisodeError(
                expected=f"histories [n, at least {self.rho}, {self.d}]", found=f"shape {past.shape}"
            )
        given = np.zeros((len(past), 1)) if biases is None else np.asarray(biases, dtype=np.float64)
        ring = np.array(past[:, : self.rho].swapaxes(0, 1), dtype=np.float64, order="C")
        return self._start(ring, given[:, 0].copy(), None, given.T)

    def _start(
        self, past: Float64Array, bias: Float64Array, streams: Streams | None, later: Float64Array | None
    ) -> Float64Array:
        n = past.shape[1]
        run = _Running(streams, 0, past, 0, np.zeros(n), np.zeros(n), bias, later, np.zeros(n, dtype=bool))
        run.ended.flags.writeable = False
        contexts = _mean(run.past)
        run.reward = landscape(contexts)
        self._run[:] = [run]
        return contexts

    def step(self, actions: IntArray) -> Step:
        """Let one decision [n] take effect for every user."""
        run = self._running()
        check_running(run.ended, run.step, self.horizon)
        chosen = check_actions(actions, len(run.ended), self.n_actions)
        following = (run.now - 1) % self.rho  # replaces the oldest row
        np.add(run.past[run.now], self.action_features[chosen], out=run.past[following])
        run.now, run.step = following, run.step + 1
        contexts = _mean(run.past)
        run.reward = landscape(contexts)
        if run.step == 1:
            run.first = run.reward
        if self.bias == "non-stationary" and run.step % BIAS_STEPS == 0:
            run.bias = self._next_bias(run)
        if self.bias == "none":
            return Step(contexts, run.reward.copy(), run.ended, {})
        return Step(contexts, run.reward + run.bias, run.ended, {"true_reward": run.reward.copy()})

    def _next_bias(self, run: _Running) -> Float64Array:
        period = run.step // BIAS_STEPS
        if run.streams is not None:
            return BIAS[0] + BIAS[1] * run.streams.normal(_BIAS, period)
        assert run.later is not None
        given: Float64Array = run.later[period]
        return given

    def candidates(self) -> None:
        """None: every action is always allowed."""
        return

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``, with its propensities; more options in `shpi.envs.rollout`."""
        return rollout(self, policy, n, seed, first=first)

    def newest(self) -> Float64Array:
        """W_t of each running user, [n, d], which a context hides."""
        run = self._running()
        newest: Float64Array = run.past[run.now].copy()
        return newest

    def score(self) -> Float64Array:
        """Y_t - Y_1 of each running user, [n], without bias: the release's score once t = T."""
        run = self._running()
        return run.reward - run.first

    def _running(self) -> _Running:
        if not self._run:
            check_running(None)
        return self._run[0]


def _mean(past: Float64Array) -> Float64Array:
    """X [n, d] of W [rho, n, d]."""
    mean: Float64Array = past.sum(axis=0) / len(past)
    return mean


# ---------------------------------------------------------------------- the release's own random numbers


class Replay(NamedTuple):
    """The draw of the release's generator for one run: two worlds, and one user of each."""

    train: ReleasedSynthetic
    test: ReleasedSynthetic
    train_past: Float64Array  # [1, 150, d] the newest row first
    test_past: Float64Array  # [1, 150, d]
    train_biases: Float64Array  # [1, periods] at the reset and at every tenth step
    test_biases: Float64Array  # [1, periods] drawn, though the test world ignores them


def worlds(
    seed: int, *, d: int = 2, n_actions: int = 10, bias: Bias = "none", rho: int = 30, horizon: int = 150
) -> tuple[ReleasedSynthetic, ReleasedSynthetic]:
    """The train and the test world of a run of the release with this seed."""
    run = replay(seed, d=d, n_actions=n_actions, bias=bias, rho=rho, horizon=horizon)
    return run.train, run.test


def replay(
    seed: int, *, d: int = 2, n_actions: int = 10, bias: Bias = "none", rho: int = 30, horizon: int = 150
) -> Replay:
    """Draw from numpy's legacy generator in the release's order: worlds first, each with a user of its own.

    Args:
        seed: random seed of the run.
        d: dimension of a context, at least 2.
        n_actions: even, and at least 2d.
        bias: bias of the train world.
        rho: rho of both worlds.
        horizon: horizon of both worlds.
    """
    whole_number("d", d, least=2)
    if whole_number("n_actions", n_actions, least=2 * d) % 2:
        raise ConfigError(expected="an even n_actions of at least 2d", found=str(n_actions))
    random = np.random.RandomState(seed)
    mu = np.zeros(d)
    mu[1 if d == 2 else int(random.randint(0, d, size=1)[0])] = START

    def world(kind: Bias) -> ReleasedSynthetic:
        vectors = _action_vectors(random, d, n_actions)
        _reset(random, mu, bias)  # creating a world draws a user that is never used
        return ReleasedSynthetic(mu=mu, action_features=vectors, bias=kind, rho=rho, horizon=horizon)

    train, test = world(bias), world("none")
    users = []
    for _ in range(2):
        first, past = _reset(random, mu, bias)
        again = horizon // BIAS_STEPS if bias == "non-stationary" else 0
        biases = np.array([first, *(_bias(random) for _ in range(again))])
        users.append((past[None], biases[None]))
    (train_past, train_biases), (test_past, test_biases) = users
    return Replay(train, test, train_past, test_past, train_biases, test_biases)


def _action_vectors(random: np.random.RandomState, d: int, n_actions: int) -> Float64Array:
    """Axes, their negatives, Beta vectors, their negatives, [A, d]."""
    extra = random.beta(0.5, 0.5, size=((n_actions - 2 * d) // 2, d))
    rows = np.concatenate([np.eye(d), -np.eye(d), extra, -extra])
    vectors: Float64Array = rows / np.abs(rows.sum(axis=1, keepdims=True)) * LENGTH
    return vectors


def _reset(random: np.random.RandomState, mu: Float64Array, bias: Bias) -> tuple[float, Float64Array]:
    """The bias, and W [150, d]."""
    offset = 0.0 if bias == "none" else _bias(random)
    return offset, random.multivariate_normal(mu, np.eye(len(mu)) / 10, size=HISTORY)


def _bias(random: np.random.RandomState) -> float:
    return float(random.normal(*BIAS))
