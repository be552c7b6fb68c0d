from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.features import (
    Chain,
    ChainMap,
    FeatureMap,
    Hinges,
    Identity,
    OneHot,
    Powers,
    RandomFourier,
    Recipe,
    Standardise,
    fit_features,
)
from shpi.features.chain import same_map
from shpi.features.fourier import median_distance
from shpi.features.parts import put_together, take_apart

CONTEXTS = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 5.0, 0.1] + [0.0, 7.0, -2.0]
STATES = np.array([[2.0], [0.0], [1.0]])

RECIPES: list[tuple[Recipe, np.ndarray]] = [
    (Standardise(), CONTEXTS),
    (Identity(), CONTEXTS),
    (Identity(intercept=False), CONTEXTS),
    (OneHot(n_states=4), STATES),
    (RandomFourier(n_features=20, seed=3), CONTEXTS),
    (Powers(degree=3), CONTEXTS),
    (Hinges(knots=4), CONTEXTS),
    (Chain((Standardise(), RandomFourier(n_features=10, intercept=False))), CONTEXTS),
]


@pytest.mark.parametrize(("recipe", "x"), RECIPES, ids=lambda value: type(value).__name__)
def test_every_map_keeps_the_contract(recipe: Recipe, x: np.ndarray) -> None:
    before = x.copy()
    phi = recipe.fit(x)
    assert isinstance(phi, FeatureMap)
    features = phi.transform(x)
    assert features.shape == (len(x), phi.width)
    assert features.dtype == np.float64
    assert phi.width_in == x.shape[1]
    assert phi.transform(x[:0]).shape == (0, phi.width)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(recipe.fit(x).transform(x), features)  # the same seed, the same features
    for row in range(3):
        np.testing.assert_allclose(phi.transform(x[row : row + 1])[0], features[row], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(put_together(take_apart(phi)).transform(x), features)
    features[:] = 0  # nobody else's memory
    np.testing.assert_array_equal(x, before)
    with pytest.raises(DataError, match=f"shape \\[n, {phi.width_in}\\]"):
        phi.transform(np.zeros((2, phi.width_in + 1)))
    with pytest.raises(DataError, match="finite contexts"):
        phi.transform(np.full((2, phi.width_in), np.nan))


def test_standardise_gives_mean_zero_and_sd_one() -> None:
    z = Standardise().fit(CONTEXTS).transform(CONTEXTS)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(z.std(axis=0), 1, rtol=1e-13)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.3e8, 1e-30])
def test_a_constant_column_is_safe(value: float) -> None:
    x = np.column_stack([np.full(1000, value, np.float32), np.arange(1000)])
    phi = Standardise().fit(x)
    assert np.abs(phi.transform(x)[:, 0]).max() < 1e-6
    assert np.isfinite(phi.transform(np.array([[value + 5.0, 0.0]]))).all()
    assert np.abs(phi.transform(np.array([[value + 5.0, 0.0]]))[0, 0] - 5) < 1e-6


def test_identity_by_hand() -> None:
    np.testing.assert_array_equal(Identity().fit(STATES).transform(STATES), [[1, 2], [1, 0], [1, 1]])


def test_powers_by_hand() -> None:
    x = np.array([[2.0, -1.0]])
    np.testing.assert_array_equal(Powers(degree=3).fit(x).transform(x), [[1, 2, -1, 4, 1, 8, -1]])


def test_hinges_by_hand_and_without_double_knots() -> None:
    x = np.column_stack([np.arange(5.0), np.zeros(5)])  # quartiles 1, 2, 3; and one distinct value
    phi = Hinges(knots=3).fit(x)
    np.testing.assert_array_equal(phi.transform(np.array([[2.5, 4.0]])), [[1, 2.5, 4.0, 1.5, 0.5, 0.0, 4.0]])


def test_hinges_fit_a_broken_line_exactly() -> None:
    x = np.linspace(-1, 1, 101)[:, None]
    phi = Hinges(knots=3).fit(x).transform(x)
    target = np.abs(x[:, 0])  # its knot, 0, is the middle quantile
    fitted = phi @ np.linalg.lstsq(phi, target, rcond=None)[0]
    np.testing.assert_allclose(fitted, target, atol=1e-12)


def test_one_hot_by_hand_and_its_errors() -> None:
    phi = OneHot().fit(STATES)
    np.testing.assert_array_equal(phi.transform(STATES), np.eye(3)[[2, 0, 1]])
    for bad in (3.0, -1.0, 0.5):
        with pytest.raises(DataError, match=r"state number in 0\.\.2"):
            phi.transform(np.array([[bad]]))
    with pytest.raises(ConfigError, match="a column in"):
        OneHot(column=1).fit(STATES)


