"""Kills workers, processes, nodes and drivers in every phase of the work: the result must be the same.

    python -m benchmarks faults
    SHPI_BENCH_FAULTS_ROWS=20000 SHPI_BENCH_FAULTS=audit,evaluate python -m benchmarks faults     a quick look

A log of 200,000 decisions in 16 shards. Each phase (the sample that a learner sees, the counts of an audit,
the sums of LSTD, a fit of the bandit from shards to policy, and an evaluation) runs undisturbed in one
process, then once for each kill: SIGKILL of one of two processes, of a Ray worker, and of a Ray node (its
manager, so that all its objects are lost), early and late. A kill that comes after the end is repeated
earlier. Then a driver is killed while it shards, fits and evaluates, and resumes from what it kept; and
shards are written to a disk of 3 MB. Linux only: workers are found in /proc.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_scale import ACTIONS, COLUMNS, FEATURES, generate
from benchmarks.report import Row
from shpi.cluster import Ray
from shpi.data.shards import ShardedLog, prepare_shards
from shpi.features import Identity
from shpi.learners import registry
from shpi.ope import Gate, evaluate
from shpi.passes import Executor, Processes, audit_shards, sample
from shpi.policies import LinearScorer, Softmax
from shpi.values import LSTD

ROWS, SHARDS = int(os.environ.get("SHPI_BENCH_FAULTS_ROWS", "200000")), 16
TRIES = 5  # attempts to kill before the end
FULL = 74  # exit code if the system refuses space, memory or permission

Work = Callable[[ShardedLog, Executor | None], Any]


def drawn(shards: ShardedLog, executor: Executor | None) -> str:
    return sample(shards, 50_000, seed=1, executor=executor).fingerprint()


def audited(shards: ShardedLog, executor: Executor | None) -> str:
    return str(audit_shards(shards, executor=executor, most_rows=50_000))


def valued(shards: ShardedLog, executor: Executor | None) -> bytes:
    value = LSTD(ridge=30.0).fit(shards, gamma=0.9, seed=0, executor=executor)
    return value.theta.tobytes()


def fitted(shards: ShardedLog, executor: Executor | None) -> bytes:
    policy: Any = registry.make("bandit", seed=0)
    x = np.random.default_rng(0).standard_normal((100, len(FEATURES)))
    probs: np.ndarray[Any, Any] = policy.fit(shards, executor=executor).action_probs(x)
    return probs.tobytes()


def evaluated(shards: ShardedLog, executor: Executor | None) -> bytes:
    features = Identity().fit(np.zeros((1, len(FEATURES))))
    weights = 0.05 * np.random.default_rng(0).standard_normal((ACTIONS, len(FEATURES) + 1))
    policy = Softmax(LinearScorer(weights, features), 1.0)
    answer = evaluate(policy, shards, gate=Gate(), gamma=0.9, details=False, executor=executor)
    assert answer.verdict is not None
    lifts = np.concatenate([estimate.influence_lift for estimate in answer.estimates])
    return lifts.tobytes() + answer.verdict.decision.encode()


PHASES: dict[str, Work] = {
    "sample": drawn, "audit": audited, "LSTD": valued, "fit": fitted, "evaluate": evaluated,
}  # fmt: skip
CHOSEN = os.environ.get("SHPI_BENCH_FAULTS", ",".join(PHASES)).split(",")


def run() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="shpi-faults-") as folder:
        generate(f"{folder}/table", ROWS)
        table = f"{folder}/table/*.parquet"
        shards = prepare_shards(table, COLUMNS, f"{folder}/shards", shards=SHARDS, progress=False)
        expected = {name: PHASES[name](shards, None) for name in CHOSEN}
        yield from _kills_of_processes(shards, expected)
        yield from _kills_on_ray(shards, expected)
        yield _driver_while_sharding(Path(folder), table, shards)
        for name in ("fit", "evaluate"):
            if name in expected:
                yield _driver_killed(Path(folder), shards, name, expected[name])
        yield from _full_disk(Path(folder), table)


def _kills_of_processes(shards: ShardedLog, expected: dict[str, Any]) -> Iterator[Row]:
    executor = Processes(jobs=2)
    for name, work in ((name, PHASES[name]) for name in expected):
        work(shards, executor)  # warm up: processes import everything
        yield _attacked(f"SIGKILL of a process: {name}", shards, work, executor, _kill_child, expected[name])


def _kills_on_ray(shards: ShardedLog, expected: dict[str, Any]) -> Iterator[Row]:
    from tests.cluster.conftest import TwoMachines

    machines = TwoMachines()
    try:
        for name, work in ((name, PHASES[name]) for name in expected):
            executor = Ray()
            work(shards, executor)
            row = _attacked(
                f"SIGKILL of a Ray worker: {name}", shards, work, executor, _kill_worker, expected[name]
            )
            yield row
            for moment, share in (("early", 0.25), ("late", 0.7)):
                title = f"SIGKILL of a Ray machine, {moment}: {name}"
                yield _attacked(
                    title, shards, work, executor, machines.kill, expected[name], share, machines.replace
                )
    finally:
        machines.end()


def _attacked(
    title: str,
    shards: ShardedLog,
    work: Work,
    executor: Executor,
    kill: Callable[[], object],
    expected: Any,
    share: float = 0.4,
    repair: Callable[[], object] = lambda: None,
) -> Row:
    """A row with 1 if the result after the kill equals that of the undisturbed work."""
    usual = min(_seconds(work, shards, executor) for _ in range(2))
    for attempt in range(TRIES):
        after = share * usual / 2**attempt
        ended = threading.Event()
        killed_in_time: list[bool] = []

        def strike(ended: threading.Event = ended, notes: list[bool] = killed_in_time) -> None:
            notes.append(not ended.is_set())
            kill()

        timer = threading.Timer(after, strike)
        began = time.perf_counter()
        timer.start()
        same = work(shards, executor) == expected
        ended.set()
        took = time.perf_counter() - began
        timer.join()
        repair()
        if not same or killed_in_time[0]:
            break
    note = f"after {after:.2f} s of {usual:.2f}; then {took:.1f} s in all"
    note = note if killed_in_time[0] else f"the work had ended before: {note}"
    return Row(title, float(same and killed_in_time[0]), "same result", note, ">= 1")


def _seconds(work: Work, shards: ShardedLog, executor: Executor) -> float:
    began = time.perf_counter()
    work(shards, executor)
    return time.perf_counter() - began


def _kill_child() -> None:
    os.kill(_below(os.getpid(), "spawn_main")[0], signal.SIGKILL)


def _kill_worker() -> None:
    """Kill a busy Ray worker, or else an idle one; not a process of the node, such as its agents."""
    workers = _below(os.getpid(), "ray::do") or _below(os.getpid(), "ray::IDLE")
    os.kill(workers[0], signal.SIGKILL)


def _below(parent: int, word: str) -> list[int]:
    """Descendants of a process with a word in their command."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            commands[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # the process has ended in the meantime
            continue
        parents[int(place.name)] = int(fields[1])

    def descends(process: int) -> bool:
        above = parents.get(process)
        return above is not None and (above == parent or descends(above))

    return sorted(process for process in commands if word in commands[process] and descends(process))


