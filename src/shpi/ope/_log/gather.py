"""Collect the results of blocks, which arrive in any order: into a list, or arrays by user.

`shpi.passes.TreeSum` does the same for sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from shpi.protocols import Int64Array


class Gathers(Protocol):
    """Collects one result per block."""

    def give(self, number: int, value: Any) -> None:
        """Take the result of block ``number``."""
        ...

    def total(self) -> Any:
        """The collected results of all blocks."""
        ...


class InList:
    """Collects results in a list, in the order of the blocks."""

    def __init__(self, count: int) -> None:
        self._results: list[Any] = [None] * count

    def give(self, number: int, value: Any) -> None:
        """Take the result of one block."""
        self._results[number] = value

    def total(self) -> list[Any]:
        """The list of all results."""
        return self._results


@dataclass(eq=False)
class ByUser:
    """Collects arrays [..., users of the block], or tuples of them, in arrays [..., U] of all users.

    A block's result is copied and dropped: with millions of users, a list of all results would take as much
    memory again, in pieces so small that the allocator rarely returns them.
    """

    places: Sequence[Int64Array]  # for each block, the positions of its users among all users
    _joined: list[Any] = field(default_factory=list, init=False)
    _several: bool = field(default=False, init=False)

    def give(self, number: int, value: Any) -> None:
        """Copy the values of one block's users to their positions."""
        self._several = isinstance(value, tuple)
        arrays = value if self._several else (value,)
        if not self._joined:
            users = sum(len(mine) for mine in self.places)
            self._joined = [np.empty((*each.shape[:-1], users), dtype=each.dtype) for each in arrays]
        for j, each in enumerate(arrays):
            wide = np.promote_types(self._joined[j].dtype, each.dtype)
            if wide != self._joined[j].dtype:  # the first block to arrive must not decide the type
                self._joined[j] = self._joined[j].astype(wide)
            self._joined[j][..., self.places[number]] = each

    def total(self) -> Any:
        """The array of all users, or the tuple of such arrays."""
        return tuple(self._joined) if self._several else self._joined[0]
