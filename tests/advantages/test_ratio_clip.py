"""The clip rule and the windows of the authors' release, against its formula written as loops."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.advantages import StateValues, k_step_advantages
from shpi.data._log.release import windowed
from shpi.data.logged import LoggedData
from shpi.errors import DataError

GAMMA, RHO = 0.9, 7


def log(n: int = 4, length: int = 12) -> LoggedData:
    rng = np.random.default_rng(0)
    size = n * length
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((size, 2)), actions=rng.integers(0, 3, size),
        rewards=rng.standard_normal(size), propensities=np.full(size, 1 / 3),
        offsets=np.arange(0, size + 1, length), n_actions=3,
    )  # fmt: skip


def by_loops(logs: LoggedData, values: np.ndarray, ratios: np.ndarray, k: int) -> np.ndarray:
    """A_t = sum_{m<M} w_m gamma^m r_{t+m} + w_M gamma^M V(x_{t+M}) - V(x_t), M = min(k, rho - 1 - t)."""
    assert logs.rewards is not None
    result = np.zeros(len(logs))
    for start in logs.offsets[:-1]:
        for t in range(RHO):
            steps, weight, total = min(k, RHO - 1 - t), 1.0, 0.0
            for m in range(steps):
                total += weight * GAMMA**m * logs.rewards[start + t + m]
                weight *= min(max(ratios[start + t + m + 1], 0.5), 2.0)
            total += weight * GAMMA**steps * values[start + t + steps] - values[start + t]
            result[start + t] = total
    return result


@pytest.mark.parametrize("k", [1, 3, 6, 150])
def test_the_formula_of_the_release(k: int) -> None:
    logs = windowed(log(), RHO, 5)
    rng = np.random.default_rng(1)
    ratios = rng.uniform(-2.0, 5.0, len(logs))  # its propensities are no probabilities: some are negative
    values = StateValues.of(lambda x: 3.0 + x[:, 0], logs)
    advantages = k_step_advantages(
        logs, values, k=k, gamma=GAMMA, ratios=ratios, form="raw", clip="ratio", bonus_ratio=True
    )
    np.testing.assert_allclose(advantages.values, by_loops(logs, values.rows, ratios, k), atol=1e-12)
    last = logs.offsets[1:] - 1
    assert not advantages.valid[last].any()
    assert (advantages.values[last] == 0).all()


def test_weights_reach_the_powers_of_the_clip() -> None:
    logs = windowed(log(), RHO, 5)
    ratios = np.full(len(logs), 100.0)
    advantages = k_step_advantages(
        logs, StateValues.zeros(logs), k=6, gamma=1.0, ratios=ratios, form="raw", clip="ratio"
    )
    assert advantages.weights.largest == 2.0**5


def test_without_clipping_the_rules_agree() -> None:
    logs = windowed(log(), RHO, 5)
    ratios = np.random.default_rng(2).uniform(0.5, 2.0, len(logs))
    values = StateValues.of(lambda x: x[:, 1], logs)
    ratio, prefix = (
        k_step_advantages(logs, values, k=4, gamma=GAMMA, ratios=ratios, weight_clip=wide, clip=clip).values  # type: ignore[arg-type]
        for clip, wide in (("ratio", (0.5, 2.0)), ("prefix", None))
    )
    np.testing.assert_allclose(ratio, prefix, atol=1e-12)


def test_negative_ratios_are_refused_by_the_other_rules() -> None:
    logs = windowed(log(), RHO, 5)
    for clip in ("prefix", "product"):
        with pytest.raises(DataError, match="ratios of at least 0"):
            k_step_advantages(
                logs,
                StateValues.zeros(logs),
                k=2,
                gamma=GAMMA,
                ratios=-np.ones(len(logs)),
                clip=clip,  # type: ignore[arg-type]
            )
