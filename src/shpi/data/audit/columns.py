"""Context columns that are constant, repeat another column, or reveal a reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shpi._core.ranks import mid_ranks
from shpi.data._behaviour.calibration import spread_rows
from shpi.data.schema import MISSING, OTHER
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

MIN_CLASS = 10  # rewards of either value that a perfect separation needs to count
SUSPICIOUS_RANK = 0.95  # area under the ROC curve from which a single column is suspicious
FILLED_ROWS = 20  # decisions that the checks below need: with an unusual value, with and without a reward
FILLED_SHARE, USUAL_SHARE = 0.98, 0.8  # rewarded share: at least, of unusual values; at most, of all


@dataclass(frozen=True, kw_only=True)
class Leak:
    """A context dimension that reveals a reward which comes after it."""

    dimension: str
    target: str  # "the reward", "the next reward" or "the sum of all later rewards"
    correlation: float
    separates: bool  # a threshold on the column splits a binary reward without an error
    row: int


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """The suspicious context columns."""

    names: tuple[str, ...]  # features
    constant: tuple[str, ...]  # features
    same: tuple[tuple[str, str], ...]  # dimension, earlier dimension with the same values
    leaks: tuple[Leak, ...]
    only_with_reward: tuple[tuple[str, float, float], ...] = ()  # dimension, rewarded share there, overall
    ranks: tuple[tuple[str, float], ...] = ()  # dimension, area under the ROC curve (or 1 minus it)


def column_facts(logs: LoggedData, suspicious: float) -> ColumnFacts:
    """Look at every dimension; report correlations of at least ``suspicious`` with a reward."""
    if logs.schema.width == 0:
        return ColumnFacts(names=(), constant=(), same=(), leaks=())
    flat = logs.contexts.min(axis=0) == logs.contexts.max(axis=0)  # [d]
    constant, position = [], 0
    for feature in logs.schema.features:
        width = len(feature.dimensions)
        if flat[position : position + width].all():  # a single category that never occurs does not count
            constant.append(feature.name)
        position += width
    varying = np.flatnonzero(~flat)
    return ColumnFacts(
        names=tuple(feature.name for feature in logs.schema.features),
        constant=tuple(constant) if len(logs) > 1 else (),
        same=_same(logs, varying),
        leaks=tuple(_leaks(logs, varying, suspicious)),
        only_with_reward=tuple(_only_with_reward(logs, varying)),
        ranks=tuple(_ranks(logs, varying)),
    )


def _rewarded(logs: LoggedData, dimensions: int) -> tuple[Int64Array, BoolArray]:
    """The rows to look at, and whether each has a reward above the smallest one."""
    observed = np.ones(len(logs), bool) if logs.reward_observed is None else logs.reward_observed
    rows = np.flatnonzero(observed)
    rows = rows[spread_rows(len(rows), dimensions)]
    y = np.asarray(logs.rewards)[rows]
    return rows, y > y.min(initial=np.inf)


def _only_with_reward(logs: LoggedData, varying: Int64Array) -> list[tuple[str, float, float]]:
    """Dimensions that leave their usual value almost only where a reward came."""
    if logs.rewards is None or not len(varying):
        return []
    rows, rewarded = _rewarded(logs, logs.schema.width)
    usual = float(rewarded.mean()) if len(rewarded) else 1.0
    if usual > USUAL_SHARE:
        return []
    suspects = []
    for j in varying.tolist():
        x = logs.contexts[rows, j]
        filled = x != _usual(x)
        if FILLED_ROWS <= filled.sum() <= 0.5 * len(x) and rewarded[filled].mean() >= FILLED_SHARE:
            suspects.append((logs.schema.dimensions[j], float(rewarded[filled].mean()), usual))
    return suspects


def _usual(x: FloatArray) -> float:
    """The most frequent value; the smallest of equally frequent ones."""
    low, high = x.min(), x.max()
    lows, highs = int((x == low).sum()), int((x == high).sum())
    if lows + highs == len(x):  # an indicator: no need to sort
        return float(high if highs > lows else low)
    values, counts = np.unique(x, return_counts=True)
    return float(values[counts.argmax()])


def _ranks(logs: LoggedData, varying: Int64Array) -> list[tuple[str, float]]:
    """Dimensions that alone tell rewarded decisions from others: area under the ROC curve, or 1 minus it."""
    if logs.rewards is None or not len(varying):
        return []
    rows, rewarded = _rewarded(logs, logs.schema.width)
    positive = int(rewarded.sum())
    if min(positive, len(rows) - positive) < FILLED_ROWS:
        return []
    ranks = []
    for j in varying.tolist():
        place = mid_ranks(logs.contexts[rows, j])
        area = (place[rewarded].sum() - positive * (positive + 1) / 2) / (positive * (len(rows) - positive))
        if max(area, 1 - area) >= SUSPICIOUS_RANK:
            ranks.append((logs.schema.dimensions[j], float(max(area, 1 - area))))
    return ranks


def _same(logs: LoggedData, varying: Int64Array) -> tuple[tuple[str, str], ...]:
    """Pairs of equal dimensions; a sample of the rows finds the few pairs worth comparing in full."""
    names = logs.schema.dimensions
    # Columns that are missing together share these dimensions, which is not worth reporting.
    varying = np.array([j for j in varying if not names[j].endswith((f"={OTHER}", f"={MISSING}"))], dtype=int)
    sample = logs.contexts[spread_rows(len(logs), logs.schema.width, 1_000_000)]
    first_with: dict[bytes, int] = {}
    pairs = []
    for j in varying.tolist():
        key = np.ascontiguousarray(sample[:, j]).tobytes()
        earlier = first_with.setdefault(key, j)
        if earlier != j and np.array_equal(logs.contexts[:, j], logs.contexts[:, earlier]):
            pairs.append((names[j], names[earlier]))
    return tuple(pairs)


def _leaks(logs: LoggedData, varying: Int64Array, suspicious: float) -> list[Leak]:
    if logs.rewards is None or len(logs) < MIN_CLASS:
        return []
    leaks: list[Leak] = []
    known: set[int] = set()
    for target, values, rows in _targets(logs):
        rows = rows[spread_rows(len(rows), logs.schema.width)]
        y = values[rows]
        if len(rows) < MIN_CLASS or y.min() == y.max():
            continue
        x = logs.contexts[rows][:, varying].astype(np.float64)
        correlations = _correlations(x, y)
        separates = _separates(x, y)
        example = int(rows[np.abs(y - np.median(y)).argmax()])
        for i, j in enumerate(varying.tolist()):
            if j not in known and (abs(correlations[i]) >= suspicious or separates[i]):
                known.add(j)
                leaks.append(
                    Leak(
                        dimension=logs.schema.dimensions[j],
                        target=target,
                        correlation=float(correlations[i]),
                        separates=bool(separates[i]),
                        row=example,
                    )
                )
    return leaks


def _targets(logs: LoggedData) -> list[tuple[str, Float64Array, Int64Array]]:
    """The outcomes that a context must not reveal: name, values [n], and the rows where they are defined."""
    rewards = np.asarray(logs.rewards)
    observed = np.ones(len(logs), bool) if logs.reward_observed is None else logs.reward_observed
    following = np.roll(rewards, -1)
    has_next = np.ones(len(logs), dtype=bool)
    has_next[logs.offsets[1:] - 1] = False
    has_next &= np.roll(observed, -1)
    running = np.cumsum(rewards)
    later = running[logs.offsets[1:] - 1][logs.trajectory_of_row] - running
    return [
        ("the reward", rewards, np.flatnonzero(observed)),
        ("the next reward", following, np.flatnonzero(has_next)),
        (
            "the sum of all later rewards",
            later,
            np.flatnonzero(has_next) if observed.all() else np.array([], int),
        ),
    ]


def _correlations(x: Float64Array, y: Float64Array) -> Float64Array:
    """The correlation of each column of x [n, d] with y [n]."""
    x = x - x.mean(axis=0)
    y = y / np.abs(y).max()  # so that squares of huge rewards stay finite
    y = y - y.mean()
    scale = np.sqrt((x**2).sum(axis=0) * (y**2).sum())
    return np.asarray((x.T @ y) / np.where(scale > 0, scale, np.inf))


def _separates(x: Float64Array, y: Float64Array) -> BoolArray:
    """Whether one threshold per column splits a reward of two values."""
    high = y == y.max()
    if not (high | (y == y.min())).all() or min(high.sum(), (~high).sum()) < MIN_CLASS:
        return np.zeros(x.shape[1], dtype=bool)
    up, down = x[high], x[~high]
    return np.asarray((up.min(axis=0) > down.max(axis=0)) | (up.max(axis=0) < down.min(axis=0)))
