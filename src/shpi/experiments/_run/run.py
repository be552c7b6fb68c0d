"""A run: plan the cells, run those that are missing, write the page."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shpi.experiments._page import page
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Experiment
from shpi.experiments._run.runner import Report, Tally, execute
from shpi.experiments._run.selection import Selection
from shpi.experiments._run.settings import Settings, cuts
from shpi.experiments._run.store import Store
from shpi.experiments.catalogue import find
from shpi.experiments.catalogue import names as catalogue_names
from shpi.report.files import write_whole

NO_DATA = (
    "skipped: needs KuaiRand's files. Name their folder with --data, or in the environment variable "
    "SHPI_DATA; the page on data sets says where they come from"
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cells of every experiment that can run here."""

    experiments: tuple[Experiment, ...]
    cells: dict[str, list[Cell]]

    def selected(self, selection: Selection) -> Plan:
        """The plan with the selected cells only."""
        return replace(self, cells={name: selection.of(cells) for name, cells in self.cells.items()})

    @classmethod
    def of(cls, experiments: Sequence[Experiment], settings: Settings) -> Plan:
        """Plan the cells of experiments; none for those whose data are absent."""
        cells = {
            experiment.name: [] if experiment.needs_data and not settings.data else experiment.cells(settings)
            for experiment in experiments
        }
        return cls(experiments=tuple(experiments), cells=cells)

    def skipped(self, experiment: Experiment) -> str:
        """Why an experiment does not run; empty if it does."""
        return NO_DATA if experiment.needs_data and not self.cells[experiment.name] else ""


def go(plan: Plan, store: Store, *, jobs: int, command: str, report: Report | None = None) -> Tally:
    """Run the missing cells, and record this run, even if it is interrupted."""
    began, tally = time.monotonic(), Tally()
    try:
        execute(plan.cells, store, jobs=jobs, commit=commit(), report=report, tally=tally)
    finally:
        _record(store, command, time.monotonic() - began, tally, jobs)
    return tally


def draw(experiments: Sequence[Experiment], store: Store, settings: Settings) -> tuple[Path, Path]:
    """Write the page of these experiments and all others that have rows of these settings in the folder."""
    names = {chosen.name for chosen in experiments}
    rows_of_data = any(row.world.startswith("kuairand") for name in store.names() for row in store.read(name))
    settings = replace(settings, data=settings.data or rows_of_data)  # the page does not need the files
    plan = Plan.of([find(name) for name in catalogue_names() if name in names | set(store.names())], settings)
    sections = []
    for experiment in plan.experiments:
        wanted = {cell.key for cell in plan.cells[experiment.name]}
        rows = [row for row in store.read(experiment.name) if row.cell in wanted]
        missing = len(wanted - {row.cell for row in rows})
        if rows or experiment.name in names:
            sections.append(page.section(experiment, rows, missing, plan.skipped(experiment)))
    return page.write(store.folder, sections, _facts(store, settings, sections))


def commit() -> str:
    """The commit of the source, with a plus if files differ from it; the version outside a repository."""
    from shpi import __version__

    place = Path(__file__).parents[2]  # all of shpi
    try:
        outputs = [
            subprocess.run(
                ["git", *arguments], cwd=place, capture_output=True, text=True, check=True
            ).stdout.strip()
            for arguments in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "--", "."))
        ]
    except (OSError, subprocess.CalledProcessError):
        return f"shpi {__version__}"
    return outputs[0] + ("+" if outputs[1] else "")


def _record(store: Store, command: str, seconds: float, tally: Tally, jobs: int) -> None:
    """Append a summary of this run to run.json."""
    runs = _runs(store)
    runs.append(
        {
            "command": command,
            "commit": commit(),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "wall_seconds": round(seconds, 1),
            "jobs": jobs,
            "cells_run": tally.run,
            "cells_reused": tally.reused,
            "cells_failed": len(tally.failed),
            "peak_mb_of_a_process": round(tally.peak_mb, 1),
            "python": platform.python_version(),
            "processors": os.cpu_count(),
        }
    )
    write_whole(store.folder / "run.json", json.dumps(runs, indent=2) + "\n")


def _runs(store: Store) -> list[dict[str, Any]]:
    path = store.folder / "run.json"
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return runs


def _facts(store: Store, settings: Settings, sections: Sequence[page.Section]) -> list[str]:
    """Facts for the head of the page about the runs whose rows are there."""
    rows = [row for section in sections for row in section.rows]
    commits = sorted({row.commit for row in rows})
    runs = [run for run in _runs(store) if run["commit"] in commits]
    commands = list(dict.fromkeys(f"`{run['command']}`" for run in runs))  # distinct, in order
    cells = {row.cell: row for row in rows}
    fitting = sum(row.seconds for row in cells.values())
    wall = sum(run["wall_seconds"] for run in runs)
    peak = max((row.peak_mb or 0.0 for row in rows), default=0.0)
    jobs = max((run["jobs"] for run in runs), default=1)
    facts = [
        f"Seeds {settings.seeds[0]} to {settings.seeds[-1]}, {settings.rollouts} new users try each policy."
        + (
            " **Quick run: small logs and few gradient steps; the numbers mean nothing.**"
            if settings.quick
            else ""
        ),
        *([] if settings.quick else [cuts()]),
        f"Command: {', then '.join(commands)}." if commands else "Not run yet.",
        f"Commit {', '.join(commits)}." + (" Rows of several commits are mixed." if len(commits) > 1 else ""),
        f"{len(cells)} cells, {fitting / 60:.0f} CPU-minutes of fitting; {wall / 60:.0f} minutes in "
        f"{len(runs)} run(s) on {jobs} process(es); the largest process used {peak / 1000:.1f} GB.",
    ]
    return facts
