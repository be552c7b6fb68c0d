"""The density ratio w(x) = d_pi(x) / d_mu(x) of two state distributions, and checks of its estimate.

    d_pi(x) = (1 - gamma) sum_t gamma^t P_t^pi(x)

*Terminated* trajectories end the sum: w is then the normalised ratio over contexts of users who are still
there. *Truncated* ones do not: the log stops, but the discounted sum continues. Initial contexts are the
first ones of the trajectories.

The paper's check of coverage: if the weights are too large, distribution matching is likely unreliable.
`Ratio.problems` reports this with numbers; the thresholds are in `Limits`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shpi.data._log.cut import taken_as_cut
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Float64Array, Int64Array, Policy

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


class CoverageWarning(UserWarning):
    """The log does not cover the policy's states well enough to trust the density ratio."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Thresholds beyond which a ratio is unreliable: rules of thumb, measured on finite worlds.

    Args:
        weight: largest w(x). The paper's assumption is log w <= epsilon; 50 is epsilon = 3.9.
        effective: smallest effective sample size of the weights w, as a share of the rows.
        effective_actions: the same for pi(a|x) / mu(a|x); below 3 %, the log hardly contains pi's actions.
        negative: largest share of rows whose weight was negative and set to 0.
        mean: largest distance of the mean of the raw weights from 1, its value in the limit.
    """

    weight: float = 50.0
    effective: float = 0.05
    effective_actions: float = 0.03
    negative: float = 0.2
    mean: float = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Ratio:
    """w at the logged contexts: nonnegative, with mean 1. Raw figures are from before clipping at 0."""

    weights: Float64Array  # [n] w(x_t)
    next_weights: Float64Array  # [n] w(x_{t+1}); 1 after a termination
    raw_mean: float
    raw_min: float
    raw_max: float
    share_negative: float  # share of the rows whose weight was clipped to 0
    share_effective_actions: float  # (mean rho)^2 / mean rho^2, with rho = pi(a|x) / mu(a|x) of the logged a
    mean_known: bool = True  # whether the raw mean should be 1: False if trajectories terminate
    limits: Limits = field(default_factory=Limits)

    @property
    def max(self) -> float:
        """The largest weight."""
        return float(self.weights.max())

    @property
    def share_effective(self) -> float:
        """The effective sample size (sum w)^2 / sum w^2, as a share of the rows."""
        return float(self.weights.mean() ** 2 / np.mean(self.weights**2))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this ratio should not be trusted, with numbers; empty if all checks pass."""
        limits, problems = self.limits, []
        if self.max > limits.weight:
            problems.append(f"the largest weight is {self.max:.3g}, above {limits.weight:g}")
        if self.share_effective < limits.effective:
            problems.append(
                f"the weights are worth {self.share_effective:.1%} of the rows, below {limits.effective:.0%}"
            )
        if self.share_effective_actions < limits.effective_actions:
            problems.append(
                f"the action ratios pi/mu are worth {self.share_effective_actions:.1%} of the rows, "
                f"below {limits.effective_actions:.0%}"
            )
        if self.share_negative > limits.negative:
            problems.append(
                f"{self.share_negative:.0%} of the weights came out negative, above {limits.negative:.0%}"
            )
        if self.mean_known and not abs(self.raw_mean - 1) <= limits.mean:
            problems.append(
                f"the weights have mean {self.raw_mean:.3g} before they are normalised, and not 1"
            )
        return tuple(problems)

    @property
    def reliable(self) -> bool:
        """Whether the ratio passes all checks."""
        return not self.problems

    def warn(self) -> Ratio:
        """Emit a `CoverageWarning` if there are problems, and return the ratio itself."""
        if self.problems:
            warnings.warn(
                "distribution matching is likely unreliable here: "
                + "; ".join(self.problems)
                + ". What to do: keep the policy closer to the logging policy, or set the strength to 0.",
                CoverageWarning,
                stacklevel=2,
            )
        return self

    def __str__(self) -> str:
        state = "reliable" if self.reliable else "UNRELIABLE: " + "; ".join(self.problems)
        return (
            f"Ratio over {len(self.weights):,} rows: raw mean {self.raw_mean:.3f}, min {self.raw_min:.3g}, "
            f"max {self.raw_max:.3g}, {self.share_negative:.1%} negative, "
            f"effective {self.share_effective:.1%}; {state}"
        )


