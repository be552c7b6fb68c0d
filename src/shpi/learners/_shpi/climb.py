r"""From mu to the best policy that the log can vouch for: candidates from careful to bold, and one test.

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
from shpi.learners._shpi.pairs import Pairs, by_half, centred, scaled, scores_of, spread_of, tilted
from shpi.oracles import PreparedOracle
from shpi.oracles.ridge import PreparedRidge
from shpi.policies import AmongLikely, Policy
from shpi.policies.near_mu.tilted import Tilted
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float32Array, Float64Array
from shpi.values.base import StateValues

CAUTION = 1.0  # standard errors taken off a lift before two are compared: what is gained must be certain
WORTH_IT = 0.003  # share by which a bolder candidate must then be better: of equals the careful one stays
DISAGREE = 2.0  # standard errors between two judges, beyond which V^mu is not believed
FIRST_SIZE, LARGEST_SIZE = 0.5, 64.0  # of exp(size f), f in its own standard deviations under mu
FAVOURITE = 32.0  # the power that leaves mu's favourite action
SUPPORTED = 0.9  # mean ratio below which pi does what mu never does
SAME = 1e-3  # largest |ratio - 1| of a policy that is mu but for rounding
SQUARES = 30  # weights of f, over all draws of random signs, that tell its share of noise
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

    @property
    def cautious(self) -> float:
        """The lift less a standard error; 0 for mu."""
        return 0.0 if self.influence is None else self.influence.estimate - CAUTION * self.influence.error

    def better_than(self, other: Candidate) -> bool:
        """Whether the cautious lift is larger, by so much that it matters."""
        if self.influence is None:
            return False
        return self.cautious > other.cautious + WORTH_IT * abs(other.cautious)

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
    held_out: Pairs  # [n, A] f of the other half, scaled under mu
    taken: Float32Array  # [n] the same of the action that was taken, less the mean under mu
    known: tuple[Advantages, ...]  # A_k by side, which f is regressed on
    slope: Float64Array = field(default_factory=lambda: np.zeros(0))  # [users] parts of d lift / d size at 0

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
        mu: mu(a|x_t) [n, A] of the logging policy, or of its clone.
        propensities: mu(a_t|x_t) as logged [n].
        clone: the ratios of ``mu`` to the propensities [n].
        oracles: prepared regressions, from plain to curved.
        horizons: values of k.
        advantages: `k_step_advantages` of the log, for a bonus, k and ratios.
        bonus: the bonus; None is the value of the champion.
        rounds: largest number of rounds.
        confidence: confidence with which another shape of f must win.
        sides: the rows that each side learns from [n]: all, those of one half, those of the other half.
        advance: called after every test.
    """

    logs: LoggedData
    judge: Judge
    mu: Pairs
    propensities: Float64Array
    clone: Float64Array
    oracles: Mapping[str, PreparedOracle]
    horizons: tuple[Horizon, ...]
    advantages: Callable[..., Advantages]
    bonus: StateValues | None
    rounds: int
    confidence: float
    sides: tuple[BoolArray, ...]
    advance: Callable[[int], None]
    _tuned: dict[tuple[str, Horizon], PreparedOracle] = field(default_factory=dict, repr=False)

    def settled(self) -> tuple[Climb, list[Direction]]:
        """The climb with the judge that this log needs, and the directions from mu, from plain to curved.

        Two judges measure the first step. V^mu at the next state is believed where it has the smaller error
        and does not contradict what followed in the log (Hausman's test).
        """
        tried = list(self._tried(Candidate(words="the logging policy")))
        realised = replace(self, judge=replace(self.judge, realised=True))
        directions = self._steepest(tried)
        rho = self._ratios(directions[0].held_out, FIRST_SIZE, 1.0)
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
            (direction,) = self._tried(champions[-1], direction, followed[0])
            steps = self._grow(number, champions[-1], direction, champions[-1].size, tested)
            champions += steps
            if not steps:
                followed.pop(0)
                if not followed:
                    break
        favourite = Candidate(
            words="mu's favourite action",
            scorers=directions[0].scorers,
            spreads=directions[0].spreads,
            power=FAVOURITE,
        )
        self._test(favourite, None, tested, noise=0.0)
        return [replace(c, crowned=any(c is champion for champion in champions)) for c in tested]

    def bold(self, direction: Direction) -> Candidate:
        """F's best among the actions that the clone is likely to take, where it cannot stand for mu."""
        best = np.empty(len(self.logs), dtype=np.int64)
        for rows in self.mu.blocks():
            mu = self.mu[rows]
            likely = mu >= LIKELY * mu.max(axis=1, keepdims=True)
            if self.logs.candidates is not None:
                likely &= self.logs.candidates[rows]
            best[rows] = np.where(likely, direction.held_out[rows], -np.inf).argmax(axis=1)
        rho = (best == self.logs.actions) / self.propensities
        return Candidate(
            words=f"the best of the likely actions in f of {direction.words}",
            scorers=direction.scorers,
            spreads=direction.spreads,
            size=np.inf,
            crowned=True,
            influence=self.judge.lift(rho),
            rho=rho.astype(np.float32),
        )

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
            plan = Candidate(
                words=f"round {number}: {direction.words}, size {size:g}",
                scorers=direction.scorers,
                spreads=direction.spreads,
                size=size,
            )
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
        rho = self._ratios(scores, plan.size, plan.power)
        self.advance(1)
        if rho.mean() < SUPPORTED or np.abs(rho - 1).max() < SAME:
            return plan
        influence = replace(self.judge.lift(rho), noise=noise)
        new = replace(plan, influence=influence, rho=rho.astype(np.float32))
        tested.append(new)
        return new

    def _ratios(self, scores: Pairs | None, size: float, power: float) -> Float64Array:
        """pi(a_t|x_t) / mu(a_t|x_t) [n] of mu^power exp(size f)."""
        return tilted(self.mu, scores, size, power, self.logs.actions) / self.propensities

    def _tried(
        self, champion: Candidate, last: Direction | None = None, followed: float = PROMISED
    ) -> Iterator[Direction]:
        """An f of every shape and k from mu; later of the shape and k that were chosen."""
        bonuses, ratios = [], []
        for side, learned in enumerate(self.sides):
            rho, probs = None, self.propensities
            if champion.scorers:  # as that side has learned it; mu has none
                table = scores_of(champion.scorers[side], self.logs, champion.spreads[side])
                rho = self._ratios(table, champion.size, champion.power)
                probs = rho * self.propensities
            bonuses.append(self.judge.values(rho, learned, followed) if self.bonus is None else self.bonus)
            ratios.append(ratios_of(self.logs, probs))
        for name in self.oracles:
            for k in self.horizons:
                if last is None or (last.shape, last.k) == (name, k):
                    yield self._fitted(name, k, bonuses, ratios)

    def _steepest(self, tried: list[Direction]) -> list[Direction]:
        """For every shape, the direction of the k with the largest slope."""
        gradient, users = self.judge.gradient(), self.logs.n_users
        slopes = []
        for direction in tried:
            slope = np.bincount(self.judge.user, weights=gradient * direction.taken, minlength=users)
            slopes.append(replace(direction, slope=slope.astype(np.float64)))
        return [
            max((d for d in slopes if d.shape == name), key=lambda d: float(d.slope.sum()))
            for name in self.oracles
        ]

    def _fitted(
        self, name: str, k: Horizon, bonuses: list[StateValues], ratios: list[Float64Array]
    ) -> Direction:
        """F of one shape and k, learned by each side from its A_k."""
        scorers, spreads, tables, targets = [], [], [], []
        for side, learned in enumerate(self.sides):
            known = self.advantages(bonuses[side], k=k, ratios=ratios[side])
            if (known.valid & learned).any():
                known = replace(known, valid=known.valid & learned)
            if (name, k) not in self._tuned:
                self._tuned[name, k] = self.oracles[name].tune(known.values, valid=known.valid)
            tuned = self._tuned[name, k]
            scorer = tuned.fit(known.values, valid=known.valid)
            table, spread = scaled(tuned, scorer, self.logs, self.mu)
            scorers.append(scorer)
            spreads.append(spread)
            targets.append(known)
            if side > 0:
                tables.append(table)
        held_out = by_half(self.sides[1], tables)
        return Direction(
            shape=name,
            k=k,
            words=f"{name}, k = {k}",
            scorers=tuple(scorers),
            spreads=tuple(spreads),
            held_out=held_out,
            taken=centred(held_out, self.mu, self.logs.actions),
            known=tuple(targets),
        )

    def _noise(self, direction: Direction) -> float:
        """The share of f's variance under mu that is noise: that of an f whose users get random signs."""
        tuned, rng = self._tuned[direction.shape, direction.k], np.random.default_rng(0)
        if not isinstance(tuned, PreparedRidge):  # eight more fits of trees or networks are too dear
            return 1.0
        shares = []
        for side in (1, 2):
            known = direction.known[side]
            for _ in range(1 + SQUARES // (tuned.features.width * self.logs.n_actions)):
                signs = rng.choice([-1.0, 1.0], size=self.logs.n_users)[self.judge.user]
                scorer = tuned.fit(signs * known.values, valid=known.valid)
                shares.append((spread_of(scorer, self.logs, self.mu) / direction.spreads[side]) ** 2)
        return min(float(np.mean(shares)), 1.0)
