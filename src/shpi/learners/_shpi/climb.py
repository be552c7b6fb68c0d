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

from shpi.advantages import Advantages, Horizon, ratios_of, taken_probs
from shpi.data.logged import LoggedData
from shpi.learners._shpi.judge import FOLLOWED, PROMISED, Influence, Judge
from shpi.learners._shpi.lift import beats
from shpi.learners._shpi.pairs import Decisions, Pairs
from shpi.oracles import PreparedOracle
from shpi.oracles.ridge import PreparedRidge
from shpi.policies import AmongLikely, Policy
from shpi.policies.near_mu.tilted import Tilted
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float32Array, Float64Array
from shpi.values.base import StateValues

WORTH_IT = 0.003  # share by which a bolder candidate must be better: of equals the careful one stays
DISAGREE = 2.0  # standard errors between the two judges, beyond which the realised return is used
FIRST_SIZE, LARGEST_SIZE = 0.5, 64.0  # of exp(size f), f in its own standard deviations under mu
FAVOURITE = 32.0  # the power that leaves mu's favourite action
SUPPORTED = 0.9  # mean ratio below which pi does what mu never does
SAME = 1e-3  # largest |ratio - 1| of a policy that is mu but for rounding
SQUARES = 30  # weights of f, over all draws of random signs, that tell its share of noise
SIDES = ((0, 1), (1,), (0,))  # the halves that a side learns from: all users, one half, the other
HELD_OUT, OWN, ALL = (1, 2), (2, 1), (0, 0)  # the side whose f serves half 0, and that for half 1
LIKELY = 0.1  # of the favourite's probability: actions that are considered where mu cannot be imitated


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A recipe, learned by each side: all users, then each half."""

    words: str
    scorers: tuple[Scorer, ...] = ()  # by side; empty: no f
    spreads: tuple[float, ...] = ()  # of f under mu, by side
    size: float = 0.0
    power: float = 1.0
    rivals: tuple[Policy, ...] = ()  # by side: policies of another learner
    influence: Influence | None = None  # None: mu itself
    crowned: bool = False  # whether it has been champion
    rho: Float32Array | None = None  # pi(a_t|x_t) / mu(a_t|x_t) [n], each half as the other has learned it

    def better_than(self, other: Candidate) -> bool:
        """Whether the conservative lift is larger, by a margin that matters; that of mu is 0."""
        if self.influence is None:
            return False
        least = 0.0 if other.influence is None else other.influence.conservative
        return self.influence.conservative > least + WORTH_IT * abs(least)

    def beats(self, other: Candidate, confidence: float) -> bool:
        """Whether the lift is larger with confidence, on common users and features."""
        assert self.influence is not None
        assert other.influence is not None
        return beats(self.influence, other.influence, confidence)

    def policy(self, mu: Policy) -> Policy:
        """The policy learned from all users."""
        if self.rivals:
            return self.rivals[0]
        if not self.scorers:
            return mu
        if np.isinf(self.size):
            return AmongLikely(self.scorers[0], mu, LIKELY)
        return Tilted(self.scorers[0], mu, self.size / self.spreads[0], self.power)


@dataclass(frozen=True, kw_only=True, eq=False)
class Direction:
    """The function to tilt mu towards: an f of every side, and its scores where that side is judged."""

    shape: str
    k: Horizon
    words: str
    scorers: tuple[Scorer, ...]
    spreads: tuple[float, ...]
    held_out: Pairs  # [n, A] f of the other half, up to a number for each context
    taken: Float32Array  # [n] f of the action that was taken, scaled and less the mean under mu
    targets: tuple[Advantages, ...]  # A_k by side, which f is regressed on
    slope: Float64Array = field(default_factory=lambda: np.zeros(0))  # [users] parts of d lift / d size at 0

    def plan(self, size: float, words: str = "") -> Candidate:
        """A step of this size, to be tested."""
        return Candidate(words=words, scorers=self.scorers, spreads=self.spreads, size=size)

    @property
    def t(self) -> float:
        """The slope in standard errors; 0 if nothing varies."""
        spread = float(np.sqrt(np.sum((self.slope - self.slope.mean()) ** 2)))
        return float(self.slope.sum()) / spread if spread > 0 else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Climb:
    """The search on one log.

    Args:
        logs: the log.
        judge: the judge of policies on that log.
        decisions: the decisions, with the probabilities of the logging policy or of its clone.
        propensities: mu(a_t|x_t) as logged [n].
        clone: ratios of the cloned mu to the logged propensities [n].
        oracles: prepared regressions, from plain to curved.
        horizons: values of k.
        advantages: `k_step_advantages` of the log, for a bonus, k and ratios.
        bonus: the bonus; None is the value of the champion.
        rounds: largest number of rounds.
        confidence: confidence with which another shape of f must win.
        advance: called after every test.
    """

    logs: LoggedData
    judge: Judge
    decisions: Decisions
    propensities: Float64Array
    clone: Float64Array
    oracles: Mapping[str, PreparedOracle]
    horizons: tuple[Horizon, ...]
    advantages: Callable[..., Advantages]
    bonus: StateValues | None
    rounds: int
    confidence: float
    advance: Callable[[int], None]
    _tuned: dict[tuple[str, Horizon], PreparedOracle] = field(default_factory=dict, repr=False)

    @property
    def sides(self) -> list[BoolArray]:
        """The rows that each side learns from [n]."""
        return [np.isin(self.judge.steps.half, halves) for halves in SIDES]

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

    def run(self, directions: list[Direction]) -> list[Candidate]:
        """All candidates that were tested, in order; the first round tries every direction from mu."""
        start, direction = Candidate(words="the logging policy"), directions[0]
        tested: list[Candidate] = []
        champions = [start]
        for new in directions:  # another shape is another kind of policy: it must win with confidence
            steps = self._grow(1, start, new, FIRST_SIZE, tested)
            if steps and (len(champions) == 1 or steps[-1].beats(champions[-1], self.confidence)):
                champions += steps if len(champions) == 1 else steps[-1:]
                direction = new
        followed = [PROMISED, FOLLOWED]  # decisions for which V follows the champion
        for number in range(2, self.rounds + 1):
            same = self.bonus is not None and direction.k == 1  # as it was: neither V nor weights change f
            if len(champions) == 1 or same:
                break
            (direction,) = self._directions(champions[-1], direction, followed[0])
            steps = self._grow(number, champions[-1], direction, champions[-1].size, tested)
            champions += steps
            if not steps:
                followed.pop(0)
                if not followed:
                    break
        favourite = directions[0].plan(0.0, "mu's favourite action")
        self._test(replace(favourite, power=FAVOURITE), None, tested, noise=0.0)
        return [replace(c, crowned=any(c is champion for champion in champions)) for c in tested]

    def greedy_among_likely(self, direction: Direction) -> Candidate:
        """The best action in f among those that the clone is likely to take, where it imitates mu badly."""
        best = np.empty(len(self.logs), dtype=np.int64)
        for block in self.decisions.blocks:
            mu = self.decisions.mu[block]
            likely = mu >= LIKELY * mu.max(axis=1, keepdims=True)
            if self.logs.candidates is not None:
                likely &= self.logs.candidates[block.rows]
            best[block.rows] = np.where(likely, direction.held_out[block], -np.inf).argmax(axis=1)
        rho = (best == self.logs.actions) / self.propensities
        plan = direction.plan(np.inf, f"the best of the likely actions by {direction.words}")
        return replace(plan, crowned=True, influence=self.judge.lift(rho), rho=rho.astype(np.float32))

    def rival(self, words: str, fit: Callable[[LoggedData], Policy]) -> Candidate:
        """Another learner's policy, learned by each side and judged like every candidate."""
        policies, rho = [], np.empty(len(self.logs))
        for side, learned in enumerate(self.sides):
            policies.append(fit(self.logs.select(learned[self.logs.offsets[:-1]])))
            if side > 0:
                rho[~learned] = (taken_probs(self.logs, policies[side]) / self.propensities)[~learned]
        self.advance(1)
        return Candidate(
            words=words,
            rivals=tuple(policies),
            influence=self.judge.lift(rho),
            rho=rho.astype(np.float32),
        )

    # ------------------------------------------------------------------ one step

    def _grow(
        self, number: int, champion: Candidate, direction: Direction, size: float, tested: list[Candidate]
    ) -> list[Candidate]:
        """The champion's successors in this direction, from a size on, each better than the one before."""
        steps, last, noise = [champion], None, self._noise(direction)
        while size <= LARGEST_SIZE:
            plan = direction.plan(size, f"round {number}: {direction.words}, size {size:g}")
            new = self._test(plan, direction.held_out, tested, noise)
            if last is not None and not new.better_than(last):
                break
            if new.better_than(steps[-1]):
                steps.append(new)
            last, size = new, 2 * size
        return steps[1:]

    def _test(
        self, plan: Candidate, scores: Pairs | None, tested: list[Candidate], noise: float
    ) -> Candidate:
        """The plan with its influence; a policy that the log does not support, or that is mu, has none."""
        rho = self._ratios(scores, plan)
        self.advance(1)
        if rho.mean() < SUPPORTED or np.abs(rho - 1).max() < SAME:
            return plan
        influence = replace(self.judge.lift(rho), noise=noise)
        new = replace(plan, influence=influence, rho=rho.astype(np.float32))
        tested.append(new)
        return new

    def _ratios(
        self, scores: Pairs | None, plan: Candidate, sides: tuple[int, int] = HELD_OUT
    ) -> Float64Array:
        """pi(a_t|x_t) / mu(a_t|x_t) [n] of mu^power exp(size f), f as these sides have learned it."""
        sizes = [plan.size / plan.spreads[side] for side in sides]
        return self.decisions.taken_probs(scores, sizes, plan.power) / self.propensities

    def _directions(
        self, champion: Candidate, last: Direction | None = None, followed: float = PROMISED
    ) -> Iterator[Direction]:
        """Directions from the champion: from mu of every shape and k, later of the chosen ones alone."""
        bonuses, ratios, rhos = [], [], []
        if champion.scorers:  # as each side has learned it: a half looks at its own decisions only
            for sides in (ALL, OWN):
                scores = self.decisions.by_half(champion.scorers, sides)
                rhos.append(self._ratios(scores, champion, sides))
        for side in range(len(SIDES)):
            rho = rhos[min(side, 1)] if rhos else None  # mu has none
            bonuses.append(
                self.judge.values(rho, SIDES[side], followed) if self.bonus is None else self.bonus
            )
            probs = self.propensities if rho is None else rho * self.propensities
            ratios.append(ratios_of(self.logs, probs))
        for name in self.oracles:
            for k in self.horizons:
                if last is None or (last.shape, last.k) == (name, k):
                    yield self._fitted(name, k, bonuses, ratios)

    def _steepest(self, tried: list[Direction]) -> list[Direction]:
        """For every shape, the direction of the k with the largest slope."""
        gradient = self.judge.gradient()
        slopes = []
        for direction in tried:
            slope = self.judge.steps.by_user(gradient * direction.taken)
            slopes.append(replace(direction, slope=slope))
        return [
            max((d for d in slopes if d.shape == name), key=lambda d: float(d.slope.sum()))
            for name in self.oracles
        ]

    def _fitted(
        self, name: str, k: Horizon, bonuses: list[StateValues], ratios: list[Float64Array]
    ) -> Direction:
        """F of one shape and k, learned by each side from its A_k."""
        scorers, targets = [], []
        for side, learned in enumerate(self.sides):
            target = self.advantages(bonuses[side], k=k, ratios=ratios[side])
            if (target.valid & learned).any():
                target = replace(target, valid=target.valid & learned)
            if (name, k) not in self._tuned:
                self._tuned[name, k] = self.oracles[name].tune(target.values, valid=target.valid)
            scorers.append(self._tuned[name, k].fit(target.values, valid=target.valid))
            targets.append(target)
        held_out = self.decisions.by_half(scorers, HELD_OUT, keep=True)
        spreads = tuple(self.decisions.spread(scorer) or 1.0 for scorer in scorers)
        return Direction(
            shape=name,
            k=k,
            words=f"{name}, k = {k}",
            scorers=tuple(scorers),
            spreads=spreads,
            held_out=held_out,
            taken=self.decisions.centred(held_out, spreads[1:]),
            targets=tuple(targets),
        )

    def _noise(self, direction: Direction) -> float:
        """The share of f's variance under mu that is noise: the variance of an f fitted to random signs."""
        tuned, rng = self._tuned[direction.shape, direction.k], np.random.default_rng(0)
        if not isinstance(tuned, PreparedRidge):  # eight more fits of trees or networks are too dear
            return 1.0
        shares = []
        for side in (1, 2):
            target = direction.targets[side]
            for _ in range(1 + SQUARES // (tuned.features.width * self.logs.n_actions)):
                signs = rng.choice([-1.0, 1.0], size=self.logs.n_users)[self.judge.steps.user]
                scorer = tuned.fit(signs * target.values, valid=target.valid)
                shares.append((self.decisions.spread(scorer) / direction.spreads[side]) ** 2)
        return min(float(np.mean(shares)), 1.0)
