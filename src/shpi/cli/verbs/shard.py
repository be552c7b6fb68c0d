"""``shpi shard``: split a table larger than memory into shards of whole users, for the other verbs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from shpi.errors import ConfigError

DESCRIPTION = """Prepare a log that may be larger than memory: deal it into shards by a hash of the user.

Each shard is sorted, checked and written once; the other verbs then pass over the folder shard by shard.
Memory is that of one shard. The folder appears when it is complete: a run that fails leaves nothing behind.
"""

EXAMPLES = """examples:
  shpi shard 'events/*.parquet' --columns map.toml --out shards
  shpi shard events/ --columns map.toml --out shards --rows 200000
  shpi shard 'events/*.parquet' --columns map.toml --out shards --resume unfinished
  shpi shard 's3://bucket/events/*.parquet' --columns map.toml --out s3://bucket/shards
  shpi shard log.parquet --out shards                  a file that shpi wrote needs no column map

then:
  shpi audit shards
  shpi fit shards --out policies/today --jobs 2
  shpi evaluate policies/today held-out-shards
"""


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "shard",
        help="a table larger than memory, as shards of whole users",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("log", nargs="+", metavar="SOURCE", help="file, glob or folder; several are joined")
    add("--columns", metavar="TOML", help="which column means what")
    add("--out", required=True, metavar="DIR", help="folder or URI to write, which must not exist")
    add("--rows", type=int, metavar="N", help="about so many decisions in a shard (default: 500,000)")
    add("--invalid", choices=("error", "drop"), default="error",
        help="rows with unusable values: stop (default), or leave them out and report them")  # fmt: skip
    add("--duplicates", choices=("drop", "keep", "error"), default="drop",
        help="decisions that repeat an earlier one (default: drop and report)")  # fmt: skip
    add("--resume", type=Path, metavar="DIR",
        help="keep unfinished work in this folder: the same command goes on after a kill")  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    from shpi.data.canonical import is_canonical, read_canonical
    from shpi.data.shards import ROWS_PER_SHARD, deal, prepare_shards

    rows = ROWS_PER_SHARD if options.rows is None else options.rows
    if rows < 1:
        raise ConfigError(expected="--rows of at least 1", found=str(rows))
    if options.columns is None and len(options.log) == 1 and is_canonical(options.log[0]):
        logs = read_canonical(Path(options.log[0]))
        shards = deal(logs, options.out, -(-len(logs) // rows))
    elif options.columns is None:
        raise ConfigError(
            expected="--columns map.toml",
            found="none",
            remedy=f"shpi init {' '.join(options.log)} writes one with comments",
        )
    else:
        source = options.log[0] if len(options.log) == 1 else options.log
        shards = prepare_shards(
            source,
            options.columns,
            options.out,
            rows_per_shard=rows,
            invalid=options.invalid,
            duplicates=options.duplicates,
            resume=options.resume,
        )
    print(f"{options.out}: {shards.rows:,} decisions in {len(shards)} shards")
    if shards.ledger.rows_dropped:
        print(f"  {shards.ledger.rows_dropped:,} rows were left out: shpi audit {options.out} says why")
    print(f"next: shpi audit {options.out}")
    return 0
