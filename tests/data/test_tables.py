"""Text files in every dialect: delimiters, encodings, JSON lines, decision logs."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shpi.data._read.read import read_log
from shpi.data._read.sources import open_table
from shpi.data.columns import Columns, close_names
from shpi.errors import ColumnError, DataError

ROWS = {
    "user_id": ["ä", "ä", "b", "b"],
    "ts": ["2026-01-01", "2026-01-02", "2026-01-01", "2026-01-03"],
    "item": ["x", "y", "x", "y"],
    "p": [0.5, 0.25, 0.5, 0.75],
    "r": [1.0, 0.0, 0.5, 1.0],
}
MAP = Columns(user="user_id", time="ts", action="item", propensity="p", reward="r")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_delimiter_and_encoding_are_found_out(tmp_path: Path, delimiter: str, encoding: str) -> None:
    text = pl.DataFrame(ROWS).write_csv(separator=delimiter)
    place = tmp_path / "log.csv"
    place.write_bytes(text.encode(encoding))
    logs = read_log(place, MAP)
    assert logs.users.tolist() == ["b", "ä"]
    assert logs.rewards.tolist() == [0.5, 1.0, 1.0, 0.0]
    assert any("Windows-1252" in note for note in logs.ledger.notes) == (encoding == "cp1252")


def test_decimal_commas_of_a_semicolon_file(tmp_path: Path) -> None:
    text = pl.DataFrame(ROWS).write_csv(separator=";").replace(".", ",")
    (tmp_path / "log.csv").write_text(text)
    assert read_log(tmp_path / "log.csv", MAP).propensities.tolist() == [0.5, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("name", ["log.jsonl", "log.ndjson", "log.json", "log", "log.jsonl.gz"])
def test_json_lines_are_a_table(tmp_path: Path, name: str) -> None:
    """Failed before: they were called a broken Parquet file."""
    rows = pl.DataFrame(ROWS).to_dicts()
    for row in rows:
        row["context"] = {"device": "phone", "age": {"years": 30}}
    text = "\n".join(json.dumps(row) for row in rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    logs = read_log(tmp_path / name, replace(MAP, context=("context.*",)))
    assert logs.rewards.tolist() == [0.5, 1.0, 1.0, 0.0]
    assert logs.schema.dimensions == ("context.device=phone", "context.device=<other>", "context.age.years")


def test_a_broken_json_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match=r"Expecting value.*line 2 of"):
        open_table(tmp_path / "log.jsonl")


def test_rows_of_json_may_differ(tmp_path: Path) -> None:
    lines = ['{"a": 1, "b": [1, 2]}', '{"a": 1.5}', '{"b": [3], "c": "x"}', '{"c": 4}']
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    frame = open_table(tmp_path / "log.jsonl").frame.collect()
    assert frame["a"].to_list() == [1.0, 1.5, None, None]
    assert frame["b"].to_list() == [[1, 2], None, [3], None]
    assert frame["c"].to_list() == [None, None, "x", "4"]


def decision(number: int, user: str, time: str) -> dict[str, object]:
    return {
        "_label_cost": -float(number % 2),
        "_label_probability": 0.8,
        "_label_Action": 1,
        "_labelIndex": 0,
        "Timestamp": time,
        "EventId": f"e{number}",
        "a": [1, 2],
        "p": [0.8, 0.2],
        "c": {"User": {"id": user, "age": 3}, "_multi": [{"_tag": "news"}, {"_tag": "sport"}]},
    }


def test_a_decision_log_is_read_with_users_and_sessions(tmp_path: Path) -> None:
    """Failed before: dsjson had no sessions, and no way through a column map."""
    rows = [
        decision(1, "u", "2026-03-01T10:00:00Z"),
        decision(2, "u", "2026-03-01T10:05:00Z"),
        decision(3, "u", "2026-03-02T10:00:00Z"),
        decision(4, "v", "2026-03-01T10:00:00Z"),
        {**decision(5, "v", "2026-03-01T10:00:00Z"), "_skipLearn": True},
    ]
    (tmp_path / "log.json").write_text("\n".join(json.dumps(row) for row in rows))
    columns = Columns(
        user="User.id",
        time="Timestamp",
        action="action",
        propensity="probability",
        reward="reward",
        candidates="candidates",
        context=("User.age",),
        session_gap="30m",
    )
    logs = read_log(tmp_path / "log.json", columns)
    assert (logs.n_users, logs.n_sessions) == (2, 3)
    assert logs.rewards.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert logs.action_space.ids == ("news", "sport")
    assert logs.ledger.balanced()
    assert logs.ledger.rows_in == 5
    assert "never shown" in logs.ledger.drops[0].reason


def test_the_adapter_has_sessions_too() -> None:
    from shpi.data.adapters import from_vw_dsjson

    lines = [
        json.dumps(decision(number, "u", f"2026-03-0{day}T10:0{number}:00Z"))
        for number, day in ((1, 1), (2, 1), (3, 2))
    ]
    logs = from_vw_dsjson(lines, user="User.id", session_gap="30m")
    np.testing.assert_array_equal(logs.session_offsets, [0, 2, 3])


def test_names_that_differ_in_capitals_or_blanks_are_meant() -> None:
    """Failed before: "did you mean 'user_id'?" where Item ID stands."""
    assert close_names("item_id", ["User ID", "Item ID", "ts"]) == ["Item ID"]
    assert close_names("item_id", ["user_id", "Item-Id"]) == ["Item-Id"]
    assert close_names("iten_id", ["user_id", "item_id", "ts"])[0] == "item_id"
    with pytest.raises(ColumnError, match="did you mean 'Item ID'"):
        read_log(pl.DataFrame({"user_id": [1], "Item ID": [2]}), Columns(user="user_id", action="item_id"))


@pytest.mark.parametrize(("separator", "point"), [(",", "."), (";", ",")])
def test_quoted_blanks_among_numbers_are_missing_numbers(tmp_path, separator, point):
    """Failed before: the numbers became categories without a word."""
    cells = [f"0{point}5", '""', f"-1{point}25", '" "', "2"]
    lines = [
        separator.join(("user", "score", "city")),
        *(separator.join(("u", cell, '""')) for cell in cells),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    frame = open_table(tmp_path / "t.csv").frame.collect()
    assert frame["score"].to_list() == [0.5, None, -1.25, None, 2.0]
    assert frame.schema["city"] == pl.String  # nothing but blanks: not known to be numbers