def test_fourier_approximates_the_gaussian_kernel() -> None:
    rng, h = np.random.default_rng(1), 1.7
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    recipe = RandomFourier(n_features=20_000, bandwidth=h, intercept=False, seed=5)
    phi = recipe.fit(x)
    truth = np.exp(-((x - y) ** 2).sum(axis=1) / (2 * h**2))
    estimate = (phi.transform(x) * phi.transform(y)).sum(axis=1)
    # the variance of one cosine is at most 1/2 (1 - k^2)^2, and there are 10,000 of them
    assert np.abs(estimate - truth).max() < 4.5 * np.sqrt(0.5 / 10_000)
    assert np.abs(estimate - truth).max() > 1e-5  # it is an approximation, not the kernel itself
    np.testing.assert_allclose((phi.transform(x) ** 2).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_fourier_cosines_are_right_far_from_0_too(size: float) -> None:
    x = size * np.random.default_rng(1).normal(size=(300, 3))
    phi = RandomFourier(n_features=40, bandwidth=0.5, seed=5).fit(x)
    angles = x @ phi.frequencies
    expected = np.hstack([np.ones((300, 1)), np.cos(angles) / np.sqrt(20), np.sin(angles) / np.sqrt(20)])
    np.testing.assert_allclose(phi.transform(x), expected, atol=1e-7)


def test_fourier_bandwidth_from_the_median_distance() -> None:
    x = np.array([[0.0], [1.0], [3.0]])  # distances 1, 2, 3
    assert median_distance(x, np.random.default_rng(0)) == pytest.approx(2.0)
    assert median_distance(np.ones((5, 2)), np.random.default_rng(0)) == 1.0
    given = RandomFourier(n_features=8, bandwidth=1.0, seed=2).fit(x)
    median = RandomFourier(n_features=8, bandwidth_factor=0.5, seed=2).fit(x)
    np.testing.assert_allclose(given.frequencies, median.frequencies)


def test_fourier_seeds_differ() -> None:
    first, second = (RandomFourier(n_features=8, bandwidth=1.0, seed=s).fit(CONTEXTS) for s in (0, 1))
    assert (first.frequencies != second.frequencies).all()


def test_chain_is_composition() -> None:
    scale, fourier = Standardise().fit(CONTEXTS), RandomFourier(n_features=6, bandwidth=1.0)
    chain = Chain((Standardise(), fourier)).fit(CONTEXTS)
    inner = scale.transform(CONTEXTS)
    np.testing.assert_array_equal(chain.transform(CONTEXTS), fourier.fit(inner).transform(inner))
    again = Chain((scale, fourier)).fit(CONTEXTS)  # a fitted step is kept as it is
    assert again.steps[0] is scale
    assert fit_features(chain, CONTEXTS) is chain
    with pytest.raises(ConfigError, match="a step for 3 dimensions"):
        ChainMap(steps=(scale, OneHot().fit(STATES)))


def test_maps_are_the_same_when_their_steps_and_numbers_are() -> None:
    scale = Chain((Standardise(), Identity())).fit(CONTEXTS)
    nested = Chain((Chain((Standardise(), Identity(intercept=False))), Identity())).fit(CONTEXTS)
    assert same_map(scale, nested)
    np.testing.assert_array_equal(scale.transform(CONTEXTS), nested.transform(CONTEXTS))
    other = Chain((Standardise(), Identity())).fit(CONTEXTS[:-1])
    without = Chain((Standardise(), Identity(intercept=False))).fit(CONTEXTS)
    assert not same_map(scale, other)
    assert not same_map(scale, without)

    class Own:
        width_in, width = CONTEXTS.shape[1], CONTEXTS.shape[1]

        def transform(self, contexts: Any) -> Any:
            return np.asarray(contexts, dtype=float)

    mine = Own()
    assert same_map(mine, mine)
    assert not same_map(Own(), Own())  # nobody knows


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomFourier(n_features=7), "even n_features"),
        (lambda: RandomFourier(bandwidth=0.0), "positive bandwidth"),
        (lambda: RandomFourier(bandwidth_factor=float("nan")), "positive bandwidth_factor"),
        (lambda: Powers(degree=-1), "degree of at least 1, or of 0 with an intercept"),
        (lambda: Hinges(knots=0), "knots of at least 1"),
        (lambda: Chain(()), "at least one step"),
        (lambda: OneHot(n_states=0).fit(STATES), "at least one state"),
    ],
)
def test_nonsense_parameters(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("recipe", [Standardise(), RandomFourier(), Hinges(), OneHot()])
def test_nothing_to_fit_on(recipe: Recipe) -> None:
    with pytest.raises(DataError, match="at least one context"):
        recipe.fit(np.zeros((0, 3)))
