"""Parse the command line and hand over to a verb."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

import shpi
from shpi.cli._shell.pipes import forgiving_output
from shpi.cli._shell.spelling import spelled_for_the_command_line
from shpi.errors import ShpiError

VERBS = (
    *("init", "audit", "split", "fit", "compare", "evaluate", "mix", "act"),
    *("simulate", "agents", "reproduce", "demo", "completion"),
)

DESCRIPTION = """Improve a recommender's long-term metric from the logs it already has.

from a table to a decision:
  shpi init LOG                         a column map for your table, with comments (map.toml)
  shpi audit LOG --columns map.toml     is this log fit for learning, and what is wrong with it if not?
  shpi split LOG --columns map.toml     some users to learn from, the others to judge by
  shpi fit train.parquet --out POLICY   log -> policy
  shpi compare train.parquet            every learner on one log: what each would bring, seconds, memory
  shpi evaluate POLICY held-out.parquet may this policy be shipped? estimates, diagnostics, a report
  shpi mix POLICY train.parquet --out P a first step: the policy in part of the traffic
  shpi act POLICY ROWS                  rows in, item ids and propensities out

without data of one's own:
  shpi simulate ENV --out log.parquet   a log from a simulator
  shpi reproduce NAME|all               the paper's tables and figures beside the paper's numbers
  shpi demo                             a short tour of what there is

Every verb has an example: shpi VERB --help. Colours obey NO_COLOR; progress is shown in a terminal only.
"""

EXIT_OK, EXIT_UNFIT, EXIT_USAGE = 0, 1, 2


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="shpi", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"shpi {shpi.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        import_module(f"shpi.cli.{verb}").add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; bad input is one clear sentence on standard error and exit code 2."""
    with forgiving_output():
        options = build_parser().parse_args(arguments)
        try:
            with spelled_for_the_command_line():
                code: int = options.run(options)
        except ShpiError as error:
            print(f"shpi {options.verb}: {error}", file=sys.stderr)
            return EXIT_USAGE
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
    return code
