"""``shpi act``: rows in, item ids and propensities out."""

from __future__ import annotations

import argparse
import io
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi.errors import ConfigError, DataError
from shpi.files.atomic import new_file

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    import polars as pl

DESCRIPTION = """Let a policy decide: one item per row, with the probability with which it was chosen.

ROWS is a Parquet, CSV or JSON-lines file with the context columns that the policy was learned from, or - for
standard input (CSV or JSON lines). Show the item, and log the propensity beside it: it is what makes the next
log as useful as the last one.
"""

EXAMPLES = """examples:
  shpi act policies/today users.csv
  shpi act policies/today users.parquet --keep user_id --out decisions.csv
  echo '{"tenure": 0.4, "seen_before": 2}' | shpi act policies/today - --format jsonl
  shpi act policies/today users.csv --candidates eligible --seed 7
  shpi act policies/today users.csv --new-items arrivals.csv --explore 10%

output: in a terminal a table, in a pipe JSON lines, in a file what its name says (.csv, .parquet, .jsonl)
"""

FORMATS = ("table", "csv", "jsonl", "parquet")
ITEM, PROPENSITY = "item", "propensity"


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "act",
        help="rows in, item ids and propensities out",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("policy", type=Path, metavar="POLICY", help="a policy folder")
    add("rows", metavar="ROWS", help="a table with the context columns, or - for standard input")
    add("--keep", metavar="A,B", help="columns of ROWS to repeat in the output, such as the user's id")
    add("--candidates", metavar="COLUMN", help="a column with the list of items that are allowed, per row")
    add("--new-items", metavar="FILE",
        help="a table of items that the log has never shown: a column item, and their features")  # fmt: skip
    add("--explore", default="5%", metavar="S", help="how often a policy near mu tries a new item (5%%)")
    add("--seed", type=int, help="of the draws; without it every call draws anew")
    add("--format", choices=FORMATS, help="of the output")
    add("--out", type=Path, metavar="FILE", help="write to a file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    from shpi.policies import act, load_policy

    form = output_format(options)
    policy, rows = load_policy(options.policy), read_rows(options.rows)
    if options.new_items is not None:
        from shpi.cli.verbs.evaluate import parse_amount
        from shpi.policies.new_items import add_items

        explore, _ = parse_amount(options.explore, "--explore")
        policy = add_items(policy, read_rows(options.new_items), explore=explore)
    copied = columns_of(rows, [name.strip() for name in (options.keep or "").split(",") if name.strip()])
    known = getattr(policy, "items", None)
    ids = () if known is None or known.actions is None else known.actions.ids
    allowed = None if options.candidates is None else candidates_of(rows, options.candidates, ids)
    seed = secrets.randbits(63) if options.seed is None else options.seed
    items, chances = act(policy, rows, allowed, seed=seed)
    import polars as pl

    decided = pl.DataFrame([*copied.get_columns(), pl.Series(ITEM, items), pl.Series(PROPENSITY, chances)])
    write(decided, form, options.out)
    return 0


def output_format(options: argparse.Namespace) -> str:
    """The format that was asked for, or one that suits the destination."""
    if options.format is not None:
        if options.format == "parquet" and options.out is None:
            raise ConfigError(expected="--out FILE with --format parquet", found="none")
        return str(options.format)
    if options.out is not None:
        form: str = options.out.suffix.removeprefix(".").lower().replace("ndjson", "jsonl")
        if form not in FORMATS[1:]:
            raise ConfigError(expected="a file .csv, .jsonl or .parquet, or --format", found=str(options.out))
        return form
    return "table" if sys.stdout.isatty() else "jsonl"


def read_rows(place: str) -> pl.DataFrame:
    """A table from a file or from standard input."""
    import polars as pl

    from shpi.data._read.sources import open_table

    if place != "-" and not place.lower().endswith((".jsonl", ".ndjson", ".json")):
        return open_table(place).frame.collect()
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
        if not text.strip():
            raise DataError(expected="rows to decide on", found="nothing", where=place)
        source = io.BytesIO(text.encode())
        return pl.read_ndjson(source) if text.lstrip().startswith("{") else pl.read_csv(source)
    except (OSError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        raise DataError(
            expected="a table in Parquet, CSV or JSON lines", found=str(error).splitlines()[0], where=place
        ) from None


def columns_of(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The named columns; an error if one is missing."""
    from shpi.data.columns import missing_column

    for name in names:
        if name not in rows.columns:
            raise missing_column("--keep", name, rows.columns)
    return rows.select(names)


def candidates_of(rows: pl.DataFrame, column: str, ids: tuple[int | str, ...] = ()) -> list[list[Any]]:
    """The allowed items of every row: a list column, or ids separated by commas or bars."""
    import polars as pl

    from shpi.data.columns import missing_column

    if column not in rows.columns:
        raise missing_column("--candidates", column, rows.columns)
    series = rows[column]
    if series.dtype == pl.String:
        bars = series.str.contains("|", literal=True).any()
        series = series.str.split("|" if bars else ",").list.eval(pl.element().str.strip_chars())
    if not isinstance(series.dtype, pl.List):
        raise DataError(
            expected="a column of lists of item ids", found=f"type {series.dtype}", where=f"column '{column}'"
        )
    if ids and all(isinstance(action, int) for action in ids) and series.dtype == pl.List(pl.String):
        series = series.cast(pl.List(pl.Int64), strict=False)  # a CSV has only text; unknown ids become null
    lists: list[list[Any]] = series.to_list()
    return lists


def write(decided: pl.DataFrame, form: str, place: Path | None) -> None:
    """Write the decisions in a format; a file appears complete or not at all."""
    if place is None:
        print(_text(decided, form), end="")
        return
    with new_file(place) as file:
        if form == "parquet":
            decided.write_parquet(file)
        else:
            file.write(_text(decided, form).encode())
    print(f"wrote {place}: {decided.height:,} decisions", file=sys.stderr)


def _text(decided: pl.DataFrame, form: str) -> str:
    import polars as pl

    if form == "csv":
        return decided.write_csv()
    if form == "jsonl":
        return decided.write_ndjson()
    plain = {"tbl_hide_dataframe_shape": True, "tbl_hide_column_data_types": True}
    with pl.Config(tbl_rows=40, float_precision=4, **plain):  # type: ignore[arg-type]
        return f"{decided}\n"
