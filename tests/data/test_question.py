"""The question a log is asked: metrics in calendar time, and how users end."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from shpi.data._read.read import read_log
from shpi.data.columns import Columns
from shpi.data.logged import LoggedData
from shpi.data.question import Metric, leave_after, terminate_unknown_endings
from shpi.data.question.words import question
from shpi.data.shards import prepare_shards
from shpi.errors import ConfigError, DataError

DAY = 86_400_000_000
MAP = Columns(
    user="u", time="t", action="a", reward="r", metrics=("bought",), propensity="p", session_gap="1h"
)


def table(visits: dict[str, list[float]], end: float = 60.0) -> pl.DataFrame:
    """One decision per visit; times in days since 2026-01-01. User zz marks both ends of the log."""
    rows = [(user, day) for user, days in visits.items() for day in days]
    rows += [("zz", 0.0), ("zz", end)]
    return pl.DataFrame(
        {
            "u": [user for user, _ in rows],
            "t": [datetime(2026, 1, 1) + timedelta(days=day) for _, day in rows],
            "a": [i % 2 for i in range(len(rows))],
            "r": [1.0] * len(rows),
            "bought": [float(i % 3) for i in range(len(rows))],
            "p": [0.5] * len(rows),
        }
    )


def sums(logs: LoggedData) -> dict[str, float]:
    home = logs.trajectory_of_row
    total = np.bincount(home, weights=logs.rewards, minlength=logs.n_trajectories)
    return dict(zip(logs.users.tolist(), total.tolist(), strict=True))


# ---------------------------------------------------------------------- spellings


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("reward", Metric()),
        ("purchases in 30d", Metric(what="purchases", window="30d")),
        ("active days in 30d", Metric(what="active days", window="30d")),
        ("returns within 7d in 90d", Metric(what="returns", within="7d", window="90d")),
        ("reward in 90d per 30d", Metric(window="90d", per="30d")),
        ("reward in 20", Metric(window=20)),
        ("reward in 30d from 2026-01-05", Metric(window="30d", entry="2026-01-05")),
    ],
)
def test_a_metric_is_written_as_one_says_it(text, metric):
    assert Metric.parse(text) == metric
    assert Metric.of(metric.to_mapping()) == metric


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "a metric such as"), ("clicks in soon", "a duration"), ("clicks within 7d", "returns only")],
)
def test_a_bad_metric_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        Metric.parse(text)


def test_the_map_carries_metric_and_churn_after(tmp_path):
    place = tmp_path / "map.toml"
    place.write_text('action = "a"\nuser = "u"\ntime = "t"\nmetric = { what = "bought", window = "30d" }\n')
    columns = Columns.from_toml(place)
    assert columns.metric == Metric(what="bought", window="30d")
    place.write_text(columns.to_toml())
    assert Columns.from_toml(place) == columns
    assert Columns(action="a", metric="bought in 30d", churn_after="14d").metric == columns.metric
    with pytest.raises(ConfigError, match="both terminated"):
        Columns(action="a", terminated="gone", churn_after="14d")


# ---------------------------------------------------------------------- windows


def test_a_window_counts_what_one_counts_by_hand_when_all_are_observed():
    logs = read_log(table({"a": [0, 10, 29.9, 30, 50], "b": [5, 34.9, 40]}), MAP, metric="reward in 30d")
    assert sums(logs) == {"a": 3.0, "b": 2.0, "zz": 1.0}
    assert "all users are observed for that long" in logs.question
    assert logs.endings == "by window"
    assert logs.terminated.all()
    assert logs.ledger.balanced()


def test_a_user_observed_for_10_of_30_days_is_censored_at_10():
    # u enters on day 50 of 60; nothing that u does after day 10 can be known, so others stand in for it.
    visits = {"a": [0, 5, 20], "b": [1, 6, 21], "u": [50, 55]}
    logs = read_log(table(visits), MAP, metric="reward in 30d")
    by_age = sums(logs)
    assert by_age["u"] == 2.0  # at ages 0 and 5 all four users are observed
    assert by_age["a"] == pytest.approx(1 + 1 + 4 / 3)  # at age 20 three of four
    counted = logs.counted
    assert counted is not None
    assert (counted.users, counted.by_hand_users) == (4, 3)
    assert counted.observed_less == 0.25
    assert counted.by_hand == pytest.approx(7 / 3)  # 3, 3 and the 1 of zz
    assert "25 % of users are observed for less and weighted for it" in logs.question


def test_staggered_entry_is_unbiased():
    """The censored log's mean is that of the log of a year, in which everybody is observed."""
    rng = np.random.default_rng(0)
    users = 4_000
    entry, rate = rng.uniform(0, 60, users), rng.gamma(2.0, 0.1, users)
    counts = rng.poisson(30 * rate)
    ages = [np.sort(np.append(0.0, rng.uniform(0, 30, count))) for count in counts]
    truth = np.mean([len(visits) for visits in ages])
    frame = pl.DataFrame(
        {
            "u": np.repeat(np.arange(users), [len(visits) for visits in ages]),
            "t": ((np.concatenate(ages) + np.repeat(entry, [len(visits) for visits in ages])) * DAY).astype(
                np.int64
            ),
        }
    ).filter(pl.col("t") < 60 * DAY)
    frame = frame.with_columns(a=pl.col("u") % 2, r=pl.lit(1.0), p=pl.lit(0.5), bought=pl.lit(0.0))
    logs = read_log(frame, replace(MAP, time_unit="us", metric="reward in 30d"))
    by_user = np.bincount(logs.user_codes[logs.trajectory_of_row], weights=logs.rewards)
    error = by_user.std(ddof=1) / np.sqrt(users)
    assert logs.counted is not None
    assert 0.4 < logs.counted.observed_less < 0.6
    assert abs(by_user.mean() - truth) < 3 * error
    plain = len(frame) / users
    assert abs(plain - truth) > 10 * error  # the test can fail


