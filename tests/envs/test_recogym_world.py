from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shpi.envs.recogym.ltr import LongTermReward
from shpi.envs.recogym.users import ClusterUsers, LatentUsers, ProductSampler
from shpi.envs.recogym.world import ClusterWorld, LatentWorld, chain, click_curve, flipped_products
from shpi.envs.streams import Streams
from shpi.errors import ConfigError


@pytest.fixture(scope="module")
def pointwise(golden_dir: Path) -> dict[str, np.ndarray]:
    with np.load(golden_dir / "recogym_pointwise.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_the_click_curve_is_the_originals(pointwise: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(click_curve(pointwise["ff_x"]), pointwise["ff_y"], rtol=0, atol=1e-15)
    ends = click_curve([-np.inf, 0.0, np.inf])
    np.testing.assert_allclose(
        ends, [0.0044784695116462927, 0.0094215178364642719, 0.029312230751356319], rtol=1e-14
    )


@pytest.mark.parametrize("case", range(8))
def test_a_drawn_world_equals_the_originals(pointwise: dict[str, np.ndarray], case: int) -> None:
    golden = {name.split("_", 1)[1]: v for name, v in pointwise.items() if name.startswith(f"case{case}_")}
    products, latent, flips, normalised, seed = (int(value) for value in golden["meta"])
    world = LatentWorld.draw(
        seed,
        n_products=products,
        latent=latent,
        number_of_flips=flips,
        normalize_beta=bool(normalised),
        as_original=True,
    )
    np.testing.assert_array_equal(world.gamma, golden["Gamma"])
    np.testing.assert_array_equal(world.mu_organic, golden["mu_organic"][:, 0])
    np.testing.assert_allclose(world.beta, golden["beta"], rtol=1e-15)
    np.testing.assert_array_equal(world.mu_bandit, golden["mu_bandit"][:, 0])
    np.testing.assert_allclose(world.click_probs(golden["omega"]), golden["click_prob"], rtol=1e-12)
    np.testing.assert_allclose(
        world.organic_probs(golden["omega"]), golden["organic_prob"], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(chain(0.25, 0.05, 0.01, 0.01), golden["state_transition"], rtol=0, atol=1e-16)


@pytest.mark.parametrize("case", range(3))
def test_a_cluster_world_equals_the_originals(pointwise: dict[str, np.ndarray], case: int) -> None:
    products, clusters, seed = (int(value) for value in pointwise[f"v0_{case}_meta"])
    world = ClusterWorld.draw(seed, n_products=products, num_clusters=clusters)
    np.testing.assert_array_equal(world.phi, pointwise[f"v0_{case}_phi"])
    np.testing.assert_array_equal(world.product_transition, pointwise[f"v0_{case}_product_transition"])
    np.testing.assert_allclose(world.click_probs(), pointwise[f"v0_{case}_click_probs"], rtol=1e-12)


def test_the_ignored_leave_probability(pointwise: dict[str, np.ndarray]) -> None:
    golden = pointwise["trans_leavebandit0.5_leaveorganic0.02"]
    np.testing.assert_allclose(chain(0.25, 0.05, 0.02, 0.02), golden, atol=1e-15)


def test_flips_exchange_distinct_products() -> None:
    gamma = LatentWorld.draw(0, n_products=100).gamma
    index = flipped_products(gamma, 50, as_original=False)
    np.testing.assert_array_equal(index[index], np.arange(100))
    assert (index != np.arange(100)).all()
    # The original has one product exchanged with itself for its fiftieth flip, and so moves 98 only.
    as_original = flipped_products(gamma, 50, as_original=True)
    assert (as_original != np.arange(100)).sum() <= 98


def test_the_first_flip_is_the_most_similar_pair() -> None:
    gamma = np.array([[1.0, 0.0], [0.0, 3.0], [5.0, 0.1], [0.1, 2.0]])
    for as_original in (False, True):
        np.testing.assert_array_equal(flipped_products(gamma, 1, as_original=as_original), [0, 3, 2, 1])


def test_given_embeddings_and_unit_length() -> None:
    world = LatentWorld.of([[3.0, 4.0], [0.0, 2.0]], [[1.0], [2.0]], normalize_beta=True)
    np.testing.assert_allclose(world.beta, [[0.6, 0.8], [0.0, 1.0]])
    np.testing.assert_array_equal(world.mu_bandit, [1.0, 2.0])
    assert (world.n_products, world.latent) == (2, 2)


@pytest.mark.parametrize(("products", "latent"), [(1, 1), (2, 1), (7, 3), (10, 5), (100, 5), (101, 20)])
def test_the_sampler_inverts_the_distribution_function(products: int, latent: int) -> None:
    rng = np.random.default_rng(products)
    world = LatentWorld.draw(3, n_products=products, latent=latent)
    omega, chance = rng.normal(size=(3000, latent)), rng.random(3000)
    cumulative = np.cumsum(world.organic_probs(omega), axis=1)
    expected = np.minimum((cumulative / cumulative[:, -1:] <= chance[:, None]).sum(axis=1), products - 1)
    sampler = ProductSampler(world.gamma, world.mu_organic)
    np.testing.assert_array_equal(sampler.draw(omega, chance), expected)
    one_by_one = [sampler.draw(omega[i : i + 1], chance[i : i + 1])[0] for i in range(200)]
    np.testing.assert_array_equal(one_by_one, expected[:200])


def test_weights_do_not_depend_on_the_neighbours() -> None:
    world = LatentWorld.draw(3, n_products=100)
    sampler = ProductSampler(world.gamma, world.mu_organic)
    omega = np.random.default_rng(0).normal(size=(97, 5))
    together = sampler.weights(omega)[:, :97].copy()
    for low, high in ((0, 1), (1, 3), (3, 20), (20, 97)):
        np.testing.assert_array_equal(
            sampler.weights(omega[low:high])[:, : high - low], together[:, low:high]
        )


def test_extreme_interests_neither_overflow_nor_vanish() -> None:
    world = LatentWorld.draw(3, n_products=50)
    omega = np.random.default_rng(1).normal(size=(400, 5)) * 1e4
    drawn = ProductSampler(world.gamma, world.mu_organic).draw(omega, np.full(400, 0.5))
    np.testing.assert_array_equal(drawn, (omega @ world.gamma.T + world.mu_organic).argmax(axis=1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LatentWorld.draw(0, n_products=10, number_of_flips=6), "number_of_flips of at most 5"),
        (lambda: LatentWorld.draw(0, n_products=0), "n_products to be a whole number >= 1"),
        (lambda: LatentWorld.draw(0, latent=0), "latent to be a whole number >= 1"),
        (lambda: LatentWorld.draw(0, sigma_mu_organic=-1.0), "sigma_mu_organic to be a finite number >= 0"),
        (lambda: LatentWorld.draw(2**32), r"world_seed below 2\*\*32"),
        (lambda: LatentWorld.draw(-1), "a seed that is a whole number"),
        (lambda: LatentWorld.of(np.zeros((3, 2)), np.zeros(4)), r"Gamma of shape \[P, K\]"),
        (lambda: LatentWorld.of(np.full((3, 2), np.nan), np.zeros(3)), "finite Gamma"),
        (lambda: ClusterWorld.draw(0, n_products=10, num_clusters=3), "divisible by num_clusters"),
        (lambda: ClusterWorld.draw(0, phi_var=-0.1), "phi_var to be a finite number >= 0"),
        (lambda: ClusterWorld(num_clusters=1, phi=np.zeros((2, 3))), r"phi of shape \[P, P\]"),
    ],
)
def test_nonsense_worlds(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_users_click_with_exactly_their_probability() -> None:
    """A number just below the probability clicks, one just above does not: every product, many interests."""
    world = LatentWorld.draw(3, n_products=20, number_of_flips=4, normalize_beta=True)
    streams = Streams(0, np.arange(300))
    ltr = LongTermReward(world.beta, 300, weights="signed", floor=False)
    users = LatentUsers(world, streams, ltr, sigma_initial=2.0, sigma=0.1, drift_always=False)
    clusters = ClusterUsers(ClusterWorld.draw(3, n_products=20, num_clusters=4), streams)
    latent_probs = world.click_probs(users.omega)
    cluster_probs = ClusterWorld.draw(3, n_products=20, num_clusters=4).click_probs().T[clusters.product]
    rows = np.arange(299, -1, -1)  # in another order than the batch
    for action in range(20):
        actions = np.full(300, action)
        for batch, probs in ((users, latent_probs), (clusters, cluster_probs)):
            chance = probs[rows, action]
            np.testing.assert_array_equal(batch.clicks(rows, actions, chance * (1 - 1e-9)), np.arange(300))
            assert len(batch.clicks(rows, actions, chance * (1 + 1e-9))) == 0
