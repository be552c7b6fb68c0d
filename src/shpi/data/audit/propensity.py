"""Are the propensities what they claim to be, and how far can another policy depart from the log's?

Two facts hold for every correct mu with full support on the candidates C:

    E[1 / mu(a|x)] = E|C|                                (otherwise propensities or candidates are wrong)
    ESS = (sum w)^2 / sum w^2,  w = (1/|C|) / mu(a|x)    (decisions' worth of evidence on the uniform policy)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shpi.data._behaviour.calibration import Calibration, spread_rows
from shpi.data.audit.facts import Spread
from shpi.protocols import BoolArray, Float64Array, IntArray

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

SMALL = 0.01
TINY = 1e-150  # the square of 1/p must stay a number


@dataclass(frozen=True, kw_only=True)
class Support:
    """The evidence of the log on one action."""

    action: int | str
    count: int
    effective: float  # (sum 1/p)^2 / sum 1/p^2 over the decisions that chose it


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
    top_weight: float  # share of the largest weight in their sum
    least_supported: tuple[Support, ...]
    outside: float  # probability that mu puts outside the candidates, on average
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
    error = float(inverse.std()) / math.sqrt(len(p))
    if origin == "candidates" and logs.candidates is None:
        unseen, unsure = unseen_actions(np.bincount(logs.actions, minlength=logs.n_actions))
        expected, error = expected + unseen, math.hypot(error, unsure)
    weights = inverse / sizes
    return PropensityFacts(
        mode=logs.propensity_mode,
        decisions=len(p),
        spread=Spread.of(p),
        below_small=float((p < SMALL).mean()),
        smallest_row=int(rows[p.argmin()]),
        inverse_mean=float(inverse.mean()),
        inverse_expected=expected,
        expected_from=origin,
        ratio=float(inverse.mean()) / expected,
        z=(float(inverse.mean()) - expected) / error if error > 1e-12 * expected else None,
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


def unseen_actions(counts: IntArray) -> tuple[float, float]:
    """The number of actions that the log missed by chance, and its error: Chao's estimate from rare ones.

    A table shows only the actions that were chosen. Where many of them were chosen once or twice, others were
    not at all: with f_1 and f_2 of them, about f_1 (f_1 - 1) / (2 (f_2 + 1)). A space of actions that was
    given, with actions that were never chosen, is believed.
    """
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    if not counts.all() or once < 2:
        return 0.0, 0.0
    r = once / max(twice, 1)
    variance = max(twice, 1) * (r**4 / 4 + r**3 + r**2 / 2)
    return once * (once - 1) / (2 * (twice + 1)), math.sqrt(variance)


def effective_sample_size(weights: Float64Array) -> float:
    """(sum w)^2 / sum w^2: how many equally weighted decisions these are worth."""
    scaled = weights / weights.max()  # the largest weights of tiny propensities must not overflow
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
    """The pairs that a calibration looks at: forced decisions are predicted perfectly, so leave them out."""
    if logs.candidates is None:
        return None
    return logs.candidates & choice[:, None]


def _outside(logs: LoggedData) -> float:
    if logs.behaviour is None or logs.candidates is None:
        return 0.0
    rows = spread_rows(len(logs), logs.n_actions)
    return float(np.where(logs.candidates[rows], 0.0, logs.behaviour[rows]).sum(axis=1).mean())