def test_counts_of_sessions_days_and_returns():
    visits = {"a": [0, 0.01, 2, 2.5, 20, 40], "b": [0, 30]}
    frame = table(visits)
    everyone = {"decisions": 6.0, "sessions": 5.0, "active days": 4.0, "returns within 5d": 2.0}
    for text, expected in everyone.items():
        assert sums(read_log(frame, MAP, metric=text))["a"] == expected, text
    returns = read_log(frame, MAP, metric="returns within 5d")
    assert (
        returns.times.max() <= frame["t"].dt.timestamp("us").max() - 5 * DAY
    )  # later ones are not known yet
    np.testing.assert_array_equal(returns.immediate, 0)


def test_the_metric_may_be_any_column_of_the_table():
    frame = table({"a": [0, 10], "b": [1]})
    by_name = read_log(frame, MAP, metric="r in 30d")
    np.testing.assert_array_equal(by_name.rewards, read_log(frame, MAP, metric="reward in 30d").rewards)
    plain = replace(MAP, metrics=())
    assert sums(read_log(frame, plain, metric="bought in 30d")) == sums(
        read_log(frame, MAP, metric="bought in 30d")
    )


def test_a_rate_divides_by_the_window():
    whole = read_log(table({"a": [0, 10], "b": [1]}), MAP, metric="bought in 40d")
    monthly = read_log(table({"a": [0, 10], "b": [1]}), MAP, metric="bought in 40d per 10d")
    np.testing.assert_allclose(monthly.rewards, whole.rewards / 4)


def test_a_window_that_nobody_fills_is_refused():
    with pytest.raises(ConfigError, match="at most 60 days"):
        read_log(table({"a": [0, 10]}), MAP, metric="reward in 90d")
    with pytest.raises(ConfigError, match=r"reward, decisions, sessions"):
        read_log(table({"a": [0, 10]}), MAP, metric="purchase in 30d")


def test_a_counted_log_survives_its_file_and_is_not_counted_twice(tmp_path):
    logs = read_log(table({"a": [0, 5, 20], "u": [50, 55]}), MAP, metric="reward in 30d")
    again = LoggedData.read(logs.to_parquet(tmp_path / "log.parquet"))
    assert (again.counted, again.endings, again.question) == (logs.counted, "by window", logs.question)
    assert again.count("reward in 30d") is again
    with pytest.raises(ConfigError, match="original table"):
        again.count("reward in 10d")


def test_another_outcome_is_counted_in_the_same_window():
    logs = read_log(table({"a": [0, 10], "b": [1]}), MAP, metric="reward in 30d")
    assert question(logs, Metric(what="bought")).startswith("Adds up each user's bought in the 30 days")


# ---------------------------------------------------------------------- endings


