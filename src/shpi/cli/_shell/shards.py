"""Verbs on a folder of shards: how it is told from a table, and which options it cannot have."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shpi._core.executors import executor_of
from shpi.errors import ConfigError

if TYPE_CHECKING:  # imported when a verb runs, so that `shpi --help` is quick
    from shpi._core.executors import Executor
    from shpi.data.logged import LoggedData
    from shpi.data.shards import ShardedLog

MANIFEST = "manifest.json"  # that of `shpi.data.shards`, which is imported only where it is needed


def add_jobs_option(parser: argparse.ArgumentParser) -> None:
    """Add --jobs."""
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="processes that pass over a folder of shards (default: 1); the result is the same",
    )


def executor(options: argparse.Namespace) -> Executor:
    """Who passes over shards."""
    if options.jobs < 1:
        raise ConfigError(expected="--jobs of at least 1", found=str(options.jobs))
    return executor_of(options.jobs)


def open_shards(options: argparse.Namespace) -> ShardedLog | None:
    """The folder that `shpi shard` wrote, if LOG is one; None for a table."""
    if len(options.log) != 1 or not is_sharded(Path(options.log[0])):
        return None
    from shpi.data.shards import ShardedLog

    settled = {
        "--columns": options.columns is not None,
        "--session-gap": options.session_gap is not None,
        "--metric": options.metric is not None,
        "--churn-after": options.churn_after is not None,
        "--invalid": options.invalid != "error",
        "--duplicates": options.duplicates != "drop",
        "--estimate-propensities": options.estimate_propensities,
    }
    given = [name for name, is_given in settled.items() if is_given]
    if given:
        raise ConfigError(
            expected="a folder of shards without options about the table that it was made of",
            found=", ".join(given),
            where=options.log[0],
            remedy="make the shards again with this in the column map: shpi shard SOURCE --columns map.toml "
            "--out DIR",
        )
    return ShardedLog.open(options.log[0])


def is_sharded(folder: Path) -> bool:
    """Whether a folder has the manifest of shards; a policy has a manifest, too, of another kind."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and "files" in manifest and "ledger" in manifest


def sampled(shards: ShardedLog, options: argparse.Namespace) -> LoggedData:
    """Those users of a folder of shards that a learner looks at; says on standard error how many they are."""
    from shpi.learners.base import learned_from, sampled_words

    logs = learned_from(shards, seed=options.seed, executor=executor(options))
    words = sampled_words(logs, shards)
    if words:
        print(words, file=sys.stderr)
    return logs
