"""Logs with many context columns: models look at those that matter, and their memory is bounded."""

import tracemalloc

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.ope import FQE, WDR, KStepSHPI, Problem, Settings
from shpi.ope.models import columns
from shpi.ope.models.recipes import make_design
from shpi.policies import ConstantPolicy

ACTIONS = 10


def wide_log(width: int, users: int = 300, steps: int = 5, actions: int = ACTIONS) -> LoggedData:
    """Column 7 pays whatever is done, the last column pays where action 1 is taken, the others never."""
    random = np.random.default_rng(0)
    n = users * steps
    contexts, taken = random.standard_normal((n, width), dtype=np.float32), random.integers(0, actions, n)
    rewards = contexts[:, 7] + 3.0 * contexts[:, -1] * (taken == 1) + random.standard_normal(n)
    return LoggedData.from_arrays(
        contexts=contexts,
        actions=taken,
        rewards=rewards,
        offsets=np.arange(0, n + 1, steps),
        propensities=np.full(n, 1 / actions),
        terminated=np.ones(users, dtype=bool),
        n_actions=actions,
    )


def problem_of(logs: LoggedData) -> Problem:
    probs = np.arange(1.0, logs.n_actions + 1)
    return Problem.of(ConstantPolicy(probs=probs / probs.sum()), logs, Settings())


@pytest.mark.parametrize(("width", "actions"), [(400, 10), (100, 60), (100, 2_000), (2_500, 2)])
def test_no_default_model_takes_more_than_half_a_gigabyte(width, actions):
    problem = problem_of(wide_log(width, actions=actions))
    for target in ("pi", "mu", "state"):
        design = make_design(problem, target, None)
        groups, q = design.codes.shape
        by_fold = groups * design.d * (2 * design.d + design.p) + 3 * (q * design.d) ** 2  # sums and fits
        assert 8 * problem.settings.folds * by_fold <= 0.5e9


def test_the_columns_that_matter_are_looked_at():
    problem = problem_of(wide_log(400))
    design = make_design(problem, "pi", None)
    assert 100 < design.features.width < 400
    kept = design.features.steps[0].columns
    assert {7, 399} <= set(kept.tolist())


def test_ordinary_logs_are_looked_at_as_a_whole():
    problem = problem_of(wide_log(100))
    assert make_design(problem, "pi", None).features.width == 100
    assert WDR().estimate(problem_of(wide_log(12))).notes == ("mu(.|x) was not logged: not paired",)


def test_peak_memory_follows_the_bound_and_the_estimate_says_so(monkeypatch):
    monkeypatch.setattr(columns, "MOST_NUMBERS", 300_000)  # 13 columns
    logs = wide_log(120)
    tracemalloc.start()
    estimates = [estimator.estimate(problem_of(logs)) for estimator in (WDR(), FQE(), KStepSHPI(k=2))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6  # 417 MB with all columns
    for estimate in estimates[:2]:
        assert "13 of 120 columns" in estimate.notes[0]
    for estimate in estimates:  # the columns have mean 0, so no action is better than another
        assert abs(estimate.lift) < 4 * estimate.lift_error
