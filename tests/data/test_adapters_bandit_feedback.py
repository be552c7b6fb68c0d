from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.data.adapters import from_bandit_feedback, from_episodes, to_bandit_feedback
from shpi.errors import ActionError, ColumnError, DataError


def feedback(seed: int = 0, *, n: int = 6, positions: int | None = 3) -> dict[str, Any]:
    """obp's documented format, filled with random values."""
    rng = np.random.default_rng(seed)
    pi_b = rng.dirichlet(np.ones(4), size=(n, positions or 1)).transpose(0, 2, 1)  # [n, A, positions]
    action = rng.integers(4, size=n)
    position = None if positions is None else rng.integers(positions, size=n)
    return {
        "n_rounds": n,
        "n_actions": 4,
        "context": rng.normal(size=(n, 2)).astype(np.float32),
        "action_context": np.eye(4)[:, :3],
        "action": action,
        "position": position,
        "reward": rng.integers(2, size=n),
        "pi_b": pi_b,
        "pscore": pi_b[np.arange(n), action, 0 if position is None else position],
    }


def test_each_round_is_a_trajectory_of_one_decision() -> None:
    given_ = feedback()
    logs = from_bandit_feedback(given_)
    assert logs.n_users == logs.n_trajectories == logs.n_sessions == len(logs) == 6
    assert logs.n_actions == 4
    assert logs.propensity_mode == "logged"
    np.testing.assert_array_equal(logs.actions, given_["action"])
    np.testing.assert_array_equal(logs.rewards, given_["reward"])
    np.testing.assert_array_equal(logs.propensities, given_["pscore"])
    np.testing.assert_array_equal(logs.action_space.features, given_["action_context"])
    assert not logs.terminated.any()
    assert not logs.final_observed.any()


def test_the_position_is_part_of_the_context() -> None:
    given_ = feedback(positions=3)
    logs = from_bandit_feedback(given_)
    names = list(logs.schema.dimensions)
    assert names[:5] == ["x0", "x1", "position=0", "position=1", "position=2"]
    np.testing.assert_array_equal(logs.contexts[:, 2:5].argmax(axis=1), given_["position"])
    taken = given_["pi_b"][np.arange(6), :, given_["position"]]
    np.testing.assert_array_equal(logs.behaviour, taken)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), positions=st.sampled_from([None, 1, 3]))
def test_there_and_back(seed: int, n: int, positions: int | None) -> None:
    given_ = feedback(seed, n=n, positions=positions)
    again = to_bandit_feedback(from_bandit_feedback(given_))
    for key in (
        "n_rounds",
        "n_actions",
        "context",
        "action",
        "reward",
        "pscore",
        "position",
        "action_context",
    ):
        if given_[key] is None:
            assert again[key] is None
        else:
            np.testing.assert_array_equal(again[key], given_[key], err_msg=key)
    rows, place = np.arange(n), 0 if given_["position"] is None else given_["position"]
    np.testing.assert_array_equal(again["pi_b"][rows, :, place], given_["pi_b"][rows, :, place])


def test_users_make_trajectories_and_come_back() -> None:
    given_ = feedback()
    logs = from_bandit_feedback(given_, users=["b", "a", "b", "c", "a", "b"])
    assert logs.users.tolist() == ["a", "b", "c"]
    assert logs.offsets.tolist() == [0, 2, 5, 6]
    np.testing.assert_array_equal(logs.actions, given_["action"][[1, 4, 0, 2, 5, 3]])
    back = to_bandit_feedback(logs)
    assert back["user"].tolist() == ["a", "a", "b", "b", "b", "c"]
    again = from_bandit_feedback(back)
    assert again.offsets.tolist() == logs.offsets.tolist()
    np.testing.assert_array_equal(again.contexts, logs.contexts)


def test_candidates_travel_along() -> None:
    mask = [[True, False], [True, True]]
    logs = from_episodes(
        [{"contexts": [[0.0], [1.0]], "actions": [0, 1], "rewards": [0, 1], "candidates": mask}]
    )
    back = to_bandit_feedback(logs)
    assert back["pscore"] is None
    assert from_bandit_feedback(back).candidates.tolist() == mask


def test_what_has_no_place_is_named() -> None:
    logs = from_bandit_feedback({**feedback(), "expected_reward": np.zeros((6, 4))})
    assert logs.ledger.notes == ("bandit feedback: no place in a log for expected_reward",)


def test_a_dict_without_propensities_is_a_log_without_them() -> None:
    logs = from_bandit_feedback({**feedback(), "pscore": None, "pi_b": None})
    assert logs.propensity_mode == "absent"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"action": None}, ColumnError, r"found no action.*obtain_batch_bandit_feedback"),
        ({"n_rounds": 7}, DataError, r"7 actions \(n_rounds\), found 6"),
        ({"reward": np.zeros(5)}, DataError, r"6 rows of 'reward'.*\(5,\)"),
        ({"context": np.zeros(6)}, DataError, r"context of shape \[n, d\]"),
        ({"pscore": np.zeros(6), "pi_b": None}, DataError, r"propensities in \(0, 1\], found 0.0 \(row 0\)"),
        ({"pscore": np.full(6, 0.9)}, DataError, r"behaviour distribution's entry"),
        ({"pi_b": np.ones((6, 4))}, DataError, r"pi_b of shape \[n, A, positions\]"),
        ({"position": np.full(6, -1)}, DataError, r"positions 0, 1, …, found -1"),
        ({"action": np.full(6, 9), "pi_b": None}, ActionError, r"actions in 0\.\.3, found 9"),
        ({"action_context": np.eye(3)}, DataError, r"action_context of shape \[4, m\]"),
        ({"action_context": [["shoe"]] * 4}, DataError, r"numbers in action_context.*one-hot"),
    ],
)
def test_bad_feedback(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_bandit_feedback({**feedback(), **change})


@pytest.mark.peers
def test_the_real_obp_there_and_back() -> None:
    dataset = pytest.importorskip("obp.dataset", reason="the round trip needs obp")
    given_ = dataset.SyntheticBanditDataset(
        n_actions=5, dim_context=3, random_state=7
    ).obtain_batch_bandit_feedback(200)
    logs = from_bandit_feedback(given_)
    assert logs.ledger.notes == ("bandit feedback: no place in a log for expected_reward",)
    again = to_bandit_feedback(logs)
    for key in ("n_rounds", "n_actions", "action", "reward", "pscore", "action_context", "pi_b"):
        np.testing.assert_array_equal(again[key], given_[key], err_msg=key)
    np.testing.assert_allclose(again["context"], given_["context"], rtol=1e-6)  # float32 here
    assert again["position"] is None


@pytest.mark.peers
def test_obp_evaluates_our_feedback() -> None:
    ope = pytest.importorskip("obp.ope", reason="the round trip needs obp")
    rng = np.random.default_rng(3)
    logs = from_bandit_feedback(feedback(n=300, positions=None))
    target = rng.dirichlet(np.ones(4), size=300)  # [n, A]
    back = to_bandit_feedback(logs)
    meta = ope.OffPolicyEvaluation(bandit_feedback=back, ope_estimators=[ope.InverseProbabilityWeighting()])
    value = meta.estimate_policy_values(action_dist=target[:, :, None])["ipw"]
    by_hand = np.mean(target[np.arange(300), logs.actions] / logs.propensities * logs.rewards)
    assert value == pytest.approx(by_hand, rel=1e-12)
