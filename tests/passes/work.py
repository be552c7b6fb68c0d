"""What the tests give other processes to do. A process imports this file, so it imports little."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


def moments(logs: LoggedData, power: int = 1) -> Float64Array:
    """The sums of products of contexts and rewards."""
    x = np.column_stack([logs.contexts, np.asarray(logs.rewards)]).astype(np.float64) ** power
    return np.asarray(x.T @ x)


def reward_sum(logs: LoggedData) -> float:
    """The sum of the rewards."""
    assert logs.rewards is not None
    return float(logs.rewards.sum())


def killed_once(marker: Path, logs: LoggedData) -> Float64Array:
    """The moments, from a process that is killed where nobody was before."""
    if logs.users[0] % 2 == 0 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return moments(logs)


def always_killed(logs: LoggedData) -> None:
    """Nothing: the process is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def environment(logs: LoggedData) -> str | None:
    """What the process has in its environment."""
    return os.environ.get("SHPI_TEST")


def own_number(logs: LoggedData) -> int:
    """The number of the process."""
    return os.getpid()
