"""Functions that run on a machine of the cluster: one thread per task, the same versions everywhere."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any

from shpi._core.versions import versions
from shpi.errors import ShpiError
from shpi.passes.tree import tree_sum

# Threads change the order of sums and so their rounding. numpy's libraries read these when loaded.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1",
}  # fmt: skip


def do(function: Callable[[Any], Any], task: Any, expected: Mapping[str, str]) -> tuple[None, Any]:
    """A marker of success, small enough to be sent at once, and the function's result."""
    from threadpoolctl import threadpool_limits

    require_versions(expected)
    with threadpool_limits(limits=1):
        return None, function(task)


def add_block(add: Callable[[Any, Any], Any], expected: Mapping[str, str], *values: Any) -> tuple[None, Any]:
    """Like `do`, for the sum of neighbouring nodes in the tree."""
    require_versions(expected)
    return None, tree_sum(values, add)


def require_versions(expected: Mapping[str, str]) -> None:
    """Raise if this machine has other versions: sums would differ in their last digits, or in more."""
    here = versions()
    other = [name for name in expected if here.get(name) != expected[name]]
    if other:
        raise ShpiError(
            expected="the same versions on every machine: "
            + ", ".join(f"{name} {expected[name]}" for name in other),
            found=", ".join(f"{name} {here.get(name, 'missing')}" for name in other),
            where=f"machine {platform.node()}",
            remedy="install the same versions on all machines of the cluster",
        )
