"""examples/shpi_from_scratch.py and the library give the same numbers on the same log."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from shpi.advantages import StateValues, k_step_advantages
from shpi.data.logged import LoggedData
from shpi.features import Chain, Identity, Powers, Standardise
from shpi.learners import ImprovedPolicy, OfflineSHPI
from shpi.oracles import Ridge
from shpi.policies import Greedy
from shpi.values import LSTD, Constant

FILE = Path(__file__).resolve().parents[1] / "examples" / "shpi_from_scratch.py"
SAME: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("shpi_from_scratch", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def log(example: ModuleType) -> Any:
    return example.simulate(example.logging_policy, 150, 3)


@pytest.fixture(scope="module")
def logs(log: Any) -> LoggedData:
    return LoggedData.from_arrays(
        contexts=log.contexts,
        actions=log.actions,
        propensities=log.propensities,
        rewards=log.rewards,
        offsets=log.offsets,
        final_contexts=log.final_contexts,
        final_observed=np.ones(len(log.terminated), dtype=bool),
        terminated=log.terminated,
        n_actions=4,
    )


def library(logs: LoggedData, k: int, bonus: bool = True, iterations: int = 10) -> ImprovedPolicy:
    features = Chain((Standardise(), Powers(degree=2, intercept=False)))
    return OfflineSHPI(
        k=k,
        gamma=0.95,
        iterations=iterations,
        tolerance=0.0,
        value=LSTD(features=features, ridge=30.0, lookahead=1) if bonus else Constant(0.0),
        oracle=Ridge(
            features=Chain((Standardise(), Identity())),
            penalty=1.0,
            shared_penalty=0.1,
            action_features=False,
        ),
        reach=None,
        tested=False,
    ).fit(logs)


def test_both_endings_occur(log: Any) -> None:
    assert log.terminated.any()
    assert not log.terminated.all()


@pytest.mark.parametrize(("k", "bonus"), [(1, False), (5, False), (1, True), (5, True)])
def test_values_scores_and_policies_are_equal(
    example: ModuleType, log: Any, logs: LoggedData, k: int, bonus: bool
) -> None:
    mine, value = example.offline_shpi(log, k=k, bonus=bonus)
    theirs = library(logs, k, bonus)
    np.testing.assert_allclose(value(log.contexts), theirs.value(logs.contexts), **SAME)
    head = theirs.policy
    assert isinstance(head, Greedy)
    np.testing.assert_allclose(mine.scores(log.contexts), head.scorer.scores(logs.contexts), **SAME)
    np.testing.assert_array_equal(mine(log.contexts), theirs.action_probs(logs.contexts))


def test_the_iterates_are_equal_one_by_one(example: ModuleType, log: Any, logs: LoggedData) -> None:
    for iteration in library(logs, 5, iterations=3).history:
        mine, _ = example.offline_shpi(log, k=5, iterations=iteration.number)
        assert isinstance(iteration.policy, Greedy)
        np.testing.assert_allclose(
            mine.scores(log.contexts), iteration.policy.scorer.scores(logs.contexts), **SAME
        )


@pytest.mark.parametrize("k", [1, 2, 5, 100])
def test_advantages_are_equal(example: ModuleType, log: Any, logs: LoggedData, k: int) -> None:
    policy, value = example.offline_shpi(log, k=5, iterations=1)
    taken = policy(log.contexts)[np.arange(len(log.actions)), log.actions]
    theirs = k_step_advantages(
        logs, StateValues.of(value, logs), k=k, gamma=0.95, ratios=taken / log.propensities
    )
    np.testing.assert_allclose(example.advantages(log, value, taken, k, 0.95), theirs.values, **SAME)
    assert theirs.valid.all()


def test_it_tells_the_story(
    example: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate = example.simulate
    monkeypatch.setattr(example, "simulate", lambda policy, n, seed: simulate(policy, n // 4, seed))
    example.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    bandit, session, shpi = (float(line.split()[-4]) for line in lines[1:])
    assert bandit < session < shpi
