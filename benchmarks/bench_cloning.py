"""Behaviour cloning: the distance to mu with logged probabilities, against a regression on actions alone.

Synthetic logs of an epsilon-greedy agent, epsilon 0.3, 1,000 users, seeds 100 and 101. The distance is in
total variation, averaged over the logged contexts.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks.report import Row
from benchmarks.synthetic_task import log_of, logging_policy
from shpi.data.logged import LoggedData
from shpi.learners import BehaviourCloning

EPSILON, USERS, SEEDS, ROWS = 0.3, 1000, (100, 101), 20_000


def distance(logs: LoggedData, seed: int) -> tuple[float, float]:
    """Total variation to mu, and CPU seconds."""
    began = time.process_time()
    clone = BehaviourCloning(seed=seed).fit(logs)
    seconds = time.process_time() - began
    contexts = logs.contexts[:ROWS]
    gap = np.abs(clone.action_probs(contexts) - logging_policy(EPSILON).action_probs(contexts))
    return float(gap.sum(axis=1).mean() / 2), seconds


def run() -> list[Row]:
    seeing, blind, seconds = [], [], []
    for seed in SEEDS:
        logs = log_of(EPSILON, seed, USERS)
        near, took = distance(logs, seed)
        seeing.append(near)
        seconds.append(took)
        blind.append(distance(replace(logs, propensities=None, propensity_mode="absent"), seed)[0])
    return [
        Row("distance to mu, from logged probabilities", float(np.mean(seeing)), "TV", "", "<= 0.02"),
        Row("distance to mu, from actions alone", float(np.mean(blind)), "TV"),
        Row("a fit", float(np.mean(seconds)), "CPU s", f"{USERS} users, 150 decisions each"),
    ]
