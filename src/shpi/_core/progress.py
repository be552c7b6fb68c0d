"""Progress bars for long work: on standard error, removed when done, silent outside a terminal.

Nested bars share one display, a line each: the candidates of a comparison, the estimators of one of them.
Work in unequal stages announces each stage, whether or not it is shown:

    @stages("evaluating")
    def evaluate(…):
        expect({"WDR": 3, "SNIPS": 1})        relative costs of the stages
        begin("WDR")
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def progress_bar(
    label: str, total: float | None, wanted: bool | None = None
) -> Iterator[Callable[[float], None]]:
    """Yield a function that advances the bar. ``wanted=None`` shows it in a terminal only.

    ``total=None`` is work of unknown length: only the elapsed time is shown.
    """
    with _shown(wanted) as bars:
        if bars is None:
            yield lambda amount: None
            return
        task = bars.add_task(label, total=total)
        try:
            yield lambda amount: bars.advance(task, amount)
        finally:
            bars.remove_task(task)


# ---------------------------------------------------------------------- stages


@dataclass(kw_only=True)
class _Staged:
    """Work in stages that is being shown."""

    bars: Progress
    task: TaskID
    label: str
    costs: dict[str, float] = field(default_factory=dict)
    under_way: float = 0.0


_display: list[Progress] = []  # the open display, if any
_staged: list[_Staged | None] = []  # the innermost last; None: not shown


@contextmanager
def stages(label: str, wanted: bool | None = None) -> Iterator[None]:
    """Inside the block, or a function decorated with it, `expect` and `begin` refer to this work."""
    with _shown(wanted) as bars:
        task = None if bars is None else bars.add_task(label, total=None)
        _staged.append(None if bars is None or task is None else _Staged(bars=bars, task=task, label=label))
        try:
            yield
        finally:
            _staged.pop()
            if bars is not None and task is not None:
                bars.remove_task(task)


def expect(costs: Mapping[str, float]) -> None:
    """Announce coming stages with their relative costs, to estimate the remaining time."""
    now = _staged[-1] if _staged else None
    if now is not None:
        now.costs |= costs
        now.bars.update(now.task, total=sum(now.costs.values()))


def begin(stage: str) -> None:
    """Begin a stage, which ends the one before it."""
    now = _staged[-1] if _staged else None
    if now is not None:
        now.bars.update(now.task, description=f"{now.label}: {stage}", advance=now.under_way)
        now.under_way = now.costs.get(stage, 0.0)


@contextmanager
def _shown(wanted: bool | None) -> Iterator[Progress | None]:
    """The display of the surrounding work, or a new one; None if nothing is to be shown."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield None
        return
    if _display:
        yield _display[0]
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("[dim]left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        _display.append(bars)
        try:
            yield bars
        finally:
            _display.clear()
