"""Calibration of a behaviour policy: of the actions given a probability of 5 %, were 5 % chosen?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.protocols import BoolArray, FloatArray, IntArray

EDGES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # edges of the bins of mu(a|x)
MAX_CELLS = 20_000_000  # (row, action) pairs; of a larger log, evenly spaced rows are used


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """All (decision, candidate) pairs whose predicted probability lies in (low, high]."""

    low: float
    high: float
    count: int
    predicted: float  # mean of mu(a|x)
    observed: float  # share of the pairs in which the action was chosen
    z: float  # (observed - predicted) in standard errors under the predictions


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The calibration table, and its expected calibration error: the mean gap, weighted by pairs per bin."""

    bins: tuple[CalibrationBin, ...]
    error: float

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return asdict(self)

    @classmethod
    def of(cls, behaviour: FloatArray, actions: IntArray, candidates: BoolArray | None = None) -> Calibration:
        """Compare mu(.|x) [n, A] with the chosen actions [n], over the candidates [n, A]."""
        n, width = behaviour.shape
        rows = spread_rows(n, width)
        sums = np.zeros((4, len(EDGES) - 1))  # pairs, predicted, chosen, variance
        block = max(1, 2_000_000 // width)
        for start in range(0, len(rows), block):
            block_rows = rows[start : start + block]
            # Actions that cannot be chosen are predicted perfectly by definition: leave them out.
            allowed = behaviour[block_rows] > 0 if candidates is None else candidates[block_rows]
            sums += _bin(behaviour[block_rows], actions[block_rows], allowed)
        return cls._from_sums(sums)

    @classmethod
    def _from_sums(cls, sums: NDArray[np.float64]) -> Calibration:
        bins = []
        for index, (count, predicted, chosen, variance) in enumerate(sums.T.tolist()):
            if count:
                gap = chosen - predicted
                bins.append(
                    CalibrationBin(
                        low=EDGES[index],
                        high=EDGES[index + 1],
                        count=int(count),
                        predicted=predicted / count,
                        observed=chosen / count,
                        z=gap / math.sqrt(variance) if variance > 0 else 0.0,
                    )
                )
        total = sum(b.count for b in bins)
        error = sum(b.count * abs(b.observed - b.predicted) for b in bins) / max(total, 1)
        return cls(bins=tuple(bins), error=float(error))


def spread_rows(n: int, width: int, cells: int = MAX_CELLS) -> NDArray[np.int64]:
    """All rows, or evenly spaced ones, so that rows × width stays below ``cells``."""
    count = min(n, max(1, cells // width))
    return (np.arange(count) * (n / max(count, 1))).astype(np.int64)


def _bin(probabilities: FloatArray, actions: IntArray, allowed: BoolArray) -> NDArray[np.float64]:
    chosen = np.zeros(probabilities.shape, dtype=bool)
    chosen[np.arange(len(actions)), actions] = True
    p = probabilities[allowed].astype(np.float64)
    slot = np.searchsorted(EDGES[1:-1], p, side="left")
    size = len(EDGES) - 1
    return np.stack(
        [
            np.bincount(slot, minlength=size).astype(np.float64),
            np.bincount(slot, weights=p, minlength=size),
            np.bincount(slot[chosen[allowed]], minlength=size).astype(np.float64),
            np.bincount(slot, weights=p * (1 - p), minlength=size),
        ]
    )
