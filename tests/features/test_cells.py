"""Cells: one feature per distinct context."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.features import Cells, CellsMap
from shpi.features.cells import distinct
from shpi.features.parts import put_together, take_apart


def test_every_distinct_context_has_its_own_feature():
    rng = np.random.default_rng(0)
    contexts = rng.integers(0, 3, size=(5000, 4)).astype(np.float32) / 7
    phi = Cells().fit(contexts)
    assert phi.width == len(np.unique(contexts, axis=0)) == 81
    features = phi.transform(contexts)
    np.testing.assert_array_equal(features.sum(axis=1), 1)
    np.testing.assert_array_equal(features @ phi.cells, contexts.astype(np.float64))
    np.testing.assert_array_equal(phi.transform(contexts[7:8])[0], features[7])


def test_one_hot_contexts_and_minus_zero():
    phi = Cells().fit(np.eye(60, dtype=np.float32))
    np.testing.assert_array_equal(phi.index(np.eye(60)), np.arange(60))
    assert Cells().fit(np.zeros((2, 2))).index(np.array([[-0.0, 0.0]])) == [0]


def test_a_context_that_was_not_there_has_no_feature():
    phi = Cells().fit(np.array([[1.0, 2.0], [2.0, 1.0]]))
    unknown = np.array([[1.0, 1.0], [1.0, 2.0 + 1e-12]])
    assert list(phi.index(unknown)) == [-1, -1]
    assert not phi.transform(unknown).any()


def test_many_random_contexts_are_told_apart():
    contexts = np.random.default_rng(1).normal(size=(100_000, 3))
    cells = distinct(contexts, 10**6)
    assert cells is not None
    np.testing.assert_array_equal(cells, contexts)
    assert distinct(contexts, 99_999) is None


def test_it_is_saved_and_loaded():
    phi = Cells().fit(np.arange(12.0).reshape(6, 2))
    again = put_together(take_apart(phi))
    np.testing.assert_array_equal(again.transform(phi.cells), np.eye(6))


def test_bad_input():
    with pytest.raises(ConfigError, match="at most 3 distinct contexts"):
        Cells(at_most=3).fit(np.arange(4.0)[:, None])
    with pytest.raises(ConfigError, match="all of them distinct"):
        CellsMap(cells=np.zeros((2, 1)))
