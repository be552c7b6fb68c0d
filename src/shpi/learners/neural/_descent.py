"""Gradient descent on decisions of a log, with early stopping on held-out users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shpi._core.progress import progress_bar
from shpi.data._log.users import held_out_users
from shpi.data.logged import LoggedData
from shpi.errors import DataError, require_settings
from shpi.features import FeatureMap
from shpi.features.base import Recipe, fit_features
from shpi.learners.base import rewards_of
from shpi.policies.sampling import check_candidates
from shpi.protocols import Float64Array, Int64Array

CHECKS = 50  # largest number of evaluations on held-out users
SAMPLE = 50_000  # contexts on which features are fitted
ASKED = 50_000  # largest number of held-out decisions, so that memory stays bounded


class Settings(Protocol):
    """The settings of the descent."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def held_out(self) -> float: ...
    @property
    def patience(self) -> int: ...
    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def progress(self) -> bool | None: ...


def check_settings(settings: Settings) -> None:
    """Raise on the first setting that is out of its range."""
    whole = (settings.steps, settings.batch, settings.patience, *settings.hidden)
    require_settings(type(settings).__name__, (
        (min(whole) >= 1, "steps, batch, patience and hidden sizes of at least 1", whole),
        (0 < settings.learning_rate < np.inf, "a positive learning rate", settings.learning_rate),
        (0 <= settings.held_out < 1, "held_out in [0, 1)", settings.held_out),
    ))  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Decisions:
    """The decisions of a log whose reward is known, as tensors, split into two sets of users."""

    features: FeatureMap
    inputs: Any  # [n, p] float32
    actions: Any  # [n, 1]
    rewards: Any  # [n] standardised
    forbidden: Any  # [n, A] or None
    train: Int64Array  # [m] rows to learn from
    test: Any  # [k] rows of the users held out, at most ASKED; empty if nobody is
    mean: float
    spread: float

    @classmethod
    def of(
        cls,
        torch: Any,
        logs: LoggedData,
        recipe: Recipe | FeatureMap,
        held_out: float,
        rng: np.random.Generator,
        learner: str,
    ) -> Decisions:
        """Check the log, split its users and put it into tensors."""
        allowed = check_candidates(logs.candidates, len(logs), logs.n_actions)
        rewards = rewards_of(logs, learner, logs.reward_observed)
        rows = np.flatnonzero(np.ones(len(logs)) if logs.reward_observed is None else logs.reward_observed)
        train, test = _split_users(logs, rows, held_out, rng)
        mean, spread = _location(rewards[train])
        scaled = np.zeros(len(logs), dtype=np.float32)
        scaled[rows] = (rewards[rows] - mean) / spread
        features = fit_features(recipe, logs.contexts[:: 1 + len(logs) // SAMPLE])
        inputs = np.empty((len(logs), features.width), dtype=np.float32)
        for start in range(0, len(logs), SAMPLE):
            inputs[start : start + SAMPLE] = features.transform(logs.contexts[start : start + SAMPLE])
        return cls(
            features=features,
            inputs=torch.from_numpy(inputs),
            actions=torch.from_numpy(logs.actions.astype(np.int64))[:, None],
            rewards=torch.from_numpy(scaled),
            forbidden=None if allowed is None else torch.from_numpy(~allowed),
            train=train,
            test=torch.from_numpy(test),
            mean=mean,
            spread=spread,
        )


def descend(
    torch: Any,
    settings: Settings,
    data: Decisions,
    parameters: list[Any],
    rng: np.random.Generator,
    loss: Callable[[Any], Any],
) -> None:
    """Adam on ``loss(rows)``; the parameters end where the loss of the held-out users was lowest.

    The loss on held-out users is computed every ``steps / CHECKS`` steps. After ``patience`` checks without
    improvement the descent ends. Without held-out users all steps are made.
    """
    adam = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
    pause = -(-settings.steps // CHECKS)
    best, kept, failures = np.inf, [], 0

    def asked() -> float:
        with torch.no_grad():
            return float(loss(data.test))

    with progress_bar(type(settings).__name__, settings.steps, settings.progress) as advance:
        for step in range(0, settings.steps + 1, pause):
            if len(data.test):
                held_out_loss = asked()
                failures = failures + 1 if not held_out_loss < best else 0
                if not failures:
                    best, kept = held_out_loss, [parameter.detach().clone() for parameter in parameters]
                if failures >= settings.patience:
                    break
            for _ in range(min(pause, settings.steps - step)):
                chosen = data.train[rng.integers(len(data.train), size=settings.batch)]
                adam.zero_grad()
                loss(torch.from_numpy(chosen)).backward()
                adam.step()
            advance(pause)
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=False):
            parameter.copy_(value)
    if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise DataError(
            expected="a network that converges",
            found="infinite or undefined weights",
            remedy="lower the learning rate",
        )


def _split_users(
    logs: LoggedData, rows: Int64Array, share: float, rng: np.random.Generator
) -> tuple[Int64Array, Int64Array]:
    """Rows to learn from, and some rows of a share of the users; a single user is not held out."""
    users, place = np.unique(logs.user_of_row[rows], return_inverse=True)
    out = held_out_users(len(users), share, rng)[place]
    return rows[~out], np.sort(rng.permutation(rows[out])[:ASKED])


def _location(rewards: Float64Array) -> tuple[float, float]:
    """Mean and standard deviation; 1 where rewards are all the same. Huge numbers do not overflow."""
    size = float(np.abs(rewards).max()) or 1.0
    mean, spread = size * float((rewards / size).mean()), size * float((rewards / size).std())
    return mean, spread if spread > 1e-9 * size else 1.0
