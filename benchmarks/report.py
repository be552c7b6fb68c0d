"""The rows that a benchmark returns, how they are printed, and measurements in fresh processes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """One measured figure. ``goal`` is the project's target, e.g. ``<= 2``; empty if there is none."""

    name: str
    value: float
    unit: str
    note: str = ""
    goal: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
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


def in_process(
    module: str, function: str, *arguments: Any, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run ``module.function(*arguments)`` in a fresh process; return its result, seconds and peak memory.

    Processes that it started and that have ended count in ``cpu``; the largest of them is
    ``peak_of_children``. ``peak`` counts all resident pages. ``anonymous`` leaves out those of mapped files,
    which the system can reclaim at any time; it is sampled five times a second, on Linux only (elsewhere it
    is ``peak``).
    """
    code = (
        "import importlib, json, resource, sys, time\n"
        "name, function, arguments = json.loads(sys.argv[1])\n"
        "work = getattr(importlib.import_module(name), function)\n"
        "wall, cpu = time.perf_counter(), time.process_time()\n"
        "result = work(*arguments)\n"
        "cpu = time.process_time() - cpu\n"
        "children = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps({'result': result, 'wall': time.perf_counter() - wall,\n"
        "  'cpu': cpu + children.ru_utime + children.ru_stime,\n"
        "  'peak': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,\n"
        "  'peak_of_children': children.ru_maxrss * 1024}))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps([module, function, arguments])],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[1],
        env=environment,
    )  # fmt: skip
    anonymous = 0
    while True:
        try:
            output, errors = process.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            anonymous = max(anonymous, _anonymous(process.pid))
    if process.returncode:
        raise RuntimeError(f"{module}.{function} failed:\n{errors}")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer | {"anonymous": anonymous or answer["peak"]}


def _anonymous(process: int) -> int:
    """The anonymous memory of a process now, in bytes; 0 if unknown."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
    return 1024 * int(kilobytes[0]) if kilobytes else 0


def machine() -> str:
    """One line about the machine."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
