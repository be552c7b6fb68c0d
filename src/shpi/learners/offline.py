r"""Offline SHPI: short-horizon policy improvement from mu's log alone.

One idea: candidates from careful to bold, and one test by which a bolder one wins.

    champion <- mu
    repeat: V   <- the value of the champion, from the log                                  Eq. 1
            A_k <- k-step advantages with the bonus gamma^k V(x_{t+k})                      Eq. 4 and 5
            f   <- argmin_f sum (f(x, a) - A_k)^2, by each half of the users
            pi  <- mu exp(size f), size 1/2, 1, 2, ..., while lift - error, by the other half, grows
    at last <- mu's favourite action
    return  <- the last champion whose lift is proven, all tests in order; else mu

The lift is what a user brings from the first decision on, discounted, over what mu brings. The room
`shpi.learners._shpi` has how it is measured (`judge`), the candidates (`climb`) and the bound (`lift`).
`OfflineSHPI.paper()` is Algorithm 2 of the paper line by line, without tests (``tested=False``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from shpi._core.arguments import without
from shpi._core.progress import progress_bar
from shpi.advantages import Advantages, Horizon, StateValues, k_step_advantages, ratios_of, taken_probs
from shpi.advantages.kstep import ClipRule, Form
from shpi.data.logged import LoggedData
from shpi.data.question import whole_story
from shpi.errors import DataError, require_settings
from shpi.learners._shpi.climb import AdvantagesOf, Candidate, Climb
from shpi.learners._shpi.judge import PROMISED, Judge
from shpi.learners._shpi.lift import Lift, ordered_lifts
from shpi.learners._shpi.on_log import Improvement, LimitedImprovement
from shpi.learners._shpi.proximal import Proximal
from shpi.learners._shpi.readings import released_settings, repaired_settings
from shpi.learners._shpi.shapes import default_oracles, few_contexts
from shpi.learners._words import spell_out
from shpi.learners.base import Learner, from_log, learned_from, propensities_of
from shpi.learners.cloning import BehaviourCloning, default_recipes, with_intercept
from shpi.learners.constrained.baseline import table_behaviour, table_oracle, table_value
from shpi.learners.constrained.mbs import MBS
from shpi.learners.constrained.spibb import SPIBB
from shpi.learners.improved import ImprovedPolicy, Iteration, Trial
from shpi.oracles import Oracle, PreparedOracle, Ridge
from shpi.policies import Greedy, LinearScorer, Policy, UniformPolicy
from shpi.protocols import Float64Array
from shpi.shift import LinearRatio, RatioEstimator
from shpi.values import BellmanResidual, FittedValue, ValueModel, WithPast, with_backshift

Start = Literal["behaviour", "random", "uniform"]
HORIZONS = (1, 5)  # what k = "auto" tries; without tests the last
FEWEST_USERS = 4  # with fewer there are no two halves to judge each other
CHANGED = 0.01  # a decision has changed when the probability of its action has moved by more
NOT_BY_CHANCE = 2.5  # t of f's slope from which it is trusted where no policy can be tested
ENOUGH_USERS = 10  # and users, below which a t says nothing


@without(held_out="leave it out: all users serve, since each half judges what the other half has learned")
@dataclass(frozen=True, kw_only=True)
class OfflineSHPI:
    """Learn a policy that is better than mu in the long term, from mu's log alone.

    Args:
        k: number of steps to look ahead; "session": to the end of each decision's session; "auto": 1 or
            5, whichever brings more from mu on; 5 without tests.
        gamma: the discount.
        iterations: J, the most rounds.
        weight_clip: q1 and q2.
        form: form of the advantages, "residual" or the paper's "raw".
        clip: "prefix" (Eq. 5), "product" (Algorithm 2) or "ratio" (the authors' release).
        bonus_ratio: weight the bonus as printed in Eq. 4, see `shpi.advantages.kstep`.
        value: the termination bonus; None is the value of the champion, estimated anew in every round.
        oracle: the regression; None tries lines, and curves where contexts are narrow.
        tested: whether candidates are tested; without tests the last iterate of Algorithm 2 is returned.
        confidence: confidence of the lower bound on the lift, and of all tests in order.
        rivals: other learners by name: further candidates of the same test, which must beat SHPI's best.
        behaviour: mu, where it exists as code; None recovers it from the log (`BehaviourCloning`).
        start: pi_0 without tests; "behaviour" is mu itself, "random" the paper's, "uniform" the release's, or
            any policy.
        reach: without tests, pi(a|x) <= max(1, reach / max mu(.|x)) mu(a|x); None is greedy.
        explore: without tests and reach, the epsilon of a greedy policy with VW's ties; 0 is argmax.
        view: function of the log that is applied before anything is learned from it, such as
            `shpi.data._log.release.ReleasedRows`.
        constraint: without tests, `SPIBB(min_count=...)` or `MBS(density=...)` in place of ``reach``.
        proximal: without tests, Lambda in standard deviations of the advantages: what the bonus is charged
            for leaving the states of the log, see `shpi.learners._shpi.proximal`.
        ratio: estimates d_pi / d_mu for it; None takes the closed form, `LinearRatio`.
        backshift: recover the rewards from ``value`` (None: `WithPast`): r = V(x) - gamma V(x').
        tolerance: without tests, it stops when fewer than this share of the decisions change.
        seed: random seed.
        progress: show a bar; by default in a terminal.
    """

    k: Horizon | Literal["auto"] = "auto"
    gamma: float = 0.99
    iterations: int = 10
    weight_clip: tuple[float, float] | None = (0.5, 2.0)
    form: Form = "residual"
    clip: ClipRule = "prefix"
    bonus_ratio: bool = False
    value: ValueModel | None = None
    oracle: Oracle | None = None
    tested: bool = True
    confidence: float = 0.95
    rivals: Mapping[str, Learner] = field(default_factory=dict)
    behaviour: Policy | None = None
    start: Start | Policy = "behaviour"
    reach: float | None = 1.2
    explore: float = 0.0
    view: Callable[[LoggedData], LoggedData] | None = None
    constraint: SPIBB | MBS | None = None
    proximal: float = 0.0
    ratio: RatioEstimator | None = None
    backshift: bool = False
    tolerance: float = 0.001
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        spell_out(self)
        require_settings("OfflineSHPI", (
            (self.iterations >= 1, "iterations of at least 1", self.iterations),
            (0.5 <= self.confidence < 1, "confidence in [0.5, 1)", self.confidence),
            (self.reach is None or (np.isfinite(self.reach) and self.reach >= 0),
             "a reach of at least 0, or None", self.reach),
            (np.isfinite(self.proximal) and self.proximal >= 0, "a proximal of at least 0", self.proximal),
            (0 <= self.explore <= 1, "explore in [0, 1]", self.explore),
            (not isinstance(self.start, str) or self.start in get_args(Start),
             "start 'behaviour', 'random', 'uniform' or a policy", self.start),
            (not self.tested
             or (self.start == "behaviour" and self.proximal == 0 and self.constraint is None),
             "tested=False where a start, a constraint or a proximal is given", "tested=True"),
            (self.tested or not self.rivals, "tested=True where rivals are given", "tested=False"),
        ))  # fmt: skip

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
            "tested": False,
            "tolerance": 0.0,
        }
        return cls(**(printed | changes))

    @classmethod
    def repaired(cls, **changes: Any) -> OfflineSHPI:
        """`paper` with two repairs: V by temporal differences, and weights kept off V."""
        return cls(**(repaired_settings() | changes))

    @classmethod
    def released(cls, **changes: Any) -> OfflineSHPI:
        """The authors' released code, see `shpi.learners._shpi.readings`."""
        return cls(**(released_settings() | changes))

    @from_log
    def fit(self, logs: LoggedData) -> ImprovedPolicy:
        """Run the algorithm on a log with propensities, in memory or in shards.

        Of a long log it looks at a sample of the users (`shpi.learners.base.learned_from`): with tests the
        same one in memory and in shards; without tests a log in memory is looked at as a whole.
        """
        logs = logs if self.view is None else self.view(logs)
        self._check(logs)
        if not self.tested:
            return self._without_tests(logs)
        return self._with_tests(learned_from(whole_story(logs), seed=self.seed))

    # ------------------------------------------------------------------ with tests

    def _with_tests(self, logs: LoggedData) -> ImprovedPolicy:
        logs, given = self._rewarded(logs)
        judge = Judge.of(logs, gamma=self.gamma, seed=self.seed)
        mu = self._imitated(logs, judge)
        if logs.n_users < FEWEST_USERS:
            few = f"{logs.n_users} users are too few to test anything: the logging policy is returned."
            return ImprovedPolicy(mu, (), 0, given or judge.value(), notes=(few,))
        oracles = default_oracles(logs, judge.table, self.seed)
        if self.oracle is not None:
            oracles = {"the given oracle": self.oracle}
        halves = np.random.default_rng(self.seed).permutation(logs.n_users) % 2
        with progress_bar("candidates", 20, self.progress) as advance:
            climb = Climb(
                logs=logs,
                judge=judge,
                mu=mu,
                propensities=propensities_of(logs, "OfflineSHPI"),
                oracles={name: oracle.prepare(logs, seed=self.seed) for name, oracle in oracles.items()},
                horizons=HORIZONS if self.k == "auto" else (self.k,),
                advantages=self._advantages_for(logs, given),
                chained=given is None,
                rounds=self.iterations,
                confidence=self.confidence,
                half=halves[judge.user],
                advance=advance,
            )
            climb, directions = climb.settled()
            imitated, t = climb.imitated, directions[0].t
            tested = climb.run(directions) if imitated else [climb.bold(directions[0])]
            ours = len(tested)
            tested += [climb.rival(name, learner.fit) for name, learner in self.rivals.items()]
        lifts = _lifts(tested, self.confidence)
        proven = [i for i in range(ours) if lifts[i].proven]
        best: int | None = None
        for i in proven:
            if best is None or tested[i].better_than(tested[best]):
                best = i
        if not imitated and t > NOT_BY_CHANCE and logs.n_users >= ENOUGH_USERS:
            best = 0
        best = _after_rivals(tested, lifts, ours, best, self.confidence)
        trials = tuple(
            Trial(words=c.words, lift=lift, returned=i == best)
            for i, (c, lift) in enumerate(zip(tested, lifts, strict=True))
        )
        notes = _notes(tested, best, best is not None and lifts[best].proven, imitated, t)
        if best is None:
            alone = ordered_lifts([climb.judge.lift(_ratio_of(climb))], 1, self.confidence)[0]
            nothing = min(alone.lower, -2 * alone.standard_error)  # nothing is claimed for mu
            alone = replace(alone, proven=False, lower=nothing)
            return ImprovedPolicy(mu, (), 0, given or judge.value(), lift=alone, trials=trials, notes=notes)
        rho, returned = tested[best].rho, tested[best].influence
        assert rho is not None
        assert returned is not None
        shorter = replace(climb.judge.lift(rho, PROMISED), noise=returned.noise)
        promised = lifts[best].promising(shorter)
        promise = (
            f"It promises at least {promised.lower:+.4g} per user: what about {PROMISED} decisions bring."
        )
        return ImprovedPolicy(
            tested[best].policy(mu), (), best + 1, given or judge.value(), promised, trials, (*notes, promise)
        )

    def _imitated(self, logs: LoggedData, judge: Judge) -> Policy:
        """mu, or its clone: a table where contexts are few."""
        if self.behaviour is not None:
            return self.behaviour
        if judge.table is not None:
            return table_behaviour(logs, judge.table)
        return BehaviourCloning(seed=self.seed).fit(logs)

    def _rewarded(self, logs: LoggedData) -> tuple[LoggedData, FittedValue | None]:
        """The log with its rewards, and the bonus that the user brought, if any."""
        model = self.value or (WithPast() if self.backshift else None)
        if model is None:
            return logs, None
        value = model.fit(logs, gamma=self.gamma, seed=self.seed)
        if self.backshift:
            logs = with_backshift(logs, StateValues.of(value, logs), gamma=self.gamma)
        return logs, value

    def _advantages_for(self, logs: LoggedData, given: FittedValue | None) -> AdvantagesOf:
        """A_k for V, or for the given bonus, at pi(a_t|x_t) [n]."""
        own = None if given is None else StateValues.of(given, logs)

        def advantages(v: StateValues | None, probs: Float64Array, k: Horizon) -> Advantages:
            bonus = own if v is None else v
            assert bonus is not None
            return replace(self, k=k)._advantages(logs, bonus, probs)

        return advantages

    # ------------------------------------------------------------------ without tests: Algorithm 2

    def _without_tests(self, logs: LoggedData) -> ImprovedPolicy:
        seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(self.seed).spawn(3)]
        limits = None if self.constraint is None else self.constraint.constraint(logs)
        default = WithPast() if limits is None else table_value(limits)
        value = (self.value or default).fit(logs, gamma=self.gamma, seed=seeds[1])
        bonus = StateValues.of(value, logs)
        if self.backshift:
            logs = with_backshift(logs, bonus, gamma=self.gamma)
        improve = (
            Improvement(logs=logs, mu=self._mu(logs), reach=self.reach, explore=self.explore)
            if limits is None
            else LimitedImprovement(logs=logs, constraint=limits)
        )
        table = None if limits is None else table_oracle(limits) or Ridge()
        oracle = (
            self.oracle or table or next(iter(default_oracles(logs, few_contexts(logs), seeds[2]).values()))
        )
        prepared: PreparedOracle = oracle.prepare(logs, seed=seeds[2])
        config = replace(self, k=HORIZONS[-1]) if self.k == "auto" else self
        proximal = config._proximal(logs, bonus, seeds[2])
        history: list[Iteration] = []
        probs = self._start(logs, seeds[2])  # pi(a_t|x_t) [n] of the current policy
        with progress_bar("policy iteration", self.iterations, self.progress) as advance:
            for j in range(1, self.iterations + 1):
                paid = bonus if proximal is None else proximal.penalised(probs)
                advantages = config._advantages(logs, paid, probs)
                if j == 1:
                    prepared = prepared.tune(advantages.values, valid=advantages.valid)
                scorer = prepared.fit(advantages.values, valid=advantages.valid)
                before, probs = probs, improve.taken_probs(scorer, prepared)
                changed = float((np.abs(probs - before) > CHANGED).mean())
                history.append(Iteration.of(j, advantages, changed, improve.policy(scorer)))
                advance(1)
                if changed <= self.tolerance:
                    break
        return ImprovedPolicy(history[-1].policy, tuple(history), len(history), value)

    def _check(self, logs: LoggedData) -> None:
        propensities_of(logs, "OfflineSHPI")
        if logs.rewards is None and not self.backshift:
            raise DataError(
                expected="a log with rewards",
                found="none",
                remedy="derive them (logs.with_rewards), or bring a value and set backshift=True",
            )

    def _mu(self, logs: LoggedData) -> Policy | None:
        """The logging policy or a clone of it; None if no bound on ratios needs it."""
        if self.behaviour is None and self.reach is None:
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

    def _proximal(self, logs: LoggedData, bonus: StateValues, seed: int) -> Proximal | None:
        """The penalty of leaving the states of the log, if one is wanted."""
        if self.proximal == 0:
            return None
        under_mu = self._advantages(logs, bonus, propensities_of(logs, "OfflineSHPI"))
        ratio = self.ratio or LinearRatio(gamma=self.gamma, reference="behaviour")
        return Proximal(
            logs=logs,
            bonus=bonus,
            ratios=ratio.prepare(logs, seed=seed),
            strength=self.proximal * float(under_mu.values[under_mu.valid].std()),
        )

    def _advantages(self, logs: LoggedData, bonus: StateValues, probs: Float64Array) -> Advantages:
        assert self.k != "auto"
        return k_step_advantages(
            logs,
            bonus,
            k=self.k,
            gamma=self.gamma,
            ratios=ratios_of(logs, probs),
            weight_clip=self.weight_clip,
            form=self.form,
            clip=self.clip,
            bonus_ratio=self.bonus_ratio,
        )


def _ratio_of(climb: Climb) -> Float64Array:
    """pi/mu [n] of mu itself, or of its clone."""
    return climb.mu_table.of_actions(climb.logs.actions) / climb.propensities


def _lifts(tested: list[Candidate], confidence: float) -> list[Lift]:
    """Champions are tested in their order, mu's favourite and rivals alone; others cannot be returned."""
    champions = [c for c in tested if c.crowned]
    others = [c for c in tested if c.rivals or c.power > 1]
    influences = [c.influence for c in champions + others if c.influence is not None]
    lifts = dict(
        zip(map(id, champions + others), ordered_lifts(influences, len(champions), confidence), strict=True)
    )
    for c in tested:
        if id(c) not in lifts and c.influence is not None:
            lifts[id(c)] = replace(ordered_lifts([c.influence], 1, confidence)[0], proven=False)
    return [replace(lifts[id(c)], tests=len(tested)) for c in tested]


def _after_rivals(
    tested: list[Candidate], lifts: list[Lift], ours: int, best: int | None, confidence: float
) -> int | None:
    """The best of SHPI, or a rival that is proven and beats it on common users."""
    for i in range(ours, len(tested)):
        level = 1 - (1 - confidence) / (len(tested) - ours)  # for all rivals together
        if lifts[i].proven and (best is None or tested[i].beats(tested[best], level)):
            best = i
    return best


def _notes(
    tested: list[Candidate], best: int | None, proven: bool, imitated: bool, t: float
) -> tuple[str, ...]:
    """Why this policy, in words."""
    if not imitated and best in (None, 0):
        why = "The clone of the logging policy is too far from it to stand for it: give behaviour=. "
        if best is None:
            return (why + "Nothing could be shown, and the clone is returned.",)
        chosen = "the best of the likely actions is returned, " + ("proven." if proven else "unproven.")
        return (why + f"f tells good actions from bad (t = {t:.1f}): {chosen}",)
    if best is None:
        return ("No candidate is proven to be better than the logging policy, which is returned.",)
    return (f"Returned: {tested[best].words}: proven, and better than every more careful one.",)


def _random_policy(logs: LoggedData, seed: int) -> Policy:
    """A random greedy policy, which differs from mu: the paper's pi_0."""
    features = with_intercept(default_recipes(logs.schema.width, seed)[-1], logs)
    weights = np.random.default_rng(seed).standard_normal((logs.n_actions, features.width))
    return Greedy(LinearScorer(weights, features))
