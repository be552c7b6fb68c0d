"""Finite worlds for the ratio estimators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.features import Identity
from shpi.testing.tabular import TabularMDP

TABLE = Identity(intercept=False)  # contexts are indicators: one weight per state


def correlation(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.corrcoef(left, right)[0, 1])


def relative_error(estimate: np.ndarray, truth: np.ndarray) -> float:
    return float(((estimate - truth) ** 2).mean() / truth.var())


def stationary(mdp: TabularMDP, pi: np.ndarray) -> np.ndarray:
    steps = np.einsum("sa,sat->st", pi, mdp.transition)
    probs = np.full(mdp.n_states, 1 / mdp.n_states)
    for _ in range(5000):
        probs = probs @ steps
    return np.asarray(probs / probs.sum())


def grid(side: int, gamma: float) -> TabularMDP:
    """A noisy walk on a square, from its first row."""
    moves = [(0, 1), (0, -1), (1, 0), (-1, 0)]
    transition = np.zeros((side * side, 4, side * side))
    for state in range(side * side):
        i, j = divmod(state, side)
        for action in range(4):
            for way, (di, dj) in enumerate(moves):
                row, column = np.clip([i + di, j + dj], 0, side - 1)
                transition[state, action, row * side + column] += 0.7 if way == action else 0.1
    initial = np.where(np.arange(side * side) < side, 1 / side, 0.0)
    return TabularMDP(
        transition=transition,
        reward=np.zeros((side * side, 4)),
        gamma=gamma,
        initial=initial,
        terminal=np.zeros(side * side, dtype=bool),
        encoding="index",
    )


def with_coordinates(logs: LoggedData, side: int) -> LoggedData:
    """The same log with (row, column) as the context."""

    def place(contexts: np.ndarray) -> np.ndarray:
        state = contexts[:, 0].astype(int)
        return np.stack([state // side, state % side], axis=1).astype(np.float32)

    return replace(
        logs,
        contexts=place(logs.contexts),
        final_contexts=place(logs.final_contexts),
        schema=ContextSchema.numeric(["row", "column"]),
    )
