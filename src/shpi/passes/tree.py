"""Sums in a fixed binary tree: shards may arrive in any order, and the rounding is always the same.

Shard numbers 2i and 2i + 1 are added, left to right, to node i of the next level, and so on; an odd last node
moves up unchanged. The order of arrival decides when a sum is computed, never which values are added.
At most about log2(shards) sums are held when shards arrive in order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from shpi.errors import ConfigError

T = TypeVar("T")


class TreeSum(Generic[T]):
    """The sum of ``count`` numbered values, given one by one in any order."""

    def __init__(self, count: int, add: Callable[[T, T], T] = operator.add) -> None:
        """Start an empty sum.

        Args:
            count: number of values, numbered from 0.
            add: adds two values; by default ``left + right``.
        """
        if count < 1:
            raise ConfigError(expected="at least one shard to add", found=str(count))
        self._sizes = [count]  # of the levels, the leaves first
        while self._sizes[-1] > 1:
            self._sizes.append(-(-self._sizes[-1] // 2))
        self._add = add
        self._held: dict[tuple[int, int], T] = {}
        self._given: set[int] = set()

    def give(self, number: int, value: T) -> None:
        """Enter the value of shard ``number``, once."""
        if not 0 <= number < self._sizes[0] or number in self._given:
            raise ConfigError(
                expected=f"each of the shards 0 to {self._sizes[0] - 1} once", found=f"shard {number}"
            )
        self._given.add(number)
        level, place = 0, number
        while level < len(self._sizes) - 1:
            other = place ^ 1
            if other < self._sizes[level]:
                if (level, other) not in self._held:
                    break
                sibling = self._held.pop((level, other))
                value = self._add(value, sibling) if place < other else self._add(sibling, value)
            level, place = level + 1, place // 2
        self._held[level, place] = value

    def total(self) -> T:
        """The sum, after all values were given."""
        if len(self._given) < self._sizes[0]:
            raise ConfigError(
                expected=f"all {self._sizes[0]} shards", found=f"{len(self._given)}, and the others missing"
            )
        return self._held[len(self._sizes) - 1, 0]


def tree_sum(values: Iterable[Any], add: Callable[[Any, Any], Any] = operator.add) -> Any:
    """The sum, in the same tree, of values that are all available."""
    known = list(values)
    total: TreeSum[Any] = TreeSum(len(known), add)
    for number, value in enumerate(known):
        total.give(number, value)
    return total.total()
