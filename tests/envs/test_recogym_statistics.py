"""Twenty thousand users of the batch simulator against as many of the original, with the same products."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import ks_2samp

from shpi.envs.recogym.simulator import RecoGym
from shpi.envs.recogym.world import ClusterWorld, LatentWorld

USERS = 20_000


class Lives(NamedTuple):
    """What became of the users of one batch, phantom rows aside."""

    views: np.ndarray  # [n, P]
    decisions: np.ndarray  # [n]
    clicks: np.ndarray  # [n]
    clicks_on: np.ndarray  # [P]
    phases: int
    transitions: np.ndarray  # [3, 3]
    rescued: int


def live(sim: RecoGym, seed: int = 1) -> Lives:
    rng = np.random.default_rng(seed)
    sim.reset(USERS, seed)
    clicks, clicks_on = np.zeros(USERS), np.zeros(sim.n_actions)
    while True:
        actions = rng.integers(sim.n_actions, size=USERS)
        step = sim.step(actions)
        clicked = step.info["click"] == 1
        clicks += clicked
        clicks_on += np.bincount(actions[clicked], minlength=sim.n_actions)
        if step.ended.all():
            break
    # A phase of browsing ends in recommendations or for good: count the transitions out of it.
    phases = int(sim.transitions[0, 1:].sum())
    return Lives(step.contexts, sim.decisions, clicks, clicks_on, phases, sim.transitions, sim.rescued)


def original_law(**options: object) -> RecoGym:
    return RecoGym(leaving=True, as_original=True, horizon=10_000, **options)


@pytest.fixture(scope="module")
def golden(golden_dir: Path) -> dict[str, np.ndarray]:
    with np.load(golden_dir / "recogym_v1_P10_seed42_uniform_20000users.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def ten_products(golden: dict[str, np.ndarray]) -> Lives:
    return live(original_law(world=LatentWorld.of(golden["Gamma"], golden["mu_organic"])))


def within(ours: float, our_error: float, theirs: float, their_error: float) -> bool:
    return bool(abs(ours - theirs) < 4 * np.hypot(our_error, their_error))


def same_mean(ours: np.ndarray, theirs: np.ndarray) -> bool:
    def error(values: np.ndarray) -> float:
        return float(values.std() / np.sqrt(len(values)))

    return within(ours.mean(), error(ours), theirs.mean(), error(theirs))


def same_shares(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Two tables of counts of independent draws."""
    share = (ours + theirs) / (ours.sum() + theirs.sum())
    error = np.sqrt(share * (1 - share) * (1 / ours.sum() + 1 / theirs.sum()))
    return bool((np.abs(ours / ours.sum() - theirs / theirs.sum()) <= 4 * error).all())


def test_views_decisions_and_clicks_per_user(ten_products: Lives, golden: dict[str, np.ndarray]) -> None:
    views = ten_products.views.sum(axis=1)
    assert same_mean(views, golden["n_organic"])
    assert same_mean(ten_products.decisions, golden["n_bandit"])
    assert same_mean(ten_products.clicks, golden["n_click"])
    assert same_mean(ten_products.decisions == 0, golden["n_bandit"] == 0)
    # Not only the means: 4 standard errors of a two-sample distance are about 0.02.
    assert ks_2samp(views, golden["n_organic"]).statistic < 0.02
    assert ks_2samp(ten_products.decisions, golden["n_bandit"]).statistic < 0.02
    assert ks_2samp(views + ten_products.decisions, golden["t_end"]).statistic < 0.02


def test_click_rate(ten_products: Lives, golden: dict[str, np.ndarray]) -> None:
    ours = ten_products.clicks.sum(), ten_products.decisions.sum()
    theirs = golden["n_click"].sum(), golden["n_bandit"].sum()
    rates = [clicks / shown for clicks, shown in (ours, theirs)]
    errors = [np.sqrt(clicks) / shown for clicks, shown in (ours, theirs)]
    assert within(rates[0], errors[0], rates[1], errors[1])
    assert same_shares(ten_products.clicks_on, golden["clicks"])


def test_transitions_of_the_chain(ten_products: Lives, golden: dict[str, np.ndarray]) -> None:
    for state in (0, 1):
        assert same_shares(ten_products.transitions[state], golden["transitions"][state])
    assert ten_products.transitions[1].sum() == ten_products.decisions.sum()
    assert ten_products.transitions[0].sum() == ten_products.views.sum()


def test_rescued_users(ten_products: Lives, golden: dict[str, np.ndarray]) -> None:
    clicks, rescued = ten_products.clicks.sum(), ten_products.rescued
    after_click = golden["sampled_state_after_click"]
    assert same_shares(
        np.array([clicks - rescued, rescued]), np.array([after_click[:2].sum(), after_click[2]])
    )
    assert ten_products.transitions[:, 2].sum() == USERS + rescued


def test_length_of_a_browsing_phase(ten_products: Lives, golden: dict[str, np.ndarray]) -> None:
    ours = ten_products.views.sum() / ten_products.phases
    lengths = golden["session_len"]
    error = lengths.std() / np.sqrt(len(lengths))
    assert within(ours, error, lengths.mean(), error)


def test_which_products_are_viewed(ten_products: Lives, golden: dict[str, np.ndarray]) -> None:
    error = ten_products.views.std(axis=0) / np.sqrt(USERS)
    assert (np.abs(ten_products.views.mean(axis=0) - golden["views"] / USERS) < 4 * np.sqrt(2) * error).all()


@pytest.mark.parametrize(
    ("name", "options", "views", "decisions", "rate"),
    [
        ("v1_P100", {"n_products": 100}, (22.058, 0.154), (79.558, 0.581), (0.010362, 0.000081)),
        (
            "v0_P10",
            {"version": 0, "reward": "click", "n_products": 10},
            (22.083, 0.151),
            (79.124, 0.574),
            (0.010835, 0.000083),
        ),
    ],
)
def test_a_hundred_products_and_version_0(
    golden_dir: Path,
    name: str,
    options: dict,
    views: tuple[float, float],
    decisions: tuple[float, float],
    rate: tuple[float, float],
) -> None:
    """Against the measured statistics of the original: mean and standard error over 20,000 users."""
    sim = original_law(**options)
    with np.load(golden_dir / "recogym_pointwise.npz", allow_pickle=False) as pointwise:
        if isinstance(sim.world, ClusterWorld):
            np.testing.assert_array_equal(sim.world.phi, pointwise["v0_0_phi"])
    if isinstance(sim.world, LatentWorld):
        with np.load(golden_dir / f"recogym_{name[:2]}_streamlog_P100_seed42_200users.npz") as log:
            np.testing.assert_array_equal(sim.world.gamma, log["Gamma"])
    lives = live(sim)
    for ours, theirs in ((lives.views.sum(axis=1), views), (lives.decisions, decisions)):
        assert within(ours.mean(), ours.std() / np.sqrt(USERS), *theirs)
    shown, clicks = lives.decisions.sum(), lives.clicks.sum()
    assert within(clicks / shown, np.sqrt(clicks) / shown, *rate)
    if name == "v1_P100":
        assert same_shares(lives.transitions[0], np.array([326228, 110635, 4298]))
        assert same_shares(lives.transitions[1], np.array([79238, 1496028, 15884]))
