r"""Offline SHPI: short-horizon policy improvement from mu's log alone.

One idea: candidates from careful to bold, and one test by which a bolder one wins.

    champion <- mu
    repeat: V   <- the value of the champion, from the log                                  Eq. 1
            A_k <- k-step advantages with the bonus gamma^k V(x_{t+k})                      Eq. 4 and 5
            f   <- argmin_f sum (f(x, a) - A_k)^2, by each half of the users
            pi  <- mu exp(size f), size 1/2, 1, 2, ..., while the lift, by the other half, grows
    at last <- mu's favourite action
    each    <- is the new champion if it is better than the champion, and proven better than mu
    return  <- the champion

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
from shpi.features.cells import CellsMap
from shpi.learners._shpi.candidates import Candidate, Contest
from shpi.learners._shpi.climb import Climb
from shpi.learners._shpi.judge import PROMISED, Judge
from shpi.learners._shpi.lift import Lift
from shpi.learners._shpi.on_log import Improvement, LimitedImprovement
from shpi.learners._shpi.pairs import Decisions
from shpi.learners._shpi.proximal import Proximal
from shpi.learners._shpi.readings import paper_settings, released_settings, repaired_settings
from shpi.learners._shpi.shapes import PLAIN, default_oracles, few_contexts
from shpi.learners._words import spell_out
from shpi.learners.base import Learner, from_log, learned_from, propensities_of
from shpi.learners.cloning import BehaviourCloning, default_recipes, with_intercept
from shpi.learners.constrained.baseline import table_behaviour, table_oracle, table_value
from shpi.learners.constrained.mbs import MBS
from shpi.learners.constrained.spibb import SPIBB
from shpi.learners.improved import ImprovedPolicy, Iteration, Trial
from shpi.oracles import Oracle, Ridge
from shpi.passes import sample
from shpi.policies import Greedy, LinearScorer, Policy, UniformPolicy
from shpi.shift import LinearRatio, RatioEstimator
from shpi.values import FittedValue, ValueModel, WithPast, with_backshift

Start = Literal["behaviour", "random", "uniform"]
HORIZONS = (1, 5)  # what k = "auto" tries; without tests the last
FEWEST_USERS = 4  # with fewer there are no two halves to judge each other
CHANGED = 0.01  # a decision has changed when the probability of its action has moved by more
TESTED_CELLS = 5_000_000  # decisions times actions, or columns, that are enough to compare candidates
LEAST_TESTED = 50_000  # decisions that are compared, however many the actions are


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
        confidence: confidence of the lower bound on the lift, and of all tests together.
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

    @property
    def _advantages(self) -> Callable[..., Advantages]:
        """A_k of a log, for a bonus, k and ratios."""
        return partial(
            k_step_advantages,
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
        table = few_contexts(logs)
        mu: Policy = self.behaviour or (
            BehaviourCloning(seed=self.seed).fit(logs) if table is None else table_behaviour(logs, table)
        )
        if logs.n_users < FEWEST_USERS:
            few = f"{logs.n_users} users are too few to test anything: the logging policy is returned."
            judge = self._climb(logs, mu, table, value).judge  # an error where the log says nothing
            return ImprovedPolicy(mu, (), 0, value or judge.value(), notes=(few,))
        rows = max(TESTED_CELLS // max(logs.n_actions, logs.schema.width), LEAST_TESTED)
        some = sample(logs, rows, seed=self.seed)
        allowed = 1 - self.confidence  # share of logs in which tests may err
        with progress_bar("candidates", 20, self.progress) as advance:
            if FEWEST_USERS <= some.n_users < logs.n_users:  # what these prove, all users need not show
                climb = replace(self._climb(some, mu, table, value), advance=advance)
                if climb.imitates:
                    allowed /= 2
                    climb, contest = self._search(climb, allowed)
                    if contest.champion.lift is not None and contest.champion.lift.proven:
                        return _returned(climb, contest, logs)
            climb = replace(self._climb(logs, mu, table, value), advance=advance)
            return _returned(*self._search(climb, allowed), logs)

    def _search(self, climb: Climb, allowed: float) -> tuple[Climb, Contest]:
        """Test all candidates, with the better judge for this log."""
        contest = Contest(confidence=self.confidence, allowed=allowed)
        climb, directions = climb.choose_judge()
        if climb.imitates:
            climb.run(directions, contest)
        else:  # from what says most to what needs least; they are the same where an oracle is given
            for direction in dict.fromkeys((directions[0], directions[-1])):
                if climb.greedy_among_likely(direction, contest):
                    break
        for name, learner in self.rivals.items():
            new = climb.rival(name, learner.fit)
            level = 1 - (1 - self.confidence) / len(self.rivals)  # for all rivals together
            contest.challenge(new, new.beats(contest.champion, level))
        return climb, contest

    def _climb(
        self, logs: LoggedData, mu: Policy, table: CellsMap | None, value: FittedValue | None
    ) -> Climb:
        """The search on a log."""
        judge = Judge.of(logs, table=table, gamma=self.gamma, seed=self.seed)
        oracles: Mapping[str, Oracle] = default_oracles(logs, table, self.seed)
        if self.oracle is not None:
            oracles = {"the given oracle": self.oracle}
        decisions = Decisions.of(logs, mu, judge.steps.half)
        climb = Climb(
            logs=logs,
            judge=judge,
            decisions=decisions,
            mu=mu,
            clone=decisions.of_actions() / propensities_of(logs, "OfflineSHPI"),
            oracles=oracles,
            horizons=HORIZONS if self.k == "auto" else (self.k,),
            advantages=self._advantages,
            value=value,
            rounds=self.iterations,
            confidence=self.confidence,
            seed=self.seed,
        )
        plain = self.oracle is None and not climb.imitates
        return replace(climb, oracles={**oracles, **PLAIN}) if plain else climb

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
        of_log, k = partial(self._advantages, logs), HORIZONS[-1] if self.k == "auto" else self.k
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


def _returned(climb: Climb, contest: Contest, logs: LoggedData) -> ImprovedPolicy:
    """The champion, learned from all of ``logs``, of which the climb may have seen a sample."""
    champion = contest.champion
    trials = tuple(
        Trial(words=c.words, lift=replace(c.lift, tests=len(contest.tested)), returned=c is champion)
        for c in contest.tested
        if c.lift is not None
    )
    notes, value = _notes(climb, champion), climb.value or climb.judge.value()
    if len(climb.logs) < len(logs):
        sizes = f"{len(climb.logs):,} of {len(logs):,} decisions"
        notes = (*notes, f"Candidates were compared on {sizes}, a random sample of the users.")
    if champion.lift is None:
        alone = Lift.of(climb.judge.lift(climb.clone), climb.confidence, climb.confidence)
        nothing = min(alone.lower, -2 * climb.judge.error_of_return())  # nothing is claimed for a clone of mu
        return ImprovedPolicy(climb.mu, (), 0, value, replace(alone, lower=nothing), trials, notes)
    assert champion.rho is not None
    assert champion.influence is not None
    shorter = replace(climb.judge.lift(champion.rho, PROMISED), noise=champion.influence.noise)
    lift = replace(champion.lift, tests=len(trials)).promising(shorter)
    promise = (
        f"Lower bound of its lift: {lift.lower:+.4g} per user, counting about {PROMISED} of its decisions."
    )
    number = 1 + next(i for i, trial in enumerate(trials) if trial.returned)
    policy = climb.on(logs).policy(champion)
    return ImprovedPolicy(policy, (), number, value, lift, trials, (*notes, promise))


def _notes(climb: Climb, champion: Candidate) -> tuple[str, ...]:
    """Why this policy, in words."""
    if not climb.imitates and champion.rival is None:
        why = "The clone fits the logging policy too poorly (small effective sample size): give behaviour=. "
        if champion.lift is None:
            return (why + "No candidate is proven better; the clone is returned.",)
        proven = "proven." if champion.lift.proven else "unproven."
        return (
            f"{why}On held-out users the learned advantages have t = {champion.t:.1f}: the best of the "
            f"likely actions is returned, {proven}",
        )
    if champion.lift is None:
        return ("No candidate is proven to be better than the logging policy, which is returned.",)
    return (f"Returned: {champion.words}: proven, and better than every proven candidate before it.",)
