"""Every row of docs/bad-input.md: a clear error or a reported drop, and nothing lost."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.data._read.read import read_log
from shpi.errors import ColumnError, ConfigError, DataError, MemoryLimitError
from tests.data.logs import COLUMNS, table

NAN, INF = float("nan"), float("inf")


def test_missing_column_names_the_column_and_the_closest_one() -> None:
    with pytest.raises(ColumnError, match=r"a column 'itm' for action.*did you mean 'item'"):
        read_log(table(), replace(COLUMNS, action="itm"))
    with pytest.raises(ColumnError, match=r"a column 'hist_\*' for context"):
        read_log(table(), replace(COLUMNS, context=("hist_*",)))


@pytest.mark.parametrize(
    ("change", "columns", "message"),
    [
        ({"r": ["a"] * 6}, {}, r"a numeric reward column, found String \(column 'r'\)"),
        ({"p": ["?"] * 6}, {}, r"a numeric propensity column, found String \(column 'p'\)"),
        ({"item": [0.5] * 6}, {}, r"integer or text action ids, found Float64 \(column 'item'\)"),
        ({"ts": [True] * 6}, {}, r"a time column of dates.*found Boolean \(column 'ts'\)"),
        ({"f1": [[1.0]] * 6}, {}, r"a numeric, boolean or text context column, found List.*\(column 'f1'\)"),
        ({"end": ["no"] * 6}, {"terminated": "end"}, r"a boolean terminated column, found String"),
    ],
)
def test_wrong_type_names_the_column(
    change: dict[str, list[object]], columns: dict[str, str], message: str
) -> None:
    with pytest.raises(ColumnError, match=message):
        read_log(table(**change), replace(COLUMNS, **columns))


# One bad value in row 1, in the middle of user a's three decisions.
BAD_VALUES = {
    "propensity 0": (
        {"p": [0.5, 0.0, 0.25, 0.75, 0.5, 1.0]},
        r"propensity not in \(0, 1\], e.g. 0.0 \(column 'p', row 1\)",
    ),
    "propensity above 1": ({"p": [0.5, 1.5, 0.25, 0.75, 0.5, 1.0]}, r"propensity not in \(0, 1\], e.g. 1.5"),
    "propensity NaN": ({"p": [0.5, NAN, 0.25, 0.75, 0.5, 1.0]}, r"propensity not in \(0, 1\], e.g. nan"),
    "propensity null": ({"p": [0.5, None, 0.25, 0.75, 0.5, 1.0]}, r"propensity not in \(0, 1\], e.g. nan"),
    "reward NaN": (
        {"r": [0.0, NAN, 0.0, 1.0, 1.0, 0.0]},
        r"reward missing or not finite, e.g. nan \(column 'r', row 1\)",
    ),
    "reward a placeholder": (
        {"r": [0.0, -1.7e308, 0.0, 1.0, 1.0, 0.0]},
        r"reward beyond 1e\+30, e.g. -1.7e\+308 \(column 'r', row 1\)",
    ),
    "reward infinite": ({"r": [0.0, INF, 0.0, 1.0, 1.0, 0.0]}, r"reward missing or not finite, e.g. inf"),
    "context infinite": (
        {"f2": [0.1, -INF, 0.3, 0.4, 0.5, 0.6]},
        r"context infinite.*\(column 'f2', row 1\)",
    ),
    "action missing": ({"item": ["x", None, "x", "y", "y", "x"]}, r"action missing \(column 'item', row 1\)"),
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_value_is_an_error_that_names_column_and_row(case: str) -> None:
    change, message = BAD_VALUES[case]
    with pytest.raises(DataError, match=message) as caught:
        read_log(table(**change), COLUMNS)
    assert "What to do" in str(caught.value)


@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_value_is_dropped_and_reported_on_request(case: str) -> None:
    change, _ = BAD_VALUES[case]
    logs = read_log(table(**change), COLUMNS, invalid="drop")
    assert len(logs) == 5
    assert logs.ledger.balanced()
    (drop,) = logs.ledger.drops
    assert (drop.rows, drop.example) == (1, 1)
    assert logs.users.tolist() == ["a", "a", "b", "c"]  # cut in two: no transition over the hole is faked
    assert logs.final_observed[0] == (
        case != "context infinite"
    )  # the hole's context is known unless it is bad
    for array in (logs.contexts, logs.rewards, logs.propensities):
        assert array is not None
        assert np.isfinite(array).all()


def test_several_problems_are_one_error() -> None:
    with pytest.raises(DataError, match=r"2 rows: reward missing.*also 1 rows: propensity not in"):
        read_log(table(r=[NAN, NAN, 0, 0, 0, 0], p=[0.5, 0.5, 2.0, 0.5, 0.5, 0.5]), COLUMNS)


def test_missing_context_without_a_policy_offers_the_policies() -> None:
    with pytest.raises(
        DataError, match=r"context missing \(column 'f1', row 2\).*missing = \{'f1' = 'mean'\}"
    ):
        read_log(table(f1=[1.0, 2.0, None, 4.0, 5.0, 6.0]), COLUMNS)


def test_action_outside_its_candidates_and_empty_candidate_sets() -> None:
    columns = replace(COLUMNS, candidates="el")
    outside = [["x", "y"], ["x"], ["x"], ["y"], ["y"], ["x"]]
    with pytest.raises(DataError, match=r"action outside its candidates \(column 'item', row 1\)"):
        read_log(table(el=outside), columns)
    empty = [["x", "y"], [], ["x"], ["y"], ["y"], ["x"]]
    with pytest.raises(DataError, match=r"empty candidate set \(column 'el', row 1\)"):
        read_log(table(el=empty), columns)
    logs = read_log(table(el=empty), columns, invalid="drop")
    assert [drop.reason for drop in logs.ledger.drops] == ["empty candidate set"]


def test_behaviour_must_be_a_distribution_and_agree_with_the_propensity() -> None:
    wrong = {"mu_x": [0.5] * 6, "mu_y": [0.5] * 5 + [0.6]}
    with pytest.raises(DataError, match=r"not summing to 1, e.g. 1.1 \(column 'mu_\*', row 5\)"):
        read_log(table(**wrong), replace(COLUMNS, propensity=None, behaviour="mu_*"))
    apart = {"mu_x": [0.5] * 6, "mu_y": [0.5] * 6}
    with pytest.raises(DataError, match="propensity differs from behaviour distribution"):
        read_log(table(**apart), replace(COLUMNS, behaviour="mu_*"))


def test_time_going_backwards_is_sorted_and_noted_but_refused_in_arrays() -> None:
    logs = read_log(table(ts=[10, 0, 4000, 5, 20, 7]), COLUMNS)
    assert (np.diff(logs.times[:3]) > 0).all()
    assert any("not in (user, time) order" in note for note in logs.ledger.notes)
    with pytest.raises(DataError, match=r"never go backwards.*row 1"):
        shpi.LoggedData.from_arrays(contexts=np.zeros((2, 1)), actions=[0, 0], offsets=[0, 2], times=[2, 1])


def test_equal_times_without_an_order_column_are_deterministic_and_noted() -> None:
    frame = table(ts=[0, 0, 0, 5, 5, 7], item=["x", "y", "z", "y", "x", "x"])
    first, second = read_log(frame, COLUMNS), read_log(frame, COLUMNS)
    assert first.fingerprint() == second.fingerprint()
    assert any("no order column is given" in note for note in first.ledger.notes)


def test_repeated_decisions_are_dropped_kept_or_refused() -> None:
    doubled = pl.concat([table(), table()[2:4]])
    logs = read_log(doubled, COLUMNS)
    assert len(logs) == 6
    assert [(drop.reason, drop.rows, drop.example) for drop in logs.ledger.drops] == [
        ("repeats an earlier decision", 2, 6)
    ]
    assert logs.ledger.balanced()
    assert logs.n_trajectories == 3  # a duplicate leaves no hole
    assert len(read_log(doubled, COLUMNS, duplicates="keep")) == 8
    with pytest.raises(DataError, match=r"2 that repeat an earlier one \(row 6\)"):
        read_log(doubled, COLUMNS, duplicates="error")


def test_time_zones_must_not_be_mixed() -> None:
    columns = replace(COLUMNS, time_unit="auto")
    mixed = ["2026-01-01T00:00:00Z"] * 5 + ["2026-01-01T00:00:00"]
    with pytest.raises(DataError, match=r"every time with a zone, or none.*column 'ts', row 5"):
        read_log(table(ts=mixed), columns)
    with pytest.raises(DataError, match=r"found 'yesterday' \(column 'ts', row 2"):
        read_log(table(ts=["2026-01-01"] * 2 + ["yesterday"] + ["2026-01-01"] * 3), columns)


def test_parquet_files_in_two_time_zones_are_refused(tmp_path: Path) -> None:
    frame = table().with_columns(pl.from_epoch("ts").dt.replace_time_zone("UTC"))
    frame.write_parquet(tmp_path / "a.parquet")
    frame.with_columns(pl.col("ts").dt.convert_time_zone("Asia/Tokyo")).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(ColumnError, match=r"column 'ts' as .*UTC.*one time zone per column"):
        read_log(str(tmp_path / "*.parquet"), replace(COLUMNS, time_unit="auto"))


@pytest.mark.parametrize("role", ["uid", "ts"])
def test_missing_user_or_time(role: str) -> None:
    values = table()[role].to_list()
    values[4] = None
    with pytest.raises(DataError, match=rf"in every row, found 1 missing \(column '{role}', row 4\)"):
        read_log(table(**{role: values}), COLUMNS)


def test_empty_files_and_tables(tmp_path: Path) -> None:
    (tmp_path / "zero.parquet").touch()
    with pytest.raises(DataError, match="an empty file"):
        read_log(tmp_path / "zero.parquet", COLUMNS)
    table()[:0].write_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="without rows"):
        read_log(tmp_path / "none.parquet", COLUMNS)
    (tmp_path / "header.csv").write_text("uid,ts,item,p,r,f1\n", encoding="utf-8")
    with pytest.raises(DataError, match="a header without rows"):
        read_log(tmp_path / "header.csv", COLUMNS)
    with pytest.raises(DataError, match="an empty table"):
        read_log(table()[:0], COLUMNS)
    with pytest.raises(DataError, match="nothing that matches"):
        read_log(tmp_path / "nowhere*.parquet", COLUMNS)


def test_truncated_parquet_file(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    table().write_parquet(whole)
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"a complete Parquet file.*cut\.parquet.*truncated"):
        read_log(tmp_path / "cut.parquet", COLUMNS)


@pytest.mark.parametrize(("line", "fields"), [("c,9,x,0.5,1", 5), ("c,9,x,0.5,1,2,3,4", 8)])
def test_broken_csv_line_is_named(tmp_path: Path, line: str, fields: int) -> None:
    path = tmp_path / "log.csv"
    table().write_csv(path)
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"7 fields, as in the header, found {fields} fields \(line 8 of "):
        read_log(path, COLUMNS)


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(table().write_csv().encode())[:-12])
    with pytest.raises(DataError, match="a complete CSV file"):
        read_log(path, COLUMNS)


def test_a_row_is_named_in_its_own_file(tmp_path: Path) -> None:
    table().write_parquet(tmp_path / "a.parquet")
    table(p=[0.5, 0.5, 7.0, 0.5, 0.5, 0.5]).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=re.escape(f"row 2 of {tmp_path / 'b.parquet'}")):
        read_log(str(tmp_path / "*.parquet"), COLUMNS, duplicates="keep")


def test_one_user_with_one_row_and_a_single_action_can_be_read() -> None:
    logs = read_log(table()[:1], COLUMNS)
    assert (len(logs), logs.n_users, logs.n_sessions, logs.n_actions) == (1, 1, 1, 1)
    assert not logs.final_observed.any()


def test_a_million_users() -> None:
    n = 1_000_000
    random = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "uid": random.permutation(n),
            "ts": np.arange(n),
            "item": random.integers(0, 5, n),
            "p": np.full(n, 0.2),
            "r": random.random(n),
            "f1": random.random(n, dtype=np.float32),
        }
    )
    logs = read_log(frame, COLUMNS)
    assert (logs.n_users, logs.n_trajectories) == (n, n)
    np.testing.assert_array_equal(logs.contexts[:, 0], frame.sort("uid")["f1"].to_numpy())
    train, held_out = logs.split_users(0.3, seed=0)
    assert (len(train), len(held_out)) == (700_000, 300_000)


def test_no_map_for_a_foreign_file_shows_a_guess(tmp_path: Path) -> None:
    table().write_parquet(tmp_path / "log.parquet")
    with pytest.raises(ConfigError, match=r'(?s)map\.toml.*user = "uid".*action = "item".*propensity = "p"'):
        read_log(tmp_path / "log.parquet")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('user = "u"', "the key 'action'"),
        ('action = "a"\nactoin = 1', r"unknown \['actoin'\]"),
        ("action = ", "valid TOML"),
        ('action = "a"\ntime_unit = "weeks"', "time_unit to be one of"),
        ('action = "a"\nsession = "s"\nsession_gap = "1h"', "from a column or from a time gap"),
        ('action = "a"\n[missing]\nx = "guess"', "missing-value policies among"),
    ],
)
def test_bad_maps(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "map.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        shpi.Columns.from_toml(tmp_path / "map.toml")


def test_unknown_actions_under_a_given_action_space() -> None:
    space = shpi.ActionSpace(ids=("x",))
    with pytest.raises(DataError, match=r"3 rows: unknown action \(column 'item', row 1\)"):
        read_log(table(), COLUMNS, action_space=space)


def test_foreign_objects_are_refused() -> None:
    with pytest.raises(DataError, match="a path, a glob, a folder, or a polars, pandas or pyarrow table"):
        read_log(object(), COLUMNS)
    with pytest.raises(ConfigError, match="one of error, drop"):
        read_log(table(), COLUMNS, invalid="ignore")  # type: ignore[arg-type]


def test_what_cannot_fit_into_memory_is_refused_before_polars_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    from shpi._core import memory

    monkeypatch.setattr(memory, "available_memory", lambda: 500)
    with pytest.raises(MemoryLimitError, match=r"6 rows with \d context dimensions, found 0.0 GiB"):
        read_log(table(), COLUMNS)


def test_a_good_file_is_not_blamed_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``ulimit -v 1000000`` a file of 3 million rows was called truncated."""
    table().write_parquet(tmp_path / "t.parquet")

    def no_memory(*_: object, **__: object) -> None:
        raise OSError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr(pl, "read_parquet_schema", no_memory)
    with pytest.raises(MemoryLimitError, match="gives no more"):
        read_log(tmp_path / "t.parquet", COLUMNS)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl"])
def test_a_text_file_that_cannot_fit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A small gzip file may unpack to any size, so it is counted while it is unpacked."""
    from shpi._core import memory

    place = tmp_path / name
    line = b'{"a": 1}\n' if name.endswith("jsonl") else b"1,2\n"
    text = (b"" if name.endswith("jsonl") else b"a,b\n") + line * 200_000
    place.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    monkeypatch.setattr(memory, "available_memory", lambda: 5_000_000)
    with pytest.raises(MemoryLimitError, match=r"GiB of memory for the .* MiB of text in") as caught:
        read_log(place, COLUMNS)
    assert "Parquet" in caught.value.remedy
