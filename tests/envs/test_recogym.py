from __future__ import annotations

import numpy as np
import pytest

from shpi.envs.recogym.simulator import RecoGym
from shpi.envs.recogym.world import ClusterWorld, LatentWorld
from shpi.errors import ActionError, ConfigError, EpisodeError
from shpi.policies import UniformPolicy

KINDS = [
    {},
    {"leaving": True},
    {"leaving": True, "as_original": True, "prob_leave_organic": 0.1},
    {"change_omega_for_bandits": True},
    {"version": 0, "reward": "click", "leaving": True},
]


def play(sim: RecoGym, n: int, seed: int, steps: int, first: int = 0) -> list[np.ndarray]:
    """Everything that is to be seen, [n, ...] per time; actions depend on the user and the time alone."""
    users = np.arange(first, first + n)
    observations = [sim.reset(n, seed, first=first)]
    for t in range(steps):
        step = sim.step((users * 7 + t * 3) % sim.n_actions)
        observations += [
            step.contexts,
            step.rewards,
            step.ended,
            *(step.info[name] for name in sorted(step.info)),
        ]
        if step.ended.all():
            break
    return [*observations, sim.score(), sim.decisions]


# ---------------------------------------------------------------------- determinism


@pytest.mark.parametrize("options", KINDS)
def test_ten_thousand_users_at_once_or_in_ten_calls(options: dict) -> None:
    sim = RecoGym(n_products=20, **options)
    whole = play(sim, 10_000, seed=3, steps=12)
    parts = [play(sim, 1000, seed=3, steps=12, first=first) for first in range(0, 10_000, 1000)]
    for together, *pieces in zip(whole, *parts, strict=True):
        assert together.tobytes() == np.concatenate(pieces).tobytes()


@pytest.mark.parametrize("options", KINDS)
def test_odd_splits_change_no_bit(options: dict) -> None:
    sim = RecoGym(**options)
    whole = play(sim, 1021, seed=8, steps=40)
    starts = [0, 1, 4, 11, 64, 511, 1021]
    parts = [
        play(sim, high - low, seed=8, steps=40, first=low)
        for low, high in zip(starts[:-1], starts[1:], strict=True)
    ]
    for at in (*range(len(whole) - 2), -2):  # contexts, rewards, infos, scores; a small part may end early
        for low, piece in zip(starts[:-1], parts, strict=True):
            if at < len(piece) - 2 or at == -2:
                assert whole[at][low : low + len(piece[0])].tobytes() == piece[at].tobytes()


def test_another_seed_gives_other_users_and_the_same_world() -> None:
    sim = RecoGym()
    first, again, other = sim.reset(50, 1), sim.reset(50, 1), sim.reset(50, 2)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(RecoGym().world.gamma, sim.world.gamma)
    assert (RecoGym(world_seed=1).world.gamma != sim.world.gamma).any()


def test_contexts_are_snapshots() -> None:
    sim = RecoGym(n_products=5)
    before = sim.reset(200, 0)
    kept = before.copy()
    step = sim.step(np.zeros(200, dtype=int))
    step.contexts[:] = -1.0
    step.ended[:] = True
    np.testing.assert_array_equal(before, kept)
    assert (sim.step(np.zeros(200, dtype=int)).contexts >= 0).all()


# ---------------------------------------------------------------------- what happens in a step


@pytest.mark.parametrize("options", [{"leaving": True}, {"version": 0, "reward": "click", "leaving": True}])
def test_views_come_exactly_where_a_session_ends(options: dict) -> None:
    sim = RecoGym(n_products=10, prob_leave_bandit=0.03, **options)
    views = sim.reset(3000, 0).sum(axis=1)
    assert (views >= 1).all()
    gone = np.zeros(3000, dtype=bool)
    clicked_views = 0
    for _ in range(60):
        step = sim.step(np.full(3000, 4))
        more = step.contexts.sum(axis=1) - views
        views = step.contexts.sum(axis=1)
        click, end = step.info["click"] == 1, step.info["session_end"]
        assert (more[click] >= 1).all()  # a click is a visit to the shop
        assert (more[~end] == 0).all()
        assert (step.ended | (more > 0))[end].all()
        assert (step.rewards[gone] == 0).all()
        assert (more[gone] == 0).all()
        assert not (end | click)[gone].any()
        assert (step.ended >= gone).all()
        clicked_views += int(click.sum())
        gone = step.ended
    assert clicked_views > 100
    assert 0 < gone.sum() < 3000
    assert (sim.decisions[~gone] == 60).all()
    assert (sim.decisions[gone] >= 1).all()


def test_nobody_leaves_in_the_papers_setting() -> None:
    sim = RecoGym()
    assert (sim.n_actions, sim.horizon, len(sim.context_names)) == (100, 200, 100)
    np.testing.assert_allclose(sim.chain, [[0.75, 0.25, 0], [0.05, 0.95, 0], [0, 0, 1]])
    sim.reset(100, 0)
    for _ in range(200):
        assert not sim.step(np.zeros(100, dtype=int)).ended.any()
    assert sim.transitions[:, 2].sum() == 0
    assert sim.share_never_served == 0.0


