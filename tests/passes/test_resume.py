"""A pass that is killed goes on with the shards that are left, and with nothing of another log or setting."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.cli.main import main
from shpi.data.shards import ShardedLog, prepare_shards, write_shards
from shpi.errors import ConfigError, DataError
from shpi.passes import Resumable, Serial, add_up, audit_shards, collect, sample
from shpi.passes.records import NoRecordError, read_record, write_record
from shpi.passes.resume import content_digest
from shpi.values import LSTD
from tests.ope.worlds import H, small_world
from tests.passes.work import moments

COUNT = 6


@dataclass(frozen=True)
class Counting:
    """Counts what is asked of it, and breaks down after some of it."""

    breaks_after: int | None = None
    done: list[int] = field(default_factory=list)

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number, task in enumerate(tasks):
            if len(self.done) == self.breaks_after:
                raise KeyboardInterrupt
            self.done.append(number)
            yield number, function(task)


def shards_of(folder: Path, seed: int = 3) -> ShardedLog:
    mdp, mu, _ = small_world()
    whole = mdp.log(mu, 60, H, seed=seed, ragged=True)
    return write_shards([whole.select(np.arange(i, 60, COUNT)) for i in range(COUNT)], folder)


def test_a_broken_pass_goes_on_where_it_was(tmp_path):
    shards, folder = shards_of(tmp_path / "shards"), tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        add_up(shards, moments, executor=Resumable(executor=Counting(4), folder=folder))
    rest = Counting()
    total = add_up(shards, moments, executor=Resumable(executor=rest, folder=folder))
    assert len(rest.done) == COUNT - 4
    np.testing.assert_array_equal(total, add_up(shards, moments))
    Resumable(executor=rest, folder=folder).forget()
    assert not folder.exists()


def test_nothing_of_another_log_or_setting_or_version_is_used(tmp_path, monkeypatch):
    shards, other = shards_of(tmp_path / "shards"), shards_of(tmp_path / "other", seed=4)
    folder = tmp_path / "kept"

    def asked(logs: ShardedLog, function: Any) -> int:
        counting = Counting()
        total = add_up(logs, function, executor=Resumable(executor=counting, folder=folder))
        np.testing.assert_array_equal(total, add_up(logs, function))
        return len(counting.done)

    assert asked(shards, moments) == COUNT
    assert asked(shards, moments) == 0
    assert asked(other, moments) == COUNT
    assert asked(shards, partial(moments, power=2)) == COUNT
    monkeypatch.setattr("shpi.passes.resume.versions", lambda: {"shpi": "0.3"})
    assert asked(shards, moments) == COUNT


def test_a_function_that_nobody_can_name_is_not_kept(tmp_path):
    shards, folder = shards_of(tmp_path / "shards"), tmp_path / "kept"
    results = collect(shards, lambda logs: len(logs), executor=Resumable(executor=Serial(), folder=folder))
    assert sum(results) == shards.rows
    assert not folder.exists()


def test_samples_audits_and_values_are_the_same_from_what_is_kept(tmp_path):
    shards = shards_of(tmp_path / "shards")
    for _ in range(2):  # the second time from files
        kept = Resumable(executor=Serial(), folder=tmp_path / "kept")
        drawn, plain = sample(shards, 50, executor=kept), sample(shards, 50)
        assert drawn.fingerprint() == plain.fingerprint()
        report = audit_shards(shards, most_rows=50, executor=kept)
        assert str(report) == str(audit_shards(shards, most_rows=50))
        of_kept, of_plain = (LSTD().fit(shards, gamma=0.9, seed=0, executor=e) for e in (kept, None))
        np.testing.assert_array_equal(of_kept.theta, of_plain.theta)


def test_logs_errors_and_tables_of_results_are_kept(tmp_path):
    mdp, mu, _ = small_world()
    logs = mdp.log(mu, 20, H, seed=3, ragged=True)
    error = DataError(expected="this", found="that", where="here")
    value = [{("a", 1): logs, 2: None}, error, np.array(["x", "yz"])]
    assert write_record(tmp_path / "pass-x", value)
    table, kept_error, words = read_record(tmp_path / "pass-x")
    assert table[("a", 1)].fingerprint() == logs.fingerprint()
    assert list(table) == [("a", 1), 2]
    assert (type(kept_error), str(kept_error)) == (DataError, str(error))
    assert words.tolist() == ["x", "yz"]


def test_contents_count_and_not_copies():
    words, array = ["a", "bc"], np.arange(3.0)
    shared = (words[1], words[1], array, array)
    copies = (words[1], "".join(["b", "c"]), array, array.copy())
    assert content_digest(shared) == content_digest(copies)
    assert content_digest(shared) != content_digest((*shared[:3], array + 1))
    assert content_digest(np.zeros((2, 3))) != content_digest(np.zeros((3, 2)))


def test_a_damaged_record_is_none(tmp_path):
    place = tmp_path / "pass-x"
    value = (np.arange(6.0).reshape(2, 3), [1, None, True, 2.5, "x"], np.float64(0.1))
    assert write_record(place, value)
    read = read_record(place)
    np.testing.assert_array_equal(read[0], value[0])
    assert read[1:] == value[1:]
    content = place.with_suffix(".npz").read_bytes()
    place.with_suffix(".npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(NoRecordError):
        read_record(place)
    assert not write_record(place, {"a", "set"})
    assert not write_record(place, np.array(["text"], dtype=object))


# ---------------------------------------------------------------------- sharding


COLUMNS = {"user": "uid", "time": "t", "action": "a", "propensity": "p", "reward": "r", "context": ["x"]}
MAP = "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in COLUMNS.items())


def events(folder: Path, n: int = 3000, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    pl.DataFrame(
        {"uid": rng.integers(0, 200, n), "t": np.arange(n), "a": rng.integers(0, 3, n), "p": 1 / 3,
         "r": rng.random(n), "x": rng.random(n)}
    ).write_parquet(folder / "events.parquet")  # fmt: skip
    (folder / "map.toml").write_text(MAP)
    return folder / "events.parquet"


KILLED = """
import os, signal, sys
from shpi.data._shards import prepare
done, write = [], prepare.write_canonical
def killed(logs, path):
    if len(done) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(path)
    return write(logs, path)
