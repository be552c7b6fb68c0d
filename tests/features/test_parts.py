from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.features import Chain, Identity, Powers, Standardise
from shpi.features.parts import Parts, class_of, frozen_array, put_together, saveable, take_apart

X = np.random.default_rng(0).normal(size=(20, 2))


def test_nested_objects_come_back() -> None:
    chain = Chain((Standardise(), Powers(degree=2))).fit(X)
    parts = take_apart(chain)
    assert parts.kind == "features/chain"
    assert list(parts.children) == ["steps.0", "steps.1"]
    assert parts.children["steps.1"].settings == {
        "width_in": 2,
        "degree": 2,
        "intercept": True,
        "limit": None,
    }
    np.testing.assert_array_equal(put_together(parts).transform(X), chain.transform(X))


def test_more_than_ten_members_keep_their_order() -> None:
    steps = tuple(Identity().fit(np.zeros((1, d))) for d in range(2, 14))
    chain = put_together(take_apart(Chain(steps).fit(X)))
    assert [step.width_in for step in chain.steps] == list(range(2, 14))


def test_unknown_kinds_and_fields() -> None:
    with pytest.raises(DataError, match="'features/nothing'"):
        class_of("features/nothing")
    with pytest.raises(DataError, match="'nowhere/x'"):
        class_of("nowhere/x")
    with pytest.raises(DataError, match=r"'\.\./x'"):
        class_of("../x")
    with pytest.raises(DataError, match="'colour'"):
        put_together(Parts(kind="features/identity", settings={"width_in": 2, "colour": 1}))
    with pytest.raises(DataError, match="all fields of 'features/identity'"):
        put_together(Parts(kind="features/identity"))


def test_what_is_not_registered_cannot_be_taken_apart() -> None:
    with pytest.raises(ConfigError, match="found a dict"):
        take_apart({})
    with pytest.raises(ConfigError, match="a second class"):

        @saveable("features/identity")
        @dataclass
        class Other:
            pass


def test_frozen_array_is_a_read_only_copy() -> None:
    source = np.ones(3)
    array = frozen_array(source, "weights", ndim=1)
    source[0] = 7
    assert array.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2
    with pytest.raises(ConfigError, match="weights with 2 axes"):
        frozen_array(source, "weights", ndim=2)
    with pytest.raises(ConfigError, match="finite numbers in weights"):
        frozen_array([np.inf], "weights", ndim=1)
