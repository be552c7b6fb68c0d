"""One thread for linear algebra: another order of summation rounds differently, which can flip a tie.

Small matrices gain nothing from threads anyway; use parallel processes instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that BLAS and OpenMP use one thread inside it, whatever the environment says."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1):
            return function(*args, **kwargs)

    return limited
