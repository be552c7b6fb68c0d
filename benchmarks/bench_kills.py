"""Kill the writer at a random moment, 400 times for each kind of file: the target is old or new, never half.

A child process writes without pause and gets SIGKILL after up to 60 ms. Then the target is opened: it must be
complete. At the end one more write must leave nothing but the target in the folder.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

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
LONGEST = 0.06  # seconds until the kill

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
        broken, left = attack(write, check)
        yield Row(f"{name}: {KILLS} kills, targets absent or half", float(broken), "", "", "<= 0")
        yield Row(f"{name}: leftovers after the next write", float(left), "", "", "<= 0")


def attack(write: Write, check: Check) -> tuple[int, int]:
    """How many kills left a broken target, and how many files are left over in the end."""
    chance, broken = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target"
        write(target, 0)
        for _ in range(KILLS):
            child = os.fork()
            if child == 0:
                for number in count(1):
                    write(target, number)
            time.sleep(chance.uniform(0, LONGEST))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            try:
                check(target)
            except Exception as error:
                broken += 1
                print(f"  broken: {type(error).__name__}: {error}")
        write(target, 0)
        check(target)
        names = {place.name for place in Path(folder).iterdir()} - {"target", "fresh"}
        inside = [place for place in Path(folder).rglob("*") if place.name.endswith(".draft")]
        return broken, len(names) + len(inside)


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
    """A folder of shards is never replaced: each one is new, and the last complete one takes the name."""
    fresh = target.with_name("fresh")
    if fresh.exists():
        shutil.rmtree(fresh)
    write_shards([_LOGS[number % 2].select(part) for part in (range(100), range(100, 300))], fresh)
    if not target.exists():
        fresh.rename(target)
    return fresh


def _check_shards(target: Path) -> None:
    assert sum(len(part) for part in ShardedLog.open(target)) in [len(logs) for logs in _LOGS]
    fresh = target.with_name("fresh")
    if (fresh / "manifest.json").exists() and len(list(fresh.iterdir())) == 3:
        ShardedLog.open(fresh)


def _report(target: Path, number: int) -> object:
    return write_text(target, f"<html>{number % 10}" + "x" * 300_000 + "</html>")


def _check_report(target: Path) -> None:
    assert target.read_text().endswith("</html>")


def _results(target: Path, number: int) -> object:
    store = Store(target)
    facts = {"name": "t", "world": "w", "method": "m", "epsilon": 0.3, "k": 5, "Lambda": None, "seed": 0}
    rows = [
        Result(**facts, metric=f"m{i}", value=1.0, seconds=1.0, users=1, cell=f"c{number % 40}", of=20)  # type: ignore[arg-type]
        for i in range(20)
    ]
    store.append("t", rows)
    if number % 10 == 9:
        store.forget("t", [f"c{number % 40}"])
    return store


def _check_results(target: Path) -> None:
    rows = Store(target).read("t")
    assert len(rows) % 20 == 0
