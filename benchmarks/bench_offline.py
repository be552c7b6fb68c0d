"""OfflineSHPI's defaults: CPU seconds against gradient steps of d3rlpy's DiscreteBCQ, and scaling.

Logs of 47-dimensional contexts that drift, 112 actions and a softmax logging policy, 100 decisions per user.
The peer's steps are measured on the same 300,000 decisions and scaled to 10,000. Everything runs on one
thread, and CPU time is compared, so that other load on the machine matters less. It still matters (by a third
on a busy machine), so both sides are measured three times alternately, and medians are compared.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.peers import MISSING, THREADS, peer_python, run_peer_bcq, write_npz
from benchmarks.report import Row, in_process
from shpi.data.logged import LoggedData
from shpi.learners import ContextualBandit, OfflineSHPI
from shpi.policies.heads import softmax
from shpi.protocols import Float64Array

WIDTH, ACTIONS, LENGTH, DRIFT = 47, 112, 100, 0.9
SIZES = (30_000, 300_000, 3_000_000)
PEER_STEPS, ALL_STEPS = 500, 10_000
REPEATS = 3
BLOCK = 50_000
NEW_CONTEXTS = 20_000  # on which a policy's value is computed


def example(n: int) -> LoggedData:
    """A log of n decisions; rewards are linear in (x, a), with as much noise as signal."""
    return drawn(n)[0]


def drawn(n: int) -> tuple[LoggedData, Float64Array, Float64Array]:
    """That log, the weights of mu's softmax and those of the expected reward, [A, d]."""
    rng, users = np.random.default_rng(0), n // LENGTH
    contexts = np.empty((users, LENGTH + 1, WIDTH), dtype=np.float32)
    contexts[:, 0] = rng.standard_normal((users, WIDTH), dtype=np.float32)
    for t in range(LENGTH):
        fresh = rng.standard_normal((users, WIDTH), dtype=np.float32)
        contexts[:, t + 1] = DRIFT * contexts[:, t] + np.float32(np.sqrt(1 - DRIFT**2)) * fresh
    taste, worth = (rng.standard_normal((ACTIONS, WIDTH)) / np.sqrt(WIDTH) for _ in range(2))
    shown = contexts[:, :-1].reshape(-1, WIDTH)
    actions, propensities, rewards = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    for first in range(0, n, BLOCK):
        rows = slice(first, min(first + BLOCK, n))
        probs = np.exp(shown[rows] @ taste.T)
        probs /= probs.sum(axis=1, keepdims=True)
        chosen = (probs.cumsum(axis=1) > rng.random((len(probs), 1)) * (1 - 1e-9)).argmax(axis=1)
        actions[rows], propensities[rows] = chosen, probs[np.arange(len(probs)), chosen]
        rewards[rows] = (shown[rows] * worth[chosen]).sum(axis=1) + rng.standard_normal(len(chosen))
    logs = LoggedData.from_arrays(
        contexts=shown,
        actions=actions,
        propensities=propensities,
        rewards=rewards,
        offsets=np.arange(0, n + 1, LENGTH),
        final_contexts=contexts[:, -1],
        final_observed=np.ones(users, dtype=bool),
        terminated=np.zeros(users, dtype=bool),
        n_actions=ACTIONS,
    )
    return logs, taste, worth


def attained(n: int, learner: str) -> float:
    """The share of (best - mu) that a learner attains from n decisions; no action changes the contexts."""
    logs, taste, worth = drawn(n)
    policy = OfflineSHPI(progress=False).fit(logs) if learner == "shpi" else ContextualBandit().fit(logs)
    contexts = np.random.default_rng(5).standard_normal((NEW_CONTEXTS, WIDTH)).astype(np.float32)
    rewards = contexts @ worth.T
    mu = float((softmax(contexts @ taste.T) * rewards).sum(axis=1).mean())
    gain = float((policy.action_probs(contexts) * rewards).sum(axis=1).mean()) - mu
    return gain / (float(rewards.max(axis=1).mean()) - mu)


