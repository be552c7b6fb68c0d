"""A shop whose customers remember: the article that is clicked most is not the one that brings them back.

A customer belongs to a segment and has a mood. Each visit has two recommendations:

    bestseller     is clicked most often, and bores: the mood falls
    own article    of the customer's segment: clicked a little less often, and pleases: the mood rises
    other articles, news   are hardly clicked

The happier a customer, the sooner the next visit. A shop that counts clicks shows the bestseller for ever;
one that looks further shows the own article. On the day ``season``, the customers of the segment sport start
to want another article (drift).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shpi.protocols import BoolArray, Float64Array, Int64Array

ITEMS = ("bestseller", "home", "sport", "music", "news")
SEGMENTS = ("home", "sport", "music")
BESTSELLER, NEWS = 0, 4  # indices in ITEMS
VISIT = 2  # recommendations per visit

Probs = Callable[[list[dict[str, Any]]], Float64Array]  # contexts to probabilities [n, 5]


@dataclass(frozen=True, kw_only=True)
class Shop:
    """The probabilities that drive the shop.

    Args:
        bestseller: click probability of the bestseller.
        own: click probability of the article of the customer's own segment.
        other: click probability of any other article; news have half of it.
        pleased: how much the own article lifts the mood; the bestseller lowers it as much.
        returning: probability of a visit on the next day, at the worst and at the best mood.
        season: day of the drift; None: no drift.
        alike: all items are equally good, so there is nothing to learn.
    """

    bestseller: float = 0.28
    own: float = 0.38
    other: float = 0.08
    pleased: float = 0.12
    returning: tuple[float, float] = (0.10, 0.85)
    season: int | None = 7
    alike: bool = False

    def wanted(self, segments: Int64Array, day: int) -> Int64Array:
        """The article that each customer wants on a day."""
        late = self.season is not None and day >= self.season
        moved = (segments == 1) & late
        return np.where(moved, 3, segments + 1)

    def click_chances(self, segments: Int64Array, actions: Int64Array, day: int) -> Float64Array:
        """The click probability of each recommendation [n]."""
        if self.alike:
            return np.full(len(actions), 0.2)
        chances = np.where(actions == NEWS, self.other / 2, self.other)
        chances = np.where(actions == self.wanted(segments, day), self.own, chances)
        return np.where(actions == BESTSELLER, self.bestseller, chances)

    def moods_after(
        self, segments: Int64Array, moods: Float64Array, actions: Int64Array, day: int
    ) -> Float64Array:
        """The moods [n] after a recommendation."""
        if self.alike:
            return moods
        change = np.where(actions == self.wanted(segments, day), self.pleased, -self.pleased / 4)
        change = np.where(actions == BESTSELLER, -self.pleased, change)
        return np.clip(moods + change, 0.0, 1.0)

    def visits(self, moods: Float64Array, uniforms: Float64Array) -> BoolArray:
        """Whether each customer comes on the next day [n]."""
        low, high = self.returning
        return np.asarray(uniforms < low + (high - low) * moods)

    @staticmethod
    def contexts(segments: Int64Array, moods: Float64Array, place: int) -> list[dict[str, Any]]:
        """What the shop knows before a recommendation."""
        return [
            {"segment": SEGMENTS[segment], "mood": round(mood, 2), "place": place}
            for segment, mood in zip(segments.tolist(), moods.tolist(), strict=True)
        ]

    def value(self, probs: Probs, *, users: int, days: int, seed: int, first_day: int = 0) -> float:
        """The true value: clicks per customer in the days after the first visit if one policy serves all."""
        rng = np.random.default_rng(seed)
        segments, moods = rng.integers(0, 3, users), np.full(users, 0.4)
        here, clicks = np.ones(users, dtype=bool), 0.0
        for day in range(first_day, first_day + days):
            rows = np.flatnonzero(here)
            for place in range(VISIT):
                cumulative = probs(self.contexts(segments[rows], moods[rows], place)).cumsum(axis=1)
                actions = (rng.random((len(rows), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
                clicks += float(
                    (rng.random(len(rows)) < self.click_chances(segments[rows], actions, day)).sum()
                )
                moods[rows] = self.moods_after(segments[rows], moods[rows], actions, day)
            here = self.visits(moods, rng.random(users))
        return clicks / users


def rule(floor: float) -> Probs:
    """The shop's old rule: always the bestseller, mixed with an exploration floor."""

    def probs(contexts: list[dict[str, Any]]) -> Float64Array:
        chances = np.full((len(contexts), len(ITEMS)), floor / len(ITEMS))
        chances[:, BESTSELLER] += 1 - floor
        return chances

    return probs
