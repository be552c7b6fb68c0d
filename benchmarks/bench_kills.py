"""Kills a writer at random moments, 400 times per kind of file: the target must be old or new, never partial.

A child process writes without pause and gets SIGKILL at a random moment within about three writes. Then the
target is opened and must be complete. The number of kills after a finished write is counted, too, to show
that kills hit both sides of the final step. At the end one more write must leave nothing but the target.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import shpi
from benchmarks.report import Row
from shpi.data.shards import ShardedLog, write_shards
from shpi.experiments._run.cells import Row as Result
from shpi.experiments._run.store import Store
from shpi.files.atomic import write_text
from shpi.policies import TabularPolicy, load_policy
from shpi.testing.tastes import Tastes

KILLS = 400
WRITES = 3.0  # most writes until the kill

Write = Callable[[Path, int], object]
Check = Callable[[Path], None]


def run() -> Iterator[Row]:
    for name, write, check in (
        ("policy", _policy, _check_policy),
        ("log", _log, _check_log),
        ("shards", _shards, _check_shards),
        ("report", _report, _check_report),
        ("results", _results, _check_results),
    ):
        broken, left, changed = attack(write, check)
        note = f"new content after {changed} of the kills, old after the others"
        yield Row(f"{name}: {KILLS} kills, targets absent or half", float(broken), "", note, "<= 0")
        yield Row(f"{name}: leftovers after the next write", float(left), "", "", "<= 0")


def attack(write: Write, check: Check) -> tuple[int, int, int]:
    """The kills that left a broken target, the files left over, and the kills that left a new target."""
    chance, broken, changed = random.Random(0), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target"
        assert _apart(lambda: write(target, 0))
        began = time.perf_counter()
        assert _apart(lambda: write(target, 1))
        longest = WRITES * (time.perf_counter() - began)
        for _ in range(KILLS):
            before, first = _contents(target), chance.randrange(1000)
            child = os.fork()
            if child == 0:
                for number in count(first):
                    write(target, number)
            time.sleep(chance.uniform(0, longest))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            broken += not _apart(lambda: check(target))
            changed += _contents(target) != before
        assert _apart(lambda: write(target, 0))
        assert _apart(lambda: check(target))
        names = {place.name for place in Path(folder).iterdir()} - {"target", "moved", "seen"}
        inside = [place for place in Path(folder).rglob("*") if place.name.endswith(".draft")]
        return broken, len(names) + len(inside), changed


def _apart(work: Callable[[], object]) -> bool:
    """Whether work succeeds in a separate process.

    The parent must never use polars: its threads do not survive a fork, and every writer would wait for them
    until it is killed, without having written anything.
    """
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"  broken: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _contents(target: Path) -> str:
    """A digest of a file, or of all files of a folder."""
    places = sorted(target.rglob("*")) if target.is_dir() else [target] if target.exists() else []
    return hashlib.blake2b(b"".join(place.read_bytes() for place in places if place.is_file())).hexdigest()


def _policy(target: Path, number: int) -> object:
    return TabularPolicy(np.eye(50)[[number % 50]]).save(target, overwrite=True)


def _check_policy(target: Path) -> None:
    assert load_policy(target).n_actions == 50


_LOGS = [Tastes().log(300, seed=seed) for seed in range(2)]
_PRINTS = [logs.fingerprint() for logs in _LOGS]


def _log(target: Path, number: int) -> object:
    return _LOGS[number % 2].to_parquet(target)


def _check_log(target: Path) -> None:
    assert shpi.LoggedData.read(target).fingerprint() in _PRINTS


def _shards(target: Path, number: int) -> object:
    """Write shards, after moving the last folder away, since shards are never replaced."""
    if target.exists():
        away = target.with_name("moved")
        shutil.rmtree(away, ignore_errors=True)
        target.rename(away)
    return write_shards([_LOGS[number % 2].select(users) for users in (range(100), range(100, 300))], target)


def _check_shards(target: Path) -> None:
    if target.exists():
        assert sum(len(shard) for shard in ShardedLog.open(target)) in [len(logs) for logs in _LOGS]


def _report(target: Path, number: int) -> object:
    return write_text(target, f"<html>{number % 10}" + "x" * 300_000 + "</html>")


def _check_report(target: Path) -> None:
    assert target.read_text().endswith("</html>")


_FACTS: dict[str, Any] = {
    "name": "t", "world": "w", "method": "m", "epsilon": 0.3, "k": 5, "Lambda": None, "seed": 0,
    "value": 1.0, "seconds": 1.0, "users": 1, "of": 20,
}  # fmt: skip


def _results(target: Path, number: int) -> object:
    """Append a cell of twenty rows; sometimes restart the first one, which rewrites the file."""
    store, cell = Store(target), f"c{number % 8}"
    store.append("t", [Result(**_FACTS, metric=f"m{i}", cell=cell) for i in range(20)])
    if number % 3 == 0:
        store.forget("t", ["c0"])
    return store


def _check_results(target: Path) -> None:
    """Check that every cell is whole, and that once all are there only the first is ever missing."""
    rows = Store(target).read("t")
    assert len(rows) % 20 == 0
    if target.with_name("seen").exists():
        assert len(rows) >= 20 * 7, f"{len(rows) // 20} of 8 cells"
    elif len(rows) == 20 * 8:
        target.with_name("seen").touch()