def fit(n: int, iterations: int) -> dict[str, float]:
    """CPU seconds of one default fit, and its number of tests. Runs in a separate process."""
    logs, start = example(n), time.process_time()
    policy = OfflineSHPI(iterations=iterations, progress=False).fit(logs)
    return {"cpu": time.process_time() - start, "tests": len(policy.trials)}


def peer_seconds() -> float:
    """CPU seconds of 10,000 gradient steps, extrapolated from fewer."""
    logs = example(300_000)
    assert logs.rewards is not None
    with tempfile.TemporaryDirectory() as folder:
        file = write_npz(logs, logs.contexts, logs.final_contexts, logs.rewards, Path(folder) / "log.npz")
        peer = run_peer_bcq(file, n_actions=ACTIONS, steps=PEER_STEPS, batch=256)
    return peer.cpu * ALL_STEPS / PEER_STEPS


def spread(seconds: list[float]) -> str:
    """The least and the largest of several measurements."""
    return f"median of {len(seconds)}, {min(seconds):.3g} to {max(seconds):.3g}"


def rows() -> Iterator[Row]:
    ones, tens, peers = [], [], []
    for _ in range(REPEATS):
        single, ten = (in_process(__name__, "fit", 300_000, count) for count in (1, 10))
        ones.append(single["result"]["cpu"])
        tens.append(ten["result"]["cpu"])
        if peer_python() is not None:
            peers.append(peer_seconds())
    first, all_ten = float(np.median(ones)), float(np.median(tens))
    tests = f"{ten['result']['tests']} tests; {spread(tens)}"
    yield Row("300,000 decisions, one iteration", first, "CPU s", f"d={WIDTH}, |A|={ACTIONS}; {spread(ones)}")
    yield Row("300,000 decisions, ten iterations", all_ten, "CPU s", tests)
    yield Row("ten iterations over one", all_ten / first, "×", "", "<= 2")
    if not peers:
        yield Row("d3rlpy DiscreteBCQ", float("nan"), "CPU s", MISSING)
    else:
        peer = float(np.median(peers))
        note = f"128 x 128, batch 256; {PEER_STEPS} steps, scaled; {spread(peers)}"
        yield Row("d3rlpy DiscreteBCQ, 10,000 steps", peer, "CPU s", note)
        yield Row("DiscreteBCQ over ten iterations", peer / all_ten, "×", "same log, same run", ">= 20")
    for n in SIZES[:2]:
        for learner in ("shpi", "bandit"):
            share = in_process(__name__, "attained", n, learner)["result"]
            yield Row(f"{n:,} decisions, attained by {learner}", share, "share", "of the best policy's gain")
    ten["result"]["cpu"] = all_ten
    by_size = {300_000: ten} | {n: in_process(__name__, "fit", n, 10) for n in SIZES if n != 300_000}
    for n in SIZES:
        yield Row(f"{n:,} decisions, ten iterations", by_size[n]["result"]["cpu"], "CPU s")
        yield Row(f"{n:,} decisions: peak memory", by_size[n]["peak"] / 2**20, "MiB", "with the log itself")
    for small, large in zip(SIZES[:-1], SIZES[1:], strict=True):
        times = by_size[large]["result"]["cpu"] / by_size[small]["result"]["cpu"]
        memory = by_size[large]["peak"] / by_size[small]["peak"]
        yield Row(f"time, {large:,} over {small:,}", times, "×", "10 would be linear", "<= 12")
        yield Row(f"memory, {large:,} over {small:,}", memory, "×", "10 would be linear", "<= 12")


def run() -> list[Row]:
    os.environ.update(dict.fromkeys(THREADS, "1"))  # for the processes that are started
    rows_ = []
    for row in rows():
        print(f"  {row.name}: {row.value:.4g} {row.unit}", flush=True)
        rows_.append(row)
    return rows_
