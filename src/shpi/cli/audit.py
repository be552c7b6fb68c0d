"""``shpi audit``: is this log fit for learning, what was dropped and why, and what is to be done?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi.errors import ConfigError, ShpiError

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from collections.abc import Iterator

    from shpi.data.audit import AuditReport
    from shpi.data.logged import LoggedData

DESCRIPTION = """Read a log of decisions, check it, and say whether it can be learned from.

LOG is a Parquet or CSV(.gz) file, a quoted glob, or a folder. A file that shpi wrote needs no column map,
and neither does the name of a public data set, whose files are looked for in the folder of --data.
For any other, --columns names a TOML file that says which column means what; without one, a first guess
from the column names is printed for you to correct.
"""

EXAMPLES = """a column map, map.toml:
  user = "uid"
  time = "ts"
  action = "item"
  reward = "click"
  propensity = "p"                 # probability of the chosen action; leave out if it was not logged
  context = ["tenure", "hist_*"]   # what was known before the decision
  session_gap = "30m"              # a longer pause starts a new session

examples:
  shpi audit log.parquet
  shpi audit 'events/*.parquet' --columns map.toml
  shpi audit events.csv.gz --columns map.toml --session-gap 2h --invalid drop
  shpi audit events.csv.gz --columns map.toml --estimate-propensities
  shpi audit log.parquet --json | jq '.findings[].code'
  shpi audit log.parquet --out audit.json
  shpi audit kuairand-random --data ~/kuairand       # also kuairand-standard, heartsteps,
                                                     # open-bandit-{all,men,women}-{random,bts}

exit codes:
  0 fit for learning, 1 unfit, 2 the log could not be read or the command is wrong
"""

# How the errors of the reader name their options, and how they are called here.
_SPELLINGS = {
    "With invalid='drop'": "With --invalid drop",
    "invalid='drop'": "--invalid drop",
    "duplicates='drop' or 'keep'": "--duplicates drop or keep",
    "duplicates='drop'": "--duplicates drop",
}


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "audit",
        help="is this log fit for learning, and what is wrong with it if not?",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("log", nargs="+", metavar="LOG", help="file, glob or folder; several are joined")
    parser.add_argument("--data", metavar="DIR", help="the folder of a public data set (default: $SHPI_DATA)")
    parser.add_argument("--columns", metavar="TOML", help="which column means what")
    parser.add_argument("--session-gap", metavar="GAP", help="a longer pause starts a new session, e.g. 30m")
    parser.add_argument(
        "--invalid",
        choices=("error", "drop"),
        default="error",
        help="rows with unusable values: stop (default), or leave them out and report them",
    )
    parser.add_argument(
        "--duplicates",
        choices=("drop", "keep", "error"),
        default="drop",
        help="decisions that repeat an earlier one (default: drop and report)",
    )
    parser.add_argument(
        "--estimate-propensities",
        action="store_true",
        help="estimate mu(a|x) from the log, and show how well calibrated the estimate is",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the estimation (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--out", metavar="FILE", help="write the report to a file (JSON if it ends in .json)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb: exit code 0 if the log is fit, else 1."""
    target = None if options.out is None else _writable(Path(options.out))
    try:
        with _spelled_for_the_command_line():
            logs = _read(options)
    except ConfigError as error:
        advice, _, guess = error.remedy.partition("\n\n")
        if options.columns is not None or not guess:
            raise
        # The guess stands alone, so that it can be copied into a file as it is.
        print(f"shpi audit: {options.log[0]} needs a column map; {advice}\n\n{guess}", file=sys.stderr)
        return 2
    if options.estimate_propensities:
        logs = _estimate(logs, options.seed)
    report = replace(logs.audit(), source=" ".join(options.log))
    if target is not None:
        _write(report, target, as_json=options.json or target.suffix == ".json")
        counts = f"{report.count('error')} errors, {report.count('warning')} warnings"
        print(f"{'fit' if report.fit else 'unfit'} ({counts}); the report is in {target}")
    elif options.json:
        print(_json(report))
    else:
        report.show()
    return 0 if report.fit else 1


def _read(options: argparse.Namespace) -> LoggedData:
    from shpi.data.datasets import load, names
    from shpi.data.read import read_log

    if len(options.log) == 1 and options.log[0] in names() and not Path(options.log[0]).exists():
        return load(options.log[0], options.data)
    source = options.log[0] if len(options.log) == 1 else options.log
    logs = read_log(
        source,
        options.columns,
        session_gap=options.session_gap,
        invalid=options.invalid,
        duplicates=options.duplicates,
    )
    if options.columns is None and options.session_gap is not None:
        raise ConfigError(
            expected="--session-gap together with --columns",
            found=f"{options.log[0]}, a file that shpi wrote, whose sessions are fixed",
            remedy="read the original table again with another gap",
        )
    return logs


def _estimate(logs: LoggedData, seed: int) -> LoggedData:
    from rich.console import Console

    if logs.propensity_mode == "logged":
        raise ConfigError(
            expected="a log without propensities for --estimate-propensities",
            found="propensities that were logged, which are better than any estimate",
            remedy="leave 'propensity' out of the column map, if you do not trust them",
        )
    with Console(stderr=True).status("estimating propensities"):
        return logs.with_estimated_propensities(seed=seed)


@contextmanager
def _spelled_for_the_command_line() -> Iterator[None]:
    """An error of the reader that advises a Python option advises the command's option instead."""
    try:
        yield
    except ShpiError as error:
        remedy = error.remedy
        for python, shell in _SPELLINGS.items():
            remedy = remedy.replace(python, shell)
        if remedy == error.remedy:
            raise
        raise type(error)(
            expected=error.expected, found=error.found, where=error.where, remedy=remedy
        ) from None


def _json(report: AuditReport) -> str:
    return json.dumps(report.to_json(), indent=2, allow_nan=False, default=lambda value: value.item())


def _writable(path: Path) -> Path:
    """Complain about a bad target before minutes of work, not after."""
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(
            expected="a file in a folder that exists",
            found="a folder" if path.is_dir() else f"no folder {path.parent}",
            where=f"--out {path}",
        )
    return path


def _write(report: AuditReport, path: Path, *, as_json: bool) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text((_json(report) if as_json else str(report)) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(
            expected="a file that can be written", found=str(error), where=f"--out {path}"
        ) from None
