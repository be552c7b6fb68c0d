"""Conformance suites for learners; they raise ``AssertionError`` with a clear message.

from shpi.testing import check_learner, check_online_learner

def test_my_learner() -> None:
    check_learner(MyLearner(seed=3))
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ShpiError
from shpi.learners.base import Learner, OnlineLearner
from shpi.policies.files import load_policy, read_policy_file, save_policy
from shpi.protocols import BoolArray, Float32Array, Float64Array, Policy
from shpi.testing._require import require
from shpi.testing.policy import check_policy
from shpi.testing.tastes import Tastes, attained

_TEST_USERS = 400  # contexts on which a fitted policy is tested


def check_learner(
    learner: Learner,
    *,
    users: int = 300,
    attains: float = 0.2,
    saves: bool = True,
    hard_logs: bool = True,
) -> None:
    """Check that an offline learner meets the requirements of the rest of shpi.

    It is fitted three times to small ragged logs (some 1,000 decisions of ``users`` users, a quarter of whom
    stay for one decision) with and without candidates, and then to tiny logs that are hard in some way.

    Args:
        learner: any object with ``fit(logs)``; it need not come from shpi.
        users: number of users in the logs that the suite generates.
        attains: how far the policy must come from uniform (0) to the best one-step policy (1). The log's
            own policy attains about 0.5.
        saves: whether the policy can be saved; if not, saving must fail with a clear error.
        hard_logs: whether to try logs without rewards, without propensities, with a single action, with
            constant or huge rewards, with one decision. Each must give a valid policy or raise one of
            shpi's errors.

    Raises:
        AssertionError: if something does not hold; the message says what.
    """
    require(isinstance(learner, Learner), "a learner needs a method `fit(logs)`")
    masked, plain = Tastes(masked=True), Tastes()
    logs, other = masked.log(users, seed=1), plain.log(users, seed=2)
    require(bool((np.diff(logs.offsets) == 1).any()), "the suite needs users with one decision: more users")
    policy = _fit(learner, logs)
    elsewhere = _fit(learner, other)
    _check_result(policy, masked, attains, saves=saves)
    _check_result(elsewhere, plain, attains, saves=saves)
    again = _fit(learner, logs)
    _check_same(policy, again, masked, "a second fit to the same log with the same seed", saves=saves)
    if hard_logs:
        _check_hard_logs(learner, masked.log(40, seed=3))


def check_online_learner(
    learner: OnlineLearner, *, attains: float = 0.2, saves: bool = True, masks: bool = True
) -> None:
    """Check that an online learner meets the requirements of the rest of shpi.

    It is fitted three times to a trivial world of 8 decisions in which only the immediate reward matters.

    Args:
        learner: any object with ``fit(simulator)``; it need not come from shpi.
        attains: how far the policy must come from uniform (0) to the best one-step policy (1).
        saves: whether the policy can be saved; if not, saving must fail with a clear error.
        masks: whether the learner works in worlds with masks.

    Raises:
        AssertionError: if something does not hold; the message says what.
    """
    require(isinstance(learner, OnlineLearner), "an online learner needs a method `fit(simulator)`")
    world, plain = Tastes(masked=masks), Tastes()
    policy = learner.fit(world)
    elsewhere = learner.fit(plain)
    used = Tastes(masked=masks)
    used.reset(3, seed=99)
    used.step(np.zeros(3, dtype=np.int64))
    again = learner.fit(used)
    _check_result(policy, world, attains, saves=saves)
    _check_result(elsewhere, plain, attains, saves=saves)
    _check_same(policy, again, world, "a second fit with the same seed, in a world in use,", saves=saves)


# ---------------------------------------------------------------------- checks


def _fit(learner: Learner, logs: LoggedData) -> Policy:
    before = digest(logs)
    policy = learner.fit(logs)
    require(digest(logs) == before, "the learner changed the log that it was given")
    require(isinstance(policy, Policy), "`fit` must return a policy: `n_actions` and `action_probs`")
    require(
        policy.n_actions == logs.n_actions,
        f"the policy knows {policy.n_actions} actions, the log {logs.n_actions}",
    )
    return policy


def _check_result(policy: Policy, world: Tastes, attains: float, *, saves: bool) -> None:
    contexts, masks = world.fresh(_TEST_USERS, seed=5)
    _check_probabilities(policy, contexts, masks)
    _check_files(policy, contexts[:40], None if masks is None else masks[:40], saves=saves)
    share = attained(policy, contexts, masks)
    require(
        share >= attains,
        f"on a trivial problem the policy attains {share:.3f} of the way from uniform (0) to the best "
        f"policy (1), below {attains}",
    )


def _check_probabilities(policy: Policy, contexts: Float32Array, masks: BoolArray | None) -> None:
    probs = policy.action_probs(contexts, masks)
    require(bool(np.isfinite(probs).all() and (probs >= 0).all()), "a probability is negative or NaN")
    error = float(np.abs(probs.sum(axis=1) - 1).max())
    require(error <= 1e-9, f"a row of probabilities misses 1 by {error:.2e}")
    if masks is not None:
        require(bool((probs[:, -1] == 0).all()), "an action that was never a candidate is taken")
        require(bool((probs[~masks] == 0).all()), "an action that is not allowed has positive probability")


def _check_files(policy: Policy, contexts: Float32Array, masks: BoolArray | None, *, saves: bool) -> None:
    """A saved policy must load as the same policy; a wrapper with a history may load as its inner policy."""
    if not saves:
        check_policy(policy, contexts, masks, saves=False)
        return
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_policy(_save(policy, Path(folder) / "policy"))
    for candidates in (None, masks):
        require(
            np.array_equal(
                loaded.action_probs(contexts, candidates), policy.action_probs(contexts, candidates)
            ),
            "the loaded policy differs from the saved one",
        )
    check_policy(loaded, contexts, masks)


def _check_same(policy: Policy, again: Policy, world: Tastes, label: str, *, saves: bool) -> None:
    """Require equal probabilities and equal files: a greedy policy's probabilities hide its parameters."""
    contexts, masks = world.fresh(_TEST_USERS, seed=6)
    for candidates in (None, masks):
        first, second = (p.action_probs(contexts, candidates) for p in (policy, again))
        require(
            np.array_equal(first, second),
            f"{label} gave another policy, by up to {_apart(first, second):.3g}",
        )
    if saves:
        with tempfile.TemporaryDirectory() as folder:
            files = [_save(p, Path(folder) / str(i)) for i, p in enumerate((policy, again))]
            one_sum, two_sum = (read_policy_file(place).sha256 for place in files)
        require(one_sum == two_sum, f"{label} gave another policy, with the same probabilities for now")


