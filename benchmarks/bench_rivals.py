"""The neural rivals: our BCQ against d3rlpy's on the same logs, NN-IPS and CB+MF on clicks.

*Parity.* Both BCQs get the same transitions, with contexts and rewards scaled alike, and have the same
networks, batch, steps, learning rate, threshold, penalty and hard target updates, and use the last iterate;
our defaults (a soft target update, and the averaged network) are shown, too. Each policy is then rolled out
in the simulator. The difference is paired, one log per seed, and given in standard errors over the seeds: the
goal is a one-sided t test at 5 % with 4 degrees of freedom. Five seeds can miss a difference where returns
vary by orders of magnitude between seeds, as in HIV and in the synthetic world under epsilon 1; the notes
have the means.

*Speed.* CPU seconds of one thread in the same run. Ours are those of a whole fit, d3rlpy's those of drawing
batches and updating alone.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.bench_oracles import example
from benchmarks.peers import MISSING, PeerBCQ, peer_python, run_peer_bcq, write_npz
from benchmarks.report import Row
from shpi._torch.networks import one_thread
from shpi.data.logged import LoggedData
from shpi.envs import RecoGym, make, mean_return
from shpi.envs.logging import LoggingPolicy
from shpi.learners import CBMF, NNIPS, BatchConstrained, DiscreteBCQ
from shpi.learners.neural._replay import Replay
from shpi.policies import MlpScorer, UniformPolicy
from shpi.protocols import Simulator

SEEDS = tuple(range(5))
TRAJECTORIES, ROLLOUTS = 200, 200
STEPS, BATCH, COPY_EVERY = 2_000, 256, 100
WORLDS: tuple[tuple[str, dict[str, float]], ...] = (("synthetic", {}), ("hiv", {"start_spread": 0.05}))


class Pair(NamedTuple):
    """One log, three policies."""

    ours: float  # return of our policy in the simulator
    defaults: float  # likewise, with our defaults
    theirs: float
    our_seconds: float
    their_seconds: float
    agreement: float  # share of d3rlpy's actions that its weights give in our policy, too


def train_both(logs: LoggedData, learner: DiscreteBCQ) -> tuple[BatchConstrained, float, PeerBCQ, Replay]:
    """Train our BCQ (with its CPU seconds) and the peer's on the same scaled transitions."""
    began = time.process_time()
    policy = learner.fit(logs)
    seconds = time.process_time() - began
    with one_thread() as torch:
        replay = Replay.of(torch, logs, gamma=learner.gamma, standardise=True, learner="benchmark")
    states = replay.states.numpy()
    with tempfile.TemporaryDirectory() as folder:
        file = write_npz(
            logs, states[: len(logs)], states[len(logs) :], replay.rewards.numpy(), Path(folder) / "log.npz"
        )
        peer = run_peer_bcq(
            file,
            n_actions=logs.n_actions,
            steps=learner.steps,
            batch=learner.batch,
            hidden=learner.hidden,
            learning_rate=learner.learning_rate,
            gamma=learner.gamma,
            threshold=learner.threshold,
            penalty=learner.penalty,
            copy_every=learner.copy_every or 1,
            seed=learner.seed,
        )
    return policy, seconds, peer, replay


def peer_policy(peer: PeerBCQ, replay: Replay, threshold: float) -> BatchConstrained:
    """Our policy class with d3rlpy's networks."""
    q, imitation = (MlpScorer(parts[0::2], parts[1::2], replay.inputs) for parts in (peer.q, peer.imitation))
    return BatchConstrained(q=q, imitation=imitation, threshold=threshold)


def compare(world: Simulator, epsilon: float, seed: int, learner: DiscreteBCQ) -> Pair:
    logs = world.rollout(LoggingPolicy(world, epsilon), TRAJECTORIES, seed)
    policy, seconds, peer, replay = train_both(logs, replace(learner, seed=seed))
    theirs = peer_policy(peer, replay, learner.threshold)
    defaults = replace(learner, seed=seed, copy_every=None, average=True).fit(logs)
    served = (policy, defaults, theirs)
    ours, plain, peers = (mean_return(world, p, ROLLOUTS, 10_000 + seed).mean for p in served)
    rebuilt = theirs.action_probs(logs.contexts[: len(peer.greedy)]).argmax(axis=1)
    # The peer has one more row per trajectory, its last context: only the first trajectory is compared.
    first = int(logs.offsets[1])
    agreement = float((rebuilt == peer.greedy)[:first].mean())
    return Pair(ours, plain, peers, seconds, peer.cpu, agreement)


