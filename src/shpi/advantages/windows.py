"""The end of each decision's window of k steps, for trajectories of any length and any ending.

The window of decision t is the rows t .. stop_t - 1, and the bonus is V of the context after the last one. It
ends at the first of
    t + k                     for an int k; such a window crosses session boundaries, as in the paper
    the end of the session    for k = "session"; the bonus is V of the first context after the session
    the end of the trajectory
    an unusable transition    the window stops before it, and the bonus is V of that row's own context
A decision whose own transition is unusable has an empty window, and no advantage.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Int64Array

Horizon = int | Literal["session"]


def checked_horizon(k: Horizon) -> Horizon:
    """Return k if it is an int of at least 1 or "session"; raise an error otherwise."""
    if k == "session" or (isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 1):
        return k
    raise ConfigError(expected='k to be an int of at least 1, or "session"', found=repr(k))


def window_stops(logs: LoggedData, k: Horizon, usable: BoolArray) -> Int64Array:
    """The row after each decision's window [n]; equal to t if the window is empty."""
    n = len(logs)
    rows = np.arange(n, dtype=np.int64)
    if checked_horizon(k) == "session":
        stops = np.repeat(logs.session_offsets[1:], np.diff(logs.session_offsets))
    else:
        stops = np.repeat(logs.offsets[1:], np.diff(logs.offsets))
        np.minimum(stops, rows + min(int(k), n), out=stops)
    if not usable.all():
        blocked = np.where(usable, n, rows)
        np.minimum(stops, np.minimum.accumulate(blocked[::-1])[::-1], out=stops)
    return stops
