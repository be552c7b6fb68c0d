"""What a benchmark returns, and how it is printed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """One measured figure. ``goal`` is what the project promises, e.g. ``<= 2``; empty if nothing is."""

    name: str
    value: float
    unit: str
    note: str = ""
    goal: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal holds; None where there is none."""
        if not self.goal:
            return None
        sign, bound = self.goal.split()
        return self.value <= float(bound) if sign == "<=" else self.value >= float(bound)


def show(title: str, rows: Sequence[Row]) -> None:
    """Print one benchmark's table."""
    table = Table(title=title, title_justify="left", expand=False)
    for column in ("figure", "value", "unit", "goal", "note"):
        table.add_column(column, justify="right" if column == "value" else "left", overflow="fold")
    for row in rows:
        mark = {True: " met", False: " [bold red]MISSED[/]", None: ""}[row.met]
        table.add_row(row.name, f"{row.value:,.4g}" if row.value < 1e5 else f"{row.value:,.0f}", row.unit,
                      f"{row.goal}{mark}", row.note)  # fmt: skip
    Console(width=150).print(table)


def in_process(module: str, function: str, *arguments: Any) -> dict[str, Any]:
    """Run ``module.function(*arguments)`` in a fresh process; its result, seconds and peak memory."""
    code = (
        "import importlib, json, resource, sys, time\n"
        "name, function, arguments = json.loads(sys.argv[1])\n"
        "work = getattr(importlib.import_module(name), function)\n"
        "wall, cpu = time.perf_counter(), time.process_time()\n"
        "result = work(*arguments)\n"
        "print(json.dumps({'result': result, 'wall': time.perf_counter() - wall,\n"
        "  'cpu': time.process_time() - cpu,\n"
        "  'peak': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([module, function, arguments])],
        capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[1],
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{module}.{function} failed:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def machine() -> str:
    """One line about where the figures were taken."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
