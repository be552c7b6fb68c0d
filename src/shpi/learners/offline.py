r"""Offline SHPI, Algorithm 2 of the paper.

    V <- the value of the logging policy mu                                           Eq. 1
    pi_0 <- mu, or a random policy
    for j = 1 .. J:
        w    <- clipped products of pi_{j-1}(a|x) / mu(a|x)
        A_k  <- k-step advantages with the bonus gamma^k V(x_{t+k})                   Eq. 4 and 5
        f    <- argmin_f sum (f(x, a) - A_k)^2
        pi_j <- argmax_a f(x, a)

Two configurations: `OfflineSHPI.paper()` is the above line by line. The defaults start from mu, use the
residual form and an LSTD that sees past rewards, are greedy only as far as bounded ratios pi <= c mu allow
(`BoundedRatio`), and return the iterate with the largest gain on held-out users, or a clone of mu without
evidence that it is better. What acts on its f in the end is settled last (`shpi.learners.sharper`).
V = `Constant(0.0)` is session-based RL, and with k = 1 a contextual bandit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from shpi.advantages import Advantages, Horizon, StateValues, k_step_advantages, ratios_of, taken_probs
from shpi.advantages.kstep import ClipRule, Form
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.learners.base import propensities_of
from shpi.learners.cloning import BehaviourCloning, default_recipes, with_intercept
from shpi.learners.evidence import Tunings, crossed_clarity, held_out_clarity
from shpi.learners.gain import Gain, held_out_gain
from shpi.learners.horizon import HorizonChoice, choose_horizon
from shpi.learners.improved import ImprovedPolicy, Iteration
from shpi.learners.on_log import Improvement
from shpi.learners.proximal import Proximal
from shpi.learners.readings import released_settings, repaired_settings
from shpi.learners.shape import PROBE as SHAPE_PROBE
from shpi.learners.shape import choose_shape, for_discrete, linear_features, may_curve
from shpi.learners.sharper import FARTHER, UNPROVEN, bounded_or_favourite, instead_of
from shpi.oracles import Oracle, PreparedOracle, Ridge
from shpi.policies import AmongLikely, BoundedRatio, Greedy, LinearScorer, Policy, UniformPolicy
from shpi.policies.scorers import Scorer
from shpi.progress import progress_bar
from shpi.protocols import Float64Array
from shpi.shift import LinearRatio, RatioEstimator
from shpi.values import BellmanResidual, FittedValue, ValueModel, WithPast, with_backshift

Start = Literal["behaviour", "random", "uniform"]
FEWEST_USERS = 10  # with fewer nobody is held out
PROBE = 10  # k of the policy whose gain decides "auto"
CHANGED = 0.01  # a decision has changed when the probability of its action has moved by more
GAIN_CLIP = (0.0, 10.0)  # products are only truncated from above when a gain is estimated


@dataclass(frozen=True, kw_only=True)
class OfflineSHPI:
    """Learn a policy that is better than mu in the long term, from mu's log alone.

    Args:
        k: how many steps ahead; "session": to the end of each decision's session; "auto": chosen from the
            log, see `shpi.learners.horizon`.
        gamma: the discount.
        iterations: J, at most; it stops when fewer than ``tolerance`` of the decisions change.
        weight_clip: q1 and q2.
        form: of the advantages, "residual" or the paper's "raw".
        clip: "prefix" (Eq. 5), "product" (Algorithm 2) or "ratio" (the authors' release).
        bonus_ratio: weight the bonus as printed in Eq. 4, see `shpi.advantages.kstep`.
        value: the termination bonus.
        oracle: the regression; None takes a ridge over features that extrapolate (`shpi.learners.shape`).
        start: pi_0; "behaviour" is mu itself, "random" the paper's, "uniform" the release's, or any policy.
        reach: how far pi may go from mu: pi(a|x) <= max(1, reach / max mu(.|x)) mu(a|x). None is greedy,
            as in the paper.
        explore: without a reach, the epsilon of a greedy policy with Vowpal Wabbit's ties, in the weights
            and in what is returned; 0 is argmax.
        view: what is made of the log before anything is learned from it, such as
            `shpi.data.release.ReleasedRows`.
        behaviour: mu, where it exists as code; None recovers it from the log (`BehaviourCloning`).
        proximal: Lambda, in standard deviations of the advantages: what the bonus is charged for leaving
            the states of the log, see `shpi.learners.proximal`. With it the last iterate is the candidate.
        ratio: estimates d_pi / d_mu for it; None takes the closed form, `LinearRatio`.
        held_out: share of the users on whom the iterate is chosen; 0 returns the last one.
        confidence: of the bound on the gain that an iterate needs to be preferred to mu.
        backshift: recover the rewards from ``value``, which must then be given: r = V(x) - gamma V(x').
        tolerance: see ``iterations``.
        seed: of all chance.
        progress: show a bar; by default in a terminal.
    """

    k: Horizon | Literal["auto"] = "auto"
    gamma: float = 0.99
    iterations: int = 10
    weight_clip: tuple[float, float] | None = (0.5, 2.0)
    form: Form = "residual"
    clip: ClipRule = "prefix"
    bonus_ratio: bool = False
    value: ValueModel = field(default_factory=WithPast)
    oracle: Oracle | None = None
    start: Start | Policy = "behaviour"
    reach: float | None = 1.2
    explore: float = 0.0
    view: Callable[[LoggedData], LoggedData] | None = None
    behaviour: Policy | None = None
    proximal: float = 0.0
    ratio: RatioEstimator | None = None
    held_out: float = 0.2
    confidence: float = 0.95
    backshift: bool = False
    tolerance: float = 0.001
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        checks: tuple[tuple[bool, str, Any], ...] = (
            (self.iterations >= 1, "iterations of at least 1", self.iterations),
            (0 <= self.held_out < 1, "held_out in [0, 1)", self.held_out),
            (0.5 <= self.confidence < 1, "confidence in [0.5, 1)", self.confidence),
            (self.reach is None or (np.isfinite(self.reach) and self.reach >= 0),
             "a reach of at least 0, or None", self.reach),
            (np.isfinite(self.proximal) and self.proximal >= 0, "a proximal of at least 0", self.proximal),
            (0 <= self.explore <= 1, "explore in [0, 1]", self.explore),
            (not isinstance(self.start, str) or self.start in get_args(Start),
             "start 'behaviour', 'random', 'uniform' or a policy", self.start),
        )  # fmt: skip
        for fine, expected, found in checks:
            if not fine:
                raise ConfigError(expected=expected, found=repr(found), where="OfflineSHPI")

    @classmethod
    def paper(cls, **changes: Any) -> OfflineSHPI:
        """Algorithm 2 as printed, with the paper's settings; VW's regression as its exact minimiser."""
        printed: dict[str, Any] = {
            "k": 5,
            "form": "raw",
            "clip": "product",
            "value": BellmanResidual(),
            "oracle": Ridge.exact(weights="mtr"),
            "start": "random",
            "reach": None,
            "held_out": 0.0,
            "tolerance": 0.0,
        }
        return cls(**(printed | changes))

    @classmethod
    def repaired(cls, **changes: Any) -> OfflineSHPI:
        """`paper` with two repairs: V by temporal differences, and weights kept off V."""
        return cls(**(repaired_settings() | changes))

    @classmethod
    def released(cls, **changes: Any) -> OfflineSHPI:
        """What the authors' released code does, see `shpi.learners.readings`."""
        return cls(**(released_settings() | changes))

    def fit(self, logs: LoggedData) -> ImprovedPolicy:
        """Run the algorithm on a log with propensities."""
        logs = logs if self.view is None else self.view(logs)
        self._check(logs)
        seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(self.seed).spawn(3)]
        value, train, test = self._prepare(logs, seeds)
        mu, improve = train.improve.mu, train.improve
        oracle = self.oracle or self._default_oracle(train, mu, seeds[2])
        prepared: PreparedOracle = oracle.prepare(train.logs, seed=seeds[2])
        tuned = Tunings(prepared=prepared, seen=self._under_mu(train))
        config, horizon = self._with_horizon(train, test, tuned, seeds[0])
        proximal = config._proximal(train, seeds[2])

        history: list[Iteration] = []
        probs = self._start(train.logs, seeds[2])  # pi(a_t|x_t) [n] of the current policy
        with progress_bar("policy iteration", self.iterations, self.progress) as advance:
            for j in range(1, self.iterations + 1):
                paid = train.bonus if proximal is None else proximal.penalised(probs)
                advantages = config._advantages(train.logs, paid, probs)
                if j == 1:
                    under_mu = proximal is None and self.start == "behaviour"
                    ready = tuned(horizon.k) if horizon and under_mu else _tuned(prepared, advantages)
                scorer = ready.fit(advantages.values, valid=advantages.valid)
                before, probs = probs, improve.taken_probs(scorer, ready)
                changed = float((np.abs(probs - before) > CHANGED).mean())
                gain = None if test is None else config._gain(test, scorer)
                history.append(Iteration.of(j, advantages, changed, improve.policy(scorer), gain))
                advance(1)
                if changed <= self.tolerance:
                    break
        found = ImprovedPolicy.choose(
            history if proximal is None else history[-1:],
            behaviour=mu if test is None or mu is None else self._instead_of(mu, test.logs, scorer),
            value=value,
            horizon=horizon,
            explored=float(1 - propensities_of(logs, "OfflineSHPI").mean()),
            clarity=0.0 if horizon is None else horizon.clarity,
        )
        if found.chosen > 0 and test is not None:
            found = replace(found, policy=self._head(found, train, ready))
        return replace(found, history=tuple(history))

    # ------------------------------------------------------------------ the steps

    def _check(self, logs: LoggedData) -> None:
        propensities_of(logs, "OfflineSHPI")
        if logs.rewards is None and not self.backshift:
            raise DataError(
                expected="a log with rewards",
                found="none",
                remedy="derive them (logs.with_rewards), or bring a value and set backshift=True",
            )

    def _prepare(self, logs: LoggedData, seeds: Sequence[int]) -> tuple[FittedValue, Side, Side | None]:
        """V, the users to learn from, and those held out, if any."""
        both = [logs]
        if self.held_out > 0 and logs.n_users >= FEWEST_USERS:
            both = list(logs.split_users(self.held_out, seed=seeds[0]))
        value = self.value.fit(both[0], gamma=self.gamma, seed=seeds[1])
        bonuses = [StateValues.of(value, part) for part in both]
        if self.backshift:
            both = [with_backshift(part, v, gamma=self.gamma) for part, v in zip(both, bonuses, strict=True)]
        mu = self._mu(both[0])
        train, *test = (
            Side(
                logs=part,
                bonus=v,
                improve=Improvement(logs=part, mu=mu, reach=self.reach, explore=self.explore),
            )
            for part, v in zip(both, bonuses, strict=True)
        )
        return value, train, test[0] if test else None

    def _mu(self, logs: LoggedData) -> Policy | None:
        """The logging policy or a clone of it; None if neither bounds on ratios nor a fallback need it."""
        if self.behaviour is None and self.reach is None and self.held_out == 0:
            return None
        return self.behaviour or BehaviourCloning(seed=self.seed).fit(logs)

    def _start(self, logs: LoggedData, seed: int) -> Float64Array:
        """pi_0(a_t|x_t) on the log [n]."""
        if self.start == "behaviour":
            return propensities_of(logs, "OfflineSHPI")
        if self.start == "random":
            return taken_probs(logs, _random_policy(logs, seed))
        if self.start == "uniform":
            return taken_probs(logs, UniformPolicy(logs.n_actions))
        assert not isinstance(self.start, str)
        return taken_probs(logs, self.start)

    def _with_horizon(
        self, train: Side, test: Side | None, tuned: Tunings, seed: int
    ) -> tuple[OfflineSHPI, HorizonChoice | None]:
        """This configuration with k = "auto" decided, for a policy learned under mu at `PROBE` steps."""
        if self.k != "auto":
            return self, None
        probe = tuned.seen(PROBE)
        scorer = tuned.prepared.fit(probe.values, valid=probe.valid)
        probs = train.improve.taken_probs(scorer, tuned.prepared)
        choice = choose_horizon(train.logs, tuned.seen, probs)
        if test is not None and train.improve.mu is not None:
            choice = choice.seen_through(
                held_out_clarity(tuned, test.improve, self._under_mu(test)),
                crossed_clarity(tuned, train.improve, seed=seed),
            )
        return replace(self, k=choice.k), choice

    def _default_oracle(self, train: Side, mu: Policy | None, seed: int) -> Oracle:
        """Lines, or curves beside them where those predict the best states of the log."""
        logs = train.logs
        discrete = for_discrete(logs, seed)
        if discrete is not None:
            return discrete
        if mu is None or not may_curve(logs):
            return linear_features(logs)
        return choose_shape(logs, train.bonus, self._under_mu(train)(SHAPE_PROBE), mu, seed=seed)

    def _under_mu(self, side: Side) -> Callable[[int], Advantages]:
        """A_k while mu goes on, by k."""
        probs = propensities_of(side.logs, "OfflineSHPI")
        return lambda k: replace(self, k=k)._advantages(side.logs, side.bonus, probs)

    def _proximal(self, train: Side, seed: int) -> Proximal | None:
        """The penalty of leaving the states of the log, if one is wanted."""
        if self.proximal == 0:
            return None
        logs = train.logs
        under_mu = self._advantages(logs, train.bonus, propensities_of(logs, "OfflineSHPI"))
        ratio = self.ratio or LinearRatio(gamma=self.gamma, reference="behaviour")
        return Proximal(
            logs=logs,
            bonus=train.bonus,
            ratios=ratio.prepare(logs, seed=seed),
            strength=self.proximal * float(under_mu.values[under_mu.valid].std()),
        )

    def _advantages(
        self, logs: LoggedData, bonus: StateValues, probs: Float64Array, *, clipped: bool = True
    ) -> Advantages:
        assert self.k != "auto"
        return k_step_advantages(
            logs,
            bonus,
            k=self.k,
            gamma=self.gamma,
            ratios=ratios_of(logs, probs),
            weight_clip=self.weight_clip if clipped else GAIN_CLIP,
            form=self.form,
            clip=self.clip,
            bonus_ratio=self.bonus_ratio,
        )

    def _instead_of(self, mu: Policy, test: LoggedData, scorer: Scorer) -> Policy:
        """What is returned if nothing can be shown."""
        return mu if self.behaviour is not None else instead_of(mu, test, scorer)

    def _head(self, found: ImprovedPolicy, train: Side, prepared: PreparedOracle) -> Policy:
        """What acts on the scores of the chosen iterate, see `shpi.learners.sharper`."""
        if not isinstance(found.policy, BoundedRatio):
            return found.policy
        if not found.proven:
            return AmongLikely(found.policy.scorer, found.policy.mu, UNPROVEN)
        far = replace(self, k=FARTHER)
        return bounded_or_favourite(
            train.improve,
            found.policy.scorer,
            lambda probs: far._advantages(train.logs, train.bonus, probs, clipped=False),
            prepared,
        )

    def _gain(self, test: Side, scorer: Scorer) -> Gain:
        probs = test.improve.taken_probs(scorer)
        advantages = self._advantages(test.logs, test.bonus, probs, clipped=False)
        return held_out_gain(test.logs, advantages, probs, self.confidence)


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """Some of the users: their log, V at its contexts, and the step from scores to policies on it."""

    logs: LoggedData
    bonus: StateValues
    improve: Improvement


def _tuned(prepared: PreparedOracle, advantages: Advantages) -> PreparedOracle:
    return prepared.tune(advantages.values, valid=advantages.valid)


def _random_policy(logs: LoggedData, seed: int) -> Policy:
    """A random greedy policy, which differs from mu: the paper's pi_0."""
    features = with_intercept(default_recipes(logs.schema.width, seed)[-1], logs)
    weights = np.random.default_rng(seed).standard_normal((logs.n_actions, features.width))
    return Greedy(LinearScorer(weights, features))
