"""The conformance suite itself: it accepts what is right, and names what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shpi.policies import UniformPolicy, mask_probs
from shpi.testing import check_policy

X = np.random.default_rng(0).normal(size=(12, 2))
GOOD = UniformPolicy(3)


class Foreign:
    n_actions = 3

    def action_probs(self, contexts: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
        return mask_probs(np.tile([0.2, 0.3, 0.5], (len(contexts), 1)), candidates)


def test_a_policy_from_elsewhere_passes_without_saving() -> None:
    check_policy(Foreign(), X, saves=False)
    with pytest.raises(Exception, match="can be saved"):
        check_policy(Foreign(), X)


def broken(change: Any) -> Any:
    class Broken(Foreign):
        def action_probs(self, contexts: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
            return np.asarray(change(contexts, candidates, super().action_probs))

    return Broken()


def mutates(x: np.ndarray, mask: Any, probs: Any) -> Any:
    x[0, 0] += 1
    return probs(x, mask)


ANSWERS = iter(range(10**6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, m, p: p(x, m) * 1.01, "misses 1"),
        (lambda x, m, p: p(x, m)[:, :2], "shape"),
        (lambda x, m, p: p(x, m).astype(np.float32), "float32"),
        (lambda x, m, p: p(x, m) * np.nan, "not finite"),
        (lambda x, m, p: p(x, m) + np.array([[0.5, -0.5, 0.0]]), "negative"),
        (lambda x, m, p: p(x, None), "ActionError|only candidate|not allowed"),
        (lambda x, m, p: np.roll(p(x, m), next(ANSWERS), axis=1), "two different answers|not allowed"),
        (lambda x, m, p: np.roll(p(x, m), len(x), axis=1), "alone differs|shape"),
        (mutates, "changed the contexts"),
    ],
)
def test_what_is_wrong_is_named(change: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_policy(broken(change), X.copy(), saves=False)


def test_a_wrong_propensity_is_named() -> None:
    class Liar(Foreign):
        def act(self, contexts: np.ndarray, candidates: Any = None, *, seed: int) -> Any:
            return np.zeros(len(contexts), int), np.ones(len(contexts))

    with pytest.raises(AssertionError, match="not the probability of its action"):
        check_policy(Liar(), X, saves=False)


def test_shared_memory_is_named() -> None:
    table = np.tile([0.2, 0.3, 0.5], (len(X), 1))

    class Shares(Foreign):
        def action_probs(self, contexts: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
            return table[: len(contexts)]

    with pytest.raises(AssertionError, match="writing into the returned"):
        check_policy(Shares(), X, saves=False)


def test_the_suite_needs_contexts() -> None:
    with pytest.raises(AssertionError, match="at least two contexts"):
        check_policy(GOOD, X[:1])
    with pytest.raises(AssertionError, match="needs `n_actions`"):
        check_policy(object(), X)  # type: ignore[arg-type]
