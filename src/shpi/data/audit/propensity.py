"""Are the propensities correct, and how far can another policy depart from the logged one?

Two facts hold for every correct mu with full support on the candidates C:

    E[1 / mu(a|x)] = E|C|                                (otherwise propensities or candidates are wrong)
    ESS = (sum w)^2 / sum w^2,  w = (1/|C|) / mu(a|x)    (effective sample size of the uniform policy)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shpi.data._behaviour.calibration import Calibration, spread_rows
from shpi.data.audit.facts import Spread
from shpi.protocols import BoolArray, Float64Array, Int64Array, IntArray

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

SMALL = 0.01  # probability; the audit counts logged actions below it
TINY = 1e-150  # lower bound on p, so that the square of 1/p stays finite


@dataclass(frozen=True, kw_only=True)
class Support:
    """The evidence of the log on one action."""

    action: int | str
    count: int
    effective: float  # (sum 1/p)^2 / sum 1/p^2 over the decisions that chose it


@dataclass(frozen=True, kw_only=True)
class Excess:
    """The excess of 1/p over its expectation, in sums over rows."""

    total: float
    variance: float
    expected: float

    def __add__(self, other: Excess) -> Excess:
        return Excess(
            total=self.total + other.total,
            variance=self.variance + other.variance,
            expected=self.expected + other.expected,
        )

    @property
    def ratio(self) -> float:
        """The sum of 1/p as a multiple of its expectation."""
        return 1.0 + self.total / self.expected if self.expected > 0 else 1.0

    @property
    def z(self) -> float:
        """The excess in standard errors; its terms are martingale differences."""
        return self.total / math.sqrt(self.variance) if self.variance > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class PropensityFacts:
    """Checks of mu(a|x) over the decisions that had a choice."""

    mode: str
    decisions: int  # with at least two candidates
    spread: Spread
    below_small: float  # share of propensities below 1 %
    smallest_row: int
    inverse_mean: float
    inverse_expected: float  # mean number of actions that can be chosen
    expected_from: str  # "behaviour" or "candidates"
    ratio: float
    z: float | None  # None: all 1/p are equal
    log_loss: float  # mean of -log p
    uniform_ess: float
    top_weight: float  # share of the largest weight in the sum of weights
    least_supported: tuple[Support, ...]
    outside: float  # mean probability that mu puts outside the candidates
    calibration: Calibration | None  # needs the full distribution


def propensity_facts(logs: LoggedData) -> PropensityFacts | None:
    """The checks, or None if the log has no propensities or never had a choice."""
    if logs.propensities is None:
        return None
    sizes = (
        np.full(len(logs), logs.n_actions)
        if logs.candidates is None
        else logs.candidates.sum(axis=1, dtype=np.int64)
    )
    choice = sizes > 1
    if not choice.any():
        return None
    rows = np.flatnonzero(choice)
    p, sizes = np.maximum(logs.propensities[rows], TINY), sizes[rows]
    inverse = 1.0 / p
    expected, origin = float(sizes.mean()), "candidates"
    if logs.behaviour is not None:
        sample = rows[spread_rows(len(rows), logs.n_actions)]
        expected, origin = float((logs.behaviour[sample] > 0).sum(axis=1).mean()), "behaviour"
    mean, error = float(inverse.mean()), float(inverse.std()) / math.sqrt(len(p))
    z = (mean - expected) / error if error > 1e-12 * expected else None
    if origin == "candidates" and logs.candidates is None and mean > expected:
        known = excess_of_known(logs.actions[rows], inverse, logs.n_actions)
        expected, z = mean / max(known.ratio, TINY), known.z
    weights = inverse / sizes
    return PropensityFacts(
        mode=logs.propensity_mode,
        decisions=len(p),
        spread=Spread.of(p),
        below_small=float((p < SMALL).mean()),
        smallest_row=int(rows[p.argmin()]),
        inverse_mean=mean,
        inverse_expected=expected,
        expected_from=origin,
        ratio=mean / expected,
        z=z,
        log_loss=float(-np.log(p).mean()),
        uniform_ess=effective_sample_size(weights),
        top_weight=float(weights.max() / weights.sum()),
        least_supported=_least_supported(logs, choice),
        outside=_outside(logs),
        calibration=(
            None
            if logs.behaviour is None
            else Calibration.of(logs.behaviour, logs.actions, _allowed(logs, choice))
        ),
    )


def first_rows(actions: IntArray, n_actions: int) -> Int64Array:
    """The first row of each action [A]; the number of rows for an action that never occurs."""
    first = np.full(n_actions, len(actions), dtype=np.int64)
    first[actions[::-1]] = np.arange(len(actions))[::-1]
    return first


def excess_of_known(actions: IntArray, inverse: Float64Array, n_actions: int) -> Excess:
    """Compare 1/p with its expectation, counting each action only from the row after its first.

    A table shows only the actions that were chosen, so the number of its actions is biased. At row t,
    1[a_t was chosen before] / p_t has the number of actions that were chosen before as its mean, whatever
    actions the table misses.

    Args:
        actions: action of each row.
        inverse: 1/p of each row.
        n_actions: number of actions of the log.
    """
    first, rows = first_rows(actions, n_actions), np.arange(len(actions))
    known = first[actions] < rows
    expected: Int64Array = np.cumsum(~known) - ~known
    excess = known * inverse - expected
    return Excess(total=float(excess.sum()), variance=float(excess @ excess), expected=float(expected.sum()))


def effective_sample_size(weights: Float64Array) -> float:
    """(sum w)^2 / sum w^2: the number of equally weighted decisions that these are worth."""
    scaled = weights / weights.max()  # so that the weights of tiny propensities do not overflow
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def _least_supported(logs: LoggedData, choice: BoolArray, shown: int = 3) -> tuple[Support, ...]:
    assert logs.propensities is not None
    actions, inverse = logs.actions[choice], 1.0 / np.maximum(logs.propensities[choice], TINY)
    counts = np.bincount(actions, minlength=logs.n_actions)
    sums = np.bincount(actions, weights=inverse, minlength=logs.n_actions)
    squares = np.bincount(actions, weights=inverse**2, minlength=logs.n_actions)
    chosen = np.flatnonzero(counts)
    effective = sums[chosen] ** 2 / squares[chosen]
    order = np.argsort(effective, kind="stable")[:shown]
    return tuple(
        Support(
            action=logs.action_space.ids[chosen[i]],
            count=int(counts[chosen[i]]),
            effective=float(effective[i]),
        )
        for i in order
    )


def _allowed(logs: LoggedData, choice: BoolArray) -> BoolArray | None:
    """The (decision, candidate) pairs to calibrate on; forced decisions are always predicted perfectly."""
    if logs.candidates is None:
        return None
    return logs.candidates & choice[:, None]


def _outside(logs: LoggedData) -> float:
    if logs.behaviour is None or logs.candidates is None:
        return 0.0
    rows = spread_rows(len(logs), logs.n_actions)
    return float(np.where(logs.candidates[rows], 0.0, logs.behaviour[rows]).sum(axis=1).mean())
