"""Checks that all simulators share: the arguments of a reset, the actions, the order of calls."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.envs.streams import checked_seed
from shpi.errors import ActionError, ConfigError, EpisodeError
from shpi.protocols import BoolArray, Int64Array, IntArray


def check_reset(n: int, seed: int, first: int = 0) -> Int64Array:
    """Check the arguments of a reset, and return the users first .. first+n-1, [n]."""
    count, start = whole_number("n", n, least=1), whole_number("first", first, least=0)
    checked_seed(seed)
    return np.arange(start, start + count, dtype=np.int64)


def check_actions(
    actions: IntArray,
    n: int,
    n_actions: int,
    candidates: BoolArray | None = None,
    *,
    ended: BoolArray | None = None,
) -> Int64Array:
    """The actions [n] as int64, checked. Actions of users that have ended are ignored and become 0."""
    given: NDArray[Any] = np.asarray(actions)
    if given.shape != (n,):
        raise ActionError(
            expected=f"one action per user, shape ({n},)",
            found=f"shape {given.shape}",
            remedy="pass an integer array with one entry for every user of the reset",
        )
    if given.dtype.kind not in "iu":
        raise ActionError(
            expected="integer actions",
            found=f"dtype {given.dtype}",
            remedy="pass positions 0..A-1 as integers",
        )
    # Usually only the bounds are checked; after an error, its row is searched for.
    if ended is not None and ended.any():
        given = np.where(ended, 0, given)
    if given.min() < 0 or given.max() >= n_actions:
        row = int(np.flatnonzero((given < 0) | (given >= n_actions))[0])
        raise ActionError(
            expected=f"actions in 0..{n_actions - 1}", found=str(given[row]), where=f"row {row}"
        )
    chosen = given.astype(np.int64, copy=False)
    if candidates is not None:
        allowed = candidates[np.arange(n), chosen]
        if ended is not None:
            allowed |= ended
        if not allowed.all():
            row = int(np.flatnonzero(~allowed)[0])
            raise ActionError(
                expected="an action among the candidates",
                found=f"action {chosen[row]}, which is not allowed now",
                where=f"row {row}",
                remedy="choose only where candidates() is True",
            )
    return chosen


def check_running(ended: BoolArray | None, step: int = 0, horizon: int | None = None) -> None:
    """Raise an error unless at least one user has not ended. ``ended`` is None before the first reset."""
    if ended is None:
        raise EpisodeError(
            expected="a reset before the first step", found="none", remedy="call reset(n, seed) first"
        )
    if ended.all():
        raise EpisodeError(
            expected="at least one user that has not ended",
            found=f"that all {len(ended)} have",
            where=f"after {step} decisions" if step else "",
            remedy="call reset(n, seed) to start again",
        )
    if horizon is not None and step >= horizon:
        raise EpisodeError(
            expected=f"at most {horizon} decisions, the horizon",
            found="one more",
            remedy="call reset(n, seed), or make the simulator with a larger horizon",
        )


def whole_number(name: str, value: int, *, least: int) -> int:
    """Check a count, and return it as a plain int; it must be at least ``least``."""
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ConfigError(expected=f"{name} to be a whole number >= {least}", found=repr(value))
    return number


def real_number(name: str, value: float, *, above: float | None = None, least: float | None = None) -> float:
    """Check a finite number; it must be greater than ``above`` and at least ``least``, where given."""
    bound = "".join(
        (f" > {above:g}" if above is not None else "", f" >= {least:g}" if least is not None else "")
    )
    try:
        number = float("nan") if isinstance(value, bool | np.bool_ | str) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    fine = np.isfinite(number) and (above is None or number > above) and (least is None or number >= least)
    if not fine:
        raise ConfigError(expected=f"{name} to be a finite number{bound}", found=repr(value))
    return number
