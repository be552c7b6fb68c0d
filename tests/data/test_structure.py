"""Windows, splits, cuts, unions, shards and the canonical file: identities on ragged logs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shpi
from shpi.data._log import ragged
from shpi.data._read.read import read_log
from shpi.data.shards import ShardedLog, prepare_shards
from shpi.errors import ActionError, ConfigError, DataError
from tests.data.logs import COLUMNS, assert_same, ragged_logs, table
from tests.passes.work import reward_sum

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(logs=ragged_logs(), length=st.integers(1, 8), step=st.integers(1, 8))
def test_windows_cover_what_they_claim(logs: shpi.LoggedData, length: int, step: int) -> None:
    windows = logs.windows(length, step)
    covered = np.zeros(len(logs), dtype=int)
    spans: list[tuple[int, int]] = []
    for trajectory in range(logs.n_trajectories):  # the definition, spelt out
        first, stop = int(logs.offsets[trajectory]), int(logs.offsets[trajectory + 1])
        start = first
        while True:
            end = min(start + length, stop)
            spans.append((start, end))
            covered[start:end] += 1
            start += step
            if start + length > stop:
                break
    assert list(zip(windows.starts.tolist(), windows.stops.tolist(), strict=True)) == spans
    np.testing.assert_array_equal(windows.coverage(), covered)
    for window, (start, end) in zip(windows, spans, strict=True):
        assert np.shares_memory(window.contexts, logs.contexts)
        assert window.actions.tolist() == logs.actions[start:end].tolist()
        home = int(logs.trajectory_of_row[start])
        at_end = end == logs.offsets[home + 1]
        expected = logs.final_contexts[home] if at_end else logs.contexts[end]
        np.testing.assert_array_equal(window.next_context, expected)
        assert window.terminated == bool(at_end and logs.terminated[home])
    if step == 1 and (np.diff(logs.offsets) >= length).all():
        assert (covered > 0).all()


@quick
@given(logs=ragged_logs(), share=st.floats(0.1, 0.9), seed=st.integers(0, 1000))
def test_concat_of_user_splits_is_the_original(logs: shpi.LoggedData, share: float, seed: int) -> None:
    if logs.n_users < 2:
        with pytest.raises(DataError, match="at least two users"):
            logs.split_users(share, seed=seed)
        return
    train, held_out = logs.split_users(share, seed=seed)
    assert not set(train.users.tolist()) & set(held_out.users.tolist())
    assert_same(shpi.LoggedData.concat([train, held_out]), logs)
    assert_same(shpi.LoggedData.concat([held_out, train]), logs)
    again, _ = logs.split_users(share, seed=seed)
    assert_same(again, train)


@quick
@given(logs=ragged_logs(), when=st.integers(1, 300))
def test_concat_of_time_splits_is_the_original(logs: shpi.LoggedData, when: int) -> None:
    starts = logs.times[logs.session_offsets[:-1]]
    if (starts >= when).all() or (starts < when).all():
        with pytest.raises(DataError, match="all sessions on one side"):
            logs.split_time(when)
        return
    early, late = logs.split_time(when)
    assert (early.times[early.session_offsets[:-1]] < when).all()
    assert (late.times[late.session_offsets[:-1]] >= when).all()
    assert len(early) + len(late) == len(logs)
    assert_same(shpi.LoggedData.concat([late, early]), logs)


@quick
@given(logs=ragged_logs(), seed=st.integers(0, 1000))
def test_select_keeps_whole_trajectories(logs: shpi.LoggedData, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(logs.n_trajectories)
    shuffled = logs.select(order)
    for new, old in enumerate(order):
        rows = slice(shuffled.offsets[new], shuffled.offsets[new + 1])
        source = slice(logs.offsets[old], logs.offsets[old + 1])
        np.testing.assert_array_equal(shuffled.contexts[rows], logs.contexts[source])
        np.testing.assert_array_equal(shuffled.times[rows], logs.times[source])
    assert_same(shpi.LoggedData.concat([shuffled]), logs)
    assert np.shares_memory(logs.select([0]).contexts, logs.contexts)


@quick
@given(logs=ragged_logs())
def test_canonical_file_round_trips_bit_for_bit(logs: shpi.LoggedData, tmp_path: Path) -> None:
    path = logs.to_parquet(tmp_path / "log.parquet")
    back = shpi.LoggedData.read(path)
    assert_same(back, logs)
    assert back.fingerprint() == logs.fingerprint()
    assert back.ledger == logs.ledger
    assert [item.name for item in tmp_path.iterdir()] == ["log.parquet"]  # no draft is left behind


def test_canonical_file_keeps_text_ids_features_levels_and_ledger(tmp_path: Path) -> None:
    items = pl.DataFrame({"item": ["x", "y"], "price": [1.0, 2.0]})
    columns = replace(COLUMNS, user_level=("f1",), time_unit="s", session_gap="30m")
    logs = read_log(pl.concat([table(), table()[:1]]), columns, action_features=items)
    back = shpi.LoggedData.read(logs.to_parquet(tmp_path / "deep" / "log.parquet"))
    assert_same(back, logs)
    assert back.ledger.drops[0].rows == 1
    assert back.schema.features[0].level == "user"


def test_a_newer_canonical_file_is_refused(tmp_path: Path) -> None:
    path = read_log(table(), COLUMNS).to_parquet(tmp_path / "log.parquet")
    header = json.loads(pl.read_parquet_metadata(path)["shpi"]) | {"version": 99}
    del header["checksum"]
    pl.read_parquet(path).write_parquet(path, metadata={"shpi": json.dumps(header)})
    with pytest.raises(DataError, match=r"version 99.*upgrade shpi"):
        shpi.LoggedData.read(path)


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_shards_hold_the_log(tmp_path: Path, shards: int) -> None:
    random = np.random.default_rng(0)
    n = 4000
    frame = pl.DataFrame(
        {
            "uid": [f"user {i}" for i in random.integers(0, 150, n)],
            "ts": random.integers(0, 10**6, n),
            "item": random.integers(0, 5, n),
            "p": random.uniform(0.1, 1, n),
            "r": random.random(n),
            "f1": random.random(n),
            "f2": random.random(n),
        }
    )
    frame = pl.concat([frame, frame[:20]])  # twenty repeated decisions
    frame.write_parquet(tmp_path / "log.parquet")
    columns = replace(COLUMNS, session_gap="1h")
    whole = read_log(frame, columns)
    sharded = prepare_shards(tmp_path / "log.parquet", columns, tmp_path / "shards", shards=shards)
    parts = list(ShardedLog.open(tmp_path / "shards"))
    assert len(parts) == shards
    assert_same(shpi.LoggedData.concat(parts), whole)
    assert_same(shpi.LoggedData.concat(parts[::-1]), whole)
    users = [set(shard.users.tolist()) for shard in parts]
    assert sum(map(len, users)) == len(set().union(*users)) == 150
    assert sharded.ledger.rows_in == 4020
    assert sharded.ledger.balanced()
    assert sharded.ledger.drops[0].rows == 20
    assert sharded.ledger.drops[0].example == 4000  # a row number of the source, not of the shard
    assert sum(sharded.map(reward_sum)) == pytest.approx(whole.rewards.sum())
    if shards == 3:  # this process has used polars, and a fork of it would hang
        assert sharded.map(reward_sum, jobs=2) == sharded.map(reward_sum)


def test_shards_name_the_bad_row_of_the_source_and_leave_nothing_behind(tmp_path: Path) -> None:
    table(p=[0.5, 0.5, 0.5, 0.5, 7.0, 0.5]).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"column 'p', row 4"):
        prepare_shards(tmp_path / "log.parquet", COLUMNS, tmp_path / "shards", shards=2)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["log.parquet"]
    (tmp_path / "shards").mkdir()
    with pytest.raises(ConfigError, match="does not exist yet"):
        prepare_shards(tmp_path / "log.parquet", COLUMNS, tmp_path / "shards")
    with pytest.raises(DataError, match="a folder with manifest"):
        ShardedLog.open(tmp_path / "shards")


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=8), data=st.data())
def test_ragged_arithmetic(counts: list[int], data: st.DataObject) -> None:
    offsets = ragged.offsets_from_lengths(np.array(counts))
    assert ragged.lengths(offsets).tolist() == counts
    groups = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=6))
    expected = [row for g in groups for row in range(offsets[g], offsets[g + 1])]
    assert ragged.rows_of_groups(offsets, np.array(groups, dtype=int)).tolist() == expected
    assert ragged.group_of_row(offsets).tolist() == [g for g, c in enumerate(counts) for _ in range(c)]
    assert ragged.position_in_group(offsets).tolist() == [i for c in counts for i in range(c)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [0, 5]}, r"actions in 0\.\.1, found 5 \(row 1\)"),
        ({"actions": [0.0, 1.0]}, "integer actions"),
        ({"contexts": [[np.nan], [0]]}, "finite contexts, found nan"),
        ({"rewards": [0, np.inf]}, "finite rewards, found inf"),
        ({"propensities": [0.5, 0]}, r"propensities in \(0, 1\], found 0.0 \(row 1\)"),
        ({"offsets": [0, 1]}, "offsets that rise from 0 to 2"),
        ({"offsets": [0, 0, 2]}, "at least one decision per trajectory"),
        ({"session_offsets": [0, 1]}, "a session boundary at every trajectory boundary"),
        ({"candidates": [[True, True], [False, False]]}, "an empty candidate set"),
        ({"candidates": [[True, True], [True, False]]}, "an action outside them"),
        ({"contexts": [0, 1]}, r"contexts of shape \[n, d\]"),
        ({"rewards": [1]}, r"rewards of shape \(2,\), found shape \(1,\)"),
    ],
)
def test_arrays_are_checked(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {
        "contexts": [[0], [1]], "actions": [0, 1], "offsets": [0, 2], "rewards": [0, 1], "n_actions": 2,
    }  # fmt: skip
    shpi.LoggedData.from_arrays(**good)  # type: ignore[arg-type]
    with pytest.raises((DataError, ActionError), match=message):
        shpi.LoggedData.from_arrays(**(good | change))  # type: ignore[arg-type]


def test_selections_and_splits_are_checked() -> None:
    logs = read_log(table(), COLUMNS)
    with pytest.raises(DataError, match="an empty selection"):
        logs.select(np.zeros(3, dtype=bool))
    with pytest.raises(ConfigError, match=r"trajectories in 0\.\.2"):
        logs.select([3])
    with pytest.raises(ConfigError, match=r"in \(0, 1\)"):
        logs.split_users(1.0, seed=0)
    with pytest.raises(ConfigError, match="an ISO date"):
        logs.split_time("soon")
    with pytest.raises(ConfigError, match="length to be an integer of at least 1"):
        logs.windows(0, 1)
    other = replace(logs, propensities=None, propensity_mode="absent")
    with pytest.raises(DataError, match=r"same propensity mode.*part 0 and part 1"):
        shpi.LoggedData.concat([logs, other])
    with pytest.raises(ActionError, match=r"one of the 2 known actions, found 'q' \(row 1\)"):
        logs.action_space.index(["x", "q"])


def test_split_time_takes_dates() -> None:
    columns = replace(COLUMNS, time_unit="auto", session_gap="1h")
    times = ["2026-01-01", "2026-01-02", "2026-01-03"] * 2
    logs = read_log(table(ts=times, uid=["a"] * 3 + ["b"] * 3), columns)
    early, late = logs.split_time("2026-01-02")
    assert (len(early), len(late)) == (2, 4)
    np.testing.assert_array_equal(early.final_contexts[:, 0], [2, 5])
    assert early.final_observed.all()
