"""``shpi split``: split a log into users to learn from and held-out users."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi.cli._shell.reading import add_reading_options, read_logs
from shpi.cli._shell.shards import add_passes_options, executor, open_shards
from shpi.errors import ConfigError

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.data.shards import ShardedLog

DESCRIPTION = """Split a log into one to learn from and one to evaluate on, with no user in both.

A policy looks too good on the users that it was learned from. Both files are logs of shpi: the other verbs
open them without a column map. The same seed puts the same users on the same side. A folder of shards
is split into two folders, train and held-out.
"""

EXAMPLES = """examples:
  shpi split events.csv --columns map.toml
  shpi split events.csv --columns map.toml --held-out 0.5 --out data
  shpi split shards --held-out 0.3 --out data
  shpi split log.parquet --time 2026-10-01        learn from the past, evaluate on what came later

then:
  shpi fit train.parquet --out policies/today
  shpi evaluate policies/today held-out.parquet --out report.html
"""

TRAIN, HELD_OUT = "train.parquet", "held-out.parquet"


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "split",
        help="some users to learn from, the others held out",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_reading_options(parser)
    add_passes_options(parser, resume=False)
    add = parser.add_argument
    add("--held-out", type=float, default=0.5, metavar="S", help="the share of held-out users (0.5)")
    add("--time", metavar="WHEN", help="split by time instead: sessions that start before, and from then on")
    add("--out", type=Path, default=Path(), metavar="DIR",
        help=f"the folder for {TRAIN} and {HELD_OUT} (default: here)")  # fmt: skip
    add("--overwrite", action="store_true", help="replace files that are there already")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    places = [options.out / name for name in (TRAIN, HELD_OUT)]
    there = [place for place in places if place.exists()]
    if there and not options.overwrite:
        raise ConfigError(
            expected="no files of these names yet",
            found=", ".join(map(str, there)),
            remedy="--overwrite replaces them, --out names another folder",
        )
    shards = open_shards(options)
    if shards is not None:
        return _split_shards(shards, options)
    logs = read_logs(options, "split")
    if logs is None:
        return 2
    if options.time is None:
        parts = logs.split_users(options.held_out, seed=options.seed)
    else:
        parts = logs.split_time(options.time)
    options.out.mkdir(parents=True, exist_ok=True)
    for half, place, purpose in zip(parts, places, ("to learn from", "to evaluate on"), strict=True):
        half.to_parquet(place)
        print(f"{place}: {half.n_users:,} users, {len(half):,} decisions {purpose}")
    print(f"next: shpi fit {places[0]} --out policies/today")
    return 0


def _split_shards(shards: ShardedLog, options: argparse.Namespace) -> int:
    """Split a folder of shards into two."""
    from shpi.data.shards import split_shards

    if options.time is not None:
        raise ConfigError(
            expected="a log in one file for --time",
            found="a folder of shards",
            remedy="split shards by user, or the table by time before it is sharded",
        )
    places = (options.out / Path(TRAIN).stem, options.out / Path(HELD_OUT).stem)
    there = [place for place in places if place.exists()]
    if there:
        raise ConfigError(expected="no folders of these names yet", found=", ".join(map(str, there)))
    options.out.mkdir(parents=True, exist_ok=True)
    who = executor(options)
    parts = split_shards(shards, options.held_out, places, seed=options.seed, executor=who)
    for half, place, purpose in zip(parts, places, ("to learn from", "to evaluate on"), strict=True):
        print(f"{place}: {half.rows:,} decisions {purpose}")
    print(f"next: shpi fit {places[0]} --out policies/today")
    return 0
