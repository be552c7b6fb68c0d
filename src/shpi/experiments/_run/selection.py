"""Selects the cells of some learners for a run, or all but those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shpi.errors import ConfigError
from shpi.experiments._run.cells import Cell
from shpi.learners import registry

LOGGING, EXACT = "logging", "exact"  # cells in which nothing is learned


def uses(cell: Cell) -> frozenset[str]:
    """The learners that a cell fits, by their names in the registry; `LOGGING` or `EXACT` if none."""
    if cell.work == "online":
        return frozenset({"online-shpi", "shpi"} if cell.options.get("start") == "log" else {"online-shpi"})
    if cell.learner is not None:
        return frozenset({cell.learner})
    return frozenset({EXACT if cell.work == "exact" else LOGGING})


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which cells are run.

    A cell that fits two learners counts for both. So a run with ``without=names`` and one with
    ``only=names`` together cover all cells.

    Args:
        only: run only cells that fit one of these learners; empty: all.
        without: run only cells that fit none of these learners.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = (LOGGING, EXACT, *registry.names())
        for name in (*self.only, *self.without):
            if name not in known:
                raise ConfigError(
                    expected=f"methods among {', '.join(known)}",
                    found=repr(name),
                    where="--only or --without",
                    remedy="name the experiments before these options",
                )

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.only and not self.without

    def keeps(self, cell: Cell) -> bool:
        """Whether a cell is run."""
        used = uses(cell)
        return (not self.only or bool(used & set(self.only))) and not used & set(self.without)

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that are run."""
        return [cell for cell in cells if self.keeps(cell)]
