"""Trains d3rlpy's DiscreteBCQ on transitions from a file. Runs in the peers' environment, without shpi.

python peer_bcq.py SETTINGS.json

The settings name an npz file with contexts [n, d], actions [n], rewards [n], offsets [N + 1], terminated [N]
and final_contexts [N, d], and where to write the weights. Only the gradient steps are timed: drawing a batch
and updating, without d3rlpy's own loop, which also writes logs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import d3rlpy
import numpy as np
import torch


def episodes(file: Path) -> list[Any]:
    """One episode per trajectory. A truncated one gets its final context as a last row, with no decision."""
    with np.load(file, allow_pickle=False) as log:
        contexts, actions, rewards, offsets, terminated, finals = (
            log[name]
            for name in ("contexts", "actions", "rewards", "offsets", "terminated", "final_contexts")
        )
    played = []
    for i, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        x, a, r = contexts[start:end], actions[start:end], rewards[start:end]
        if not terminated[i]:
            x, a, r = np.concatenate([x, finals[i : i + 1]]), np.append(a, 0), np.append(r, 0.0)
        played.append(
            d3rlpy.dataset.Episode(
                observations=x.astype(np.float32),
                actions=a.astype(np.int64)[:, None],
                rewards=r.astype(np.float32)[:, None],
                terminated=bool(terminated[i]),
            )
        )
    return played


def parameters(module: Any) -> list[np.ndarray]:
    """W_0 [in, out], b_0, W_1, … of a perceptron."""
    arrays = [weights.detach().numpy() for weights in module.parameters()]
    return [array.T if array.ndim == 2 else array for array in arrays]


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    d3rlpy.seed(settings["seed"])
    played = episodes(Path(settings["npz"]))
    buffer = d3rlpy.dataset.ReplayBuffer(
        d3rlpy.dataset.InfiniteBuffer(), episodes=played, action_size=settings["n_actions"]
    )
    algo = d3rlpy.algos.DiscreteBCQConfig(
        batch_size=settings["batch"],
        gamma=settings["gamma"],
        learning_rate=settings["learning_rate"],
        action_flexibility=settings["threshold"],
        beta=settings["penalty"],
        target_update_interval=settings["copy_every"],
        share_encoder=settings["share_encoder"],
        encoder_factory=d3rlpy.models.VectorEncoderFactory(hidden_units=settings["hidden"]),
    ).create(device=False)
    algo.build_with_dataset(buffer)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(settings["steps"]):
        algo.update(buffer.sample_transition_batch(settings["batch"]))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    modules = algo.impl.modules
    contexts = np.concatenate([episode.observations for episode in played])[: settings["greedy_rows"]]
    arrays: dict[str, Any] = {"cpu": cpu, "wall": wall, "seen": contexts, "greedy": algo.predict(contexts)}
    arrays |= {f"q{i}": weights for i, weights in enumerate(parameters(modules.q_funcs[0]))}
    arrays |= {f"imitation{i}": weights for i, weights in enumerate(parameters(modules.imitator))}
    np.savez(settings["out"], **arrays)


if __name__ == "__main__":
    main()
