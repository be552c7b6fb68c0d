"""Connect to a Ray cluster, and turn its failures into errors of shpi."""

from __future__ import annotations

import logging
import os
import re
import socket
from typing import Any

from shpi.errors import ConfigError, MissingExtraError, ShpiError

REACH_SECONDS = 5.0  # seconds until an address that does not answer is given up
HOW_TO_START = (
    "start one with `ray start --head --disable-usage-stats` on one machine and "
    "`ray start --address=HOST:6379` on the others, or use --jobs N (shpi.passes.Processes) on this machine"
)


def connect(address: str) -> Any:
    """Connect, and return the module ``ray``. An existing connection of this process is reused.

    Args:
        address: "auto" for the cluster that this machine is part of (or that RAY_ADDRESS names), HOST:PORT,
            or "local" for a new one on this machine, which ends with this process.
    """
    # By default Ray reports usage statistics and starts a dashboard; shpi needs neither.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "cluster") from None
    if not ray.is_initialized():
        where: dict[str, Any] = {"address": address}
        if address == "local":
            where |= {"include_dashboard": False}
        else:
            _require_answer(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError, AssertionError, TimeoutError) as error:
            raise _unreached(address, _first_line(error)) from None
    if processors(ray) < 1:
        raise _unreached(address, "a cluster without a processor that is free for tasks")
    return ray


def processors(ray: Any) -> int:
    """The number of processors of all live machines."""
    return int(ray.cluster_resources().get("CPU", 0))


def translate_error(ray: Any, error: BaseException) -> BaseException:
    """The error that a task raised, or a shpi error that says how the task was lost."""
    failures = ray.exceptions
    cause = getattr(error, "cause", None)
    while isinstance(cause, failures.RayTaskError):  # a sum fails with the error of its inputs
        cause = cause.cause
    if isinstance(cause, ShpiError):
        return cause
    if isinstance(cause, FileNotFoundError | ModuleNotFoundError):
        return ShpiError(
            expected="machines that can read the shards, and have what this process has installed",
            found=f"on one of them {_first_line(cause)}",
            remedy="put the shards where every machine sees them under the same path, or on a remote place "
            "such as s3://bucket/shards; install the same packages everywhere",
        )
    if isinstance(cause, Exception):
        return cause
    if isinstance(error, failures.RayTaskError):
        return ShpiError(expected="tasks that end well", found=_last_line(error))
    lost = (
        failures.WorkerCrashedError,
        failures.NodeDiedError,
        failures.ObjectLostError,
        failures.OutOfMemoryError,
        failures.RaySystemError,
    )
    if isinstance(error, lost):
        return ShpiError(
            expected="workers that live until their shards are done",
            found=f"a task that was lost with its worker again and again ({type(error).__name__})",
            remedy="the machines may be out of memory: use smaller shards, or fewer processors per machine",
        )
    return ShpiError(
        expected="a Ray cluster that lives until the work is done",
        found=f"{type(error).__name__}: {_first_line(error)}",
        remedy="look at the cluster (`ray status`), then start the command again",
    )


def no_machines_error(seconds: float) -> ShpiError:
    """The error for a cluster without any live machine."""
    return ShpiError(
        expected="a machine of the cluster that takes tasks",
        found=f"none for {seconds:.0f} seconds",
        remedy="start machines again (`ray start --address=HOST:6379`), then the command again",
    )


def _require_answer(address: str) -> None:
    """Raise for an address where nobody listens; Ray would wait for a minute and more."""
    match = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d{1,5})", address)
    if match is None:
        if address not in ("auto", "local"):
            raise ConfigError(
                expected="the address of a Ray cluster: auto, local or HOST:PORT", found=repr(address)
            )
        return
    try:
        socket.create_connection((match[1], int(match[2])), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unreached(address, _first_line(error)) from None


def _unreached(address: str, found: str) -> ConfigError:
    return ConfigError(
        expected="a Ray cluster that answers", found=found, where=f"address '{address}'", remedy=HOW_TO_START
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200]
