from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.data._behaviour.calibration import Calibration
from shpi.data.logged import LoggedData
from shpi.data.propensity import PropensityModel
from shpi.errors import ConfigError, DataError
from shpi.protocols import Policy


def softmax_log(
    *, n: int = 12_000, d: int = 4, actions: int = 5, users: int = 400, sharp: float = 0.8,
    masked: bool = False, seed: int = 0,
) -> tuple[LoggedData, np.ndarray]:  # fmt: skip
    """A log whose mu(a|x) is a known softmax over the candidates, and that mu [n, A]."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n, d)).astype(np.float32)
    logits = contexts @ (sharp * rng.normal(size=(d, actions))) + 0.5 * rng.normal(size=actions)
    candidates = None
    if masked:
        candidates = rng.random((n, actions)) < 0.5
        candidates[:, 0] = True
        logits = np.where(candidates, logits, -np.inf)
    mu = np.exp(logits - logits.max(axis=1, keepdims=True))
    mu /= mu.sum(axis=1, keepdims=True)
    chosen = (mu.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    offsets = np.linspace(0, n, users + 1).astype(int)
    logs = LoggedData.from_arrays(
        contexts=contexts, actions=chosen, n_actions=actions, offsets=offsets, candidates=candidates
    )
    return logs, mu


@pytest.mark.parametrize("masked", [False, True])
def test_a_softmax_policy_is_recovered(masked: bool) -> None:
    logs, mu = softmax_log(masked=masked)
    fitted = PropensityModel().fit(logs, seed=1)
    estimated = fitted.apply(logs)
    assert fitted.chosen == "softmax"
    assert fitted.log_loss < fitted.marginal_log_loss < fitted.uniform_log_loss
    assert estimated.propensity_mode == "estimated"
    assert estimated.behaviour is not None
    assert np.abs(estimated.behaviour - mu).mean() < 0.01
    # Nothing predicts better than mu itself.
    true = mu[np.arange(len(logs)), logs.actions]
    assert fitted.log_loss == pytest.approx(-np.log(true).mean(), abs=0.005)
    assert fitted.calibration.error < 0.005
    assert max(abs(bucket.z) for bucket in fitted.calibration.bins) < 4
    assert (1 / np.asarray(estimated.propensities)).mean() == pytest.approx((1 / true).mean(), rel=0.08)


def test_the_result_is_a_valid_log_and_says_how_it_came_about() -> None:
    logs, _ = softmax_log(n=2_000, users=50, masked=True)
    estimated = logs.with_estimated_propensities(seed=3)
    behaviour, taken = np.asarray(estimated.behaviour), np.asarray(estimated.propensities)
    np.testing.assert_allclose(behaviour.sum(axis=1), 1, atol=1e-6)
    assert (behaviour[~np.asarray(logs.candidates)] == 0).all()
    assert (taken > 0).all()
    assert (taken <= 1).all()
    np.testing.assert_array_equal(taken, behaviour[np.arange(len(logs)), logs.actions])
    assert any("estimated by the softmax model" in note for note in estimated.ledger.notes)


def test_the_same_seed_gives_the_same_propensities() -> None:
    logs, _ = softmax_log(n=1_000, users=30)
    first, second = (logs.with_estimated_propensities(seed=5).propensities for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_without_signal_the_marginal_is_chosen() -> None:
    logs, _ = softmax_log(sharp=0.0)
    fitted = PropensityModel().fit(logs)
    assert fitted.chosen == "marginal"
    frequencies = np.bincount(logs.actions) / len(logs)
    np.testing.assert_allclose(fitted.action_probs(logs.contexts[:3])[2], frequencies, atol=1e-3)


def test_frequencies_are_not_fooled_by_forced_choices() -> None:
    # Availability 80 %, sent with probability 0.6 when available: the share of sent messages is 0.48.
    rng = np.random.default_rng(0)
    available = rng.random(20_000) < 0.8
    sent = available & (rng.random(20_000) < 0.6)
    logs = LoggedData.from_arrays(
        contexts=np.zeros((20_000, 0)), actions=sent.astype(int), n_actions=2,
        offsets=np.arange(0, 20_001, 100), candidates=np.stack([np.ones_like(available), available], axis=1),
    )  # fmt: skip
    behaviour = np.asarray(logs.with_estimated_propensities().behaviour)
    np.testing.assert_allclose(behaviour[available, 1], 0.6, atol=0.02)
    assert (behaviour[~available, 0] == 1).all()


def test_no_decision_explains_itself() -> None:
    # User 0 alone chooses action 2. A cross-fitted estimate cannot know that, a plain fit would.
    contexts = np.zeros((200, 1))
    contexts[:20] = 5.0
    actions = np.arange(200) % 2
    actions[:20] = 2
    logs = LoggedData.from_arrays(contexts=contexts, actions=actions, offsets=np.arange(0, 201, 20))
    behaviour = np.asarray(logs.with_estimated_propensities().behaviour)
    assert behaviour[:20, 2].max() < 0.05
    assert behaviour[:20, 2].min() > 0


def test_an_action_that_was_never_logged_has_no_support() -> None:
    logs, _ = softmax_log(n=1_000, users=20)
    wider = LoggedData.from_arrays(
        contexts=logs.contexts, actions=logs.actions, offsets=logs.offsets, n_actions=7
    )
    behaviour = np.asarray(wider.with_estimated_propensities().behaviour)
    assert (behaviour[:, 5:] == 0).all()
    assert (behaviour[:, :5] > 0).all()
    np.testing.assert_allclose(behaviour.sum(axis=1), 1)


def test_a_single_action() -> None:
    logs = LoggedData.from_arrays(
        contexts=np.random.default_rng(0).normal(size=(100, 2)),
        actions=np.ones(100, int),
        n_actions=2,
        offsets=[0, 50, 100],
    )
    fitted = PropensityModel().fit(logs)
    assert "only one action was ever chosen" in fitted.warnings
    np.testing.assert_array_equal(fitted.apply(logs).propensities, 1)


def test_a_deterministic_policy_is_flagged() -> None:
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(20_000, 2))
    logs = LoggedData.from_arrays(
        contexts=contexts, actions=(contexts[:, 0] > 0).astype(int), offsets=np.arange(0, 20_001, 50)
    )
    fitted = PropensityModel().fit(logs)
    assert any("deterministic" in warning for warning in fitted.warnings)
    noisy, _ = softmax_log()
    assert not any("deterministic" in warning for warning in PropensityModel().fit(noisy).warnings)


def test_another_log_gets_the_model_of_all_rows() -> None:
    logs, mu = softmax_log(n=6_000, users=200)
    fitted = PropensityModel().fit(logs)
    half = LoggedData.from_arrays(
        contexts=logs.contexts[:3_000], actions=logs.actions[:3_000], offsets=logs.offsets[:101], n_actions=5
    )
    applied = fitted.apply(half)
    assert isinstance(fitted, Policy)
    timeless = PropensityModel(time=False).fit(logs)  # as a policy it does not know the step
    behaviour = timeless.apply(half).behaviour
    np.testing.assert_allclose(behaviour, timeless.action_probs(half.contexts), atol=1e-7)
    assert fitted.action_probs(half.contexts).shape == (3_000, 5)
    assert np.abs(np.asarray(applied.behaviour) - mu[:3_000]).mean() < 0.02
    other = replace(logs, rewards=np.ones(len(logs)))  # another reward, the same decisions
    np.testing.assert_array_equal(fitted.apply(other).propensities, fitted.apply(logs).propensities)


def test_many_actions_need_no_matrix() -> None:
    rng = np.random.default_rng(0)
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(3_000, 2)), actions=rng.integers(0, 500, 3_000), n_actions=500,
        offsets=np.arange(0, 3_001, 10),
    )  # fmt: skip
    fitted = PropensityModel(behaviour_cells=1_000).fit(logs)
    assert fitted.chosen == "marginal"
    assert any("300 actions" in warning for warning in fitted.warnings)
    estimated = fitted.apply(logs)
    assert estimated.behaviour is None
    assert np.asarray(estimated.propensities).mean() == pytest.approx(1 / 500, rel=0.2)


@given(
    n=st.integers(1, 80), users=st.integers(1, 6), actions=st.integers(1, 4), masked=st.booleans(),
    seed=st.integers(0, 1_000),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_tiny_logs_always_give_probabilities(
    n: int, users: int, actions: int, masked: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, actions, n)
    candidates = rng.random((n, actions)) < 0.5
    candidates[np.arange(n), chosen] = True
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(n, 2)) * 100, actions=chosen, n_actions=actions,
        offsets=np.unique(np.linspace(0, n, users + 1).astype(int)),
        candidates=candidates if masked else None,
    )  # fmt: skip
    estimated = logs.with_estimated_propensities(seed=seed)
    behaviour = np.asarray(estimated.behaviour)
    np.testing.assert_allclose(behaviour.sum(axis=1), 1, atol=1e-6)
    assert (np.asarray(estimated.propensities) > 0).all()
    assert not masked or (behaviour[~candidates] == 0).all()


def test_calibration_by_hand() -> None:
    behaviour = np.array([[0.3, 0.7], [0.3, 0.7], [0.3, 0.7], [0.3, 0.7]])
    table = Calibration.of(behaviour, np.array([0, 1, 0, 0]))
    low, high = table.bins
    assert (low.count, low.predicted, low.observed) == (4, pytest.approx(0.3), 0.75)
    assert (high.count, high.predicted, high.observed) == (4, pytest.approx(0.7), 0.25)
    assert table.error == pytest.approx(0.45)
    assert low.z == pytest.approx((3 - 1.2) / np.sqrt(4 * 0.3 * 0.7))


def test_calibration_leaves_out_what_cannot_be_chosen() -> None:
    behaviour = np.array([[1.0, 0.0], [0.5, 0.5]])
    table = Calibration.of(behaviour, np.array([0, 1]), np.array([[True, False], [True, True]]))
    assert sum(bucket.count for bucket in table.bins) == 3


def test_bad_configurations() -> None:
    with pytest.raises(ConfigError, match="two folds"):
        PropensityModel(folds=1)
    with pytest.raises(ConfigError, match="positive priors"):
        PropensityModel(priors=())


def test_a_log_with_other_actions_is_refused() -> None:
    logs, _ = softmax_log(n=600, users=20)
    fitted = PropensityModel().fit(logs)
    other, _ = softmax_log(n=600, users=20, actions=6)
    with pytest.raises(DataError, match="action_space="):
        fitted.apply(other)


def test_an_action_new_in_another_log_is_refused() -> None:
    contexts, offsets = np.zeros((100, 1)), [0, 50, 100]
    first = LoggedData.from_arrays(
        contexts=contexts, actions=np.arange(100) % 2, offsets=offsets, n_actions=3
    )
    second = LoggedData.from_arrays(
        contexts=contexts, actions=np.arange(100) % 3, offsets=offsets, n_actions=3
    )
    with pytest.raises(DataError, match="action 2"):
        PropensityModel().fit(first).apply(second)
