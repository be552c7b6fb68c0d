"""Files and tables that say something else than they seem to: nothing wrong passes in silence."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.data.canonical import KEY, to_table
from shpi.data.shards import ShardedLog, prepare_shards
from shpi.errors import ColumnError, DataError, ShpiError
from tests.data.logs import COLUMNS, table

LOGS = shpi.LoggedData.read(table(), COLUMNS)


# ---------------------------------------------------------------------- canonical files


def forged(path: Path, header: dict[str, Any] | None = None, **columns: Any) -> Path:
    """A canonical file with other columns or another header, and no checksum, like a file of 0.1."""
    LOGS.to_parquet(path)
    content = json.loads(pl.read_parquet_metadata(path)[KEY])
    del content["checksum"]
    frame = to_table(LOGS).with_columns(**{name: pl.Series(name, v) for name, v in columns.items()})
    frame.write_parquet(path, metadata={KEY: json.dumps(content | (header or {}))})
    return path


def values(name: str, row: int, value: Any) -> pl.Series:
    column = to_table(LOGS)[name].to_list()
    column[row] = value
    return pl.Series(name, column, dtype=to_table(LOGS)[name].dtype)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("rewards", float("nan"), "finite rewards"),
        ("propensities", 7.0, r"propensities in \(0, 1\]"),
        ("action", 2_000_000_000, r"actions in 0\.\.1"),
        ("action", -5, r"actions in 0\.\.1"),
        ("x:f1", float("inf"), "finite contexts"),
        ("time", -10_000, "never go backwards"),
        ("trajectory", 1, "trajectories 0, 1"),
        ("shpi_row", 1, "trajectories 0, 1"),
        ("rewards", None, "complete and of its type"),
    ],
)
def test_values_of_canonical_files_are_checked(tmp_path: Path, column: str, value: Any, message: str) -> None:
    assert len(shpi.LoggedData.read(forged(tmp_path / "ok.parquet"))) == 6
    place = forged(tmp_path / "log.parquet", **{column: values(column, 1, value)})
    with pytest.raises(DataError, match=message) as caught:
        shpi.LoggedData.read(place)
    assert "log.parquet" in str(caught.value)
    assert caught.value.remedy


def test_types_and_headers_of_canonical_files_are_checked(tmp_path: Path) -> None:
    for columns in (
        {"action": pl.Series("action", ["x"] * 9)},
        {"action": pl.Series("action", np.zeros(9))},
        {"rewards": pl.Series("rewards", ["1"] * 9)},
        {"user": pl.Series("user", [[1]] * 9)},
    ):
        with pytest.raises(DataError, match="of its type"):
            shpi.LoggedData.read(forged(tmp_path / "log.parquet", **columns))
    for header in (
        {"version": "1"},
        {"schema": None},
        {"actions": {"ids": [["x"], "y"]}},
        {"actions": {"ids": ["x"]}},
        {"ledger": {}},
        {"ledger": {"rows_in": -1, "rows_used": 6}},
        {"propensity_mode": "absent"},
        {"metrics": ["gone"]},
        {"other": 1},
        {"version": 99},
    ):
        with pytest.raises(DataError) as caught:
            shpi.LoggedData.read(forged(tmp_path / "log.parquet", header))
        assert caught.value.remedy


def test_a_header_that_was_edited_is_noticed(tmp_path: Path) -> None:
    path = LOGS.to_parquet(tmp_path / "log.parquet")
    header = json.loads(pl.read_parquet_metadata(path)[KEY])
    header["actions"]["ids"].reverse()
    to_table(LOGS).write_parquet(path, metadata={KEY: json.dumps(header)})
    with pytest.raises(DataError, match="agree with the checksum"):
        shpi.LoggedData.read(path)
    header["checksum"] = ""
    to_table(LOGS).write_parquet(path, metadata={KEY: json.dumps(header)})
    with pytest.raises(DataError, match="a file with its checksum"):
        shpi.LoggedData.read(path)


def test_flipped_bytes_are_noticed_or_harmless(tmp_path: Path) -> None:
    path = LOGS.to_parquet(tmp_path / "log.parquet")
    data, noticed, tried = path.read_bytes(), 0, 0
    for position in range(0, len(data), 11):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
        tried += 1
        try:
            loaded = shpi.LoggedData.read(path)
        except ShpiError:
            noticed += 1
        else:
            assert loaded.fingerprint() == LOGS.fingerprint()
    assert noticed > 0.3 * tried


# ---------------------------------------------------------------------- shards


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    users = [f"user {i}" for i in range(40) for _ in range(3)]
    frame = pl.concat([table()] * 20).with_columns(uid=pl.Series(users), ts=pl.int_range(120))
    return prepare_shards(frame, COLUMNS, tmp_path / "shards", shards=4).folder


def edit(folder: Path, **changes: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


def old(folder: Path) -> list[str]:
    """Turn the manifest into one of version 1, and return its files."""
    manifest = json.loads((folder / "manifest.json").read_text())
    kept = {key: manifest[key] for key in ("files", "ledger", "rows")}
    (folder / "manifest.json").write_text(json.dumps(kept | {"version": 1}))
    files: list[str] = manifest["files"]
    return files


def test_shards_are_opened_only_if_they_are_whole(folder: Path, tmp_path: Path) -> None:
    assert sum(map(len, ShardedLog.open(folder))) == 120
    files = old(folder)
    assert sum(map(len, ShardedLog.open(folder))) == 120
    shutil.copy(folder / files[0], tmp_path / "elsewhere.parquet")
    for changed in (
        {"files": files[1:]},
        {"files": files[::-1]},
        {"files": [*files, files[0]]},
        {"files": ["../elsewhere.parquet", *files[1:]]},
        {"files": [str(tmp_path / "elsewhere.parquet"), *files[1:]]},
        {"files": "shard"},
        {"version": 99},
        {"version": None},
        {"rows": 7},
        {"other": 1},
    ):
        old(folder) if "files" not in changed else None
        edit(folder, **changed)
        with pytest.raises(DataError) as caught:
            ShardedLog.open(folder)
        assert caught.value.remedy
        edit(folder, version=1, files=files, rows=120)


def test_a_replaced_shard_is_noticed(folder: Path) -> None:
    files = json.loads((folder / "manifest.json").read_text())["files"]
    shutil.copy(folder / files[0], folder / files[1])
    with pytest.raises(DataError, match="every shard"):
        ShardedLog.open(folder)


def test_an_edited_order_is_noticed(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(folder, files=manifest["files"][1:], checksums=manifest["checksums"][1:])
    with pytest.raises(DataError, match="a manifest that was changed"):
        ShardedLog.open(folder)


# ---------------------------------------------------------------------- categories, folders, times


@pytest.mark.parametrize("column", [["a", None, "b", "a", "b", "a"], [1.0, float("nan"), 2.0, 1.0, 2.0, 1.0]])
def test_a_missing_category_follows_its_policy(column: list[Any]) -> None:
    frame = table(colour=pl.Series(column))
    columns = shpi.Columns(
        user="uid", time="ts", action="item", context=["colour"], categorical=["colour"], reward="r"
    )
    with pytest.raises(DataError, match="context missing") as caught:
        shpi.LoggedData.read(frame, columns)
    assert "colour" in str(caught.value)
    dropped = shpi.LoggedData.read(frame, replaced(columns, "drop"))
    assert (len(dropped), dropped.ledger.rows_dropped) == (5, 1)
    for policy in ("mean", "zero", "indicator"):
        filled = shpi.LoggedData.read(frame, replaced(columns, policy))
        assert (filled.contexts.sum(axis=1) == 1).all()
        assert "1 missing values filled" in filled.ledger.notes[-1]


def replaced(columns: shpi.Columns, policy: str) -> shpi.Columns:
    from dataclasses import replace

    return replace(columns, missing={"colour": policy})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["p=1", "uid=3", "item=x"])
def test_a_folder_never_replaces_a_column(tmp_path: Path, name: str) -> None:
    above = tmp_path / name / "events"
    above.mkdir(parents=True)
    table().write_parquet(above / "a.parquet")
    expected = LOGS.fingerprint()
    for source in (above, above / "a.parquet", f"{above}/*.parquet", [above / "a.parquet"]):
        assert shpi.LoggedData.read(source, COLUMNS).fingerprint() == expected
    with pytest.raises(ColumnError, match="partition folders whose names are no columns"):
        shpi.LoggedData.read(tmp_path, COLUMNS)
    with pytest.raises(ColumnError, match="partition folders"):
        shpi.LoggedData.read(f"{tmp_path}/*/events/*.parquet", COLUMNS)


def test_partition_folders_below_the_root_are_columns(tmp_path: Path) -> None:
    for day in ("2026-11-15", "2026-11-16"):
        for shop in ("1", "__HIVE_DEFAULT_PARTITION__"):
            place = tmp_path / f"day={day}" / f"shop={shop}"
            place.mkdir(parents=True)
            table().write_parquet(place / "a.parquet")
    from shpi.data._read.sources import open_table

    frame = open_table(tmp_path).frame.collect()
    assert (frame["day"].dtype, frame["shop"].dtype) == (pl.Date, pl.Int64)
    assert frame["shop"].null_count() == 12
    os.rename(tmp_path / "day=2026-11-16" / "shop=1", tmp_path / "day=2026-11-16" / "other")  # noqa: PTH104
    with pytest.raises(ColumnError, match="the partition folders day, shop"):
        open_table(tmp_path)


@pytest.mark.parametrize(
    ("unit", "factor", "fits"),
    [("s", 10**9, "ns"), ("s", 10**3, "ms"), ("ms", 10**6, "us"), ("d", 86_400, "s")],
)
def test_a_wrong_time_unit_is_refused(unit: Any, factor: int, fits: str) -> None:
    from dataclasses import replace

    seconds = 1_794_000_000 if unit != "d" else 20_000
    frame = table(ts=[(seconds + t) * factor for t in (0, 10, 4000, 5, 20, 7)])
    with pytest.raises(DataError, match="times before the year 9999") as caught:
        shpi.LoggedData.read(frame, replace(COLUMNS, time_unit=unit))
    assert caught.value.remedy.endswith("would fit")
    assert f"'{fits}'" in caught.value.remedy or unit == "ms"
    for odd in ([2**64 - 1] * 6, [float("inf"), 1, 2, 3, 4, 5], [float("nan"), 1, 2, 3, 4, 5], [1e300] * 6):
        with pytest.raises(DataError):
            shpi.LoggedData.read(table(ts=odd), replace(COLUMNS, time_unit=unit))
