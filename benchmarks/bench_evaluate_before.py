"""`evaluate` with its gate on a million decisions, against version 0.1 in the same run.

    python -m benchmarks evaluate_before                                     a million: 10 to 15 minutes
    SHPI_BENCH_EVALUATE_ROWS=50000 python -m benchmarks evaluate_before      a quick look
    SHPI_BENCH_BEFORE=COMMIT python -m benchmarks evaluate_before            against another commit

47 columns, 112 actions, 100 decisions per user, one thread. The old version is checked out of git into a
temporary folder; both versions run on the same packages, each in its own process, with the same arrays and
the same policy. CPU time is that of `evaluate` alone. Memory is the peak of the process, the log included;
from shards, part of it is pages of mapped files, so anonymous memory is reported, too.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row, in_process

ROOT = Path(__file__).resolve().parents[1]
ROWS = int(os.environ.get("SHPI_BENCH_EVALUATE_ROWS", "1000000"))
BEFORE = os.environ.get("SHPI_BENCH_BEFORE", "aaac9fb")  # version 0.1
COLUMNS, ACTIONS, DECISIONS = 47, 112, 100  # context columns, actions, decisions per user
ROWS_PER_SHARD = 250_000
GOAL_ROWS = 500_000  # the goals apply from this size on: a short log costs more per row
ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1",
}  # fmt: skip


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="shpi-before-") as folder:
        old = Path(folder) / "before"
        if not _checked_out(old):
            print(f"the files of {BEFORE} are not in this checkout's history: no comparison", file=sys.stderr)
            return []
        in_process(__name__, "generate", f"{folder}/log", ROWS)
        in_process(__name__, "shard", f"{folder}/log", f"{folder}/shards")
        before = _measured(old, "in_memory", f"{folder}/log")
        memory = _measured(ROOT, "in_memory", f"{folder}/log")
        shards = _measured(ROOT, "in_shards", f"{folder}/shards")
    return _rows(before, memory, shards)


def _rows(before: dict[str, Any], memory: dict[str, Any], shards: dict[str, Any]) -> list[Row]:
    def goal(text: str) -> str:
        return text if ROWS >= GOAL_ROWS else ""

    rows = []
    for name, done in (("version 0.1", before), ("now", memory), ("now, from shards", shards)):
        title, limit = f"{name}, {ROWS:,} decisions", goal("<= 100") if done is not before else ""
        each = done["result"]["cpu"] * 1e6 / ROWS
        rows.append(Row(title, each, "CPU-µs a decision", done["result"]["answer"], limit))
        own = f"{done['anonymous'] / 1e9:.2f} GB without mapped files"
        rows.append(Row(f"{title}: peak memory", done["peak"] / 1e9, "GB", own))
    faster = before["result"]["cpu"] / memory["result"]["cpu"]
    rows.append(Row("in memory: CPU of 0.1 over that of now", faster, "times", "", goal(">= 2")))
    smaller = memory["peak"] / before["peak"]
    rows.append(Row("in memory: peak memory over that of 0.1", smaller, "ratio", "", goal("<= 0.5")))
    faster = before["result"]["cpu"] / shards["result"]["cpu"]
    rows.append(Row("from shards: CPU of 0.1 in memory over it", faster, "times", "", goal(">= 2")))
    smaller = shards["peak"] / before["peak"]
    rows.append(Row("from shards: peak memory over that of 0.1", smaller, "ratio", "", goal("<= 0.5")))
    return rows


def _checked_out(place: Path) -> bool:
    """Check out the source of the old version; False if git does not have it."""
    call = ["git", "archive", "--format=tar", BEFORE, "src"]
    try:
        files = subprocess.run(call, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(place, filter="data")
    return True


def _measured(checkout: Path, function: str, place: str) -> dict[str, Any]:
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(checkout / "src")}
    done = in_process(__name__, function, place, environment=environment)
    used = Path(done["result"]["source"])
    if not used.is_relative_to(checkout):
        raise RuntimeError(f"expected shpi of {checkout}, found {used}")
    return done


# ---------------------------------------------------------------------- in processes of their own
# Both versions run these functions, so they use only what both have.


def generate(folder: str, rows: int) -> int:
    """Write the arrays of a log: mu depends on the first column, rewards on the second and on the user."""
    place, users = Path(folder), rows // DECISIONS
    place.mkdir()
    random, n = np.random.default_rng(0), users * DECISIONS
    x = random.standard_normal((n, COLUMNS), dtype=np.float32)
    actions, propensities = np.empty(n, dtype=np.int64), np.empty(n)
    for start in range(0, n, 50_000):
        rows_now = slice(start, min(start + 50_000, n))
        chances = np.exp(np.outer(x[rows_now, 0], 0.5 * np.linspace(-1, 1, ACTIONS)))  # [b, A]
        chances /= chances.sum(axis=1, keepdims=True)
        drawn = (np.cumsum(chances, axis=1) < random.random((len(chances), 1))).sum(axis=1)
        actions[rows_now] = drawn.clip(max=ACTIONS - 1)
        propensities[rows_now] = chances[np.arange(len(chances)), actions[rows_now]]
    luck = 0.2 * np.sin(0.1 * np.repeat(np.arange(users), DECISIONS))
    rewards = 0.3 * x[:, 1] * (actions / ACTIONS - 0.5) + luck + random.standard_normal(n)
    arrays = {"contexts": x, "actions": actions, "propensities": propensities, "rewards": rewards}
    arrays["offsets"] = np.arange(users + 1) * DECISIONS
    arrays["final_contexts"] = random.standard_normal((users, COLUMNS)).astype(np.float32)
    for name, values in arrays.items():
        np.save(place / name, values)
    return n


def shard(log: str, folder: str) -> int:
    from shpi.data.shards import deal

    return len(deal(_log(log), folder, max(2, ROWS // ROWS_PER_SHARD)))


def in_memory(log: str) -> dict[str, Any]:
    return _evaluated(_log(log))


def in_shards(folder: str) -> dict[str, Any]:
    from shpi.data.shards import ShardedLog

    return _evaluated(ShardedLog.open(folder))


def _log(folder: str) -> Any:
    from shpi.data.logged import LoggedData

    arrays = {path.stem: np.load(path) for path in Path(folder).glob("*.npy")}
    return LoggedData.from_arrays(n_actions=ACTIONS, **arrays)


def _evaluated(logs: Any) -> dict[str, Any]:
    import shpi
    from shpi.features import Identity
    from shpi.ope import Gate, evaluate
    from shpi.policies import LinearScorer, Softmax

    random = np.random.default_rng(1)
    features = Identity().fit(random.standard_normal((100, COLUMNS)))
    weights = 0.05 * random.standard_normal((ACTIONS, COLUMNS + 1))
    weights[:, 1] += 0.5 * np.linspace(-1, 1, ACTIONS)
    policy = Softmax(LinearScorer(weights, features), 1.0)
    began = time.process_time()
    evaluation = evaluate(policy, logs, gate=Gate(), gamma=0.9)
    seconds = time.process_time() - began
    assert evaluation.verdict is not None
    estimate = next(each for each in evaluation.estimates if each.name == evaluation.main)
    answer = f"{evaluation.verdict.decision}, lift {estimate.lift:.5f} by {evaluation.main}"
    return {"cpu": seconds, "answer": answer, "source": shpi.__file__}
