r"""From mu to the best policy that the log supports: candidates from careful to bold, and one test.

    mu                         the champion to begin with
    mu exp(size f)             f regressed on A_k under mu: lines, then curves; sizes double while that pays
    the same, chained          f regressed on the advantages of the champion, paid with the champion's value:
                               followed for 10 decisions, and for 50 where that brings nothing more
    mu^power                   mu's favourite action, without its exploration

Every f is learned by one half of the users and judged on the other half, so that all users judge, and none
judges what it taught. What is returned is the same recipe, learned from all users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shpi.advantages import Advantages, Horizon, importance_ratios, taken_probs
from shpi.data.logged import LoggedData
from shpi.learners._shpi.candidates import Candidate, Contest, Direction, Recipe
from shpi.learners._shpi.judge import FOLLOWED, PROMISED, Influence, Judge
from shpi.learners._shpi.pairs import Decisions, Pairs
from shpi.learners._shpi.states import BOTH
from shpi.oracles import Oracle, PreparedOracle
from shpi.oracles.ridge import PreparedRidge
from shpi.policies import AmongLikely, Policy
from shpi.policies.near_mu.tilted import Tilted
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array
from shpi.values.base import FittedValue, StateValues

DISAGREE = 2.0  # standard errors between the two judges, beyond which the realised return is used
FIRST_SIZE, LARGEST_SIZE = 0.5, 64.0  # of exp(size f), f in its own standard deviations under mu
FAVOURITE = 32.0  # the power that leaves mu's favourite action
SUPPORTED = 0.9  # mean ratio below which pi does what mu never does
SAME = 1e-3  # largest |ratio - 1| of a policy that is mu but for rounding
SQUARES = 30  # weights of f, over all draws of random signs, that tell its share of noise
OWN, HELD_OUT = (0, 1), (1, 0)  # the half whose f serves half 0, and that for half 1
IMITATED = 0.5  # least effective share of the log under a clone that imitates mu well enough
LIKELY = 0.1  # of the favourite's probability: actions that are considered where mu cannot be imitated


@dataclass(frozen=True, kw_only=True, eq=False)
class Climb:
    """The search on one log.

    Args:
        logs: the log.
        judge: the judge of policies on that log.
        decisions: the decisions, with the probabilities of ``mu``.
        mu: the logging policy, or its clone.
        clone: ratios of ``mu`` to the logged propensities [n].
        oracles: regressions, from plain to curved.
        horizons: values of k.
        advantages: `k_step_advantages` of any log, for a bonus, k and ratios.
        value: the bonus; None is the value of the champion.
        rounds: largest number of rounds.
        confidence: confidence with which another shape of f must win.
        seed: random seed of the oracles.
        advance: called after every test.
    """

    logs: LoggedData
    judge: Judge
    decisions: Decisions
    mu: Policy
    clone: Float64Array
    oracles: Mapping[str, Oracle]
    horizons: tuple[Horizon, ...]
    advantages: Callable[..., Advantages]
    value: FittedValue | None
    rounds: int
    confidence: float
    seed: int
    advance: Callable[[int], None] = lambda _: None
    _prepared: dict[str, PreparedOracle] = field(default_factory=dict, repr=False)
    _tuned: dict[tuple[str, Horizon], PreparedOracle] = field(default_factory=dict, repr=False)

    @property
    def propensities(self) -> Float64Array:
        """mu(a_t|x_t) as logged [n]."""
        assert self.logs.propensities is not None
        return self.logs.propensities

    @property
    def imitates(self) -> bool:
        """Whether ``mu`` is close enough to the logging policy for its tilts to be candidates."""
        square = float(np.square(self.clone).sum())
        return square > 0 and float(self.clone.sum()) ** 2 / (len(self.logs) * square) >= IMITATED

    def choose_judge(self) -> tuple[Climb, list[Direction]]:
        """The climb with the better judge for this log, and the directions from mu, from plain to curved.

        Two judges measure the first step: by V^mu at the next state, and by the realised return. The first is
        used where it has the smaller error and the two do not contradict each other (Hausman's test).
        """
        tried = list(self._directions(Candidate(words="the logging policy")))
        realised = replace(self, judge=replace(self.judge, realised=True))
        directions = self._steepest(tried)
        rho = self._ratios(directions[0].held_out, directions[0].plan(FIRST_SIZE))
        by_value, by_log = self.judge.lift(rho), realised.judge.lift(rho)
        gap = by_value.less(by_log)
        if by_value.error < by_log.error and abs(gap.estimate) <= DISAGREE * gap.error:
            return self, directions
        return realised, realised._steepest(tried)

    def run(self, directions: list[Direction], contest: Contest) -> None:
        """Test all candidates in order; the first round tries every direction from mu."""
        for direction in directions:
            self._grow(1, direction, FIRST_SIZE, contest)
        followed = [PROMISED, FOLLOWED]  # decisions for which V follows the champion
        for number in range(2, self.rounds + 1):
            champion = contest.champion
            recipe = champion.recipe
            same = self.value is not None and recipe is not None and recipe.k == 1  # then f stays the same
            if recipe is None or same or not followed:
                break
            (direction,) = self._directions(champion, recipe, followed[0])
            self._grow(number, direction, champion.size, contest)
            if contest.champion is champion:
                followed.pop(0)
        favourite = directions[0].plan(0.0, "mu's favourite action", FAVOURITE)
        if (tried := self._tried(favourite, None, noise=0.0)) is not None:
            contest.challenge(tried, tried.better_than(contest.champion))

    def greedy_among_likely(self, direction: Direction, contest: Contest) -> bool:
        """Where mu is imitated badly: the best action in f among those that the clone is likely to take.

        What has to be proven is the slope of f, which needs no more than mu's own actions.
        """
        slope = replace(direction.slope, noise=self._noise(direction))
        self.advance(1)
        if not contest.proves(slope):
            return False
        best = np.empty(len(self.logs), dtype=np.int64)
        for block in self.decisions.blocks:
            mu = self.decisions.mu[block]
            likely = mu >= LIKELY * mu.max(axis=1, keepdims=True)
            if self.logs.candidates is not None:
                likely &= self.logs.candidates[block.rows]
            best[block.rows] = np.where(likely, direction.held_out[block], -np.inf).argmax(axis=1)
        rho = (best == self.logs.actions) / self.propensities
        plan = direction.plan(np.inf, f"the best of the likely actions by {direction.words}")
        plan = replace(plan, t=slope.estimate / slope.error)
        return contest.challenge(self._judged(plan, rho), better=True, trusted=True)

    def rival(self, words: str, fit: Callable[[LoggedData], Policy]) -> Candidate:
        """Another learner's policy, learned by each half and judged like every candidate."""
        rho, half = np.empty(len(self.logs)), self.judge.steps.half
        for learns in BOTH:
            policy = fit(self.logs.select((half == learns)[self.logs.offsets[:-1]]))
            rho[half != learns] = (taken_probs(self.logs, policy) / self.propensities)[half != learns]
        self.advance(1)
        return self._judged(Candidate(words=words, rival=fit), rho)

    # ------------------------------------------------------------------ from a recipe to the policy

    def on(self, logs: LoggedData) -> Climb:
        """The same judge and recipes for another log, of which this one may be a sample."""
        if logs is self.logs:
            return self
        decisions = Decisions.of(logs, self.mu, np.zeros(len(logs), dtype=np.int64))
        return replace(self, logs=logs, decisions=decisions, _prepared={}, _tuned={})

    def policy(self, candidate: Candidate) -> Policy:
        """The candidate, learned from all users of the log."""
        if candidate.rival is not None:
            return candidate.rival(self.logs)
        if candidate.recipe is None:
            return self.mu
        scorer = self._learned(candidate.recipe)
        if np.isinf(candidate.size):
            return AmongLikely(scorer, self.mu, LIKELY)
        size = candidate.size / (self.decisions.spread(scorer) or 1.0)
        return Tilted(scorer, self.mu, size, candidate.power)

    def _learned(self, recipe: Recipe) -> Scorer:
        """F of all users; V is that of the judge, who may have seen a sample of them."""
        ratios, judged = np.ones(len(self.logs)), None
        if recipe.champion is not None:
            champion = self.policy(recipe.champion)
            ratios = importance_ratios(self.logs, champion)
            judged = ratios if self.judge.logs is self.logs else importance_ratios(self.judge.logs, champion)
        value = self.value or self.judge.value(judged, recipe.followed)
        target = self.advantages(self.logs, StateValues.of(value, self.logs), k=recipe.k, ratios=ratios)
        return self._oracle(recipe, target.values, target.valid).fit(target.values, valid=target.valid)

    # ------------------------------------------------------------------ one step

    def _grow(self, number: int, direction: Direction, size: float, contest: Contest) -> None:
        """Steps in this direction, from a size on, while each is better than the one before, and proven."""
        last, noise = None, self._noise(direction)
        while size <= LARGEST_SIZE:
            plan = direction.plan(size, f"round {number}: {direction.words}, size {size:g}")
            new = self._tried(plan, direction.held_out, noise)
            if new is not None:
                better = new.better_than(contest.champion)
                other = contest.champion.recipe
                if other is not None and other.shape != direction.recipe.shape:  # it must win with confidence
                    better = new.beats(contest.champion, self.confidence)
                if not contest.challenge(new, better) and better:
                    break
            if last is not None and not (new or plan).better_than(last):
                break
            last, size = new or plan, 2 * size

    def _tried(self, plan: Candidate, scores: Pairs | None, noise: float) -> Candidate | None:
        """The plan, judged; None for a policy that the log does not support, or that is mu."""
        rho = self._ratios(scores, plan)
        self.advance(1)
        if rho.mean() < SUPPORTED or np.abs(rho - 1).max() < SAME:
            return None
        return self._judged(plan, rho, noise)

    def _judged(self, plan: Candidate, rho: Float64Array, noise: float = 1.0) -> Candidate:
        """The plan with its influence, if these are its ratios [n], each half as the other has learned it."""
        influence = replace(self.judge.lift(rho), noise=noise)
        return replace(plan, influence=influence, rho=rho.astype(np.float32))

    def _ratios(
        self, scores: Pairs | None, plan: Candidate, halves: tuple[int, int] = HELD_OUT
    ) -> Float64Array:
        """pi(a_t|x_t) / mu(a_t|x_t) [n] of mu^power exp(size f), f as these halves have learned it."""
        sizes = [plan.size / plan.spreads[half] for half in halves]
        return self.decisions.taken_probs(scores, sizes, plan.power) / self.propensities

    def _directions(
        self, champion: Candidate, last: Recipe | None = None, followed: float = PROMISED
    ) -> Iterator[Direction]:
        """Directions from the champion: from mu of every shape and k, later of the chosen ones alone."""
        rho = None  # mu has none
        if champion.recipe is not None:  # as each half has learned it: it looks at its own decisions only
            scores = self.decisions.by_half(champion.scorers, OWN)
            rho = self._ratios(scores, champion, OWN)
        ratios = np.ones(len(self.logs)) if rho is None else rho
        if self.value is not None:
            bonuses = [StateValues.of(self.value, self.logs)] * 2
        else:
            bonuses = [self.judge.values(rho, (half,), followed) for half in BOTH]
        for name in self.oracles:
            for k in self.horizons:
                if last is None or (last.shape, last.k) == (name, k):
                    start = champion if champion.recipe is not None else None
                    recipe = Recipe(shape=name, k=k, champion=start, followed=followed)
                    yield self._fitted(recipe, bonuses, ratios)

    def _steepest(self, tried: list[Direction]) -> list[Direction]:
        """For every shape, the direction of the k with the largest slope."""
        gradient = self.judge.gradient()
        slopes = []
        for direction in tried:
            parts = self.judge.steps.by_user(gradient * direction.taken)
            centred = (parts - parts.mean())[None]
            slope = Influence(lifts=parts.sum(keepdims=True), parts=centred, off_log=np.zeros(1))
            slopes.append(replace(direction, slope=slope))
        return [
            max((d for d in slopes if d.recipe.shape == name), key=lambda d: d.slope.estimate)
            for name in self.oracles
        ]

    def _fitted(self, recipe: Recipe, bonuses: list[StateValues], ratios: Float64Array) -> Direction:
        """F as each half learns it from its A_k."""
        targets, half = [], self.judge.steps.half
        for learns in BOTH:
            target = self.advantages(self.logs, bonuses[learns], k=recipe.k, ratios=ratios)
            if (target.valid & (half == learns)).any():
                target = replace(target, valid=target.valid & (half == learns))
            targets.append(target)
        first, second = targets
        both = np.where(first.valid, first.values, second.values)
        tuned = self._oracle(recipe, both, first.valid | second.valid)
        scorers = tuple(tuned.fit(target.values, valid=target.valid) for target in targets)
        held_out = self.decisions.by_half(scorers, HELD_OUT, keep=True)
        spreads = tuple(self.decisions.spread(scorer) or 1.0 for scorer in scorers)
        return Direction(
            recipe=recipe,
            scorers=scorers,
            spreads=spreads,
            held_out=held_out,
            taken=self.decisions.centred(held_out, [spreads[half] for half in HELD_OUT]),
            targets=tuple(targets),
        )

    def _oracle(self, recipe: Recipe, targets: Float64Array, valid: BoolArray) -> PreparedOracle:
        """The regression of this shape and k, tuned once, on the first targets that are given."""
        key = recipe.shape, recipe.k
        if key not in self._tuned:
            if recipe.shape not in self._prepared:
                oracle = self.oracles[recipe.shape]
                self._prepared[recipe.shape] = oracle.prepare(self.logs, seed=self.seed)
            self._tuned[key] = self._prepared[recipe.shape].tune(targets, valid=valid)
        return self._tuned[key]

    def _noise(self, direction: Direction) -> float:
        """The share of f's variance under mu that is noise: the variance of an f fitted to random signs."""
        tuned, rng = self._tuned[direction.recipe.shape, direction.recipe.k], np.random.default_rng(0)
        if not isinstance(tuned, PreparedRidge):  # eight more fits of trees or networks are too dear
            return 1.0
        shares = []
        for target, spread in zip(direction.targets, direction.spreads, strict=True):
            for _ in range(1 + SQUARES // (tuned.features.width * self.logs.n_actions)):
                signs = rng.choice([-1.0, 1.0], size=self.logs.n_users)[self.judge.steps.user]
                scorer = tuned.fit(signs * target.values, valid=target.valid)
                shares.append((self.decisions.spread(scorer) / spread) ** 2)
        return min(float(np.mean(shares)), 1.0)
