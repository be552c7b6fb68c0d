"""Errors answer four questions, and cross from a worker process to its parent."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from shpi import errors
from shpi.errors import ConfigError, DataError, NoColumnMapError, ShpiError

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ShpiError) and kind.__init__ is ShpiError.__init__
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_pickled_error_is_the_same_error(kind: type[ShpiError]) -> None:
    error = kind(expected="a price", found="-1", where="row 3", remedy="correct it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == "expected a price, found -1 (row 3). What to do: correct it."
    assert (again.expected, again.found, again.where, again.remedy) == (
        "a price",
        "-1",
        "row 3",
        "correct it",
    )


def test_an_error_with_more_to_say_is_pickled_whole() -> None:
    error = NoColumnMapError(expected="a map", found="none", advice="write one", guess='user = "u"')
    again = pickle.loads(pickle.dumps(error))
    assert (again.advice, again.guess, str(again)) == ("write one", 'user = "u"', str(error))


def fail(number: int) -> None:
    raise DataError(expected="an even number", found=str(number), where=f"row {number}")


def test_an_error_in_a_worker_reaches_its_parent() -> None:
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with pool, pytest.raises(DataError, match=r"found 7 \(row 7\)"):
        pool.submit(fail, 7).result()


def test_config_errors_are_errors_of_shpi() -> None:
    with pytest.raises(ShpiError, match="What to do: give what is expected"):
        raise ConfigError(expected="a", found="b")
