"""The errors that shpi raises: what was expected, what was found, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class ShpiError(Exception):
    """The root of all errors raised on purpose by shpi.

    The message always answers four questions in one paragraph, so that nobody has to read a stack trace:

    >>> raise DataError(
    ...     expected="a propensity in (0, 1]",
    ...     found="0.0",
    ...     where="column 'p', row 17",
    ...     remedy="log the probability with which the action was chosen, or set propensity=None",
    ... )
    Traceback (most recent call last):
    ...
    shpi.errors.DataError: expected a propensity in (0, 1], found 0.0 (column 'p', row 17). \
What to do: log the probability with which the action was chosen, or set propensity=None.
    """

    usual_remedy = ""  # where the one who raises knows no better

    def __init__(self, *, expected: str, found: str, where: str = "", remedy: str = "") -> None:
        remedy = remedy or self.usual_remedy
        self.expected, self.found, self.where, self.remedy = expected, found, where, remedy
        place = f" ({where})" if where else ""
        advice = f" What to do: {remedy.rstrip('.')}" if remedy else ""
        advice += "" if not remedy or "\n" in remedy else "."  # nothing is added to text meant for copying
        super().__init__(f"expected {expected}, found {found}{place}.{advice}")

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is: an error of a worker process must reach its parent, and __init__ takes keywords only."""
        return _restored, (type(self), self.args, self.__dict__)


class DataError(ShpiError):
    """A log cannot be read as decisions without losing or inventing something."""

    usual_remedy = "correct this in the data, or leave it out"


class ColumnError(DataError):
    """The column map names what the table does not have, or a column has the wrong type."""

    usual_remedy = "correct the column map, or the column"


class ConfigError(ShpiError):
    """A parameter is out of its range, or two parameters contradict each other."""

    usual_remedy = "give what is expected"


class NoColumnMapError(ConfigError):
    """A table was given without a column map; ``guess`` is a first one, as TOML."""

    def __init__(self, *, expected: str, found: str, where: str = "", advice: str, guess: str) -> None:
        super().__init__(expected=expected, found=found, where=where, remedy=f"{advice}\n\n{guess}")
        self.advice, self.guess = advice, guess


class ActionError(ShpiError):
    """An action has the wrong shape, type or range, or is not among its candidates."""

    usual_remedy = "give actions of the log's own action set"


class EpisodeError(ShpiError):
    """A simulator was used out of order, for example stepped after everyone had left."""

    usual_remedy = "call reset first"


class FileError(ShpiError):
    """The operating system refuses to read or to write: no space, no permission, a read-only disk."""


class MemoryLimitError(ShpiError):
    """The work needs more memory than there is."""


class MissingExtraError(ShpiError, ImportError):
    """An optional dependency is needed and is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            expected=f"the package '{package}'",
            found="that it is not installed",
            remedy=f"pip install 'shpi[{extra}]'",
        )


def require_settings(where: str, checks: Iterable[tuple[bool, str, object]]) -> None:
    """Raise a `ConfigError` for the first check (does it hold, what is expected, the value) that fails."""
    for holds, expected, value in checks:
        if not holds:
            raise ConfigError(expected=expected, found=repr(value), where=where)


def _restored(kind: type[ShpiError], args: tuple[Any, ...], state: dict[str, Any]) -> ShpiError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
