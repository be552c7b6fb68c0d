"""Verbs on a folder of shards: how to recognise one, and which options do not apply to it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shpi._core.executors import executor_of
from shpi.errors import ConfigError
from shpi.files.remote import Remote, is_remote

if TYPE_CHECKING:  # imported when a verb runs, so that `shpi --help` is quick
    from shpi._core.executors import Executor
    from shpi.data.logged import LoggedData
    from shpi.data.shards import ShardedLog

MANIFEST = "manifest.json"  # as in `shpi.data.shards`, which is slow to import


def add_passes_options(parser: argparse.ArgumentParser, *, resume: bool = True) -> None:
    """Add --jobs, --ray and, for verbs that can resume a killed run, --resume."""
    who = parser.add_argument_group("how to process a folder of shards; the result is the same")
    who.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    who.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="machines of a Ray cluster: auto, HOST:PORT, or local; needs shpi[cluster]",
    )
    if resume:
        who.add_argument(
            "--resume",
            type=Path,
            metavar="DIR",
            help="store the result of each shard in this folder: the same command resumes after a kill",
        )


def executor(options: argparse.Namespace) -> Executor:
    """The executor that runs passes over shards: serial, processes or Ray, resumable or not."""
    if options.jobs < 1:
        raise ConfigError(expected="--jobs of at least 1", found=str(options.jobs))
    if options.ray is not None and options.jobs > 1:
        raise ConfigError(expected="--jobs or --ray", found="both")
    who = executor_of(options.jobs)
    if options.ray is not None:
        from shpi.cluster import Ray

        who = Ray(options.ray)
    if getattr(options, "resume", None) is not None:
        from shpi.passes import Resumable

        who = Resumable(executor=who, folder=options.resume)
    return who


def forget(options: argparse.Namespace) -> None:
    """Remove what was kept for --resume, once the work is done."""
    if options.resume is not None:
        from shpi.passes import Resumable

        who = executor(options)
        assert isinstance(who, Resumable)
        who.forget()


def passing(options: argparse.Namespace) -> dict[str, Executor]:
    """The executor as an argument of `shpi.evaluate`, if the options ask for one."""
    asked = options.jobs != 1 or options.ray is not None or options.resume is not None
    return {"executor": executor(options)} if asked else {}


def open_shards(options: argparse.Namespace) -> ShardedLog | None:
    """The folder that `shpi shard` wrote, if LOG is one; None for a table."""
    if len(options.log) != 1:
        return None
    folder = options.log[0]
    try:
        if is_remote(folder):
            from shpi.files.reading import LARGEST_JSON

            content = Remote(f"{folder}/{MANIFEST}").read(LARGEST_JSON)
        else:
            content = (Path(folder) / MANIFEST).read_bytes()
        manifest = json.loads(content)
    except (OSError, ValueError):
        return None
    # The folder of a policy has a manifest of another kind.
    if not isinstance(manifest, dict) or "files" not in manifest or "ledger" not in manifest:
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
            where=folder,
            remedy="make the shards again with this in the column map: shpi shard SOURCE --columns map.toml "
            "--out DIR",
        )
    return ShardedLog.open(folder)


def sampled(shards: ShardedLog, options: argparse.Namespace) -> LoggedData:
    """The sample of users that a learner uses; prints its size to standard error."""
    from shpi.learners.base import learned_from, sampled_words

    logs = learned_from(shards, seed=options.seed, executor=executor(options))
    words = sampled_words(logs, shards)
    if words:
        print(words, file=sys.stderr)
    return logs
