r"""Offline SHPI: short-horizon policy improvement from mu's log alone.

One idea: candidates from careful to bold, and one test by which a bolder one wins.

    champion <- mu
    repeat: V   <- the value of the champion, from the log                                  Eq. 1
            A_k <- k-step advantages with the bonus gamma^k V(x_{t+k})                      Eq. 4 and 5
            f   <- argmin_f sum (f(x, a) - A_k)^2, by each half of the users
            pi  <- mu exp(size f), size 1/2, 1, 2, ..., while the lift, by the other half, grows
    at last <- mu's favourite action
    return  <- the last champion whose lift is proven, all tests in order; else mu

The lift is what a user brings from the first decision on, discounted, over what mu brings. The room
`shpi.learners._shpi` has how it is measured (`judge`), the candidates (`climb`) and the bound (`lift`).
`OfflineSHPI.paper()` is Algorithm 2 of the paper line by line, without tests (``tested=False``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from shpi._core.arguments import without
from shpi._core.progress import progress_bar
from shpi.advantages import Advantages, Horizon, StateValues, k_step_advantages, ratios_of, taken_probs
from shpi.advantages.kstep import ClipRule, Form
from shpi.data.logged import LoggedData
from shpi.data.question import terminate_unknown_endings
from shpi.errors import DataError, require_settings
from shpi.learners._shpi.climb import Candidate, Climb
from shpi.learners._shpi.judge import PROMISED, Judge
from shpi.learners._shpi.lift import Lift, ordered_lifts
from shpi.learners._shpi.on_log import Improvement, LimitedImprovement
from shpi.learners._shpi.pairs import Decisions
from shpi.learners._shpi.proximal import Proximal
from shpi.learners._shpi.readings import paper_settings, released_settings, repaired_settings
from shpi.learners._shpi.shapes import default_oracles, few_contexts
from shpi.learners._words import spell_out
from shpi.learners.base import Learner, from_log, learned_from, propensities_of
from shpi.learners.cloning import BehaviourCloning, default_recipes, with_intercept
from shpi.learners.constrained.baseline import table_behaviour, table_oracle, table_value
from shpi.learners.constrained.mbs import MBS
from shpi.learners.constrained.spibb import SPIBB
from shpi.learners.improved import ImprovedPolicy, Iteration, Trial
from shpi.oracles import Oracle, Ridge
from shpi.policies import Greedy, LinearScorer, Policy, UniformPolicy
from shpi.shift import LinearRatio, RatioEstimator
from shpi.values import FittedValue, ValueModel, WithPast, with_backshift

Start = Literal["behaviour", "random", "uniform"]
HORIZONS = (1, 5)  # what k = "auto" tries; without tests the last
FEWEST_USERS = 4  # with fewer there are no two halves to judge each other
CHANGED = 0.01  # a decision has changed when the probability of its action has moved by more
IMITATED = 0.5  # least effective share of the log under a clone that imitates mu well enough
NOT_BY_CHANCE = 2.5  # t of f's slope from which f is trusted where mu cannot be imitated
ENOUGH_USERS = 10  # users below which that t is not used


@without(held_out="leave it out: all users are used, and each half tests what the other half has learned")
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
        return cls(**(paper_settings() | changes))

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
        propensities_of(logs, "OfflineSHPI")  # an error if there are none
        if logs.rewards is None and not self.backshift:
            raise DataError(
                expected="a log with rewards",
                found="none",
                remedy="derive them (logs.with_rewards), or bring a value and set backshift=True",
            )
        if not self.tested:
            return self._without_tests(logs)
        return self._with_tests(learned_from(terminate_unknown_endings(logs), seed=self.seed))

    def _advantages(self, logs: LoggedData) -> Callable[..., Advantages]:
        """A_k of the log, for a bonus, k and ratios."""
        return partial(
            k_step_advantages,
            logs,
            gamma=self.gamma,
            weight_clip=self.weight_clip,
            form=self.form,
            clip=self.clip,
            bonus_ratio=self.bonus_ratio,
        )

    # ------------------------------------------------------------------ with tests

    def _with_tests(self, logs: LoggedData) -> ImprovedPolicy:
        model, value = self.value or (WithPast() if self.backshift else None), None
        if model is not None:
            value = model.fit(logs, gamma=self.gamma, seed=self.seed)
        if self.backshift and value is not None:
            logs = with_backshift(logs, StateValues.of(value, logs), gamma=self.gamma)
        judge = Judge.of(logs, gamma=self.gamma, seed=self.seed)
        mu: Policy = self.behaviour or (
            BehaviourCloning(seed=self.seed).fit(logs)
            if judge.table is None
            else table_behaviour(logs, judge.table)
        )
        if logs.n_users < FEWEST_USERS:
            few = f"{logs.n_users} users are too few to test anything: the logging policy is returned."
            return ImprovedPolicy(mu, (), 0, value or judge.value(), notes=(few,))
        oracles = default_oracles(logs, judge.table, self.seed)
        if self.oracle is not None:
            oracles = {"the given oracle": self.oracle}
        propensities = propensities_of(logs, "OfflineSHPI")
        decisions = Decisions.of(logs, mu, judge.steps.half)
        with progress_bar("candidates", 20, self.progress) as advance:
            climb = Climb(
                logs=logs,
                judge=judge,
                decisions=decisions,
                propensities=propensities,
                clone=decisions.of_actions() / propensities,
                oracles={name: oracle.prepare(logs, seed=self.seed) for name, oracle in oracles.items()},
                horizons=HORIZONS if self.k == "auto" else (self.k,),
                advantages=self._advantages(logs),
                bonus=None if value is None else StateValues.of(value, logs),
                rounds=self.iterations,
                confidence=self.confidence,
                advance=advance,
            )
            climb, directions = climb.choose_judge()
            square = float(np.square(climb.clone).sum())
            share = float(climb.clone.sum()) ** 2 / (len(logs) * square) if square > 0 else 0.0
            imitated = share >= IMITATED
            tested = climb.run(directions) if imitated else [climb.greedy_among_likely(directions[0])]
            tested += [climb.rival(name, learner.fit) for name, learner in self.rivals.items()]
        return _returned(climb, mu, value or judge.value(), tested, None if imitated else directions[0].t)

    # ------------------------------------------------------------------ without tests: Algorithm 2

    def _without_tests(self, logs: LoggedData) -> ImprovedPolicy:
        seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(self.seed).spawn(3)]
        limits = None if self.constraint is None else self.constraint.constraint(logs)
        default = WithPast() if limits is None else table_value(limits)
        value = (self.value or default).fit(logs, gamma=self.gamma, seed=seeds[1])
        bonus = StateValues.of(value, logs)
        if self.backshift:
            logs = with_backshift(logs, bonus, gamma=self.gamma)
        improve: Improvement | LimitedImprovement
        oracle = self.oracle
        if limits is not None:
            improve = LimitedImprovement(logs=logs, constraint=limits)
            oracle = oracle or table_oracle(limits) or Ridge()
        else:
            mu = self.behaviour
            if mu is None and self.reach is not None:  # a bound on ratios needs it
                mu = BehaviourCloning(seed=self.seed).fit(logs)
            improve = Improvement(logs=logs, mu=mu, reach=self.reach, explore=self.explore)
            oracle = oracle or next(iter(default_oracles(logs, few_contexts(logs), seeds[2]).values()))
        prepared = oracle.prepare(logs, seed=seeds[2])
        of_log, k = self._advantages(logs), HORIZONS[-1] if self.k == "auto" else self.k
        probs = propensities_of(logs, "OfflineSHPI")  # pi(a_t|x_t) [n] of the current policy
        proximal = None
        if self.proximal > 0:
            under_mu = of_log(bonus, k=k, ratios=ratios_of(logs, probs))
            ratio = self.ratio or LinearRatio(gamma=self.gamma, reference="behaviour")
            proximal = Proximal(
                logs=logs,
                bonus=bonus,
                ratios=ratio.prepare(logs, seed=seeds[2]),
                strength=self.proximal * float(under_mu.values[under_mu.valid].std()),
            )
        if self.start != "behaviour":
            probs = taken_probs(logs, self._start(logs, seeds[2]))
        history: list[Iteration] = []
        with progress_bar("policy iteration", self.iterations, self.progress) as advance:
            for j in range(1, self.iterations + 1):
                paid = bonus if proximal is None else proximal.penalised(probs)
                advantages = of_log(paid, k=k, ratios=ratios_of(logs, probs))
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

    def _start(self, logs: LoggedData, seed: int) -> Policy:
        """pi_0, if it is not mu; "random" is a greedy policy that differs from mu, the paper's."""
        if not isinstance(self.start, str):
            return self.start
        if self.start == "uniform":
            return UniformPolicy(logs.n_actions)
        features = with_intercept(default_recipes(logs.schema.width, seed)[-1], logs)
        weights = np.random.default_rng(seed).standard_normal((logs.n_actions, features.width))
        return Greedy(LinearScorer(weights, features))


