"""Oracles and state ratios: CPU seconds of the stages of an iteration, and how they scale."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.report import Row
from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.oracles import Ridge
from shpi.protocols import Policy
from shpi.shift import DualDICE, LinearRatio, Ratio, RatioEstimator
from shpi.testing.tabular import random_mdp

WIDTH, ACTIONS = 47, 112
SIZES = (30_000, 300_000)


@cache
def example(n: int) -> tuple[LoggedData, np.ndarray]:
    """A log with a uniform mu, and targets with as much noise as signal."""
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((n, WIDTH), dtype=np.float32)
    actions = rng.integers(0, ACTIONS, n)
    slopes = rng.standard_normal((ACTIONS, WIDTH)) / np.sqrt(WIDTH)
    targets = (contexts * slopes[actions]).sum(axis=1) + rng.standard_normal(n)
    logs = LoggedData.from_arrays(
        contexts=contexts,
        actions=actions,
        offsets=np.arange(0, n + 1, 100),
        n_actions=ACTIONS,
        propensities=np.full(n, 1 / ACTIONS),
    )
    return logs, targets


def seconds(work: Callable[[], Any], repeat: int = 1) -> tuple[float, Any]:
    """The least CPU time of several calls, and the last result."""
    best, result = np.inf, None
    for _ in range(repeat):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return float(best), result


def iterations(n: int, count: int) -> float:
    """CPU seconds of all regressions of a policy iteration: prepare, tune, then fit and score each time."""
    logs, targets = example(n)

    def work() -> None:
        prepared = Ridge().prepare(logs, seed=0).tune(targets)
        for j in range(count):
            scorer = prepared.fit(targets + j)
            for _, scores in prepared.scores_on_log(scorer):
                scores.argmax(axis=1)

    return seconds(work)[0]


def ridge_rows(n: int) -> list[Row]:
    logs, targets = example(n)
    label, shape = f"Ridge, n={n:,}", f"d={WIDTH}, |A|={ACTIONS}"

    def first() -> Any:
        prepared = Ridge().prepare(logs, seed=0)
        prepared.fit(targets)
        return prepared

    prepare, prepared = seconds(first)
    tune, _ = seconds(lambda: prepared.tune(targets))
    fit, scorer = seconds(lambda: prepared.fit(targets + 1.0), repeat=3)
    score, _ = seconds(lambda: [v.argmax(axis=1) for _, v in prepared.scores_on_log(scorer)], repeat=3)
    goals = ("<= 1", "<= 0.1", "<= 0.4") if n == 300_000 else ("", "", "")
    return [
        Row(
            f"{label}: prepare and first fit",
            prepare,
            "CPU s",
            f"{shape}; features, Grams, factors",
            goals[0],
        ),
        Row(f"{label}: tune", tune, "CPU s", "14 pairs of penalties, 3 folds of users, 50,000 rows"),
        Row(f"{label}: every further fit", fit, "CPU s", "one product and one solve", goals[1]),
        Row(f"{label}: scores and argmax on the log", score, "CPU s", "n |A| scores by blocks", goals[2]),
    ]


def growth_rows() -> list[Row]:
    single, ten = (iterations(300_000, count) for count in (1, 10))
    small = iterations(30_000, 10)
    return [
        Row("one iteration, n=300,000", single, "CPU s", "prepare, tune, fit, score on the log"),
        Row("ten iterations, n=300,000", ten, "CPU s", "the same, with ten fits and scores"),
        Row("ten iterations over one", ten / single, "×", "regression and scores alone"),
        Row("ten fits over one, without scores", fits_ratio(), "×", "prepare and tune included", "<= 2"),
        Row("n=300,000 over n=30,000", ten / small, "×", "ten iterations; 10 would be linear", "<= 12"),
    ]


def fits_ratio() -> float:
    logs, targets = example(300_000)

    def work(count: int) -> None:
        prepared = Ridge().prepare(logs, seed=0).tune(targets)
        for j in range(count):
            prepared.fit(targets + j)

    return seconds(lambda: work(10))[0] / seconds(lambda: work(1))[0]


def _ratio(estimator: RatioEstimator, logs: LoggedData, pi: Policy) -> Ratio:
    return estimator.prepare(logs, seed=0).fit(pi)


def ratio_rows() -> list[Row]:
    """Errors against the exact ratio of a random world: 20 states, 4 actions, 40,000 rows, gamma 0.99."""
    mdp = random_mdp(20, 4, 0, gamma=0.99)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=3.0)
    logs = mdp.log(mu, 400, 100, seed=0, ragged=False)
    truth = (mdp.occupancy(pi) / mdp.occupancy(mu, horizon=100))[mdp.states_of(logs.contexts)]
    table = Identity(intercept=False)
    rows = []
    estimators: tuple[tuple[str, RatioEstimator, str], ...] = (
        ("LinearRatio", LinearRatio(gamma=0.99, features=table), ">= 0.99"),
        ("DualDICE, 10,000 steps", DualDICE(gamma=0.99, features=table), ">= 0.95"),
    )
    for name, estimator, goal in estimators:
        spent, ratio = seconds(partial(_ratio, estimator, logs, mdp.policy(pi)))
        match = float(np.corrcoef(ratio.weights, truth)[0, 1])
        error = float(((ratio.weights - truth) ** 2).mean() / truth.var())
        rows += [
            Row(f"{name}: correlation with the exact ratio", match, "", f"relative error {error:.3f}", goal),
            Row(f"{name}: time", spent, "CPU s", "20 states, 4 actions, 40,000 rows"),
        ]
    logs, _ = example(300_000)
    prepared = LinearRatio(gamma=0.99).prepare(logs, seed=0)
    uniform = np.full(len(logs), 1 / ACTIONS)
    first, _ = seconds(lambda: prepared.fit(uniform))
    again, _ = seconds(lambda: prepared.fit(uniform), repeat=2)
    rows.append(Row("LinearRatio, n=300,000: first fit", first, "CPU s", "100 random Fourier features"))
    rows.append(Row("LinearRatio, n=300,000: every further fit", again, "CPU s", "another policy"))
    return rows


def run() -> list[Row]:
    return [*(row for n in SIZES for row in ridge_rows(n)), *growth_rows(), *ratio_rows()]
