from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shpi.errors import ActionError, DataError
from shpi.policies.sampling import check_candidates, check_contexts, mask_probs, sample_actions


def test_inverse_cdf_by_hand() -> None:
    probs = np.tile([0.0, 0.25, 0.0, 0.75, 0.0], (5, 1))
    assert sample_actions(probs, np.array([0.0, 0.249, 0.25, 0.9, np.nextafter(1, 0)])).tolist() == [
        1,
        1,
        3,
        3,
        3,
    ]


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 9)), elements=st.floats(0, 1)),
    st.integers(0, 2**32 - 1),
)
def test_never_an_action_of_probability_zero(weights: np.ndarray, seed: int) -> None:
    weights = weights[weights.sum(axis=1) > 0]
    uniforms = np.random.default_rng(seed).random(len(weights))
    uniforms[::3], uniforms[1::3] = 0.0, np.nextafter(1, 0)
    actions = sample_actions(weights, uniforms)
    assert actions.dtype == np.int64
    assert (weights[np.arange(len(weights)), actions] > 0).all()


def test_frequencies_equal_the_probabilities() -> None:
    rng, n = np.random.default_rng(0), 200_000
    probs = rng.dirichlet(np.ones(6))
    counts = np.bincount(sample_actions(np.tile(probs, (n, 1)), rng.random(n)), minlength=6)
    assert (np.abs(counts / n - probs) < 4 * np.sqrt(probs * (1 - probs) / n)).all()


def test_a_row_does_not_depend_on_the_batch() -> None:
    rng = np.random.default_rng(1)
    probs, uniforms = rng.dirichlet(np.ones(7), size=300), rng.random(300)
    together = sample_actions(probs, uniforms)
    alone = [int(sample_actions(probs[i : i + 1], uniforms[i : i + 1])[0]) for i in range(300)]
    assert together.tolist() == alone
    assert sample_actions(probs[:0], uniforms[:0]).shape == (0,)


def test_unnormalised_and_tiny_weights_are_normalised() -> None:
    weights = np.array([[1e-300, 3e-300]])
    assert sample_actions(weights, np.array([0.24]))[0] == 0
    assert sample_actions(weights, np.array([0.26]))[0] == 1


@pytest.mark.parametrize("row", [[0.0, 0.0], [-0.1, 1.1], [np.nan, 1.0], [np.inf, 1.0]])
def test_bad_probabilities(row: list[float]) -> None:
    with pytest.raises(ActionError, match=r"non-negative, finite and not all 0.*row 1"):
        sample_actions(np.array([[0.5, 0.5], row]), np.zeros(2))


@pytest.mark.parametrize("uniform", [1.0, -0.1, np.nan])
def test_bad_uniforms(uniform: float) -> None:
    with pytest.raises(ActionError, match=r"uniforms in \[0, 1\)"):
        sample_actions(np.ones((1, 2)), np.array([uniform]))


def test_shapes_must_agree() -> None:
    with pytest.raises(ActionError, match="shapes"):
        sample_actions(np.ones((3, 2)), np.zeros(2))


def test_mask_renormalises_over_the_allowed() -> None:
    probs = np.array([[0.1, 0.3, 0.6], [0.2, 0.2, 0.6]])
    mask = np.array([[True, True, False], [True, True, True]])
    np.testing.assert_allclose(mask_probs(probs, mask), [[0.25, 0.75, 0.0], [0.2, 0.2, 0.6]], rtol=1e-15)
    assert mask_probs(probs, None) is probs
    assert probs[0, 2] == 0.6  # the input is left alone


def test_mask_errors() -> None:
    probs = np.array([[1.0, 0.0], [0.5, 0.5]])
    with pytest.raises(ActionError, match=r"empty candidate set \(row 1\)"):
        mask_probs(probs, np.array([[True, True], [False, False]]))
    with pytest.raises(ActionError, match=r"never takes \(row 0\)"):
        mask_probs(probs, np.array([[False, True], [True, True]]))
    with pytest.raises(ActionError, match=r"shape \(2, 2\)"):
        mask_probs(probs, np.ones((2, 3), bool))
    with pytest.raises(ActionError, match="boolean candidates"):
        mask_probs(probs, np.ones((2, 2), int))
    assert check_candidates(None, 2, 2) is None


def test_check_contexts() -> None:
    kept = np.zeros((2, 3), np.float32)
    assert check_contexts(kept, 3) is kept
    assert check_contexts([[1, 2]], 2).dtype == np.float64
    assert check_contexts(np.zeros((0, 3)), 3).shape == (0, 3)
    with pytest.raises(DataError, match=r"shape \[n, 4\]"):
        check_contexts(kept, 4)
    with pytest.raises(DataError, match=r"needs shape \[1, d\]"):
        check_contexts(np.zeros(3))
    with pytest.raises(DataError, match=r"nan \(row 1, column 0\)"):
        check_contexts(np.array([[0.0], [np.nan]]))
    with pytest.raises(DataError, match="numeric"):
        check_contexts(np.array([["a"]]))
