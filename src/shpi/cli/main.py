"""Parses the command line and runs a verb."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import shpi
from shpi.cli._shell.pipes import forgiving_output
from shpi.cli._shell.spelling import spelled
from shpi.errors import FileError, MemoryLimitError, ShpiError
from shpi.files.engines import first_line, translated

# Verbs in the order of the help, and their modules in shpi.cli.verbs.
VERBS = {
    place.rpartition(".")[2]: place
    for place in (
        *("init", "audit", "split", "shard", "fit", "compare", "evaluate", "mix", "act", "serve", "export"),
        *("without_data.simulate", "without_data.agents", "without_data.reproduce", "without_data.demo"),
        "completion",
    )
}

DESCRIPTION = """Improve a recommender's long-term metric from the logs it already has.

from a table to a decision:
  shpi init LOG                         a column map for your table, with comments (map.toml)
  shpi audit LOG --columns map.toml     is this log fit for learning, and what is wrong with it if not?
  shpi split LOG --columns map.toml     some users to learn from, the others held out
  shpi shard LOG --columns map.toml     a log larger than memory, as shards that the other verbs take
  shpi fit train.parquet --out POLICY   log -> policy
  shpi compare train.parquet            every learner on one log: its policy's value, seconds, memory
  shpi evaluate POLICY held-out.parquet may this policy be shipped? estimates, diagnostics, a report
  shpi mix POLICY train.parquet --out P a first step: the policy in part of the traffic
  shpi act POLICY ROWS                  rows in, item ids and propensities out
  shpi serve FOLDER                     decisions over HTTP, with a log and a loop that learns from it
  shpi export POLICY --onnx FILE        a policy for other runtimes

without data of one's own:
  shpi simulate ENV --out log.parquet   a log from a simulator
  shpi reproduce NAME|all               the paper's tables and figures beside the paper's numbers
  shpi demo                             a short tour of what there is

Every verb has an example: shpi VERB --help. Exit codes of all verbs: 2 bad input, 70 a bug, 74 no space,
memory or permission. Colours obey NO_COLOR; progress is shown in a terminal only.
"""

EXIT_OK, EXIT_UNFIT, EXIT_USAGE = 0, 1, 2  # exit codes: done; a log unfit for learning; a bad option or file
EXIT_BUG, EXIT_MACHINE = 70, 74  # exit codes as in sysexits.h: a bug; no space, memory or permission


def build_parser(verb: str = "") -> argparse.ArgumentParser:
    """The parser of one verb, or of all verbs; imports only the modules that it needs."""
    parser = argparse.ArgumentParser(
        prog="shpi", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"shpi {shpi.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for place in [VERBS[verb]] if verb in VERBS else VERBS.values():
        import_module(f"shpi.cli.verbs.{place}").add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; any error becomes one sentence on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with forgiving_output():
        options = build_parser(words[0] if words else "").parse_args(words)
        try:
            code: int = options.run(options)
            sys.stdout.flush()  # so that a full disk is reported as this verb's failure
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of polars is not an Exception
            return _explain(error, options.verb)
    return code


def _explain(error: BaseException, verb: str) -> int:
    """Print one sentence to standard error, and return the exit code."""
    ours = error if isinstance(error, ShpiError) else translated(error)
    if isinstance(error, ShpiError) and type(error).__init__ is ShpiError.__init__:
        remedy = spelled(error.remedy)  # with options in place of Python arguments
        ours = type(error)(expected=error.expected, found=error.found, where=error.where, remedy=remedy)
    if ours is not None:
        print(f"shpi {verb}: {ours}", file=sys.stderr)
        return EXIT_MACHINE if isinstance(ours, FileError | MemoryLimitError) else EXIT_USAGE
    if os.environ.get("SHPI_TRACEBACK"):
        traceback.print_exception(error)
    print(
        f"shpi {verb}: this is a bug in shpi, not in your data: {type(error).__name__}: {first_line(error)}. "
        "What to do: run it again with SHPI_TRACEBACK=1, and report what it prints.",
        file=sys.stderr,
    )
    return EXIT_BUG
