"""The trial's published files, ``suggestions.csv`` and ``jbsteps.csv``, as one table of decision points.

The exclusions are those of the trial's primary analysis (8,274 rows in, 7,540 used): days of travel (390),
days after the 42nd (340), a suggestion sent to somebody who was unavailable (3), and a suggestion of
unknown kind (1). Missing step counts are 0, and 0.5 is added to all of them before the logarithm.
"""

from __future__ import annotations

import polars as pl

from shpi.data._log.ledger import Drop

OFFICIAL = (
    "user.index", "decision.index", "decision.index.nogap", "sugg.select.utime", "sugg.select.slot", "avail",
    "send", "send.sedentary", "jbsteps30pre", "jbsteps30", "dec.location.category", "dec.temperature",
)  # fmt: skip
LAST_DAY = 41  # days are counted from 0


def from_suggestions(
    suggestions: pl.DataFrame, minutes: pl.DataFrame | None
) -> tuple[pl.DataFrame, tuple[Drop, ...]]:
    """The columns of the joined table, and the dropped rows.

    ``minutes`` (user.index, steps.utime.local, steps) gives the steps of the day before; without it they
    are missing everywhere.
    """
    table = suggestions.sort("user.index", "decision.index").with_row_index("row")
    time = pl.col("sugg.select.utime").cast(pl.String).replace("", None).str.slice(0, 19)
    table = table.with_columns(
        # One point has no time; like the trial's own analysis, use the time of the next one.
        time=time.str.to_datetime("%Y-%m-%d %H:%M:%S").backward_fill().over("user.index"),
        avail=_flag("avail"),
        send=_flag("send"),
    )
    drops = []
    travel = pl.col("decision.index.nogap").cast(pl.Float64, strict=False).is_null()
    table, drop = _leave_out(table, travel, "travel day", "decision.index.nogap")
    drops.append(drop)
    date = (pl.col("time") - pl.duration(hours=4)).dt.date()
    table = table.with_columns(date=date).with_columns(
        day=(pl.col("date").rank("dense").over("user.index") - 1).cast(pl.Int64)
    )
    unknown_kind = (pl.col("send") == 1) & _flag("send.sedentary", missing=None).is_null()
    for bad, reason, column in (
        (pl.col("day") > LAST_DAY, "after the 42nd day", "sugg.select.utime"),
        ((pl.col("avail") == 0) & (pl.col("send") == 1), "sent although unavailable", "avail"),
        (unknown_kind, "suggestion of unknown kind", "send.sedentary"),
    ):
        table, drop = _leave_out(table, bad, reason, column)
        drops.append(drop)
    place = pl.col("dec.location.category")
    joined = _with_yesterday(table, minutes).select(
        pl.col("user.index").alias("user"),
        pl.col("decision.index.nogap").cast(pl.Int64),
        pl.col("day").alias("study.day.nogap"),
        *(
            (pl.col(name).cast(pl.Float64, strict=False).fill_null(0.0) + 0.5)
            for name in ("jbsteps30pre", "jbsteps30")
        ),
        "avail",
        "send",
        pl.col("time").dt.strftime("%Y-%m-%d %H:%M:%S").alias("sugg.select.utime"),
        "sugg.select.slot",
        "sum_step.log",
        (~place.is_in(["home", "work"])).cast(pl.Float64).alias("other.location"),
        (place == "work").cast(pl.Float64).alias("work.location"),
        pl.col("dec.temperature").cast(pl.Float64, strict=False),
    )
    return joined, tuple(drop for drop in drops if drop.rows)


def _flag(name: str, missing: int | None = 0) -> pl.Expr:
    """``True``/``False`` texts, or numbers, as 1 and 0."""
    text = pl.col(name).cast(pl.String).str.to_lowercase()
    return (
        pl.when(text.is_in(["true", "1"]))
        .then(1)
        .when(text.is_in(["false", "0"]))
        .then(0)
        .otherwise(missing)
        .cast(pl.Int64)
    )


def _leave_out(table: pl.DataFrame, bad: pl.Expr, reason: str, column: str) -> tuple[pl.DataFrame, Drop]:
    gone = table.filter(bad.fill_null(False))
    example = int(gone["row"][0]) if gone.height else None
    return table.filter(~bad.fill_null(False)), Drop(
        reason=reason, rows=gone.height, column=column, example=example, remedy="as in the trial's analysis"
    )


def _with_yesterday(table: pl.DataFrame, minutes: pl.DataFrame | None) -> pl.DataFrame:
    """The log of the steps counted on the day before, by the wearer's own calendar."""
    if minutes is None:
        return table.with_columns(pl.lit(None, dtype=pl.Float64).alias("sum_step.log"))
    day = pl.col("steps.utime.local").cast(pl.String).str.slice(0, 10).str.to_date("%Y-%m-%d")
    daily = (
        minutes.group_by("user.index", date=day.dt.offset_by("1d"))
        .agg(total=pl.col("steps").sum())
        .filter(pl.col("total") > 0)
        .select("user.index", "date", pl.col("total").log().alias("sum_step.log"))
    )
    return table.join(daily, on=["user.index", "date"], how="left", maintain_order="left")
