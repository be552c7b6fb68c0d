"""Outcomes from a second table: attribution, ids, several outcomes, late events."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.data._read.read import read_log
from shpi.data.columns import Columns
from shpi.data.tables.events import Events
from shpi.errors import ColumnError, ConfigError, DataError

START = datetime(2026, 1, 1)
MAP = Columns(user="u", time="t", action="a")


def times(days: list[float]) -> list[datetime]:
    return [START + timedelta(days=day) for day in days]


LOG = pl.DataFrame(
    {"u": list("aaabb"), "t": times([0, 2, 4, 0, 30]), "a": [0, 1, 0, 1, 0], "id": [10, 11, 12, 13, 14]}
)
SOLD = pl.DataFrame(
    {
        "who": ["a", "a", "a", "b", "c", "b"],
        "at": times([1, 4.5, 20, 0.5, 3, -1]),
        "amount": [5.0, 7.0, 9.0, 2.0, 1.0, 3.0],
    }
)


def credit(touch: str, within: str | None, value: str | None = None) -> list[float]:
    events = Events(table=SOLD, name="sold", user="who", time="at", touch=touch, within=within, value=value)
    logs = read_log(LOG, replace(MAP, events=(events,)))
    assert logs.rewards is not None
    return logs.rewards.tolist()


@pytest.mark.parametrize(
    ("touch", "within", "expected"),
    [
        ("last", None, [1, 0, 2, 1, 0]),  # day 20 belongs to day 4, however late
        ("last", "3d", [1, 0, 1, 1]),  # b's day 30 is too young: nobody knows what comes in 3 days
        ("first", "3d", [1, 1, 0, 1]),
        ("all", "3d", [1, 0.5, 0.5, 1]),
    ],
)
def test_touches_by_hand(touch: str, within: str | None, expected: list[float]) -> None:
    assert credit(touch, within) == expected


def test_values_are_added_up() -> None:
    assert credit("last", "3d", "amount") == [5.0, 0.0, 7.0, 2.0]


def test_what_belongs_to_nothing_is_counted_in_a_note() -> None:
    events = Events(table=SOLD, name="sold", user="who", time="at", within="3d")
    logs = read_log(LOG, replace(MAP, events=(events,)))
    assert "3 of 6 events 'sold' belong to a decision within 3d" in logs.ledger.notes
    assert logs.ledger.balanced()
    assert logs.ledger.drops[0].asked


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["first", "last", "all"]), st.integers(1, 20))
def test_attribution_is_that_of_two_loops(seed: int, touch: str, within: int) -> None:
    rng = np.random.default_rng(seed)
    log = pl.DataFrame(
        {"u": rng.integers(0, 3, 30), "t": rng.integers(0, 40, 30), "a": rng.integers(0, 2, 30)}
    )
    log = log.sort("u", "t", maintain_order=True)
    events = pl.DataFrame({"u": rng.integers(0, 4, 20), "t": rng.integers(0, 60, 20), "v": rng.random(20)})
    expected = np.zeros(30)
    for user, time, value in events.iter_rows():
        fits = [i for i, (u, t, _) in enumerate(log.iter_rows()) if u == user and time - within <= t <= time]
        chosen = fits if touch == "all" else fits[:1] if touch == "first" else fits[-1:]
        for i in chosen:
            expected[i] += value / len(chosen)
    attributed = Events(table=events, name="v2", time="t", value="v", within=within, touch=touch)  # type: ignore[arg-type]
    read = read_log(log, replace(MAP, events=(attributed,)), duplicates="keep")
    known = log["t"].to_numpy() <= max(log["t"].max(), events["t"].max()) - within
    np.testing.assert_allclose(read.rewards, expected[known])


def test_by_the_id_of_the_decision() -> None:
    opened = pl.DataFrame({"push": [11, 11, 13, 99], "seconds": [1.0, 2.0, 4.0, 8.0]})
    events = Events(table=opened, name="opens", id="push", decision_id="id")
    logs = read_log(LOG, replace(MAP, events=(events, replace(events, name="seconds", value="seconds"))))
    assert logs.metrics["opens"].tolist() == [0, 2, 0, 1, 0]
    assert logs.metrics["seconds"].tolist() == [0, 3, 0, 4, 0]
    assert logs.rewards.tolist() == [0, 2, 0, 1, 0]  # the first outcome, where the map names no reward
    with pytest.raises(DataError, match="a different 'id'"):
        read_log(LOG.with_columns(id=1), replace(MAP, events=(events,)))


def test_several_outcomes_of_one_file_in_the_map(tmp_path: Path) -> None:
    kinds = SOLD.with_columns(kind=pl.Series(["buy", "open", "buy", "open", "buy", "buy"]))
    kinds.write_csv(tmp_path / "events.csv")
    LOG.write_csv(tmp_path / "log.csv")
    (tmp_path / "map.toml").write_text(
        'user = "u"\ntime = "t"\naction = "a"\nreward = "buys"\nmetric = "buys in 10d"\n'
        '[[events]]\ntable = "events.csv"\nname = "buys"\nuser = "who"\ntime = "at"\nwithin = "7d"\n'
        'where = { kind = "buy" }\n'
        '[[events]]\ntable = "events.csv"\nname = "opens"\nuser = "who"\ntime = "at"\nwithin = "7d"\n'
        'late = "2d"\n'
        'where = { kind = "open" }\n'
    )
    columns = Columns.from_toml(tmp_path / "map.toml")
    again = tmp_path / "again.toml"
    again.write_text(columns.to_toml())
    assert Columns.from_toml(again) == columns
    logs = read_log(tmp_path / "log.csv", columns)
    assert logs.rewards.tolist() == [1, 0, 0, 0]
    assert logs.metrics["opens"].tolist() == [0, 0, 1, 1]
    assert "each user's buys in the 10 days" in logs.question


def test_a_table_of_actions_may_stand_beside_the_map(tmp_path: Path) -> None:
    pl.DataFrame({"a": [0, 1], "price": [1.0, 2.0]}).write_csv(tmp_path / "items.csv")
    (tmp_path / "map.toml").write_text('user = "u"\naction = "a"\naction_features = "items.csv"\n')
    logs = read_log(LOG, tmp_path / "map.toml")
    assert logs.action_space.feature_names == ("price",)


def test_mistakes_are_named() -> None:
    with pytest.raises(ColumnError, match=r"a column 'att'.*did you mean 'at'"):
        read_log(LOG, replace(MAP, events=(Events(table=SOLD, name="sold", user="who", time="att"),)))
    with pytest.raises(ConfigError, match="neither 'time' nor 'id'"):
        Events(table=SOLD, name="sold")
    with pytest.raises(ConfigError, match="touch among"):
        Events(table=SOLD, name="sold", time="at", touch="middle")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="table and name"):
        Columns.from_mapping({"action": "a", "events": [{"table": "x.csv"}]})
    with pytest.raises(ColumnError, match="a new name"):
        read_log(LOG, replace(MAP, events=(Events(table=SOLD, name="a", user="who", time="at"),)))