@runtime_checkable
class PreparedRatio(Protocol):
    """A ratio estimator prepared on a log."""

    def fit(self, pi: Policy | ArrayLike, mu: Policy | None = None) -> Ratio:
        """The ratio d_pi / d_mu at the logged contexts.

        Args:
            pi: policy; or pi(a_i|x_i) of the logged actions [n], for estimators that need no more.
            mu: logging policy, for estimators that need mu(.|x) if the log does not contain it.
        """
        ...


@runtime_checkable
class RatioEstimator(Protocol):
    """The configuration of a ratio estimator."""

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedRatio:
        """Compute what does not depend on pi."""
        ...


# ---------------------------------------------------------------------- shared by the estimators


def make_ratio(
    raw: Float64Array,
    raw_next: Float64Array,
    rho: Float64Array,
    logs: LoggedData,
    limits: Limits,
    reference: Float64Array | None = None,
) -> Ratio:
    """Clip at 0 and normalise to mean 1 over the rows, weighted by ``reference`` [n] if given."""
    share = np.full(len(raw), 1.0 / len(raw)) if reference is None else reference / reference.sum()
    kept = np.maximum(raw, 0.0)
    mean = float(share @ kept)
    if not (np.isfinite(raw).all() and mean > 0):
        raise DataError(
            expected="state weights with a positive mean",
            found=f"a mean of {mean}",
            remedy="the log does not cover where the policy goes; keep it closer to the logging policy",
        )
    following = np.maximum(raw_next, 0.0) / mean
    following[logs.offsets[1:][logs.terminated] - 1] = 1.0
    spread = float(np.mean(rho**2))
    return Ratio(
        weights=kept / mean,
        next_weights=following,
        raw_mean=float(share @ raw),
        raw_min=float(raw.min()),
        raw_max=float(raw.max()),
        share_negative=float((raw < 0).mean()),
        share_effective_actions=float(rho.mean() ** 2) / spread if spread > 0 else 0.0,
        mean_known=not logs.terminated.any(),
        limits=limits,
    )


def taken_probabilities(logs: LoggedData, pi: Policy | ArrayLike) -> Float64Array:
    """pi(a_i|x_i) of the logged actions [n]: computed from a policy in blocks, or checked if given."""
    n = len(logs)
    if not isinstance(pi, Policy):
        given = np.asarray(pi, dtype=np.float64)
        if given.shape != (n,) or not ((given >= 0) & (given <= 1 + 1e-9)).all():
            raise DataError(
                expected=f"a policy, or {n} probabilities of the logged actions", found=f"shape {given.shape}"
            )
        return given
    taken = np.empty(n)
    for start in range(0, n, 1 << 15):
        rows = slice(start, min(start + (1 << 15), n))
        allowed = None if logs.candidates is None else logs.candidates[rows]
        probs = pi.action_probs(logs.contexts[rows], allowed)
        taken[rows] = probs[np.arange(len(probs)), logs.actions[rows]]
    return taken


def action_ratios(logs: LoggedData, pi: Policy | ArrayLike) -> Float64Array:
    """rho_i = pi(a_i|x_i) / mu(a_i|x_i) [n]."""
    if logs.propensities is None:
        raise DataError(
            expected="a log with propensities, to compare pi with mu",
            found="a log without them",
            remedy="use logs.with_estimated_propensities()",
        )
    ratios: Float64Array = taken_probabilities(logs, pi) / logs.propensities
    return ratios


def last_rows(logs: LoggedData) -> Int64Array:
    """The row of the last decision of each trajectory [N]."""
    return logs.offsets[1:] - 1


def usable_rows(logs: LoggedData) -> BoolArray:
    """Rows whose next context is known, or after which the trajectory terminates [n]."""
    usable = np.ones(len(logs), dtype=bool)
    usable[last_rows(logs)] = (logs.terminated | logs.final_observed) & ~taken_as_cut(logs)
    if not usable.any():
        raise DataError(
            expected="at least one decision with a next context",
            found="trajectories of one decision with unknown final contexts",
            remedy="log the context after the last decision, or longer trajectories",
        )
    return usable


def check_gamma(gamma: float, where: str) -> None:
    """Refuse a discount of 1 or more: the closed forms divide by 1 - gamma."""
    if not 0 <= gamma < 1:
        raise ConfigError(expected="gamma in [0, 1)", found=str(gamma), where=where)
