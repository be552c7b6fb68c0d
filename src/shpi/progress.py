"""One progress bar for all long work: on standard error, gone when done, silent outside a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(label: str, total: float, wanted: bool | None = None) -> Iterator[Callable[[float], None]]:
    """Give a function that advances the bar. ``wanted=None`` shows it in a terminal only."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda amount: bar.advance(task, amount)
