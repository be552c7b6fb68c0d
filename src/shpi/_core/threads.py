"""One thread for linear algebra: sums in another order round otherwise, and a tie then falls the other way.

Small matrices gain nothing from threads, either; processes side by side do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, within which BLAS and OpenMP use one thread, whatever the environment says."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1):
            return function(*args, **kwargs)

    return limited
