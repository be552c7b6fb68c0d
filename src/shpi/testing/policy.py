"""The conformance suite for policies; it raises ``AssertionError`` with a clear message."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from shpi.errors import ActionError, ConfigError
from shpi.policies.base import act
from shpi.policies.files import load_policy, save_policy
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy
from shpi.testing._require import require

_SUM, _ROW = 1e-9, 1e-12  # tolerances: of the sum of a row; of a row alone against the same row in a batch


def check_policy(
    policy: Policy,
    contexts: FloatArray,
    candidates: BoolArray | None = None,
    *,
    saves: bool = True,
) -> None:
    """Check that a policy meets the requirements of the rest of shpi.

    Args:
        policy: any object with ``n_actions`` and ``action_probs``; it need not come from shpi.
        contexts: a few dozen typical contexts [n, d].
        candidates: mask [n, A] to try, in addition to the suite's own masks.
        saves: whether saving and loading must work; if not, saving must fail with a clear error.

    Raises:
        AssertionError: if something does not hold; the message says what.
    """
    x = np.asarray(contexts)
    require(isinstance(policy, Policy), "a policy needs `n_actions` and `action_probs`")
    require(
        isinstance(policy.n_actions, int) and policy.n_actions >= 1, "n_actions must be an int of at least 1"
    )
    require(x.ndim == 2 and len(x) >= 2, "the suite needs at least two contexts, of shape [n, d]")
    masks: list[BoolArray | None] = [None, np.ones((len(x), policy.n_actions), dtype=bool)]
    for mask in (*masks, *([] if candidates is None else [candidates])):
        _check_probabilities(policy, x, mask)
        _check_rows(policy, x, mask)
        _check_acting(policy, x, mask)
    require(
        np.allclose(policy.action_probs(x), policy.action_probs(x, masks[1]), rtol=0, atol=_ROW),
        "a mask that allows everything must change nothing",
    )
    _check_single_candidates(policy, x)
    _check_errors(policy, x)
    _check_files(policy, x, candidates, saves=saves)


def _check_probabilities(policy: Policy, x: FloatArray, mask: BoolArray | None) -> None:
    before, mask_before = x.copy(), None if mask is None else mask.copy()
    probs = policy.action_probs(x, mask)
    require(np.array_equal(x, before), "action_probs changed the contexts that it was given")
    require(
        mask is None or np.array_equal(mask, np.asarray(mask_before)), "action_probs changed the candidates"
    )
    require(probs.shape == (len(x), policy.n_actions), f"probabilities have shape {probs.shape}, not [n, A]")
    require(probs.dtype == np.float64, f"probabilities are {probs.dtype}, not float64")
    require(bool(np.isfinite(probs).all()), "a probability is not finite")
    require(bool((probs >= 0).all()), "a probability is negative")
    error = float(np.abs(probs.sum(axis=1) - 1).max())
    require(error <= _SUM, f"a row of probabilities misses 1 by {error:.2e}")
    if mask is not None:
        require(bool((probs[~mask] == 0).all()), "an action that is not allowed has positive probability")
    kept = probs.copy()
    again = policy.action_probs(x, mask)
    require(np.array_equal(again, kept), "the same question gave two different answers")
    if again.flags.writeable:
        again[:] = -1.0  # a caller may overwrite its own copy
        require(
            np.array_equal(policy.action_probs(x, mask), kept),
            "writing into the returned probabilities changed the policy",
        )


def _check_rows(policy: Policy, x: FloatArray, mask: BoolArray | None) -> None:
    probs = policy.action_probs(x, mask)
    for i in range(min(len(x), 5)):
        row = slice(i, i + 1)
        alone = policy.action_probs(x[row], None if mask is None else mask[row])
        error = float(np.abs(alone - probs[row]).max())
        require(error <= _ROW, f"row {i} alone differs from the same row in a batch by {error:.2e}")
    empty = policy.action_probs(x[:0], None if mask is None else mask[:0])
    require(empty.shape == (0, policy.n_actions), f"no contexts gave probabilities of shape {empty.shape}")
    order = np.arange(len(x))[::-1]
    turned = policy.action_probs(np.ascontiguousarray(x[order]), None if mask is None else mask[order])
    require(
        np.allclose(turned, probs[order], rtol=0, atol=_ROW), "the order of the contexts changes the answer"
    )


def _check_acting(policy: Policy, x: FloatArray, mask: BoolArray | None) -> None:
    probs = policy.action_probs(x, mask)
    own = getattr(policy, "act", None)  # the policy's own method, if it has one
    for draw in (partial(act, policy), own):
        if draw is None:
            continue
        actions, propensities = draw(x, mask, seed=7)
        require(np.array_equal(actions, draw(x, mask, seed=7)[0]), "the same seed gave different actions")
        require(actions.shape == (len(x),) and actions.dtype.kind == "i", "actions must be integers [n]")
        chosen = probs[np.arange(len(x)), actions]
        require(np.array_equal(propensities, chosen), "a propensity is not the probability of its action")
        require(bool((propensities > 0).all()), "an action of probability 0 was taken")
        none, _ = draw(x[:0], None if mask is None else mask[:0], seed=7)
        require(len(none) == 0, "no contexts gave actions")


def _check_single_candidates(policy: Policy, x: FloatArray) -> None:
    """A single allowed action must have probability 1, or raise an error if the policy never takes it."""
    probs = policy.action_probs(x)
    for action in range(min(policy.n_actions, 5)):
        mask = np.zeros((len(x), policy.n_actions), dtype=bool)
        mask[:, action] = True
        try:
            only: Float64Array = policy.action_probs(x, mask)
        except ActionError:
            require(
                bool((probs[:, action] == 0).any()),
                f"action {action} alone was refused, although the policy takes it in every context",
            )
            continue
        require(
            bool((np.abs(only[:, action] - 1) <= _SUM).all() and (only[~mask] == 0).all()),
            f"with action {action} as the only candidate, it must have probability 1",
        )


def _check_errors(policy: Policy, x: FloatArray) -> None:
    nothing = np.ones((len(x), policy.n_actions), dtype=bool)
    nothing[1] = False
    for mask, label in (
        (nothing, "an empty candidate set"),
        (np.ones((len(x), policy.n_actions + 1), dtype=bool), "candidates of the wrong width"),
        (np.ones((len(x) - 1, policy.n_actions), dtype=bool), "candidates with a row missing"),
    ):
        try:
            policy.action_probs(x, mask)
        except ActionError:
            continue
        raise AssertionError(f"{label} must raise an ActionError")


def _check_files(policy: Policy, x: FloatArray, mask: BoolArray | None, *, saves: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "policy"
        if not saves:
            try:
                save_policy(policy, place)
            except ConfigError:
                require(not any(Path(folder).iterdir()), "a failed save left files behind")
                return
            raise AssertionError("saving was expected to fail with a ConfigError")
        save_policy(policy, place)
        loaded = load_policy(place)
    require(type(loaded) is type(policy), f"a {type(policy).__name__} was loaded as {type(loaded).__name__}")
    for candidates in (None, mask):
        require(
            np.array_equal(loaded.action_probs(x, candidates), policy.action_probs(x, candidates)),
            "the loaded policy differs from the saved one",
        )