def _returned(
    climb: Climb, mu: Policy, value: FittedValue, tested: list[Candidate], t: float | None
) -> ImprovedPolicy:
    """The best that is proven of SHPI's own, or a proven rival that beats it on common users; else mu.

    ``t`` is that of f's slope where the clone cannot stand for mu: there the only candidate of SHPI's own is
    also returned if its f is trusted.
    """
    lifts, ours = _lifts(tested, climb.confidence), sum(not c.rivals for c in tested)
    trusted = t is not None and t > NOT_BY_CHANCE and climb.logs.n_users >= ENOUGH_USERS
    best: int | None = None
    for i, (new, lift) in enumerate(zip(tested, lifts, strict=True)):
        if not lift.proven and not (trusted and i == 0):
            continue
        level = 1 - (1 - climb.confidence) / max(len(tested) - ours, 1)  # for all rivals together
        old = None if best is None else tested[best]
        if old is None or (new.better_than(old) if i < ours else new.beats(old, level)):
            best = i
    trials = tuple(
        Trial(words=c.words, lift=lift, returned=i == best)
        for i, (c, lift) in enumerate(zip(tested, lifts, strict=True))
    )
    notes = _notes(tested, lifts, best, t)
    if best is None:
        alone = ordered_lifts([climb.judge.lift(climb.clone)], 1, climb.confidence)[0]
        nothing = min(alone.lower, -2 * alone.standard_error)  # nothing is claimed for mu
        alone = replace(alone, proven=False, lower=nothing)
        return ImprovedPolicy(mu, (), 0, value, lift=alone, trials=trials, notes=notes)
    chosen = tested[best]
    assert chosen.rho is not None
    assert chosen.influence is not None
    shorter = replace(climb.judge.lift(chosen.rho, PROMISED), noise=chosen.influence.noise)
    lift = lifts[best].promising(shorter)
    promise = (
        f"Lower bound of its lift: {lift.lower:+.4g} per user, counting about {PROMISED} of its decisions."
    )
    return ImprovedPolicy(chosen.policy(mu), (), best + 1, value, lift, trials, (*notes, promise))


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


def _notes(tested: list[Candidate], lifts: list[Lift], best: int | None, t: float | None) -> tuple[str, ...]:
    """Why this policy, in words; ``t`` is that of f's slope where the clone cannot stand for mu."""
    if t is not None and best in (None, 0):
        why = "The clone fits the logging policy too poorly (small effective sample size): give behaviour=. "
        if best is None:
            return (why + "No candidate is proven better; the clone is returned.",)
        proven = "proven." if lifts[best].proven else "unproven."
        return (
            f"{why}On held-out users the learned advantages have t = {t:.1f}: the best of the likely actions "
            f"is returned, {proven}",
        )
    if best is None:
        return ("No candidate is proven to be better than the logging policy, which is returned.",)
    return (f"Returned: {tested[best].words}: proven, and better than every proven candidate before it.",)
