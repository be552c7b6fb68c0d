"""What may be returned, and the one test by which a candidate takes the champion's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from shpi.advantages import Advantages, Horizon
from shpi.data.logged import LoggedData
from shpi.learners._shpi.judge import Influence
from shpi.learners._shpi.lift import Lift, beats, lower_bound
from shpi.learners._shpi.pairs import Pairs
from shpi.policies import Policy
from shpi.policies.scorers import Scorer
from shpi.protocols import Float32Array

TEST_SHARE = 0.8  # of the error that is still allowed: what a test may use
ROUNDING = 1e-4  # of a lift in single precision: of candidates closer than this the careful one stays
NOT_MEASURED = Influence(lifts=np.zeros(1), parts=np.zeros((1, 1)), off_log=np.zeros(1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """How f is learned: a regression of one shape on the champion's A_k."""

    shape: str
    k: Horizon
    champion: Candidate | None  # None: mu
    followed: float  # decisions for which V follows the champion


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A policy as a recipe, and its test."""

    words: str
    recipe: Recipe | None = None  # None: no f
    scorers: tuple[Scorer, ...] = ()  # f as each half has learned it
    spreads: tuple[float, ...] = ()  # its standard deviation under mu
    size: float = 0.0
    power: float = 1.0
    rival: Callable[[LoggedData], Policy] | None = None  # how another learner fits
    influence: Influence | None = None  # None: mu itself
    lift: Lift | None = None  # what the test says
    rho: Float32Array | None = None  # pi(a_t|x_t) / mu(a_t|x_t) [n], each half as the other has learned it
    t: float = 0.0  # of f's slope, where mu cannot be imitated

    def better_than(self, other: Candidate) -> bool:
        """Whether the conservative lift is larger, beyond rounding; that of mu is 0."""
        if self.influence is None:
            return False
        least = 0.0 if other.influence is None else other.influence.conservative
        return self.influence.conservative > least + ROUNDING * abs(least)

    def beats(self, other: Candidate, confidence: float) -> bool:
        """Whether the lift is larger with confidence, on common users and features; that of mu is 0."""
        if self.influence is None or other.influence is None:
            return self.better_than(other)
        return beats(self.influence, other.influence, confidence)


@dataclass(kw_only=True)
class Contest:
    """The champion, mu at first, and all candidates that have challenged it."""

    confidence: float
    allowed: float  # share of logs in which the tests still to come may err
    champion: Candidate = field(default_factory=lambda: Candidate(words="the logging policy"))
    tested: list[Candidate] = field(default_factory=list)

    @property
    def level(self) -> float:
        """Confidence of the next test."""
        return 1 - TEST_SHARE * self.allowed

    def proves(self, influence: Influence) -> bool:
        """Whether this is above 0; a proof costs nothing, a failure has used its part of the error up."""
        proven = lower_bound(influence, self.level) > 0
        if not proven:
            self.allowed *= 1 - TEST_SHARE
        return proven

    def challenge(self, new: Candidate, better: bool, trusted: bool = False) -> bool:
        """Whether the candidate becomes champion: if it is better, and its lift is proven or else trusted."""
        assert new.influence is not None
        level = self.level
        proven = better and self.proves(new.influence)
        self.tested.append(replace(new, lift=Lift.of(new.influence, level, self.confidence, proven)))
        if proven or trusted:
            self.champion = self.tested[-1]
        return proven or trusted


@dataclass(frozen=True, kw_only=True, eq=False)
class Direction:
    """The function to tilt mu towards: f as each half has learned it, and its scores where it is judged."""

    recipe: Recipe
    scorers: tuple[Scorer, ...]
    spreads: tuple[float, ...]
    held_out: Pairs  # [n, A] f of the other half, up to a number for each context
    taken: Float32Array  # [n] f of the action that was taken, scaled and less the mean under mu
    targets: tuple[Advantages, ...]  # A_k by half, which f is regressed on
    slope: Influence = NOT_MEASURED  # d lift / d size at 0

    @property
    def words(self) -> str:
        """Shape and k."""
        return f"{self.recipe.shape}, k = {self.recipe.k}"

    def plan(self, size: float, words: str = "", power: float = 1.0) -> Candidate:
        """A step of this size, to be tested."""
        return Candidate(
            words=words,
            recipe=self.recipe,
            scorers=self.scorers,
            spreads=self.spreads,
            size=size,
            power=power,
        )
