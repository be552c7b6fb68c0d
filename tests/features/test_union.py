"""Feature maps side by side."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.features import Identity, Powers, RandomFourier, Standardise, Union, UnionMap
from shpi.features.parts import put_together, take_apart

X = np.random.default_rng(0).standard_normal((50, 3))


def test_the_parts_stand_side_by_side() -> None:
    recipe = Union((Identity(intercept=False), RandomFourier(n_features=10, intercept=False, seed=1)))
    union = recipe.fit(X)
    phi = union.transform(X)
    assert (union.width_in, union.width, phi.shape) == (3, 13, (50, 13))
    np.testing.assert_array_equal(phi[:, :3], X)
    np.testing.assert_array_equal(
        phi[:, 3:], RandomFourier(n_features=10, intercept=False, seed=1).fit(X).transform(X)
    )
    np.testing.assert_array_equal(put_together(take_apart(union)).transform(X), phi)


def test_parts_must_exist_and_agree_on_the_width() -> None:
    with pytest.raises(ConfigError, match="at least one part"):
        Union(())
    with pytest.raises(ConfigError, match="parts for contexts of one width"):
        UnionMap(parts=(Standardise().fit(X), Powers(degree=2).fit(X[:, :2])))
