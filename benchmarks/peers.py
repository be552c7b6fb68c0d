"""Runs peers that cannot share our environment: in a subprocess of their own, with files in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shpi.data.logged import LoggedData
from shpi.protocols import FloatArray

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MISSING = "d3rlpy is not installed: run `make .venv-peers/.done` (it gets an environment of its own)"


class PeerBCQ(NamedTuple):
    """The result of training d3rlpy's DiscreteBCQ."""

    cpu: float  # seconds of its gradient steps, drawing batches included
    wall: float
    q: list[np.ndarray]  # W_0 [in, out], b_0, W_1, …
    imitation: list[np.ndarray]  # with share_encoder, its encoder is that of q
    seen: np.ndarray  # [m, d] some of the contexts
    greedy: np.ndarray  # [m] its actions there


def peer_python() -> Path | None:
    """The interpreter of the peers' environment, beside ours or in SHPI_PEERS; None if there is none."""
    home = Path(os.environ.get("SHPI_PEERS", f"{sys.prefix}-peers"))
    python = home / "bin" / "python"
    return python if python.exists() else None


def write_npz(
    logs: LoggedData, contexts: FloatArray, finals: FloatArray, rewards: FloatArray, to: Path
) -> Path:
    """Write the transitions of a log with known final contexts, with the given inputs and rewards."""
    if not (logs.final_observed | logs.terminated).all():
        raise ValueError("every trajectory needs a known end")
    np.savez(
        to,
        contexts=contexts,
        actions=logs.actions,
        rewards=rewards,
        offsets=logs.offsets,
        terminated=logs.terminated,
        final_contexts=finals,
    )
    return to


def run_peer_bcq(
    npz: Path,
    *,
    n_actions: int,
    steps: int,
    batch: int,
    hidden: Sequence[int] = (128, 128),
    learning_rate: float = 1e-3,
    gamma: float = 0.99,
    threshold: float = 0.3,
    penalty: float = 1e-2,
    copy_every: int = 200,
    share_encoder: bool = False,
    seed: int = 0,
    greedy_rows: int = 2_000,
) -> PeerBCQ:
    """Train d3rlpy's DiscreteBCQ on the transitions in ``npz`` (see `write_npz`), one thread, on the CPU."""
    python = peer_python()
    if python is None:
        raise RuntimeError(MISSING)
    with tempfile.TemporaryDirectory() as folder:
        out, file = Path(folder) / "out.npz", Path(folder) / "settings.json"
        settings = {
            "npz": str(npz),
            "out": str(out),
            "n_actions": n_actions,
            "steps": steps,
            "batch": batch,
            "hidden": list(hidden),
            "learning_rate": learning_rate,
            "gamma": gamma,
            "threshold": threshold,
            "penalty": penalty,
            "copy_every": copy_every,
            "share_encoder": share_encoder,
            "seed": seed,
            "greedy_rows": greedy_rows,
        }
        file.write_text(json.dumps(settings), encoding="utf-8")
        script = Path(__file__).with_name("peer_bcq.py")
        done = subprocess.run(
            [python, str(script), str(file)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=os.environ | dict.fromkeys(THREADS, "1"),
        )
        if done.returncode:
            raise RuntimeError(f"d3rlpy failed:\n{done.stderr[-2_000:]}")
        with np.load(out, allow_pickle=False) as arrays:
            parts = {
                name: [arrays[f"{name}{i}"] for i in range(2 * len(hidden) + 2)]
                for name in ("q", "imitation")
            }
            return PeerBCQ(
                float(arrays["cpu"]),
                float(arrays["wall"]),
                parts["q"],
                parts["imitation"],
                arrays["seen"],
                arrays["greedy"],
            )