def test_a_cluster_user_stays_in_its_cluster() -> None:
    sim = RecoGym(version=0, reward="click", n_products=12, num_clusters=3)
    sim.reset(500, 0)
    for t in range(50):
        views = sim.step(np.full(500, t % 12)).contexts
    per_cluster = views.reshape(500, 3, 4).sum(axis=2)
    assert ((per_cluster > 0).sum(axis=1) == 1).all()
    assert "ltr" not in sim.step(np.zeros(500, dtype=int)).info


def test_click_and_long_term_reward_are_both_there() -> None:
    users, actions = 500, np.full(500, 3)
    ltr, click = RecoGym(), RecoGym(reward="click")
    for sim in (ltr, click):
        sim.reset(users, 1)
    for _ in range(30):
        of_ltr, of_click = ltr.step(actions), click.step(actions)
        np.testing.assert_array_equal(of_ltr.rewards, of_click.info["ltr"])
        np.testing.assert_array_equal(of_click.rewards, of_ltr.info["click"])
    np.testing.assert_array_equal(ltr.score(), click.score())  # the measure is the long-term one either way


def test_drift_has_the_variance_of_its_ticks() -> None:
    for always in (False, True):
        sim = RecoGym(
            n_products=3,
            sigma_omega_initial=0.0,
            sigma_omega=0.3,
            leaving=True,
            as_original=True,
            change_omega_for_bandits=always,
        )
        n = 20_000
        sim.reset(n, 5)
        for _ in range(20):
            sim.step(np.zeros(n, dtype=int))
        ticks = sim.transitions.sum() if always else sim.transitions[:, 0].sum()
        # In the mean over the coordinates, omega² is sigma² times the number of drift steps.
        squares = (sim._batch.users.omega**2).mean(axis=1)
        assert abs(squares.mean() - 0.09 * ticks / n) < 4 * squares.std() / np.sqrt(n)


# ---------------------------------------------------------------------- as the original


def test_the_leave_probability_of_recommendations() -> None:
    options = {"leaving": True, "prob_leave_organic": 0.02, "prob_leave_bandit": 0.5}
    np.testing.assert_allclose(RecoGym(**options).chain[:2, 2], [0.02, 0.5])
    np.testing.assert_allclose(RecoGym(as_original=True, **options).chain[:2, 2], [0.02, 0.02])


def test_phantom_rows_are_the_only_difference() -> None:
    """Users who see a recommendation live the same life; ``as_original`` they have one more row."""
    n, options = 4000, {"leaving": True, "n_products": 10, "horizon": 3000}
    plain, original = RecoGym(**options), RecoGym(as_original=True, **options)
    policy = UniformPolicy(n_actions=10)
    ours, theirs = plain.rollout(policy, n, 0), original.rollout(policy, n, 0)
    phantom = theirs.metrics["phantom"].astype(bool)
    assert phantom.sum() == n  # one for each user, the last
    assert phantom[theirs.offsets[1:] - 1].all()
    assert (theirs.rewards[phantom] == 0).all()
    assert (theirs.metrics["click"][phantom] == 0).all()
    lengths = np.diff(theirs.offsets) - 1
    served = lengths > 0
    share = original.share_never_served
    assert abs((~served).mean() - share) < 4 * np.sqrt(share / n)
    np.testing.assert_array_equal(np.diff(ours.offsets)[served], lengths[served])
    in_both = ~phantom, served[ours.trajectory_of_row]
    for name in ("contexts", "actions", "rewards", "propensities"):
        np.testing.assert_array_equal(getattr(theirs, name)[in_both[0]], getattr(ours, name)[in_both[1]])
    assert ours.terminated.all()
    assert theirs.terminated.all()


# ---------------------------------------------------------------------- the log


