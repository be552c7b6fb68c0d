"""The protocol of a regression oracle, which regresses k-step advantages on (x, a), many times on one log.

    f <- argmin_f sum_i omega_i (f(x_i, a_i) - A_k(x_i, a_i))^2            over the logged (x_i, a_i)

In policy iteration only the targets A_k change. So an oracle works in two stages: ``prepare`` processes the
log once, and ``fit`` is called with new targets in every iteration.

    prepared = Ridge().prepare(logs, seed=0)
    prepared = prepared.tune(targets)               once, on the first targets
    scorer = prepared.fit(targets)                  J times
    for rows, scores in prepared.scores_on_log(scorer): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import ConfigError, DataError
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

WeightKind = Literal["none", "mtr"]

BLOCK_BYTES = 1 << 22  # bytes of the largest temporary matrix in a pass over a log
SCORE_BYTES = 1 << 20  # bytes of a block of scores: small enough for the CPU cache


@runtime_checkable
class PreparedOracle(Protocol):
    """An oracle prepared on a log, ready for targets."""

    @property
    def unseen(self) -> Int64Array:
        """The actions that the log never took: no data of their own supports their scores."""
        ...

    def tune(self, targets: ArrayLike, *, valid: BoolArray | None = None) -> PreparedOracle:
        """The oracle with its settings chosen on these targets; itself if there is nothing to choose."""
        ...

    def fit(
        self, targets: ArrayLike, weights: ArrayLike | None = None, valid: BoolArray | None = None
    ) -> Scorer:
        """Regress targets [n] on the logged (x, a).

        Args:
            targets: one number per logged decision, in any unit; scores have the same unit.
            weights: further weights of the decisions [n], multiplied with those of the configuration.
            valid: rows to use [n]; the targets of the others are ignored and may be NaN.
        """
        ...

    def scores_on_log(self, scorer: Scorer) -> Iterator[tuple[slice, Float64Array]]:
        """Iterate over f(x_i, .) of the logged contexts in order, in blocks: (rows, scores [m, A])."""
        ...


@runtime_checkable
class Oracle(Protocol):
    """The configuration of a regression oracle."""

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedOracle:
        """Compute what does not depend on the targets."""
        ...


# ---------------------------------------------------------------------- shared by all oracles


@dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """Standardised targets: y = (target - centre) / scale, with weighted mean 0 and variance 1."""

    values: Float64Array  # [n]; 0 in rows that are not used
    centre: float
    scale: float
    weights: Float64Array | None  # [n]; 0 in rows that are not used; None: all weights are 1


def standardise_targets(
    targets: ArrayLike, n: int, *, weights: Float64Array | None = None, valid: BoolArray | None = None
) -> Targets:
    """Check the targets of the valid rows and standardise them; safe for huge values and for constants."""
    raw = np.asarray(targets, dtype=np.float64)
    if raw.shape != (n,):
        raise DataError(expected=f"{n} targets, one per decision", found=f"shape {raw.shape}")
    use = check_valid(valid, n)
    bad = ~np.isfinite(raw) if use is None else ~np.isfinite(raw) & use
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            expected="finite targets",
            found=str(raw[row]),
            where=f"row {row}",
            remedy="check the rewards and the value function behind the advantages, or mark the row invalid",
        )
    omega = np.ones(n) if weights is None else weights
    if use is not None:
        raw, omega = np.where(use, raw, 0.0), np.where(use, omega, 0.0)
    total = float(omega.sum())
    if not total > 0:
        raise DataError(expected="at least one row of positive weight to fit on", found="none")
    top = float(np.abs(raw).max()) or 1.0
    values = raw / top  # squares of 1e300 would overflow
    mean = float(omega @ values) / total
    values -= mean
    spread = float(np.sqrt(omega @ values**2 / total))
    spread = spread if spread > 1e-13 else 1.0  # the rounding error of a constant is not a spread
    values /= spread
    if use is not None:
        values[~use] = 0.0
    used = None if weights is None and use is None else omega
    return Targets(values=values, centre=mean * top, scale=spread * top, weights=used)


def check_valid(valid: BoolArray | None, n: int) -> BoolArray | None:
    """The checked mask of rows; None if it allows all of them."""
    if valid is None:
        return None
    mask = np.asarray(valid)
    if mask.shape != (n,) or mask.dtype != np.bool_:
        raise DataError(
            expected=f"a boolean mask of {n} rows", found=f"{mask.dtype} of shape {mask.shape}", where="valid"
        )
    return None if mask.all() else mask


def combined_weights(
    logs: LoggedData, kind: WeightKind, weights: ArrayLike | None = None
) -> Float64Array | None:
    """The weights omega_i [n]; None if all are 1.

    ``mtr`` is the weight that VW's ``--cb_type mtr`` gives to a row, 1 / (K mu(a_i|x_i)), where K is the mean
    number of allowed actions. ``none`` is the plain sum of Algorithm 2.
    """
    own: Float64Array | None = None
    if weights is not None:
        own = np.asarray(weights, dtype=np.float64)
        if own.shape != (len(logs),) or not np.isfinite(own).all() or (own < 0).any():
            raise DataError(
                expected=f"{len(logs)} finite, non-negative weights",
                found=f"shape {own.shape}, {int((~np.isfinite(own)).sum())} not finite",
            )
    if kind == "none":
        return own
    if kind != "mtr":
        raise ConfigError(expected="weights 'none' or 'mtr'", found=repr(kind))
    if logs.propensities is None:
        raise DataError(
            expected="propensities for the weights 'mtr'",
            found="a log without them",
            remedy="use weights='none', or logs.with_estimated_propensities()",
        )
    k = logs.n_actions if logs.candidates is None else float(logs.candidates.sum(axis=1).mean())
    importance: Float64Array = 1.0 / (k * logs.propensities)
    return importance if own is None else importance * own


def blocks(n: int, width: int, size: int | None = None) -> Iterator[slice]:
    """Slices of 0..n-1 such that [m, width] floats stay below ``size`` bytes, by default `BLOCK_BYTES`."""
    rows = max(256, (BLOCK_BYTES if size is None else size) // (8 * max(width, 1)))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))


def score_blocks(
    scorer: Scorer, contexts: FloatArray, width: int | None = None
) -> Iterator[tuple[slice, Float64Array]]:
    """Iterate over the scores of many contexts in blocks; ``width``: that of the largest temporary matrix."""
    for rows in blocks(len(contexts), width or scorer.n_actions, SCORE_BYTES):
        yield rows, scorer.scores(contexts[rows])


def unseen_actions(logs: LoggedData) -> Int64Array:
    """The actions with no row in the log."""
    return np.flatnonzero(np.bincount(logs.actions, minlength=logs.n_actions) == 0).astype(np.int64)


def action_table(logs: LoggedData) -> Float64Array | None:
    """Standardised action features [A, m], constant columns set to 0; None if the log has none."""
    features = logs.action_space.features
    if features is None or features.shape[1] == 0:
        return None
    spread = features.std(axis=0)
    constant = spread <= 1e-12 * np.abs(features).max(axis=0)
    table: Float64Array = (features - features.mean(axis=0)) / np.where(constant, 1.0, spread)
    return table
