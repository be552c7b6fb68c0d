"""Hard and bad logs for OfflineSHPI with its defaults: a clear error, or the behaviour that is documented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.learners import ImprovedPolicy, OfflineSHPI
from shpi.values import Constant, Given


def make(
    n_users: int = 120, steps: int = 5, *, n_actions: int = 3, seed: int = 0, **changes: Any
) -> LoggedData:
    """Action 1 earns most where x > 0, action 0 elsewhere; action 2 is never good."""
    rng, n = np.random.default_rng(seed), n_users * steps
    x = rng.normal(size=(n, 2)).astype(np.float32)
    actions = rng.integers(0, 3, n)
    good = np.where(x[:, 0] > 0, 1, 0)
    arrays: dict[str, Any] = {
        "contexts": x,
        "actions": actions,
        "rewards": (actions == good) + 0.1 * rng.standard_normal(n),
        "propensities": np.full(n, 1 / 3),
        "offsets": np.arange(0, n + 1, steps),
        "n_actions": n_actions,
    }
    return LoggedData.from_arrays(**(arrays | changes))


def fit(logs: LoggedData, **settings: Any) -> ImprovedPolicy:
    return OfflineSHPI(**({"iterations": 2, "k": 3} | settings)).fit(logs)


SIDES = np.array([[2.0, 0.0], [-2.0, 0.0]], dtype=np.float32)


@pytest.fixture(scope="module")
def logs() -> LoggedData:
    return make()


def test_the_plain_log_is_learned(logs: LoggedData) -> None:
    np.testing.assert_array_equal(fit(logs).action_probs(SIDES).argmax(axis=1), [1, 0])


def test_no_propensities(logs: LoggedData) -> None:
    bare = replace(logs, propensities=None, propensity_mode="absent")
    with pytest.raises(DataError, match=r"a log with propensities.*with_estimated_propensities"):
        fit(bare)
    remedied = fit(bare.with_estimated_propensities())
    np.testing.assert_array_equal(remedied.action_probs(SIDES).argmax(axis=1), [1, 0])  # the remedy works


def test_no_rewards_offers_backshift(logs: LoggedData) -> None:
    bare = replace(logs, rewards=None)
    with pytest.raises(DataError, match=r"a log with rewards.*backshift=True"):
        fit(bare)
    recovered = fit(bare, value=Given(lambda x: np.asarray(x, dtype=np.float64)[:, 0]), backshift=True)
    assert np.isfinite(recovered.action_probs(SIDES)).all()


def test_backshift_needs_a_value_that_is_given(logs: LoggedData) -> None:
    with pytest.raises(DataError, match="a log with rewards"):
        fit(replace(logs, rewards=None), backshift=True)  # LSTD would have to learn V from them


@pytest.mark.parametrize("k", [6, 10_000])
def test_a_k_beyond_every_trajectory_means_to_its_end(logs: LoggedData, k: int) -> None:
    to_the_end, longer = fit(logs, k=5), fit(logs, k=k)
    np.testing.assert_array_equal(to_the_end.action_probs(logs.contexts), longer.action_probs(logs.contexts))


def test_an_action_that_was_never_logged_is_never_taken() -> None:
    wide = make(n_actions=5)
    for settings in ({}, {"k": "auto"}):
        probs = fit(wide, **settings).action_probs(wide.contexts)
        assert probs[:, 3:].max() < 1e-3
        np.testing.assert_allclose(probs.sum(axis=1), 1.0)


def test_identical_contexts_leave_the_best_constant_action() -> None:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, 600)
    same = make(contexts=np.ones((600, 2)), actions=actions, rewards=1.0 * (actions == 2))
    for k in (1, "auto"):
        np.testing.assert_array_equal(fit(same, k=k).action_probs(np.ones((1, 2))).argmax(axis=1), [2])


def test_contexts_of_no_information_beside_one_that_has_some(logs: LoggedData) -> None:
    padded = make(contexts=np.column_stack([logs.contexts[:, 0], np.full(600, 7.0)]))
    assert np.isfinite(fit(padded).action_probs(padded.contexts)).all()


@pytest.mark.parametrize("factor", [2.0**40, 2.0**-40])
def test_the_unit_of_the_rewards_does_not_matter(logs: LoggedData, factor: float) -> None:
    assert logs.rewards is not None
    scaled = fit(logs.with_rewards(factor * logs.rewards))
    plain = fit(logs)
    np.testing.assert_allclose(
        scaled.action_probs(logs.contexts), plain.action_probs(logs.contexts), rtol=1e-4, atol=1e-9
    )
    assert plain.lift is not None
    assert scaled.lift is not None
    assert scaled.lift.estimate == pytest.approx(factor * plain.lift.estimate, rel=1e-4)


def test_rewards_around_1e12_keep_the_order_of_actions(logs: LoggedData) -> None:
    assert logs.rewards is not None
    policy = fit(logs.with_rewards(1e12 + 1e3 * logs.rewards), tested=False)
    np.testing.assert_array_equal(policy.action_probs(SIDES).argmax(axis=1), [1, 0])


@pytest.mark.parametrize("level", [0.0, 1.0, -1e12])
def test_equal_rewards_give_mu_since_no_gain_can_be_shown(level: float) -> None:
    """Users go on after the log: whatever anybody does, all are worth the same, but for rounding errors."""
    ends = np.random.default_rng(1).normal(size=(120, 2))
    logs = make(final_contexts=ends, final_observed=np.ones(120, bool), terminated=np.zeros(120, bool))
    policy = fit(logs.with_rewards(np.full(len(logs), level)))
    assert policy.chosen == 0
    np.testing.assert_allclose(policy.action_probs(logs.contexts).mean(axis=0), 1 / 3, atol=0.05)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_an_error_that_names_the_row(logs: LoggedData, bad: float) -> None:
    def broken(x: Any) -> Any:
        values = np.zeros(len(x))
        values[min(3, len(x) - 1)] = bad
        return values

    with pytest.raises(DataError, match=r"a finite value for every context.*row 3"):
        fit(logs, value=Given(broken))


def test_a_value_of_the_wrong_shape(logs: LoggedData) -> None:
    with pytest.raises(DataError, match="values of shape"):
        fit(logs, value=Given(lambda x: np.zeros(3)))


def test_one_user_and_one_decision() -> None:
    policy = fit(make(1, 1, terminated=[True]), value=Constant(0.0))
    np.testing.assert_allclose(policy.action_probs(SIDES).sum(axis=1), 1.0)


def test_decisions_whose_consequences_are_unknown_are_not_learned_from() -> None:
    with pytest.raises(DataError, match="at least one decision whose reward and next context are known"):
        # The log says that it stops before anything is seen.
        fit(replace(make(1, 1), endings="marked"), value=Constant(0.0))


def test_an_empty_log() -> None:
    with pytest.raises(DataError):
        fit(make(0, 5, offsets=np.zeros(1, dtype=np.int64)))
