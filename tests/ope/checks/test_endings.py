"""Nothing ships until the log says how users end; cuts that are none are found, others are left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data._log.slicing import cut
from shpi.data.logged import LoggedData
from shpi.ope import WDR, Gate, Problem, Settings, evaluate
from shpi.ope.checks.endings import about_endings
from shpi.testing.hard_worlds import WORLDS, Case


def severity(case: Case, logs: LoggedData, truncated: str | None) -> str:
    problem = Problem.of(case.policy, logs, Settings(horizon=case.horizon, truncated=truncated))
    return next((diagnostic.severity for diagnostic in about_endings(problem)), "none")


@pytest.mark.parametrize("name", ["unmarked churn", "heavy and light users"])
def test_unmarked_endings_are_asked_for_and_found(name: str) -> None:
    for seed in range(4):
        case = WORLDS[name].make(seed=seed, users=1_200)
        assert case.logs.endings == "unknown"
        assert severity(case, case.logs, None) == "fatal"  # nobody said
        assert severity(case, case.logs, "censored") == "fatal"  # somebody said something else
        assert severity(case, case.logs, "complete") == "none"


def test_no_ship_until_the_log_says_how_users_end() -> None:
    case = WORLDS["unmarked churn"].make(seed=1, lift=0.15)
    gate = Gate()
    silent = evaluate(case.policy, case.logs, estimators=[WDR()], gate=gate, horizon=10, details=False)
    assert silent.verdict is not None
    assert silent.verdict.decision == "hold"
    assert "does not say how users end" in silent.verdict.reasons[0]
    told = evaluate(case.policy, case.told_logs, estimators=[WDR()], gate=gate, horizon=10, details=False)
    assert told.verdict is not None
    assert told.verdict.ship


@pytest.mark.parametrize("name", ["clickbait", "random worlds", "user types", "rare rewards"])
def test_logs_that_are_cut_at_random_are_left_alone(name: str) -> None:
    for seed in range(5):
        case = WORLDS[name].make(seed=seed, users=400)
        length = np.random.default_rng(seed).integers(1, case.horizon + 2, size=case.logs.n_trajectories)
        logs = cut(case.logs, case.logs.steps < length[case.logs.trajectory_of_row])
        assert severity(case, logs, "censored") in ("fine", "none")


def test_equal_lengths_need_no_word_about_endings() -> None:
    case = WORLDS["user types"].make(seed=0, users=300)
    logs = replace(case.logs, endings="unknown")
    assert severity(case, logs, None) == "none"
