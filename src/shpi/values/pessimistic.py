r"""Lower-confidence values, for contexts that the log hardly covers (the paper's Discussion asks for it).

    posterior   V_low(x) = V(x) - z sigma sqrt( phi' S^-1 (gram + penalty) S^-T phi )
                S = gram - gamma cross + penalty,   sigma^2 = mean delta^2
    ensemble    V_low(x) = mean_b V_b(x) - z sd_b V_b(x),   V_b fitted to users drawn with replacement

In the posterior, gram is the sampling variance of LSTD, whose deltas are uncorrelated when V is right; the
penalty is that of the prior, which dominates where there is no data. Both are bounded below by the smallest
value that the observed rewards allow: min r / (1 - gamma), or 0 if that is positive and users can leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.linalg import cholesky

from shpi.data._log import ragged
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray
from shpi.values._lstd.moments import with_intercept
from shpi.values.base import BLOCK, FittedValue, StateValues, ValueModel, checked_gamma
from shpi.values.lstd import LSTD, LinearValue, solve
from shpi.values.transitions import rewards_of, usable_transitions


@dataclass(frozen=True, kw_only=True)
class Pessimistic:
    """A value model whose estimates are lowered by z standard errors.

    Args:
        base: the value model to lower. The posterior needs LSTD; an ensemble can be made of any model.
        z: number of standard errors that are subtracted.
        method: "posterior" (closed form), "ensemble", or None: the posterior if the base is LSTD.
        members: the size of the ensemble.
    """

    base: ValueModel = field(default_factory=LSTD)
    z: float = 1.0
    method: Literal["posterior", "ensemble"] | None = None
    members: int = 10

    def __post_init__(self) -> None:
        if not (np.isfinite(self.z) and self.z >= 0):
            raise ConfigError(expected="z of at least 0", found=str(self.z), where="Pessimistic")
        if self.members < 2:
            raise ConfigError(expected="at least 2 members", found=str(self.members), where="Pessimistic")
        if self.method == "posterior" and not isinstance(self.base, LSTD):
            raise ConfigError(
                expected="LSTD under method='posterior'",
                found=type(self.base).__name__,
                remedy="use method='ensemble'",
            )

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> FittedValue:
        """Fit V_low."""
        floor = least_value(logs, gamma)
        if isinstance(self.base, LSTD) and self.method != "ensemble":
            # The deltas of overlapping windows are correlated: the closed form holds for one step only.
            one_step = replace(self.base, lookahead=1)
            return _posterior(one_step, logs, gamma=gamma, seed=seed, z=self.z, floor=floor)
        draws, *seeds = np.random.SeedSequence(seed).spawn(self.members + 1)
        rng, groups = np.random.default_rng(draws), _trajectories_of_users(logs)
        fitted = []
        for member in seeds:
            users = rng.integers(logs.n_users, size=logs.n_users)
            sample = logs.select(groups[0][ragged.rows_of_groups(groups[1], users)])
            fitted.append(self.base.fit(sample, gamma=gamma, seed=int(member.generate_state(1)[0])))
        return LowerEnsemble(members=tuple(fitted), z=float(self.z), floor=floor)


@saveable("values/lower-linear")
@dataclass(frozen=True, kw_only=True, eq=False)
class LowerLinear:
    """V_low(x) = V(x) - |spread (1, phi(x))|, not below ``floor``."""

    value: LinearValue
    spread: Float64Array  # [p + 1, p + 1]
    floor: float

    def __post_init__(self) -> None:
        freeze(self, "spread", ndim=2)

    @property
    def width(self) -> int:
        """The width d of a context."""
        return self.value.width

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """Values [n]."""
        return np.maximum(self.value(contexts) - self.margin(contexts), self.floor)

    def margin(self, contexts: FloatArray) -> Float64Array:
        """The amount that is subtracted, [n], before the floor."""
        parts = [np.zeros(0)]
        for i in range(0, len(contexts), BLOCK):
            phi = with_intercept(self.value.features, contexts[i : i + BLOCK])
            parts.append(np.sqrt(np.sum((phi @ self.spread.T) ** 2, axis=1)))
        return np.concatenate(parts)


@saveable("values/lower-ensemble")
@dataclass(frozen=True, kw_only=True, eq=False)
class LowerEnsemble:
    """V_low(x) = mean - z × standard deviation of the members, not below ``floor``."""

    members: tuple[FittedValue, ...]
    z: float
    floor: float

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """Values [n]."""
        values = np.stack([member(contexts) for member in self.members])  # [members, n]
        low: Float64Array = values.mean(axis=0) - self.z * values.std(axis=0, ddof=1)
        return np.maximum(low, self.floor)


def least_value(logs: LoggedData, gamma: float) -> float:
    """A lower bound on any V, given the rewards in the log."""
    rewards = rewards_of(logs)[usable_transitions(logs)]
    lowest = float(rewards.min()) if len(rewards) else 0.0
    return (min(lowest, 0.0) if logs.terminated.any() else lowest) / (1 - checked_gamma(gamma))


def _posterior(
    base: LSTD, logs: LoggedData, *, gamma: float, seed: int, z: float, floor: float
) -> LowerLinear:
    choice = base.choose(logs, gamma=gamma, seed=seed)
    sums = base.sums(logs, choice, gamma=gamma)
    value = solve([sums], choice)
    states = StateValues.of(value, logs)
    delta = rewards_of(logs) + gamma * states.following(logs) - states.rows
    sigma = float(np.sqrt(np.mean(delta[usable_transitions(logs)] ** 2)))
    # root' root = gram + penalty; a trace of jitter keeps the factor of collinear features real
    noise = sums.gram + np.diag(sums.penalty(choice.ridge))
    noise[np.diag_indices_from(noise)] += 1e-12 * np.trace(noise) / len(noise)
    root = cholesky(noise, lower=False)  # [p + 1, p + 1]
    spread = np.linalg.lstsq(sums.system(choice.ridge).T, np.eye(len(noise)), rcond=None)[0]
    return LowerLinear(value=value, spread=z * sigma * (root @ spread), floor=floor)


def _trajectories_of_users(logs: LoggedData) -> tuple[np.ndarray, np.ndarray]:
    """Trajectories ordered by user, and the offsets of the users in that order."""
    order = np.argsort(logs.user_codes, kind="stable")
    return order, ragged.offsets_from_lengths(np.bincount(logs.user_codes, minlength=logs.n_users))
