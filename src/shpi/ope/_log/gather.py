"""Where the results of blocks go as they arrive, in any order: a list, an array by user, two of these.

`shpi.passes.TreeSum`, for sums, is of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from shpi.protocols import Int64Array


class Gathers(Protocol):
    """Takes one result of each block."""

    def give(self, number: int, value: Any) -> None:
        """Take the result of block ``number``."""
        ...

    def total(self) -> Any:
        """What became of the results of all blocks."""
        ...


class InList:
    """Results as they are, in the order of the blocks."""

    def __init__(self, count: int) -> None:
        self._results: list[Any] = [None] * count

    def give(self, number: int, value: Any) -> None:
        """Take the result of one block."""
        self._results[number] = value

    def total(self) -> list[Any]:
        """All of them."""
        return self._results


class ByUser:
    """Arrays [..., users of the block], or tuples of such, put into arrays [..., U] of all users.

    Nothing else is kept of a block: with millions of users a list of what all blocks say would take as much
    memory again, in pieces so small that the allocator rarely gives them back.
    """

    def __init__(self, places: Sequence[Int64Array]) -> None:
        """Begin with nothing.

        Args:
            places: for each block, where its users are among all users.
        """
        self._places = places
        self._users = sum(len(mine) for mine in places)
        self._joined: list[Any] = []
        self._several = False

    def give(self, number: int, value: Any) -> None:
        """Put the numbers of one block's users where they belong."""
        self._several = isinstance(value, tuple)
        arrays = value if self._several else (value,)
        if not self._joined:
            self._joined = [np.empty((*each.shape[:-1], self._users), dtype=each.dtype) for each in arrays]
        for j, each in enumerate(arrays):
            wide = np.promote_types(self._joined[j].dtype, each.dtype)
            if wide != self._joined[j].dtype:  # which block came first must not decide
                self._joined[j] = self._joined[j].astype(wide)
            self._joined[j][..., self._places[number]] = each

    def total(self) -> Any:
        """The array of all users, or the tuple of them."""
        return tuple(self._joined) if self._several else self._joined[0]


class Both:
    """Pairs, whose parts go to two different places."""

    def __init__(self, first: Gathers, second: Gathers) -> None:
        self._first, self._second = first, second

    def give(self, number: int, value: tuple[Any, Any]) -> None:
        """Take the pair of one block."""
        self._first.give(number, value[0])
        self._second.give(number, value[1])

    def total(self) -> tuple[Any, Any]:
        """What became of both parts."""
        return self._first.total(), self._second.total()