# ---------------------------------------------------------------------- the driver, and the disk

SHARD = """
import sys
from benchmarks.bench_scale import COLUMNS
from shpi.data.shards import prepare_shards
prepare_shards(sys.argv[1], COLUMNS, sys.argv[2], shards=int(sys.argv[3]), resume=sys.argv[4], progress=False)
"""
RESUMED = """
import sys
from pathlib import Path
from benchmarks.bench_faults import PHASES
from shpi.data.shards import ShardedLog
from shpi.passes import Resumable, Serial
kept = Resumable(executor=Serial(), folder=Path(sys.argv[2]))
Path(sys.argv[3]).write_bytes(PHASES[sys.argv[4]](ShardedLog.open(sys.argv[1]), kept))
"""


def _killed_until_done(script: str, arguments: list[str], progress: Callable[[], int]) -> tuple[int, int]:
    """Kill a process after every two units of progress; return the kills, and where the last run began."""
    kills, before = 0, 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", script, *arguments])
        before = progress()
        while process.poll() is None:
            if progress() >= before + 2 and kills < 5:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.005)
        if process.returncode == 0:
            return kills, before
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"ended with {process.returncode}")
        kills += 1


def _driver_while_sharding(folder: Path, table: str, shards: ShardedLog) -> Row:
    unfinished, out = folder / "unfinished", folder / "again"
    arguments = [table, str(out), str(SHARDS), str(unfinished)]
    kills, kept = _killed_until_done(SHARD, arguments, lambda: len(list(unfinished.glob("shard-*"))))
    same = ShardedLog.open(out).fingerprint() == shards.fingerprint()
    drafts = [path for path in folder.iterdir() if path.name.endswith(".draft")]
    whole = same and not unfinished.exists() and not drafts
    note = f"{kills} kills; the last run began with {kept} of {SHARDS} shards"
    return Row(
        "SIGKILL of the driver while it shards", float(whole and kills > 0), "same result", note, ">= 1"
    )


def _driver_killed(folder: Path, shards: ShardedLog, name: str, expected: bytes) -> Row:
    kept, out = folder / f"kept-{name}", folder / f"out-{name}"
    arguments = [str(shards.folder), str(kept), str(out), name]
    kills, before = _killed_until_done(RESUMED, arguments, lambda: len(list(kept.glob("pass-*"))))
    note = f"{kills} kills; the last run began with {before} of {len(list(kept.glob('pass-*')))} results"
    same = out.read_bytes() == expected
    title = f"SIGKILL of the driver: {name}"
    return Row(title, float(same and kills > 0), "same result", note, ">= 1")


def _full_disk(folder: Path, table: str) -> Iterator[Row]:
    """Write shards to a disk of 3 MB, if this process may mount one."""
    disk = folder / "disk"
    disk.mkdir()
    if os.geteuid() or shutil.which("mount") is None:
        return
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False).returncode:
        return
    try:
        (folder / "map.toml").write_text(_map())
        call = [sys.executable, "-m", "shpi", "shard", table, "--columns", str(folder / "map.toml"), "--out"]
        code = subprocess.run([*call, str(disk / "shards")], check=False, capture_output=True).returncode
        left = len(list(disk.iterdir()))
    finally:
        subprocess.run(["umount", disk], check=True)
    yield Row("a full disk while sharding", float(code == FULL), f"exit code {FULL}", f"was {code}", ">= 1")
    yield Row("a full disk while sharding: what is left", float(left), "files", "", "<= 0")


def _map() -> str:
    names = {"user": "user", "time": "t", "action": "item", "propensity": "p", "reward": "r"}
    lines = [f'{key} = "{value}"' for key, value in names.items()]
    return "\n".join([*lines, f"context = {list(FEATURES)}".replace("'", '"'), ""])
