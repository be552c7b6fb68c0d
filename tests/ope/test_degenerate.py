"""Logs with few users, without context columns or with constant rewards: an answer, not an exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shpi
from tests.fuzz.small_logs import Constant

MODELS = {"WDR", "DR", "MAGIC", "FQE", "DM", "SHPI(k=4)"}


def table(users: int, rewards: str = "normal", width: int = 1, steps: int = 10, seed: int = 0) -> Any:
    rng, n = np.random.default_rng(seed), users * steps
    actions = rng.integers(3, size=n)
    paid = {
        "normal": rng.standard_normal(n) + (actions == 1),
        "constant": np.full(n, 2.5),
        "tiny": -1e-300 * rng.random(n),
        "large": 1e29 * rng.standard_normal(n),
    }
    frame = {"u": np.repeat(np.arange(users), steps), "t": np.tile(np.arange(steps), users), "a": actions,
             "p": np.full(n, 1 / 3), "r": paid[rewards]}  # fmt: skip
    frame |= {f"x{i}": rng.standard_normal(n) for i in range(width)}
    columns = {"user": "u", "time": "t", "action": "a", "propensity": "p", "reward": "r"}
    return shpi.LoggedData.read(pl.DataFrame(frame), columns | {"context": [f"x{i}" for i in range(width)]})


def evaluate(logs: Any, **options: Any) -> Any:
    return shpi.evaluate(Constant(np.array([0.2, 0.6, 0.2]), logs.schema.width), logs, **options)


@pytest.mark.parametrize("users", [2, 5])
@pytest.mark.parametrize("rewards", ["normal", "constant", "tiny", "large"])
def test_a_handful_of_users(users: int, rewards: str, tmp_path: Path) -> None:
    report = evaluate(table(users, rewards), gate=shpi.Gate())
    assert all(
        np.isfinite([estimate.value, estimate.lift, estimate.lift_error]).all()
        for estimate in report.estimates
    )
    assert not report.verdict.ship
    report.write_html(tmp_path / "report.html")
    str(report)


def test_without_context_columns() -> None:
    logs = table(400, width=0)
    report = evaluate(logs, details=False)
    truth = 10 * (0.6 - 1 / 3)  # ten decisions, action 1 pays 1 more
    for estimate in report.estimates:
        if estimate.name in MODELS:
            assert estimate.lift == pytest.approx(truth, abs=5 * max(estimate.lift_error, 0.1)), estimate


@pytest.mark.parametrize("width", [0, 1])
def test_constant_rewards_have_no_lift(width: int) -> None:
    report = evaluate(table(300, "constant", width), details=False)
    lifts = {estimate.name: estimate.lift for estimate in report.estimates}
    assert set(lifts) >= MODELS
    assert max(abs(lifts[name]) for name in MODELS) < 1e-6
    ours = [diagnostic for diagnostic in report.diagnostics if diagnostic.estimator in MODELS]
    assert not [
        diagnostic
        for diagnostic in ours
        if diagnostic.name in ("range", "disagreement") and diagnostic.severity == "fatal"
    ]


def test_blocks_of_probabilities_stay_small_with_many_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 rows times 10,000 actions at once took 8 GB; the answer does not depend on the blocks."""
    logs = table(40)
    whole = evaluate(logs, details=False)
    monkeypatch.setattr("shpi.ope.problem._CELLS", 3 * 32)
    monkeypatch.setattr("shpi.ope._log.chunk._CACHE", 0)
    monkeypatch.setattr("shpi.ope.models.predictions._ENTRIES", 1)  # its least is 256 decisions
    largest = 0

    class Watched(Constant):
        def action_probs(self, contexts: Any, candidates: Any = None) -> Any:
            nonlocal largest
            largest = max(largest, len(contexts))
            return super().action_probs(contexts, candidates)

    parts = shpi.evaluate(Watched(np.array([0.2, 0.6, 0.2]), 1), logs, details=False)
    for whole_estimate, block_estimate in zip(whole.estimates, parts.estimates, strict=True):
        assert whole_estimate.lift == pytest.approx(block_estimate.lift, rel=1e-9, abs=1e-9)
    assert largest <= 256 < len(logs)