def test_endings_are_told_by_a_column_by_last_contexts_or_not_at_all():
    frame = table({"a": [0, 5]})
    assert read_log(frame, MAP).endings == "unknown"
    assert read_log(frame.with_columns(gone=False), replace(MAP, terminated="gone")).endings == "marked"
    arrays = {"contexts": np.zeros((2, 1)), "actions": [0, 1], "offsets": [0, 2]}
    assert LoggedData.from_arrays(**arrays).endings == "unknown"
    assert LoggedData.from_arrays(**arrays, terminated=[False]).endings == "marked"
    assert LoggedData.from_arrays(**arrays, final_contexts=np.zeros((1, 1))).endings == "marked"


def test_an_unknown_log_is_the_whole_story():
    logs = read_log(table({"a": [0, 5], "b": [1]}), MAP)
    assert not logs.terminated.any()
    assert terminate_unknown_endings(logs).terminated.all()
    assert "does not say how users end" in logs.question
    marked = replace(logs, endings="marked")
    assert terminate_unknown_endings(marked) is marked


def test_who_is_silent_while_the_log_goes_on_has_left():
    visits = {"gone": [0, 10], "cut": [0, 45, 55], "back": [0, 29, 31], "late": [52]}
    logs = read_log(table(visits), MAP, churn_after="20d")
    state = dict(zip(logs.users.tolist(), logs.terminated.tolist(), strict=True))
    # The last 20 days cannot tell who left: decisions there go, and users who made some are censored.
    assert state == {"gone": True, "cut": False, "back": True, "zz": False}
    assert dict(zip(logs.users.tolist(), logs.final_observed.tolist(), strict=True))["cut"]
    assert logs.endings == "by churn_after"
    assert logs.ledger.balanced()
    assert not logs.audit().has("many_dropped")


def test_churn_after_never_and_too_long():
    frame = table({"a": [0, 5], "b": [1]})
    never = read_log(frame, MAP, churn_after="never")
    assert never.endings == "by churn_after"
    assert not never.terminated.any()
    with pytest.raises(DataError, match="longer than churn_after"):
        read_log(frame, MAP, churn_after="61d")
    with pytest.raises(ConfigError, match="does not mark"):
        leave_after(replace(never, terminated=~never.terminated, endings="marked"), "5d")


def test_the_audit_asks_where_the_log_does_not_say():
    rng = np.random.default_rng(1)
    visits = {f"u{i}": np.cumsum(rng.exponential(2.0, 1 + rng.geometric(0.2))).tolist() for i in range(200)}
    report = read_log(
        table({user: [d for d in days if d < 60] for user, days in visits.items() if days}), MAP
    )
    audit = report.audit()
    ends = audit.facts.endings
    assert audit.has("endings_unknown")
    assert ends.plain == pytest.approx(len(report) / report.n_users)
    assert ends.left == ends.plain
    assert ends.censored > 2 * ends.plain  # everybody extrapolated to the longest trajectory
    assert ends.churn_after in ("7d", "10d")
    assert ends.plain * 0.9 < ends.by_churn < ends.plain * 1.5
    text = str(audit)
    assert 'churn_after = "' in text
    assert "if no user has left" in text
    settled = read_log(table(visits), MAP, churn_after="10d").audit()
    assert not settled.has("endings_unknown")


@pytest.mark.parametrize(
    "question", [{"metric": "bought in 20d"}, {"churn_after": "10d"}, {"metric": "returns within 5d in 20d"}]
)
def test_shards_are_asked_the_same_question(tmp_path, question):
    rng = np.random.default_rng(2)
    visits = {
        f"u{i}": (rng.uniform(0, 50) + np.cumsum(rng.exponential(3.0, rng.geometric(0.2)))).tolist()
        for i in range(60)
    }
    frame = table({user: [day for day in days if day < 60] for user, days in visits.items()})
    columns = replace(MAP, **question)
    whole = read_log(frame, columns)
    shards = prepare_shards(frame, columns, tmp_path / "shards", shards=3)
    joined = LoggedData.concat(list(shards))
    assert len(joined) == len(whole)
    np.testing.assert_allclose(joined.rewards, whole.rewards)
    np.testing.assert_array_equal(joined.terminated, whole.terminated)
    assert shards.ledger.balanced()
    assert shards.ledger.rows_dropped == whole.ledger.rows_dropped
