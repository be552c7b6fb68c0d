"""``shpi audit``: is this log fit for learning, what was dropped and why, and what should be done?"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi._core.progress import progress_bar
from shpi.cli._shell.reading import add_reading_options, read_logs
from shpi.cli._shell.shards import add_passes_options, executor, forget, open_shards
from shpi.errors import ConfigError
from shpi.files.atomic import write_text
from shpi.files.jsonable import finite

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.data.audit import AuditReport

DESCRIPTION = """Read a log of decisions, check it, and say whether it can be learned from.

LOG is a Parquet or CSV(.gz) file, a quoted glob, a folder, or a folder of shards (`shpi shard`). A file that
shpi wrote needs no column map, and neither does the name of a public data set, whose files are looked for in
the folder of --data. For any other, --columns names a TOML file that says which column means what; without
one, a first guess from the column names is printed for you to correct.
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


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "audit",
        help="is this log fit for learning, and what is wrong with it if not?",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_reading_options(parser)
    add_passes_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--out", metavar="FILE", help="write the report to a file (JSON if it ends in .json)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb: exit code 0 if the log is fit, else 1."""
    target = None if options.out is None else _writable(Path(options.out))
    shards = open_shards(options)
    if shards is not None:
        from shpi.passes import audit_shards

        with progress_bar(f"auditing {shards.rows:,} decisions", None):
            report = replace(audit_shards(shards, executor=executor(options)), source=options.log[0])
        forget(options)
    else:
        logs = read_logs(options, "audit")
        if logs is None:
            return 2
        with progress_bar(f"auditing {len(logs):,} decisions", None):
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


def _json(report: AuditReport) -> str:
    return json.dumps(finite(report.to_json()), indent=2, allow_nan=False)


def _writable(path: Path) -> Path:
    """Check the output path before minutes of work, not after."""
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(
            expected="a file in a folder that exists",
            found="a folder" if path.is_dir() else f"no folder {path.parent}",
            where=f"--out {path}",
        )
    return path


def _write(report: AuditReport, path: Path, *, as_json: bool) -> None:
    write_text(path, (_json(report) if as_json else str(report)) + "\n")
