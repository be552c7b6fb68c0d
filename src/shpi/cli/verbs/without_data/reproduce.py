"""``shpi reproduce``: the paper's tables and figures, side by side with the paper's numbers."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi.errors import ConfigError

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.experiments._run.cells import Cell, Outcome
    from shpi.experiments._run.run import Plan
    from shpi.experiments._run.runner import Tally
    from shpi.experiments._run.selection import Selection
    from shpi.experiments._run.store import Store

DESCRIPTION = """Run experiments of the paper, and some beyond it: a page sets paper and ours side by side.

Rows go to DIR/NAME.jsonl as soon as they are there. A run that was ended goes on where it stopped; cells that
failed are tried again. Figures and both pages (README.md, index.html) are drawn at the end.
"""

EXAMPLES = """examples:
  shpi reproduce --list
  shpi reproduce all --quick --out /tmp/quick        everything, small: five minutes on two cores
  shpi reproduce recogym signals                     two experiments, ten seeds
  shpi reproduce all --data kuairand/                the whole paper: an hour or more on two cores
  shpi reproduce all --without shpi                  the rivals first; later, without this option, the rest
  shpi reproduce all --page                          draw the page again, run nothing
"""


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "reproduce",
        help="the paper's tables and figures, side by side with the paper's numbers",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="experiments, or all")
    add("--list", action="store_true", help="list the experiments and stop")
    add("--seeds", type=int, metavar="N", help="trials: seeds 0 to N-1 (default: 10, quick: 1)")
    add("--quick", action="store_true", help="small logs and few gradient steps, to see that all runs")
    add("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    add("--data", type=Path, metavar="DIR", help="KuaiRand's files (default: SHPI_DATA)")
    methods = "by the names of `shpi fit --list`, logging or exact; the rest can be run later"
    add("--only", nargs="+", default=[], metavar="METHOD", help=f"run the cells of these alone, {methods}")
    add("--without", nargs="+", default=[], metavar="METHOD", help="run all cells but those of these")
    add("--fresh", action="store_true", help="forget the rows of these experiments (and methods) first")
    add("--page", action="store_true", help="only draw the page from the rows that are there")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb: 0 if every cell finished, 1 if some failed."""
    from shpi.experiments import catalogue
    from shpi.experiments._run.run import Plan, draw, go
    from shpi.experiments._run.selection import Selection
    from shpi.experiments._run.settings import Settings
    from shpi.experiments._run.store import Store

    if options.list or not options.names:
        return _list(0 if options.list else 2)
    seeds = options.seeds if options.seeds is not None else 1 if options.quick else 10
    if seeds < 1:
        raise ConfigError(expected="--seeds of at least 1", found=str(seeds))
    if options.data is not None:
        os.environ["SHPI_DATA"] = str(options.data.resolve())
    settings = Settings(seeds=tuple(range(seeds)), quick=options.quick, data=_has_data())
    selection = Selection(only=tuple(options.only), without=tuple(options.without))
    plan = Plan.of(catalogue.chosen(options.names), settings)
    store = Store(options.out)
    if options.fresh:
        _forget(plan, store, selection)
    failed = 0
    if not options.page:
        _announce(plan)
        with _ended_by_kill(), _bar() as report:
            tally = go(
                plan.selected(selection), store, jobs=options.jobs, command=_command(options), report=report
            )
        failed = _summarise(tally)
    markdown, html = draw(plan.experiments, store, settings)
    print(f"{markdown}\n{html}")
    return 1 if failed else 0


@contextmanager
def _ended_by_kill() -> Iterator[None]:
    """Within the block, `kill` acts like Ctrl-C: the run is recorded, and its processes end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _forget(plan: Plan, store: Store, selection: Selection) -> None:
    """Remove the stored rows of the plan's cells; for whole experiments, also rows of outdated cells."""
    for name, cells in plan.cells.items():
        if selection.everything:
            store.path(name).unlink(missing_ok=True)
        else:
            store.forget(name, {cell.key for cell in selection.of(cells)})


def _list(code: int) -> int:
    from shpi.experiments import catalogue

    for name in catalogue.names():
        experiment = catalogue.find(name)
        print(f"{name:16s} {experiment.title} ({experiment.source})")
    return code


def _has_data() -> bool:
    from shpi.data.datasets.kuairand import KUAIRAND
    from shpi.errors import ShpiError

    try:
        KUAIRAND.folder(None)
    except ShpiError:
        return False
    return True


def _command(options: argparse.Namespace) -> str:
    """The command without paths of this machine."""
    words = ["shpi", "reproduce", *options.names]
    words += ["--seeds", str(options.seeds)] if options.seeds is not None else []
    words += ["--quick"] if options.quick else []
    words += ["--only", *options.only] if options.only else []
    words += ["--without", *options.without] if options.without else []
    return shlex.join([*words, "--jobs", str(options.jobs)])


def _announce(plan: Plan) -> None:
    for experiment in plan.experiments:
        why = plan.skipped(experiment)
        if why:
            print(f"{experiment.name}: {why}.", file=sys.stderr)


def _summarise(tally: Tally) -> int:
    print(
        f"{tally.run} cells run, {tally.reused} were there already, {len(tally.failed)} failed.",
        file=sys.stderr,
    )
    for cell, message in tally.failed[:20]:
        where = f"{cell.log.label}, epsilon {cell.log.epsilon:g}, seed {cell.log.seed}, {cell.method}"
        print(f"failed: {where}: {message}", file=sys.stderr)
    return len(tally.failed)


@contextmanager
def _bar() -> Iterator[Callable[[Cell, Outcome, int], None]]:
    """A progress bar with the remaining time; outside a terminal, one line per cell."""
    if not sys.stderr.isatty():
        yield _line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hour = 3600.0  # seconds: cells take up to a minute each, so rich's usual 30 s give no speed
    display = Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=hour)
    with display as bar:
        task = bar.add_task("the first cells are running", total=None)
        done = 0

        def report(cell: Cell, outcome: Outcome, left: int) -> None:
            nonlocal done
            done += 1
            what = "failed" if outcome.message else cell.method
            bar.update(task, description=f"{cell.log.label}, {what}", completed=done, total=done + left)

        yield report


def _line(cell: Cell, outcome: Outcome, left: int) -> None:
    what = f"failed: {outcome.message}" if outcome.message else f"{outcome.seconds:.1f} s"
    name = f"{cell.log.label} {cell.log.epsilon:g} seed {cell.log.seed}: {cell.method}, k = {cell.k}"
    print(f"{name}: {what}; {left} left", file=sys.stderr, flush=True)
