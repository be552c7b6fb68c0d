"""What can go wrong with shards: a full disk, a shard that is cut short, changed or of another log."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import shpi
from shpi.cli.main import main
from shpi.data.shards import ShardedLog, prepare_shards
from shpi.errors import DataError
from shpi.passes import Processes, add_up
from tests.passes.test_resume import COLUMNS, events
from tests.passes.work import moments

FULL = 74  # the exit code of a refusal by the system


@pytest.mark.parametrize(
    ("stage", "written"), [("ipc_stream", 0), ("ipc_stream", 4), ("parquet", 0), ("parquet", 5)]
)
@pytest.mark.parametrize("resume", [False, True])
def test_a_full_disk_while_sharding(tmp_path, monkeypatch, capsys, stage, written, resume):
    """In both stages: a clear error, and no folder. With --resume the next run goes on when there is room."""
    source, calls = events(tmp_path), []
    write = getattr(pl.DataFrame, f"write_{stage}")

    def full(self: pl.DataFrame, *args: object, **options: object) -> None:
        if len(calls) == written:
            raise OSError(errno.ENOSPC, "No space left on device")
        calls.append(args[0])
        write(self, *args, **options)

    call = ["shard", str(source), "--columns", str(tmp_path / "map.toml"), "--rows", "500",
            "--out", str(tmp_path / "out" / "shards")]  # fmt: skip
    call += ["--resume", str(tmp_path / "unfinished")] if resume else []
    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, f"write_{stage}", full)
        assert main(call) == FULL
    assert "free some space" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())
    assert main(call) == 0
    capsys.readouterr()
    assert [place.name for place in (tmp_path / "out").iterdir()] == ["shards"]
    assert not (tmp_path / "unfinished").exists()
    plain = prepare_shards(source, shpi.Columns(**COLUMNS), tmp_path / "plain", rows_per_shard=500)
    assert ShardedLog.open(tmp_path / "out" / "shards").fingerprint() == plain.fingerprint()


def cut_short(victim: Path, other: Path) -> None:
    victim.write_bytes(victim.read_bytes()[:-200])


def one_bit(victim: Path, other: Path) -> None:
    content = bytearray(victim.read_bytes())
    content[len(content) // 3] ^= 1
    victim.write_bytes(bytes(content))


def of_another_log(victim: Path, other: Path) -> None:
    shutil.copy(other, victim)


def gone(victim: Path, other: Path) -> None:
    victim.unlink()


@pytest.mark.parametrize(
    ("damage", "opened"),
    [(cut_short, False), (one_bit, False), (of_another_log, False), (gone, False),
     (cut_short, True), (one_bit, True)],
)  # fmt: skip
def test_a_damaged_shard_is_named(tmp_path, damage: Callable[[Path, Path], None], opened):
    columns = shpi.Columns(**COLUMNS)
    shards = prepare_shards(events(tmp_path), columns, tmp_path / "shards", rows_per_shard=500)
    other = prepare_shards(events(tmp_path, seed=1), columns, tmp_path / "other", rows_per_shard=500)
    assert isinstance(other.files[2], Path)
    victim = tmp_path / "shards" / "shard-00003.parquet"
    damage(victim, other.files[2])
    with pytest.raises(DataError, match=r"shard-00003\.parquet"):
        add_up(shards if opened else ShardedLog.open(tmp_path / "shards"), moments)


def test_a_damaged_shard_is_named_by_another_process(tmp_path):
    shards = prepare_shards(
        events(tmp_path), shpi.Columns(**COLUMNS), tmp_path / "shards", rows_per_shard=500
    )
    one_bit(tmp_path / "shards" / "shard-00003.parquet", tmp_path)
    with pytest.raises(DataError, match=r"shard-00003\.parquet"):
        add_up(shards, moments, executor=Processes(jobs=2))
