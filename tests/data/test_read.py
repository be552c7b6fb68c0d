"""Reading tables: sources, order, sessions, endings, encodings."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.data._read.read import read_log
from shpi.data.schema import Feature
from tests.data.logs import COLUMNS, assert_same, table


def test_rows_come_out_in_user_and_time_order() -> None:
    shuffled = table().sample(fraction=1.0, shuffle=True, seed=3)
    logs = read_log(shuffled, COLUMNS)
    assert logs.users.tolist() == ["a", "b", "c"]
    assert logs.offsets.tolist() == [0, 3, 5, 6]
    assert (logs.times // 1_000_000).tolist() == [0, 10, 4000, 5, 20, 7]
    assert logs.contexts[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert [logs.action_space.ids[a] for a in logs.actions] == ["x", "y", "x", "y", "y", "x"]
    assert logs.propensities is not None
    assert logs.propensities.tolist() == [0.5, 0.5, 0.25, 0.75, 0.5, 1.0]
    assert logs.ledger.rows_in == logs.ledger.rows_used == 6
    assert logs.ledger.balanced()


def test_every_kind_of_source_gives_the_same_log(tmp_path: Path) -> None:
    frame = table()
    expected = read_log(frame, COLUMNS)
    frame.write_parquet(tmp_path / "one.parquet")
    frame[:4].write_parquet(tmp_path / "part-0.parquet")
    frame[4:].write_parquet(tmp_path / "part-1.parquet")
    frame.write_csv(tmp_path / "log.csv")
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress((tmp_path / "log.csv").read_bytes()))
    hive = tmp_path / "hive"
    for day, rows in (("1", frame[:2]), ("2", frame[2:])):
        (hive / f"day={day}").mkdir(parents=True)
        rows.write_parquet(hive / f"day={day}" / "rows.parquet")
    sources = {
        "file": tmp_path / "one.parquet",
        "glob": str(tmp_path / "part-*.parquet"),
        "hive folder": hive,
        "list": [tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"],
        "csv": tmp_path / "log.csv",
        "csv.gz": tmp_path / "log.csv.gz",
        "lazy polars": frame.lazy(),
        "pandas": frame.to_pandas(),
        "pyarrow": frame.to_arrow(),
    }
    for source in sources.values():
        assert_same(read_log(source, COLUMNS), expected)


def test_hive_partition_is_a_column(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        table().write_parquet(tmp_path / f"day={day}" / "rows.parquet")
    logs = read_log(tmp_path, replace(COLUMNS, context=("f*", "day"), identity=("uid", "ts", "day")))
    assert logs.schema.dimensions == ("f1", "f2", "day")
    assert set(logs.contexts[:, 2].tolist()) == {1.0, 2.0}
    assert len(logs) == 12


def test_sessions_by_gap_and_by_column() -> None:
    by_gap = read_log(table(), COLUMNS, session_gap="30m")
    assert by_gap.session_offsets.tolist() == [0, 2, 3, 5, 6]
    by_id = read_log(table(s=[1, 1, 2, 1, 2, 1]), replace(COLUMNS, session="s"))
    assert by_id.session_offsets.tolist() == [0, 2, 3, 4, 5, 6]
    assert by_id.trajectory_of_session.tolist() == [0, 0, 1, 1, 2]
    interrupted = read_log(table(s=[1, 2, 1, 1, 1, 1]), replace(COLUMNS, session="s"))
    assert interrupted.n_sessions == 5
    assert any("interrupted" in note for note in interrupted.ledger.notes)


def test_a_gap_exactly_as_long_as_allowed_does_not_end_a_session() -> None:
    logs = read_log(table(ts=[0, 1800, 3601, 0, 1, 0]), COLUMNS, session_gap="30m")
    assert logs.session_offsets.tolist() == [0, 2, 3, 5, 6]


def test_numeric_gap_needs_no_calendar_but_a_duration_does() -> None:
    columns = replace(COLUMNS, time_unit="step")
    assert read_log(table(), columns, session_gap="100").n_sessions == 4
    with pytest.raises(shpi.errors.ConfigError, match="time_unit = 'ms'"):
        read_log(table(), columns, session_gap="30m")


def test_ties_keep_source_order_and_an_order_column_breaks_them() -> None:
    frame = table(ts=[0, 0, 0, 5, 5, 7], seq=[3, 2, 1, 1, 2, 1])
    without = read_log(frame, COLUMNS, duplicates="keep")
    assert without.contexts[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert any("3 decisions share the time" in note for note in without.ledger.notes)
    with_order = read_log(frame, replace(COLUMNS, order="seq"))
    assert with_order.contexts[:, 0].tolist() == [3, 2, 1, 4, 5, 6]
    assert not any("share the time" in note for note in with_order.ledger.notes)


def test_three_endings_and_the_last_context() -> None:
    frame = table(
        item=["x", "y", None, "y", "y", "x"],
        end=[False, True, False, False, False, False],
    )
    logs = read_log(frame, replace(COLUMNS, terminated="end"))
    assert logs.offsets.tolist() == [0, 2, 4, 5]
    assert logs.terminated.tolist() == [True, False, False]
    assert logs.final_observed.tolist() == [True, False, False]
    assert logs.final_contexts[:, 0].tolist() == [3, 5, 6]  # a's own row, then b's and c's repeated
    assert logs.ledger.final_rows == 1
    assert logs.ledger.balanced()
    assert logs.next_contexts()[:, 0].tolist() == [2, 3, 5, 5, 6]


def test_truncation_inside_a_user_starts_a_new_trajectory() -> None:
    logs = read_log(table(cut=[1, 0, 0, 0, 0, 0]), replace(COLUMNS, truncated="cut"))
    assert logs.offsets.tolist() == [0, 1, 3, 5, 6]
    assert logs.users.tolist() == ["a", "a", "b", "c"]
    assert (logs.n_users, logs.n_trajectories) == (3, 4)
    assert not logs.final_observed[0]


def test_decision_after_termination_is_refused() -> None:
    with pytest.raises(shpi.errors.DataError, match=r"row 0 is terminated.*'truncated' or a session column"):
        read_log(table(end=[True, False, False, False, False, True]), replace(COLUMNS, terminated="end"))


def test_categories_booleans_and_unseen_values() -> None:
    frame = table(city=["rome", "oslo", "rome", "rome", "oslo", "bern"], vip=[True] * 3 + [False] * 3)
    columns = replace(COLUMNS, context=("f1", "city", "vip"), max_categories=2)
    logs = read_log(frame, columns)
    assert logs.schema.dimensions == ("f1", "city=oslo", "city=rome", "city=<other>", "vip")
    assert logs.contexts[5].tolist() == [6, 0, 0, 1, 0]
    later = logs.schema.encode_checked(pl.DataFrame({"f1": [1], "city": ["paris"], "vip": [True]}))
    assert later.tolist() == [[1, 0, 0, 1, 1]]
    again = read_log(frame.with_columns(city=pl.lit("paris")), columns, schema=logs.schema)
    assert again.contexts[:, 3].tolist() == [1.0] * 6


def test_numeric_codes_can_be_categories() -> None:
    logs = read_log(table(tab=[1, 2, 1, 2, 1, 1]), replace(COLUMNS, context=("tab",), categorical=("tab",)))
    assert logs.schema.dimensions == ("tab=1", "tab=2", "tab=<other>")


@pytest.mark.parametrize(
    ("policy", "dimensions", "row"),
    [
        ("mean", ("f1",), [3.0]),
        ("zero", ("f1",), [0.0]),
        ("indicator", ("f1", "f1=<missing>"), [3.0, 1.0]),
    ],
)
def test_missing_numbers_follow_their_policy(
    policy: str, dimensions: tuple[str, ...], row: list[float]
) -> None:
    columns = replace(COLUMNS, context=("f1",), missing={"f*": policy})
    logs = read_log(table(f1=[1.0, None, 5.0, 3.0, float("nan"), 3.0]), columns)
    assert logs.schema.dimensions == dimensions
    assert logs.contexts[1].tolist() == row
    assert logs.contexts[4].tolist() == row


def test_missing_category_is_a_category_of_its_own() -> None:
    columns = replace(COLUMNS, context=("city",), missing={"city": "indicator"})
    logs = read_log(table(city=["a", None, "a", "a", "a", "a"]), columns)
    assert logs.schema.dimensions == ("city=a", "city=<other>", "city=<missing>")
    assert logs.contexts[1].tolist() == [0, 0, 1]


def test_missing_with_policy_drop_cuts_the_trajectory() -> None:
    logs = read_log(table(f1=[1.0, None, 5.0, 3.0, 3.0, 3.0]), replace(COLUMNS, missing={"f1": "drop"}))
    assert logs.offsets.tolist() == [0, 1, 2, 4, 5]
    assert logs.users.tolist() == ["a", "a", "b", "c"]
    assert not logs.final_observed[0]  # the hole's context is not known
    assert [(drop.rows, drop.column) for drop in logs.ledger.drops] == [(1, "f1")]
    assert logs.ledger.balanced()


def test_candidates_from_a_list_column_and_from_boolean_columns() -> None:
    listed = [["x", "y"], ["y"], ["x", "z"], ["y"], ["x", "y"], ["x"]]
    logs = read_log(table(el=listed), replace(COLUMNS, candidates="el"))
    assert logs.action_space.ids == ("x", "y", "z")
    assert logs.candidates is not None
    assert logs.candidates.tolist() == [[a in row for a in "xyz"] for row in listed]
    flags = {f"can_{a}": [a in row for row in listed] for a in "xyz"}
    wide = read_log(table(**flags), replace(COLUMNS, candidates="can_*"))
    assert wide.candidates is not None
    np.testing.assert_array_equal(wide.candidates, logs.candidates)


def test_behaviour_distribution_gives_propensities() -> None:
    mu = {"mu_x": [0.5, 0.5, 0.25, 0.25, 0.5, 1.0], "mu_y": [0.5, 0.5, 0.75, 0.75, 0.5, 0.0]}
    wide = read_log(table(**mu), replace(COLUMNS, propensity=None, behaviour="mu_*"))
    assert wide.propensity_mode == "logged"
    assert wide.propensities is not None
    assert wide.propensities.tolist() == [0.5, 0.5, 0.25, 0.75, 0.5, 1.0]
    beside = table(
        el=[["y", "x"]] * 5 + [["x"]],
        mu=[[0.5, 0.5], [0.5, 0.5], [0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [1.0]],
    )
    lists = read_log(beside, replace(COLUMNS, behaviour="mu", candidates="el"))
    assert lists.behaviour is not None
    assert wide.behaviour is not None
    np.testing.assert_allclose(lists.behaviour, wide.behaviour)


def test_action_features_join_and_add_actions_that_were_never_taken() -> None:
    items = pl.DataFrame({"item": ["z", "x", "y"], "price": [3.0, 1.0, 2.0], "kind": ["p", "q", "p"]})
    logs = read_log(table(), COLUMNS, action_features=items)
    assert logs.action_space.ids == ("x", "y", "z")
    assert logs.action_space.feature_names == ("price", "kind=p", "kind=q")
    assert logs.action_space.features is not None
    assert logs.action_space.features.tolist() == [[1, 0, 1], [2, 1, 0], [3, 1, 0]]
    with pytest.raises(shpi.errors.ActionError, match=r"none for 'y'"):
        read_log(table(), COLUMNS, action_features=items.filter(pl.col("item") != "y"))


def test_levels_pick_dimensions() -> None:
    logs = read_log(table(), replace(COLUMNS, user_level=("f2",), action_level=("nothing*",)))
    assert logs.schema.level_dimensions("user").tolist() == [1]
    assert logs.schema.level_dimensions("session").tolist() == [0]


def test_users_and_time_may_be_absent_for_a_bandit_log() -> None:
    columns = shpi.Columns(action="item", reward="r", propensity="p", context=["f*"])
    logs = read_log(table(), columns)
    assert (logs.n_users, logs.n_trajectories, len(logs)) == (6, 6, 6)
    assert logs.contexts[:, 0].tolist() == [1, 2, 3, 4, 5, 6]


def test_text_times_with_offsets_become_utc() -> None:
    times = ["2026-01-01T10:00:00+01:00", "2026-01-01 09:00:30Z", "2026-01-01T12:00:00.5+02:00"]
    logs = read_log(table(ts=times * 2, uid=["a"] * 3 + ["b"] * 3), replace(COLUMNS, time_unit="auto"))
    assert np.diff(logs.times[:3]).tolist() == [30_000_000, 3_570_500_000]
    assert any("converted to UTC" in note for note in logs.ledger.notes)


def test_the_map_lives_in_toml_as_well(tmp_path: Path) -> None:
    columns = replace(COLUMNS, missing={"f1": "mean"}, metrics=("r",), session_gap="30m")
    path = tmp_path / "map.toml"
    path.write_text(columns.to_toml(), encoding="utf-8")
    assert shpi.Columns.from_toml(path) == columns
    path.write_text("[columns]\n" + replace(COLUMNS).to_toml(), encoding="utf-8")
    assert_same(read_log(table(), path), read_log(table(), COLUMNS))


def test_features_refuse_unknown_words() -> None:
    with pytest.raises(shpi.errors.ConfigError, match="kind to be one of"):
        Feature(name="f", kind="number")  # type: ignore[arg-type]
