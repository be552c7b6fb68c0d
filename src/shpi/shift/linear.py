"""The density ratio d_pi / d_mu in closed form, linear in features: w(x) = phi(x)'zeta.

DualDICE's saddle point, min over nu and max over zeta of

    E_D[ zeta(x) ((1-gamma) nu(x) - gamma rho (nu(x') - nu(x))) - zeta(x)^2 / 2 ] - (1-gamma) E[nu(x_0)],

with rho = pi(a|x) / mu(a|x), nu = phi'nu and zeta = phi'zeta, is a linear system:

    A = E_D[ phi(x) ((1-gamma) phi(x) - gamma rho (phi(x') - phi(x)))' ]        C = E_D[phi phi'] + lz I
    nu = (A' C^-1 A + ln I)^-1 (1-gamma) E[phi(x_0)]                            zeta = C^-1 A nu

The plain form has gamma rho phi(x') instead of gamma (rho (phi(x') - phi(x)) + phi(x)). Both have the same
mean, since E[rho | x] = 1; the form above has far less variance if gamma is close to 1, and its weights have
mean 1 for any rho (at gamma = 0.99 the plain form gave a mean of 2.2). ln must be far below (1-gamma)^2, the
smallest relevant eigenvalue of A'C^-1 A, so it is a multiple of that.

All expectations are sums over rows, which add up over shards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import ConfigError, DataError
from shpi.features.base import FeatureMap, Recipe, fit_features
from shpi.features.defaults import curves
from shpi.protocols import Float64Array, Policy
from shpi.shift.base import (
    Limits,
    Ratio,
    action_ratios,
    check_gamma,
    last_rows,
    make_ratio,
    usable_rows,
)

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

RIDGE = 1e-5  # both ridge penalties, see `LinearRatio`
_BLOCK = 1 << 14  # rows per block
_FEATURE_ROWS = 50_000  # rows that the default features are fitted on, about


@dataclass(frozen=True, kw_only=True, eq=False)
class RatioSums:
    """Sums over rows that determine the ratio; the sums of shards add up."""

    gram: Float64Array  # [p, p] sum phi phi'
    drift: Float64Array  # [p, p] sum rho phi (phi(x') - phi(x))'; phi(x') = 0 after a termination
    initial: Float64Array  # [p] sum over trajectories of phi(x_0)
    rows: int
    trajectories: int

    def __add__(self, other: RatioSums) -> RatioSums:
        if self.gram.shape != other.gram.shape:
            raise DataError(
                expected=f"sums over {len(self.gram)} features", found=f"sums over {len(other.gram)}"
            )
        return RatioSums(
            gram=self.gram + other.gram,
            drift=self.drift + other.drift,
            initial=self.initial + other.initial,
            rows=self.rows + other.rows,
            trajectories=self.trajectories + other.trajectories,
        )

    def solve(self, gamma: float, zeta_ridge: float = RIDGE, nu_ridge: float = RIDGE) -> Float64Array:
        """The coefficients zeta of w [p]."""
        p = len(self.gram)
        second = self.gram / self.rows
        a = (1 - gamma) * second - gamma * self.drift / self.rows
        c = second + zeta_ridge * np.trace(second) / p * np.eye(p)
        projected = np.linalg.solve(c, a)  # C^-1 A
        square = a.T @ projected + nu_ridge * (1 - gamma) ** 2 * np.eye(p)
        nu = np.linalg.solve(square, (1 - gamma) * self.initial / self.trajectories)
        zeta: Float64Array = projected @ nu
        return zeta


@dataclass(frozen=True, kw_only=True)
class LinearRatio:
    """The closed-form ratio.

    Args:
        gamma: discount factor of d_pi, below 1.
        features: features phi, whose span must contain the constant. None: 100 random Fourier features of
            the standardised contexts.
        zeta_ridge: ridge penalty lz, as a multiple of the mean square of a feature.
        nu_ridge: ridge penalty ln, as a multiple of (1-gamma)^2.
        reference: denominator of the ratio. ``log``: the rows of the log, d_mu = (1/T) sum_t P_t as in the
            paper. ``behaviour``: the discounted d_mu, estimated in the same way, so that pi = mu gives
            w = 1 exactly; noisier where the discounted d_mu is small.
        limits: thresholds beyond which the ratio is unreliable.
        cache_bytes: largest feature matrix to keep in memory.
    """

    gamma: float
    features: Recipe | FeatureMap | None = None
    zeta_ridge: float = RIDGE
    nu_ridge: float = RIDGE
    reference: Literal["log", "behaviour"] = "log"
    limits: Limits = field(default_factory=Limits)
    cache_bytes: int = 1 << 31

    def __post_init__(self) -> None:
        check_gamma(self.gamma, "LinearRatio")
        if not (self.zeta_ridge > 0 and 0 < self.nu_ridge <= 0.1):
            raise ConfigError(
                expected="a positive zeta_ridge, and a positive nu_ridge of at most 0.1 (times (1-gamma)^2)",
                found=f"{self.zeta_ridge} and {self.nu_ridge}",
                where="LinearRatio",
            )
        if self.reference not in ("log", "behaviour"):
            raise ConfigError(expected="reference 'log' or 'behaviour'", found=repr(self.reference))

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedLinearRatio:
        """Fit the features."""
        usable_rows(logs)
        if self.features is None:
            features: FeatureMap = curves(100, 1.0, seed).fit(
                logs.contexts[:: 1 + len(logs) // _FEATURE_ROWS]
            )
        else:
            features = fit_features(self.features, logs.contexts)
        return PreparedLinearRatio(config=self, logs=logs, features=features)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedLinearRatio:
    """The closed-form ratio prepared on a log."""

    config: LinearRatio
    logs: LoggedData
    features: FeatureMap
    _memo: dict[str, Any] = field(default_factory=dict, repr=False)

    def fit(self, pi: Policy | ArrayLike, mu: Policy | None = None) -> Ratio:
        """The ratio at the logged contexts; only pi(a_i|x_i) of the logged actions is needed."""
        config, logs = self.config, self.logs
        rho = action_ratios(logs, pi)
        zeta = self.sums(rho).solve(config.gamma, config.zeta_ridge, config.nu_ridge)
        weights, following = self._weights(zeta)
        if config.reference == "log":
            return make_ratio(weights, following, rho, logs, config.limits)
        base, base_next = self._behaviour()
        return make_ratio(weights / base, following / base_next, rho, logs, config.limits, base)

    def sums(self, rho: Float64Array) -> RatioSums:
        """The sums over rows with a known next context. The Gram matrix does not depend on pi and is kept."""
        logs, p, memo = self.logs, self.features.width, self._memo
        usable, last = usable_rows(logs), last_rows(logs)
        ends = self.features.transform(logs.final_contexts) * ~logs.terminated[:, None]  # [N, p]
        gram, drift = np.zeros((p, p)), np.zeros((p, p))
        for start in range(0, len(logs), _BLOCK):
            stop = min(start + _BLOCK, len(logs))
            here = self._phi(slice(start, stop))
            following = np.empty_like(here)
            following[:-1] = here[1:]
            if stop < len(logs):
                following[-1] = self._phi(slice(stop, stop + 1))[0]
            mine = np.flatnonzero((last >= start) & (last < stop))
            following[last[mine] - start] = ends[mine]
            following -= here
            following *= np.where(usable[start:stop], rho[start:stop], 0.0)[:, None]
            drift += here.T @ following
            if "gram" not in memo:
                known = here[usable[start:stop]]
                gram += known.T @ known
        gram = memo.setdefault("gram", gram)
        first = self.features.transform(logs.contexts[logs.offsets[:-1]])
        return RatioSums(
            gram=gram,
            drift=drift,
            initial=first.sum(axis=0),
            rows=int(usable.sum()),
            trajectories=logs.n_trajectories,
        )

    def _weights(self, zeta: Float64Array) -> tuple[Float64Array, Float64Array]:
        """phi(x_t)'zeta and phi(x_{t+1})'zeta for every row [n]."""
        logs = self.logs
        here = np.empty(len(logs))
        for start in range(0, len(logs), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(logs)))
            here[rows] = self._phi(rows) @ zeta
        following = np.append(here[1:], 0.0)
        following[last_rows(logs)] = self.features.transform(logs.final_contexts) @ zeta
        return here, following

    def _behaviour(self) -> tuple[Float64Array, Float64Array]:
        """The same estimate for mu itself, floored at 5 % of its mean, because it is a denominator."""
        if "behaviour" not in self._memo:
            config = self.config
            sums = self.sums(np.ones(len(self.logs)))
            here, following = self._weights(sums.solve(config.gamma, config.zeta_ridge, config.nu_ridge))
            floor = 0.05 * max(float(here.mean()), 1e-300)
            self._memo["behaviour"] = (np.maximum(here, floor), np.maximum(following, floor))
        solution: tuple[Float64Array, Float64Array] = self._memo["behaviour"]
        return solution

    def _phi(self, rows: slice) -> Float64Array:
        n, p = len(self.logs), self.features.width
        if 8 * n * p > self.config.cache_bytes:
            return self.features.transform(self.logs.contexts[rows])
        if "phi" not in self._memo:
            phi = np.empty((n, p))
            for start in range(0, n, _BLOCK):
                block = slice(start, min(start + _BLOCK, n))
                phi[block] = self.features.transform(self.logs.contexts[block])
            self._memo["phi"] = phi
        cached: Float64Array = self._memo["phi"]
        return cached[rows]
