"""Checks of a whole log, value by value. Each failure names the array, the row and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shpi.errors import ActionError, DataError
from shpi.protocols import BoolArray, Float64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

SUM_TOLERANCE = 1e-4  # distributions logged in float32 sum to 1 within about 1e-6 times the action count
LARGEST_REWARD = 1e30  # larger values are placeholders, and sums of their squares overflow


def check_arrays(logs: LoggedData) -> None:
    """Raise on the first value that no learner or estimator could use."""
    if len(logs) == 0:
        raise DataError(expected="at least one decision", found="none")
    _finite("contexts", logs.contexts.reshape(len(logs), -1))
    _finite("final_contexts", logs.final_contexts)
    if logs.rewards is not None:
        _rewards("rewards", logs.rewards)
    if logs.immediate is not None:
        _rewards("immediate", logs.immediate)
    for name, values in logs.metrics.items():
        _rewards(f"metrics[{name!r}]", values)
    _check_actions(logs)
    if logs.propensities is not None:
        _check_propensities(logs.propensities)
    if logs.behaviour is not None:
        _check_behaviour(logs)
    inner = np.ones(len(logs), dtype=bool)
    inner[logs.offsets[:-1]] = False
    backwards = inner[1:] & (logs.times[1:] < logs.times[:-1])
    if backwards.any():
        raise DataError(
            expected="times that never go backwards inside a trajectory",
            found=f"{logs.times[1:][backwards][0]} after {logs.times[:-1][backwards][0]}",
            where=f"row {int(np.flatnonzero(backwards)[0]) + 1}",
            remedy="sort the rows by (user, time), or read the table with LoggedData.read, which sorts",
        )


def _rewards(name: str, values: Float64Array) -> None:
    _finite(name, values[:, None])
    bad = np.abs(values) > LARGEST_REWARD
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            expected=f"{name} of at most {LARGEST_REWARD:g}",
            found=f"{values[row]:g}",
            where=f"row {row}",
            remedy="a placeholder such as 1e308 is no reward: drop or fill it; or choose a larger unit",
        )


def _finite(name: str, values: np.ndarray) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = (int(index[0]) for index in np.nonzero(bad))
        raise DataError(
            expected=f"finite {name}",
            found=str(values[row, column]),
            where=f"row {row}, dimension {column}",
            remedy="drop or fill the value before building the log",
        )


def _check_actions(logs: LoggedData) -> None:
    outside = (logs.actions < 0) | (logs.actions >= logs.n_actions)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise ActionError(
            expected=f"actions in 0..{logs.n_actions - 1}", found=str(logs.actions[row]), where=f"row {row}"
        )
    if logs.candidates is not None:
        empty = np.logical_not(logs.candidates.any(axis=1))
        forbidden = ~logs.candidates[np.arange(len(logs)), logs.actions]
        _first(empty, "at least one candidate per decision", "an empty candidate set")
        _first(forbidden & ~empty, "the chosen action among its candidates", "an action outside them")


def _first(bad: BoolArray, expected: str, found: str) -> None:
    if bad.any():
        raise ActionError(expected=expected, found=found, where=f"row {int(np.flatnonzero(bad)[0])}")


def _check_propensities(values: Float64Array) -> None:
    bad = ~((values > 0) & (values <= 1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            expected="propensities in (0, 1]",
            found=str(values[row]),
            where=f"row {row}",
            remedy="log the probability with which the action was chosen, or leave propensities out",
        )


def _check_behaviour(logs: LoggedData) -> None:
    behaviour = np.asarray(logs.behaviour)
    _finite("behaviour", behaviour)
    off = (behaviour < 0).any(axis=1) | (np.abs(behaviour.sum(axis=1) - 1) > SUM_TOLERANCE)
    if off.any():
        row = int(np.flatnonzero(off)[0])
        raise DataError(
            expected="a behaviour distribution that is non-negative and sums to 1",
            found=f"a sum of {behaviour[row].sum():.6g}",
            where=f"row {row}",
        )
    if logs.propensities is not None:
        taken = behaviour[np.arange(len(logs)), logs.actions]
        apart = np.abs(taken - logs.propensities) > SUM_TOLERANCE
        if apart.any():
            row = int(np.flatnonzero(apart)[0])
            raise DataError(
                expected="the propensity to be the behaviour distribution's entry of the chosen action",
                found=f"{logs.propensities[row]:.6g} against {taken[row]:.6g}",
                where=f"row {row}",
            )
