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

VERBS = ("audit", "fit", "evaluate", "compare", "simulate", "agents", "reproduce", "demo")

DESCRIPTION = """Improve a recommender's long-term metric from the logs it already has.

  shpi audit LOG --columns map.toml     is this log fit for learning, and what is wrong with it if not?
  shpi fit LOG --out DIR                log -> policy
  shpi evaluate POLICY LOG              may this policy be shipped? estimates, diagnostics, a report
  shpi compare LOG|ENV                  every learner on one log: seconds, memory, online return
  shpi simulate ENV --out log.parquet   a log from a simulator, to try everything without data of one's own
  shpi reproduce NAME|all               the paper's tables and figures beside the paper's numbers
  shpi demo                             a short tour of what there is
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
