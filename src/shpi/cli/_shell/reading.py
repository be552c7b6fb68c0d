"""The options that say how to read a log, shared by all verbs, and the function that reads it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi._core.progress import progress_bar
from shpi.errors import ConfigError, NoColumnMapError

if TYPE_CHECKING:  # imported when a verb runs, so that `shpi --help` is quick
    from shpi.data.logged import LoggedData


def add_reading_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add LOG and the options that say how to read it."""
    parser.add_argument(
        "log", nargs="+" if required else "*", metavar="LOG", help="file, glob or folder; several are joined"
    )
    parser.add_argument("--data", metavar="DIR", help="the folder of a public data set (default: $SHPI_DATA)")
    parser.add_argument("--columns", metavar="TOML", help="which column means what")
    parser.add_argument("--session-gap", metavar="GAP", help="a longer pause starts a new session, e.g. 30m")
    parser.add_argument(
        "--metric",
        metavar="WHAT",
        help="what a user is worth: a column or a count, e.g. 'purchases in 30d', 'active days in 30d', "
        "'returns within 7d in 90d' (default: the map's metric, or the reward as far as the log goes)",
    )
    parser.add_argument(
        "--churn-after",
        metavar="TIME",
        help="a user silent for longer within the log has left, e.g. 30d; 'never': no user leaves",
    )
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
    parser.add_argument("--seed", type=int, default=0, help="random seed of the estimation (default: 0)")


def read_logs(options: argparse.Namespace, verb: str, **encoding: Any) -> LoggedData | None:
    """Read the log that the options name; without a column map, print a guess of one and return None.

    Args:
        options: options of the command line.
        verb: name of the verb, for messages.
        encoding: ``schema`` and ``action_space`` to read the table with.
    """
    from shpi.data._read.read import apply_metric, read_log
    from shpi.data.datasets import load, names

    first = options.log[0]
    try:
        if len(options.log) == 1 and not Path(first).exists() and first in names():
            logs = apply_metric(load(first, options.data), options.metric, options.churn_after)
        else:
            logs = read_log(
                first if len(options.log) == 1 else options.log,
                options.columns,
                session_gap=options.session_gap,
                invalid=options.invalid,
                duplicates=options.duplicates,
                metric=options.metric,
                churn_after=options.churn_after,
                **encoding,
            )
            if options.columns is None and options.session_gap is not None:
                raise ConfigError(
                    expected="--session-gap together with --columns",
                    found=f"{first}, a file that shpi wrote, whose sessions are fixed",
                    remedy="read the original table again with another gap",
                )
    except NoColumnMapError as error:
        # Only the guess goes to standard output, so that it can be redirected into a file.
        place = f"shpi {verb}: {first}"
        init = f"shpi init {' '.join(options.log)} writes one with comments, to be named with --columns"
        print(f"{place} needs a column map; {init}. Or {error.advice}\n\n{error.guess}", file=sys.stderr)
        return None
    return _estimate(logs, options.seed) if options.estimate_propensities else logs


def _estimate(logs: LoggedData, seed: int) -> LoggedData:
    if logs.propensity_mode == "logged":
        raise ConfigError(
            expected="a log without propensities for --estimate-propensities",
            found="propensities that were logged, which are better than any estimate",
            remedy="leave 'propensity' out of the column map, if you do not trust them",
        )
    with progress_bar("estimating propensities", None):
        return logs.with_estimated_propensities(seed=seed)
