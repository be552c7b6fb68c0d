"""CPU time and peak memory of off-policy evaluation: every estimator on a million decisions."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.report import Row, in_process

USERS, STEPS, WIDTH, ACTIONS = 50_000, 20, 10, 10


def run() -> list[Row]:
    """One process for all estimators, each timed on its own; CPU seconds, one thread."""
    done = in_process("benchmarks.bench_ope", "evaluate_million")
    result = done["result"]
    decisions = f"{result['decisions']:,} decisions, {USERS:,} users, {WIDTH} dimensions, {ACTIONS} actions"
    rows = [
        Row("all estimators", result["total"], "s CPU", decisions, goal="<= 60"),
        Row("peak memory", done["peak"] / 2**30, "GiB", "of the process, the log included"),
        Row("the log itself", result["log"] / 2**30, "GiB", ""),
    ]
    rows += [Row(f"  {name}", seconds, "s CPU") for name, seconds in result["seconds"].items()]
    sharded = in_process("benchmarks.bench_ope", "evaluate_shards")
    rows.append(
        Row("SNPDIS and PDIS over 8 shards", sharded["result"]["seconds"], "s CPU", "read in each pass")
    )
    rows.append(Row("  peak memory", sharded["peak"] / 2**30, "GiB", "one shard at a time"))
    return rows


def evaluate_million() -> dict[str, Any]:
    """Build the log, then run every default estimator."""
    from shpi.ope import Problem, Settings, default_estimators

    logs, policy = make_log(), make_policy(1)
    start = time.process_time()
    problem = Problem.of(policy, logs, Settings(gamma=0.95))
    seconds = {"policy and facts": time.process_time() - start}
    for estimator in default_estimators(problem, k=4):
        before = time.process_time()
        estimator.estimate(problem)
        seconds[estimator.name] = time.process_time() - before
    return {
        "seconds": seconds,
        "total": time.process_time() - start,
        "decisions": len(logs),
        "log": logs.nbytes,
    }


def evaluate_shards() -> dict[str, Any]:
    """The same log in shards on disk, and two estimators that pass over them."""
    import json
    import tempfile
    from pathlib import Path

    from shpi.data._log.ledger import Ledger
    from shpi.data.shards import ShardedLog
    from shpi.ope import PDIS, SNPDIS, Problem, Settings

    with tempfile.TemporaryDirectory() as folder:
        files = []
        for shard in range(8):
            logs = make_log(shard)
            path = Path(folder) / f"shard-{shard:05d}.parquet"
            logs.to_parquet(path)
            files.append(path.name)
            del logs
        manifest = {"files": files, "ledger": Ledger(rows_in=0, rows_used=0).to_json()}
        (Path(folder) / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        start = time.process_time()
        problem = Problem.of(make_policy(1), ShardedLog.open(folder), Settings(gamma=0.95))
        values = [estimator.estimate(problem).value for estimator in (SNPDIS(), PDIS())]
        return {"seconds": time.process_time() - start, "values": values}


def make_policy(seed: int) -> Any:
    """A softmax over linear scores."""
    from shpi.features import Identity
    from shpi.policies import LinearScorer, Softmax

    rng = np.random.default_rng(seed)
    weights = 0.15 * rng.standard_normal((ACTIONS, WIDTH))
    features = Identity(intercept=False).fit(np.zeros((1, WIDTH)))
    return Softmax(LinearScorer(weights, features))


def make_log(shard: int | None = None) -> Any:
    """Users whose context drifts with the actions; some leave for good. A shard has an eighth of them."""
    from shpi.data.logged import LoggedData
    from shpi.policies import sample_actions

    users = USERS if shard is None else USERS // 8
    rng = np.random.default_rng(10 + (shard or 0))
    pull = 0.3 * rng.standard_normal((ACTIONS, WIDTH))
    mu = make_policy(0)
    x = rng.standard_normal((users, WIDTH)).astype(np.float32)
    lengths, alive = np.zeros(users, dtype=np.int64), np.ones(users, dtype=bool)
    columns: list[dict[str, Any]] = []
    for _ in range(STEPS):
        rows = np.flatnonzero(alive)
        probs = mu.action_probs(x[rows])
        actions = sample_actions(probs, rng.random(len(rows)))
        reward = (rng.random(len(rows)) < 1 / (1 + np.exp(2 - x[rows, 0]))).astype(float)
        columns.append(
            {
                "rows": rows,
                "contexts": x[rows].copy(),
                "actions": actions,
                "rewards": reward,
                "propensities": probs[np.arange(len(rows)), actions],
                "behaviour": probs,
            }
        )
        lengths[rows] += 1
        x[rows] = 0.8 * x[rows] + pull[actions] + 0.4 * rng.standard_normal((len(rows), WIDTH))
        alive[rows] = rng.random(len(rows)) > 0.002
    who = np.concatenate([step["rows"] for step in columns])
    order = np.argsort(who, kind="stable")
    flat: dict[str, Any] = {
        name: np.concatenate([step[name] for step in columns])[order] for name in columns[0] if name != "rows"
    }
    return LoggedData.from_arrays(
        **flat,
        offsets=np.append(0, np.cumsum(lengths)),
        users=np.arange(users) + (0 if shard is None else shard * users),
        terminated=~alive,
        final_contexts=x,
        n_actions=ACTIONS,
    )