prepare.write_canonical = killed
from shpi.cli.main import main
main(sys.argv[2:])
"""


def test_sharding_goes_on_at_the_last_shard(tmp_path, monkeypatch, capsys):
    source = events(tmp_path)
    call = ["shard", str(source), "--columns", str(tmp_path / "map.toml"), "--rows", "500",
            "--out", str(tmp_path / "shards"), "--resume", str(tmp_path / "unfinished")]  # fmt: skip
    killed = subprocess.run([sys.executable, "-c", KILLED, "4", *call], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "shards").exists()
    finished = sorted((tmp_path / "unfinished").glob("shard-*.parquet"))
    assert len(finished) == 4
    before = [path.stat().st_mtime_ns for path in finished]
    written: list[Path] = []
    from shpi.data._shards import prepare

    write = prepare.write_canonical
    monkeypatch.setattr(
        prepare, "write_canonical", lambda logs, path: written.append(path) or write(logs, path)
    )
    assert main(call) == 0
    capsys.readouterr()
    assert len(written) == 2
    assert not (tmp_path / "unfinished").exists()
    plain = prepare_shards(source, shpi.Columns(**COLUMNS), tmp_path / "plain", rows_per_shard=500)
    resumed = ShardedLog.open(tmp_path / "shards")
    assert resumed.fingerprint() == plain.fingerprint()
    assert [path.stat().st_mtime_ns for path in resumed.files[:4]] == before


def test_unfinished_work_of_another_source_is_refused(tmp_path):
    source, unfinished = events(tmp_path), tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "dealt.txt").write_text("another")
    with pytest.raises(ConfigError, match="unfinished work of this very command"):
        prepare_shards(source, shpi.Columns(**COLUMNS), tmp_path / "shards", resume=unfinished)
    (unfinished / "dealt.txt").unlink()
    (unfinished / "letters.txt").write_text("dear")
    with pytest.raises(ConfigError, match=r"found 'letters\.txt' in it"):
        prepare_shards(source, shpi.Columns(**COLUMNS), tmp_path / "shards", resume=unfinished)
    with pytest.raises(ConfigError, match="files as a source"):
        prepare_shards(
            pl.read_parquet(source), shpi.Columns(**COLUMNS), tmp_path / "shards", resume=tmp_path / "more"
        )
    assert not (tmp_path / "shards").exists()


KILLED_FIT = """
import os, signal, sys
from shpi.passes import resume
kept, write = [], resume.write_record
def killed(place, value):
    done = write(place, value)
    kept.append(place)
    if len(kept) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
resume.write_record = killed
from shpi.cli.main import main
main(sys.argv[1:])
"""


def test_a_killed_fit_goes_on(tmp_path, capsys, monkeypatch):
    shards = prepare_shards(
        events(tmp_path), shpi.Columns(**COLUMNS), tmp_path / "shards", rows_per_shard=500
    )
    call = ["fit", str(shards.folder), "--learner", "bandit", "--resume", str(tmp_path / "kept"), "--out"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_FIT, *call, str(tmp_path / "p")], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "kept").glob("pass-*.parquet"))) == 3
    assert main([*call, str(tmp_path / "resumed")]) == 0
    assert not (tmp_path / "kept").exists()
    assert main(["fit", str(shards.folder), "--learner", "bandit", "--out", str(tmp_path / "plain")]) == 0
    capsys.readouterr()
    x = np.random.default_rng(1).random((20, 1))
    resumed, plain = (shpi.load_policy(tmp_path / name).action_probs(x) for name in ("resumed", "plain"))
    np.testing.assert_array_equal(resumed, plain)