# ---------------------------------------------------------------------- hard logs


def _check_hard_logs(learner: Learner, logs: LoggedData) -> None:
    """Every hard log must give a valid policy, or one of shpi's errors."""
    needs_rewards = _try(learner, replace(logs, rewards=None), "a log without rewards") is None
    without = replace(logs, propensities=None, propensity_mode="absent", behaviour=None)
    _try(learner, without, "a log without propensities")
    for label, hard in _hard_logs(logs):
        policy = _try(learner, hard, label)
        require(
            policy is None or not needs_rewards or "NaN" not in label,
            f"{label} must raise one of shpi's errors",
        )


def _hard_logs(logs: LoggedData) -> Iterator[tuple[str, LoggedData]]:
    assert logs.rewards is not None
    allowed = np.ones((len(logs), logs.n_actions), dtype=bool)
    finals = np.ones((logs.n_trajectories, logs.n_actions), dtype=bool)
    yield (
        "a log with one action only",
        replace(
            logs,
            actions=np.zeros_like(logs.actions),
            propensities=np.ones(len(logs)),
            behaviour=None,
            candidates=allowed,
            final_candidates=finals,
        ),
    )
    yield "a log with constant rewards", replace(logs, rewards=np.full(len(logs), 2.5))
    yield "a log with rewards of 1e12", replace(logs, rewards=1e12 * logs.rewards)
    yield (
        "a log with constant contexts",
        replace(logs, contexts=np.ones_like(logs.contexts), final_contexts=np.ones_like(logs.final_contexts)),
    )
    yield "a log of one decision", logs.select([int(np.flatnonzero(np.diff(logs.offsets) == 1)[0])])
    broken = logs.rewards.copy()
    broken[len(logs) // 2] = np.nan
    yield "a log with a NaN among the rewards", replace(logs, rewards=broken)
    yield "a log with nothing but NaN as rewards", replace(logs, rewards=np.full(len(logs), np.nan))


def _try(learner: Learner, logs: LoggedData, label: str) -> Policy | None:
    """The policy, or None after one of shpi's errors."""
    try:
        policy = _fit(learner, logs)
    except ShpiError:
        return None
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(
            f"{label} raised {type(error).__name__}: {error}; expected a policy, or an error of shpi's own"
        ) from error
    try:
        _check_probabilities(policy, logs.contexts, None)
    except AssertionError as error:
        raise AssertionError(f"{label}: {error}") from None
    return policy


# ---------------------------------------------------------------------- small helpers


def digest(logs: LoggedData) -> str:
    """A hash of every array of a log, metrics included."""
    whole = hashlib.sha256()
    arrays = {item.name: getattr(logs, item.name) for item in fields(logs)} | dict(logs.metrics)
    for name, value in sorted(arrays.items()):
        if isinstance(value, np.ndarray):
            whole.update(name.encode())
            whole.update(value.tobytes() if value.dtype != object else repr(value.tolist()).encode())
    return whole.hexdigest()


def _save(policy: Policy, place: Path) -> Path:
    """Save a policy, by its own method if it has one."""
    own: Callable[..., Any] | None = getattr(policy, "save", None)
    if own is None:
        save_policy(policy, place)
    else:
        own(place)
    return place


def _apart(first: Float64Array, second: Float64Array) -> float:
    return float(np.abs(first - second).max())
