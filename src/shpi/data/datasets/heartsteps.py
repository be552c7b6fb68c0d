"""HeartSteps V1: a micro-randomised trial of walking suggestions, 37 people for 42 days.

The trial: P. Klasnja et al., Annals of Behavioral Medicine 53(6), 2019. See docs/datasets.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl

from shpi.data._log.ledger import Drop
from shpi.data._read.read import read_log
from shpi.data.columns import Columns
from shpi.data.datasets.files import Dataset, read_table, with_account
from shpi.data.datasets.heartsteps_official import OFFICIAL, from_suggestions
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.protocols import Float64Array

Reward = Literal["proxy", "long_term"]

HEARTSTEPS = Dataset(
    name="HeartSteps V1",
    origin="the project klasnja/HeartStepsV1 (Klasnja et al., Ann. Behav. Med. 2019)",
    subfolders=("", "data_files", "HeartStepsV1/data_files", "HeartStepsV1-main/data_files"),
)
JOINED = "heartsteps_v1_decisions"
COLUMNS = (
    "user", "decision.index.nogap", "study.day.nogap", "jbsteps30pre", "jbsteps30", "avail", "send",
    "sugg.select.utime", "sugg.select.slot", "sum_step.log", "other.location", "work.location",
    "dec.temperature",
)  # fmt: skip
SEND = 0.6  # probability of a suggestion if the person is available
NO_TEMPERATURE = -1024.0  # the table's code for a missing temperature
DOSE_DECAY = 0.95  # per decision point
HORIZON, LEAST = 7, 4  # days that the long-term reward covers, and how many of them must be known

_GAPS = ("log_steps_yesterday", "other_location", "work_location", "temperature")


def heartsteps(folder: str | Path | None = None, *, reward: Reward = "proxy") -> LoggedData:
    """The decision points of the trial: 5 a day, send a suggestion (action 1) or not (action 0).

    An unavailable person gets no suggestion: only action 0 is a candidate, with propensity 1. Otherwise the
    propensity is 0.6 for sending and 0.4 for not sending. A session is a study day.

    Args:
        folder: Where the files are; by default the environment variable SHPI_DATA.
        reward: ``"proxy"``, log(0.5 + steps in the next 30 minutes); or ``"long_term"``, the mean of the log
            daily steps over the next 7 days, where at least 4 of them are known. Elsewhere the reward is
            marked as not observed. The proxy is always among the metrics, as ``log_steps_30``.
    """
    if reward not in get_args(Reward):
        raise ConfigError(expected="reward 'proxy' or 'long_term'", found=repr(reward))
    raw, drops = _decisions(HEARTSTEPS.folder(folder))
    table = _long_term(_prepare(raw)).with_columns(
        pl.col("long_term").fill_null(0.0), long_term_known=pl.col("long_term").is_not_null()
    )
    columns = Columns(
        user="user",
        time="time",
        order="decision.index.nogap",
        session="day",
        context=("study_day", "slot", "available", "log_steps_before", "dose", *_GAPS),
        categorical=("slot",),
        user_level=("study_day", "dose", "log_steps_yesterday"),
        missing=dict.fromkeys(_GAPS, "indicator"),
        action="send",
        candidates="candidate_*",
        behaviour="mu_*",
        propensity="propensity",
        reward="log_steps_30",
        metrics=("log_steps_30", *(("long_term", "long_term_known") if reward == "long_term" else ())),
    )
    logs = with_account(read_log(table, columns), drops=drops)
    return logs if reward == "proxy" else _reward_long_term(logs)


def _decisions(folder: Path) -> tuple[pl.DataFrame, tuple[Drop, ...]]:
    """The table of decision points: the joined one, or made from the official files."""
    joined = HEARTSTEPS.find(folder, [JOINED])
    if joined is not None:
        return read_table(joined, COLUMNS), ()
    suggestions = HEARTSTEPS.need(folder, ["suggestions", JOINED])
    steps = HEARTSTEPS.find(folder, ["jbsteps"])
    minutes = None if steps is None else read_table(steps, ("user.index", "steps.utime.local", "steps"))
    return from_suggestions(read_table(suggestions, OFFICIAL), minutes)


def _prepare(raw: pl.DataFrame) -> pl.DataFrame:
    available = pl.col("avail").cast(pl.Int64) == 1
    sent = pl.col("send").cast(pl.Int64)
    time = pl.col("sugg.select.utime").cast(pl.String).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us")
    table = raw.with_columns(
        time=time,
        # Times are UTC and the people live in America: times before 4 h belong to the previous day.
        date=(time - pl.duration(hours=4)).dt.date(),
        day=pl.col("study.day.nogap"),
        send=sent,
        available=available,
        study_day=pl.col("study.day.nogap").cast(pl.Float64),
        slot=pl.col("sugg.select.slot").cast(pl.Int64).cast(pl.String),
        log_steps_before=pl.col("jbsteps30pre").log(),
        log_steps_30=pl.col("jbsteps30").log(),
        log_steps_yesterday=pl.col("sum_step.log"),
        other_location=pl.col("other.location").cast(pl.Float64),
        work_location=pl.col("work.location").cast(pl.Float64),
        temperature=pl.when(pl.col("dec.temperature") != NO_TEMPERATURE).then(pl.col("dec.temperature")),
        mu_0=pl.when(available).then(1 - SEND).otherwise(1.0),
        mu_1=pl.when(available).then(SEND).otherwise(0.0),
        candidate_0=pl.lit(True),
        candidate_1=available,
    ).sort("user", "time", "decision.index.nogap")
    return table.with_columns(
        propensity=pl.when(pl.col("send") == 1).then("mu_1").otherwise("mu_0"),
        dose=pl.Series(_dose(table)),
    )


def _dose(table: pl.DataFrame) -> Float64Array:
    """Discounted number of past suggestions: sum over earlier points j of 0.95^{t-j} sent_j."""
    users, sent = table["user"].to_numpy(), table["send"].to_numpy()
    dose = np.zeros(table.height)
    for row in range(1, table.height):
        if users[row] == users[row - 1]:
            dose[row] = DOSE_DECAY * (dose[row - 1] + sent[row - 1])
    return dose


def _long_term(table: pl.DataFrame) -> pl.DataFrame:
    """Add ``long_term``, the mean log daily steps over days d+1 … d+7, null where too few are known.

    The file gives the steps of a day only in the next day's rows, as ``log_steps_yesterday``.
    """
    daily = (
        table.filter(pl.col("log_steps_yesterday").is_not_null())
        .group_by("user", date=pl.col("date").dt.offset_by("-1d"))
        .agg(steps=pl.col("log_steps_yesterday").mean())
    )
    days = table.select("user", "date").unique()
    ahead = [days.with_columns(later=pl.col("date").dt.offset_by(f"{k}d")) for k in range(1, HORIZON + 1)]
    future = (
        pl.concat(ahead)
        .join(daily, left_on=["user", "later"], right_on=["user", "date"])
        .group_by("user", "date")
        .agg(long_term=pl.col("steps").mean(), known=pl.len())
        .filter(pl.col("known") >= LEAST)
        .select("user", "date", "long_term")
    )
    return table.join(future, on=["user", "date"], how="left", maintain_order="left")


def _reward_long_term(logs: LoggedData) -> LoggedData:
    metrics = dict(logs.metrics)
    rewards, observed = metrics.pop("long_term"), metrics.pop("long_term_known") == 1
    note = (
        f"reward: mean log daily steps over the next {HORIZON} days, known for {int(observed.sum()):,} "
        f"decisions; the others are marked as not observed"
    )
    logs = replace(logs, rewards=rewards, reward_observed=observed, metrics=metrics)
    return with_account(logs, notes=(note,))
