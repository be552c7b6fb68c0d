from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.envs.recogym.ltr import LongTermReward, long_term_rewards
from shpi.envs.recogym.simulator import RecoGym
from shpi.errors import ConfigError


@pytest.fixture(scope="module")
def rollouts(golden_dir: Path) -> dict[str, np.ndarray]:
    with np.load(golden_dir / "ltr_formula_rollouts.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Y_signed", {}),
        ("Y_signed_floor0", {"floor": True}),
        ("Y_positive", {"weights": "positive"}),
    ],
)
def test_the_formula_on_rollouts_of_the_original(rollouts, name: str, options: dict) -> None:
    rewards = long_term_rewards(
        rollouts["E"], rollouts["omega"], rollouts["actions"], rollouts["clicks"], **options
    )
    np.testing.assert_allclose(rewards, rollouts[name], rtol=0, atol=1e-14)
    assert (rollouts[name] != 0).mean() > 0.4


def test_the_paper_setting_has_the_scale_of_the_original(rollouts) -> None:
    sim = RecoGym()
    np.testing.assert_array_equal(sim.world.gamma, rollouts["E"])
    rng, n = np.random.default_rng(5), 2000
    sim.reset(n, seed=11)
    for _ in range(sim.horizon):
        last = sim.step(rng.integers(sim.n_actions, size=n))
    golden = rollouts["avg_signed"]
    for ours, theirs in (
        (sim.score(), golden),
        (last.contexts.sum(axis=1), rollouts["view_counts_before_action"][:, -1].sum(axis=1)),
    ):
        spread = np.hypot(ours.std() / np.sqrt(n), theirs.std(ddof=1) / np.sqrt(len(theirs)))
        assert abs(ours.mean() - theirs.mean()) < 4 * spread


@pytest.mark.parametrize(
    "options", [{}, {"floor": True}, {"weights": "positive"}, {"change_omega_for_bandits": True}]
)
def test_rewards_follow_the_formula_with_the_hidden_interests(options: dict) -> None:
    sim, n, steps = RecoGym(n_products=12, **options), 301, 120
    rng = np.random.default_rng(0)
    actions = rng.integers(12, size=(n, steps))
    sim.reset(n, seed=4)
    omega, rewards, clicks = np.empty((n, steps, 5)), np.empty((n, steps)), np.empty((n, steps))
    for t in range(steps):
        omega[:, t] = sim._batch.users.omega
        step = sim.step(actions[:, t])
        rewards[:, t], clicks[:, t] = step.rewards, step.info["click"]
        np.testing.assert_array_equal(step.rewards, step.info["ltr"])
    assert clicks.sum() > 200
    assert np.abs(omega[:, -1] - omega[:, 0]).min() > 0  # they drift
    formula = {key: value for key, value in options.items() if key != "change_omega_for_bandits"}
    expected = long_term_rewards(sim.world.beta, omega, actions, clicks, **formula)
    np.testing.assert_allclose(rewards, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(sim.score(), expected.mean(axis=1), rtol=0, atol=1e-13)


def test_the_reward_by_hand() -> None:
    embedding = np.array([[1.0, -2.0], [-1.0, -1.0], [3.0, -4.0]])
    omega = np.array([[[2.0, -1.0]] * 4])
    actions, clicks = np.array([[2, 0, 1, 2]]), np.array([[0, 1, 1, 1]])
    # m: -, (1, -2), (1, -1), (3, -1)
    np.testing.assert_allclose(long_term_rewards(embedding, omega, actions, clicks), [[0.0, 4.0, 3.0, 7.0]])
    np.testing.assert_allclose(
        long_term_rewards(embedding, omega, actions, clicks, floor=True), [[0.0, 2.0, 2.0, 6.0]]
    )
    np.testing.assert_allclose(
        long_term_rewards(embedding, omega, actions, clicks, weights="positive"), [[0.0, 2.0, 2.0, 6.0]]
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6))
def test_positive_weights_are_monotone_and_submodular(seed: int, small: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    embedding, interest = rng.normal(size=(20, 4)), rng.normal(size=4)

    def value(products: list[int]) -> float:
        actions = np.array([products])
        omega = np.broadcast_to(interest, (1, len(products), 4))
        out = long_term_rewards(embedding, omega, actions, np.ones_like(actions), weights="positive")
        return float(out[0, -1])

    order = [int(product) for product in rng.permutation(20)]
    few, many, new = order[:small], order[: small + more], order[-1]
    assert value(many) >= value(few) >= 0.0
    assert value([*few, new]) - value(few) >= value([*many, new]) - value(many) - 1e-12


def test_unknown_weights() -> None:
    with pytest.raises(ConfigError, match="weights 'signed' or 'positive'"):
        LongTermReward(np.zeros((2, 2)), 3, weights="absolute", floor=False)
