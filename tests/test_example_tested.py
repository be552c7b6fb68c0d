"""examples/tested_from_scratch.py and `OfflineSHPI` return the same policy, lift and bound."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.features.cells import Cells
from shpi.learners import ImprovedPolicy, OfflineSHPI
from shpi.oracles import Ridge
from shpi.policies import ConstantPolicy

FILE = Path(__file__).resolve().parents[1] / "examples" / "tested_from_scratch.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("tested_from_scratch", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def logged(example: ModuleType, log: Any) -> LoggedData:
    ends = np.flatnonzero(log.last)
    left = log.after[ends] < 0
    return LoggedData.from_arrays(
        contexts=np.eye(4)[log.state],
        actions=log.action,
        propensities=example.MU[log.action],
        rewards=log.reward,
        offsets=np.append(0, ends + 1),
        final_contexts=np.where(left[:, None], 0.0, np.eye(4)[log.after[ends]]),
        final_observed=~left,
        terminated=left,
        n_actions=3,
    )


def library(example: ModuleType, logs: LoggedData) -> ImprovedPolicy:
    table = Cells().fit(np.eye(4))
    return OfflineSHPI(
        k=1,
        gamma=example.GAMMA,
        behaviour=ConstantPolicy(example.MU),
        oracle=Ridge(features=table, penalty=1e-6, shared_penalty=1e-6, action_features=False),
        progress=False,
    ).fit(logs)


def learned(example: ModuleType, log: Any) -> Any:
    climb = example.Climb(log)
    climb.run()
    return climb


@pytest.mark.parametrize(("readers", "seed"), [(400, 3), (1500, 4)])
def test_the_same_policy_lift_and_bound(example: ModuleType, readers: int, seed: int) -> None:
    log = example.simulate(np.tile(example.MU, (4, 1)), readers, seed)
    climb = learned(example, log)
    policy = library(example, logged(example, log))
    assert len(climb.tested) == len(policy.trials) > 3
    for candidate, trial in zip(climb.tested, policy.trials, strict=True):
        assert trial.lift.estimate == pytest.approx(candidate.lift, rel=2e-3, abs=2e-4)
        spread = example.error(candidate.parts, candidate.noise)
        assert trial.lift.standard_error == pytest.approx(spread, rel=5e-3)
    assert policy.lift is not None
    assert policy.lift.lower == pytest.approx(climb.promise, rel=5e-3, abs=1e-3)
    assert policy.trials[policy.chosen - 1].lift.estimate == pytest.approx(climb.champion.lift, rel=2e-3)
    np.testing.assert_allclose(policy.action_probs(np.eye(4)), climb.policy(climb.champion), atol=2e-3)


def test_nothing_is_returned_where_actions_make_no_difference(example: ModuleType) -> None:
    log = example.simulate(np.tile(example.MU, (4, 1)), 200, 5)
    rng = np.random.default_rng(1)  # of the first 60 seeds one is proven by chance
    log.reward = rng.standard_normal(len(log.reward))
    log.state = np.zeros_like(log.state) + rng.integers(0, 4, len(log.state))
    log.after = np.where(log.last, -1, np.roll(log.state, -1))
    climb = learned(example, log)
    assert climb.champion.words == "mu"
    assert climb.promise == 0.0
    assert library(example, logged(example, log)).chosen == 0


def test_the_learned_policy_is_better_by_what_it_promises(example: ModuleType) -> None:
    log = example.simulate(np.tile(example.MU, (4, 1)), 800, 0)
    climb = learned(example, log)
    clicks = [
        example.simulate(table, 1500, 9).reward.sum() / 1500
        for table in (np.tile(example.MU, (4, 1)), climb.policy(climb.champion))
    ]
    assert clicks[1] > clicks[0] + climb.promise / 2
    assert climb.promise > 0
