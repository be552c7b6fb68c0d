"""The interfaces of this package: fitting a value model to a log gives V, a function of contexts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.protocols import Float64Array, FloatArray

BLOCK = 50_000  # rows whose features are held at once


@runtime_checkable
class FittedValue(Protocol):
    """V, an estimate of a long-term value. It never changes."""

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """V(x): contexts [n, d] to values [n]. Row i depends on context i alone."""
        ...


@runtime_checkable
class ValueModel(Protocol):
    """A configuration of a value estimate, before any data was seen."""

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> FittedValue:
        """V^mu of the policy that wrote the log."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class StateValues:
    """V at every context of one log."""

    rows: Float64Array  # [n] V(x_t)
    final: Float64Array  # [N] V of the final contexts; meaningless where they were not observed

    @classmethod
    def of(cls, value: Callable[[FloatArray], ArrayLike], logs: LoggedData) -> StateValues:
        """Evaluate V on a log, block by block; a NaN or an infinity is an error that names its row."""
        on_log: Callable[[LoggedData], StateValues] | None = getattr(value, "on_log", None)
        if on_log is not None:  # a value that sees more of a log than its contexts, such as PastValue
            return on_log(logs)
        return cls(
            rows=_in_blocks(value, logs.contexts, "row"),
            final=_in_blocks(value, logs.final_contexts, "the final context of trajectory"),
        )

    @classmethod
    def zeros(cls, logs: LoggedData) -> StateValues:
        """V = 0: no bonus, which is session-based reinforcement learning (k = 1: a bandit)."""
        return cls(rows=np.zeros(len(logs)), final=np.zeros(logs.n_trajectories))

    def following(self, logs: LoggedData) -> Float64Array:
        """V of the context after each decision, [n].

        The next row's value; at the end of a trajectory 0 when terminated, else that of the final context.
        Where that was not observed the entry is 0, and `next_known` is False.
        """
        ahead = np.empty(len(logs))
        ahead[:-1] = self.rows[1:]
        last = logs.offsets[1:] - 1
        ahead[last] = np.where(logs.terminated | ~logs.final_observed, 0.0, self.final)
        return ahead


def checked_gamma(gamma: float, *, below_one: bool = True) -> float:
    """A discount in [0, 1), or in [0, 1] where an infinite sum is not taken."""
    if not (0 <= gamma < 1 or (gamma == 1 and not below_one)):
        raise ConfigError(expected=f"gamma in [0, 1{')' if below_one else ']'}", found=str(gamma))
    return float(gamma)


def checked_values(values: ArrayLike, n: int, label: str, first: int = 0) -> Float64Array:
    """Values as float64 [n]; a wrong shape, a NaN or an infinity is an error that names its place."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.shape not in ((n,), (n, 1)):
        raise DataError(expected=f"values of shape {(n,)}", found=f"shape {array.shape} of {array.dtype}")
    flat = array.reshape(n).astype(np.float64, copy=False)
    bad = ~np.isfinite(flat)
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise DataError(
            expected="a finite value for every context",
            found=f"{flat[where]} and {int(bad.sum()) - 1} more",
            where=f"{label} {first + where}",
            remedy="look at this context, and make the value function defined there",
        )
    return flat


def _in_blocks(value: Callable[[FloatArray], ArrayLike], contexts: FloatArray, label: str) -> Float64Array:
    parts = [
        checked_values(value(contexts[i : i + BLOCK]), len(contexts[i : i + BLOCK]), label, i)
        for i in range(0, len(contexts), BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
