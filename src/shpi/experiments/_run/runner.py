"""Runs the cells of experiments in several processes, and stores each as soon as it is done.

Cells of the same log run in the same process, one after the other. A cell that fails, or crashes its process,
is stored as failed, and the others go on. A cell that two experiments need is run once. Stored cells are not
run again, unless they failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shpi.errors import ConfigError
from shpi.experiments._run.cells import Cell, Outcome
from shpi.experiments._run.processes import outcomes
from shpi.experiments._run.store import Store, renamed, succeeded

Plan = Mapping[str, Sequence[Cell]]  # the cells of each experiment, by its name
Report = Callable[[Cell, Outcome, int], None]


@dataclass(kw_only=True)
class Tally:
    """Counts of a run."""

    run: int = 0
    reused: int = 0  # stored by an earlier run, or for another experiment
    failed: list[tuple[Cell, str]] = field(default_factory=list)
    peak_mb: float = 0.0  # peak memory of the largest process


def execute(
    plan: Plan,
    store: Store,
    *,
    jobs: int,
    commit: str,
    report: Report | None = None,
    tally: Tally | None = None,
) -> Tally:
    """Run the cells that are missing.

    Args:
        plan: the cells of each experiment.
        store: where rows are read and written.
        jobs: the number of processes.
        commit: commit of the source, stored in every row.
        report: called after every cell, with the number of cells left.
        tally: updated after every cell, so that it is right after an interrupt, too.
    """
    if jobs < 1:
        raise ConfigError(expected="--jobs of at least 1", found=str(jobs))
    tally = Tally() if tally is None else tally
    missing = _missing(plan, store, tally)
    cells: dict[str, Cell] = {}
    for cell in (cell for wanting in plan.values() for cell in wanting if cell.key in missing):
        cells.setdefault(cell.key, cell)
    called = {(name, cell.key): cell for name, wanting in plan.items() for cell in wanting}
    for cell, outcome in outcomes(by_log(list(cells.values())), jobs):
        for name in missing[cell.key]:
            store.append(name, outcome.rows(name, called[name, cell.key], commit))
        tally.run += 1
        tally.peak_mb = max(tally.peak_mb, outcome.peak_mb or 0.0)
        if outcome.message:
            tally.failed.append((cell, outcome.message))
        if report is not None:
            report(cell, outcome, len(cells) - tally.run)
    return tally


def by_log(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Groups of cells that share a log, in the order in which the logs first appear."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.log.key, []).append(cell)
    return list(groups.values())


def _missing(plan: Plan, store: Store, tally: Tally) -> dict[str, list[str]]:
    """The experiments that need each missing cell; rows that another experiment has are copied."""
    rows = {name: succeeded(store.read(name)) for name in {*store.names(), *plan}}
    home = {key: name for name, cells in rows.items() for key in cells}
    missing: dict[str, list[str]] = {}
    for name, cells in plan.items():
        for cell in cells:
            if cell.key not in home:
                missing.setdefault(cell.key, []).append(name)
                continue
            tally.reused += 1
            if cell.key not in rows[name]:
                store.append(name, renamed(rows[home[cell.key]][cell.key], name, cell))
    return missing