def against(pairs: list[Pair], who: str, label: str, logged: float) -> Row:
    """The paired difference to d3rlpy."""
    ours, theirs = (np.array([getattr(pair, name) for pair in pairs]) for name in (who, "theirs"))
    error = float((ours - theirs).std(ddof=1) / np.sqrt(len(pairs))) or 1.0
    return Row(
        f"BCQ ({'the same settings' if who == 'ours' else who}), {label}",
        float((ours - theirs).mean()) / error,
        "standard errors above d3rlpy",
        f"returns {ours.mean():.4g} and {theirs.mean():.4g}, of the log {logged:.4g}",
        goal=">= -2.13",
    )


def parity(seeds: tuple[int, ...], steps: int) -> list[Row]:
    """Returns and speed against d3rlpy, world by world."""
    learner = DiscreteBCQ(steps=steps, batch=BATCH, copy_every=COPY_EVERY, average=False)
    rows, pairs = [], []
    for name, options in WORLDS:
        world = make(name, **options)
        for epsilon in (0.3, 1.0):
            new_pairs = [compare(world, epsilon, seed, learner) for seed in seeds]
            logged = mean_return(world, LoggingPolicy(world, epsilon), ROLLOUTS, 10_000).mean
            rows += [
                against(new_pairs, who, f"{name}, epsilon {epsilon}", logged) for who in ("ours", "defaults")
            ]
            pairs += new_pairs
    ratio = sum(pair.their_seconds for pair in pairs) / sum(pair.our_seconds for pair in pairs)
    speed = steps * len(pairs) / sum(pair.our_seconds for pair in pairs)
    rows.append(
        Row("BCQ, gradient steps", speed, "steps/CPU-s", f"batch {BATCH}, 128 x 128, the worlds above")
    )
    rows.append(Row("BCQ, against d3rlpy", ratio, "times", "the same run, the same logs", goal=">= 1.5"))
    same = min(pair.agreement for pair in pairs)
    rows.append(Row("d3rlpy's actions, rebuilt", same, "", "share equal to its own predict", goal=">= 0.99"))
    return rows


def speed(batch: int, steps: int) -> Row:
    """Steps per CPU second at 47 context dimensions and 112 actions, against d3rlpy."""
    logs, targets = example(30_000)
    known = replace(logs, rewards=targets, final_observed=np.ones(logs.n_trajectories, dtype=bool))
    learner = DiscreteBCQ(steps=steps, batch=batch, copy_every=COPY_EVERY)
    _, seconds, peer, _ = train_both(known, learner)
    return Row(
        f"BCQ, d = 47, A = 112, batch {batch}",
        peer.cpu / seconds,
        "times d3rlpy",
        f"{steps / seconds:,.0f} and {steps / peer.cpu:,.0f} steps/CPU-s",
        goal=">= 1.5",
    )


def clicks(seeds: tuple[int, ...]) -> list[Row]:
    """Clicks per recommendation in RecoGym, over those of uniform recommendations."""
    shop, uniform = RecoGym(n_products=10, reward="click"), UniformPolicy(10)
    rows = []
    for name, learner in (("NN-IPS", NNIPS()), ("CB+MF", CBMF())):
        lifts, began = [], time.process_time()
        for seed in seeds:
            policy = replace(learner, seed=seed).fit(shop.rollout(uniform, 1_000, seed))
            earned = [mean_return(shop, p, 1_000, 10_000 + seed).returns.mean() for p in (policy, uniform)]
            lifts.append(earned[0] / earned[1])
        note = f"per seed {', '.join(f'{lift:.2f}' for lift in lifts)}; 200,000 uniform decisions, P = 10"
        rows.append(Row(f"{name}, clicks", float(np.mean(lifts)), "times uniform's", note, goal=">= 1.2"))
        rows.append(
            Row(
                f"{name}, seconds",
                (time.process_time() - began) / len(seeds),
                "CPU-s/seed",
                "simulation included",
            )
        )
    return rows


def run(*, seeds: tuple[int, ...] = SEEDS, steps: int = STEPS) -> list[Row]:
    rows = clicks(seeds)
    if peer_python() is None:
        return [*rows, Row("BCQ against d3rlpy", float("nan"), "", MISSING)]
    DiscreteBCQ(steps=1).fit(example(30_000)[0].select([0]).with_rewards(np.arange(100.0)))  # imports torch
    return [*rows, speed(32, 2_000), speed(256, 1_000), *parity(seeds, steps)]