def test_a_rollout_has_propensities_sessions_and_metrics() -> None:
    sim = RecoGym(n_products=10, horizon=50)
    logs = sim.rollout(UniformPolicy(n_actions=10), 300, 7)
    assert len(logs) == 300 * 50
    assert not logs.terminated.any()
    np.testing.assert_allclose(logs.propensities, 0.1)
    assert set(logs.metrics) == {"click", "ltr"}
    np.testing.assert_array_equal(logs.metrics["ltr"], logs.rewards)
    np.testing.assert_allclose(sim.score(), logs.rewards.reshape(300, 50).mean(axis=1), atol=1e-14)
    # Within a session nothing new is viewed; between two sessions something is.
    change = (logs.next_contexts() != logs.contexts).any(axis=1)
    ends = logs.session_offsets[1:] - 1
    inner = np.setdiff1d(np.arange(len(logs)), ends)
    assert not change[inner].any()
    assert change[np.setdiff1d(ends, logs.offsets[1:] - 1)].all()
    assert 4 < len(logs) / logs.n_sessions < 17  # about 1 / (0.05 + ctr), cut at the horizon
    halves = [sim.rollout(UniformPolicy(n_actions=10), 150, 7, first=first) for first in (0, 150)]
    np.testing.assert_array_equal(np.concatenate([half.contexts for half in halves]), logs.contexts)
    np.testing.assert_array_equal(np.concatenate([half.rewards for half in halves]), logs.rewards)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(4, dtype=int), r"one action per user, shape \(5,\)"),
        (np.zeros((5, 1), dtype=int), r"one action per user, shape \(5,\)"),
        (np.zeros(5), "integer actions"),
        (np.zeros(5, dtype=bool), "integer actions"),
        (np.array([0, 1, 10, 0, 0]), r"actions in 0..9, found 10 \(row 2\)"),
        (np.array([0, -1, 0, 0, 0]), r"actions in 0..9, found -1 \(row 1\)"),
    ],
)
def test_bad_actions(actions: np.ndarray, message: str) -> None:
    sim = RecoGym(n_products=10)
    sim.reset(5, 0)
    with pytest.raises(ActionError, match=message):
        sim.step(actions)


@pytest.mark.parametrize("n", [0, -3, 2.5])
def test_a_bad_number_of_users(n) -> None:
    with pytest.raises(ConfigError, match="n to be a whole number >= 1"):
        RecoGym().reset(n, 0)


def test_out_of_order() -> None:
    sim = RecoGym(horizon=2, n_products=5)
    for use in (sim.score, lambda: sim.step(np.zeros(3, dtype=int))):
        with pytest.raises(EpisodeError, match="a reset before the first step"):
            use()
    sim.reset(3, 0)
    for _ in range(2):
        sim.step(np.zeros(3, dtype=int))
    with pytest.raises(EpisodeError, match="at most 2 decisions"):
        sim.step(np.zeros(3, dtype=int))


def test_stepping_when_all_have_left() -> None:
    sim = RecoGym(leaving=True, prob_leave_bandit=0.95, prob_leave_organic=0.9, prob_organic_to_bandit=0.1)
    sim.reset(3, 0)
    nobody = np.zeros(3, dtype=int)
    while not sim.step(nobody).ended.all():
        pass
    with pytest.raises(EpisodeError, match="at least one user that has not ended"):
        sim.step(nobody)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 2}, "version 0 or 1"),
        ({"reward": "conversion"}, "reward 'ltr' or 'click'"),
        ({"version": 0}, "reward 'click' in version 0"),
        ({"weights": "absolute"}, "weights 'signed' or 'positive'"),
        ({"horizon": 0}, "horizon to be a whole number >= 1"),
        ({"sigma_omega": -0.1}, "sigma_omega to be a finite number >= 0"),
        ({"sigma_omega_initial": np.nan}, "sigma_omega_initial to be a finite number"),
        ({"prob_organic_to_bandit": 1.2}, r"prob_organic_to_bandit to be a probability in \[0, 1\]"),
        ({"prob_bandit_to_organic": -0.1}, "prob_bandit_to_organic to be a finite number >= 0"),
        ({"prob_organic_to_bandit": 0.0}, "prob_organic_to_bandit > 0"),
        (
            {"leaving": True, "prob_organic_to_bandit": 0.7, "prob_leave_organic": 0.4},
            "moving on from 'organic' that sum to at most 1, found 1.1",
        ),
        (
            {"leaving": True, "prob_bandit_to_organic": 0.7, "prob_leave_bandit": 0.4},
            "moving on from 'bandit' that sum to at most 1",
        ),
        ({"version": 0, "reward": "click", "n_products": 10, "num_clusters": 3}, "divisible by num_clusters"),
        ({"world": ClusterWorld.draw(0, n_products=4)}, "a LatentWorld for version 1"),
        ({"number_of_flips": 51}, "number_of_flips of at most 50"),
        ({"n_products": 0}, "n_products to be a whole number >= 1"),
    ],
)
def test_nonsense_settings(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecoGym(**options)


def test_a_given_world_brings_its_own_size() -> None:
    sim = RecoGym(world=LatentWorld.draw(0, n_products=7, latent=3))
    assert (sim.n_actions, sim.n_products, sim.latent) == (7, 7, 3)
    assert sim.reset(4, 0).shape == (4, 7)
    assert np.isfinite(sim.step(np.full(4, 6)).rewards).all()


def test_certain_moves() -> None:
    """Probability 1 everywhere: one view, one recommendation, one view, …"""
    sim = RecoGym(n_products=4, prob_organic_to_bandit=1.0, prob_bandit_to_organic=1.0)
    views = sim.reset(50, 0).sum(axis=1)
    np.testing.assert_array_equal(views, 1)
    for t in range(5):
        step = sim.step(np.zeros(50, dtype=int))
        np.testing.assert_array_equal(step.contexts.sum(axis=1), t + 2)
        assert step.info["session_end"].all()
