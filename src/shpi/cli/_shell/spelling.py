"""Rewrites advice in error messages from Python arguments to options of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from shpi.errors import ShpiError

# Patterns in the library's messages, and their replacements on the command line; longer phrases first.
SPELLINGS = {
    r"With invalid='drop'": "With --invalid drop",
    r"invalid='drop'": "--invalid drop",
    r"duplicates='drop' or 'keep'": "--duplicates drop or keep",
    r"duplicates='drop'": "--duplicates drop",
    r"use logs\.with_estimated_propensities\(\)": "add --estimate-propensities",
    r"logs\.with_estimated_propensities\(\)": "--estimate-propensities",
    r"DirectMethod, FQE": "--estimators dm,fqe",
    r"KStepSHPI\(k=(\d+)\)": r"--estimators shpi:\1",
    r"horizon=(\d+)": r"--horizon \1",
    r"truncated='complete'": "--truncated complete",
    r"anytime=True": "--anytime",
}


@contextmanager
def spelled_for_the_command_line() -> Iterator[None]:
    """Within the block, rewrite the advice of errors for the command line."""
    try:
        yield
    except ShpiError as error:
        remedy = spelled(error.remedy)
        if remedy == error.remedy or type(error).__init__ is not ShpiError.__init__:
            raise
        raise type(error)(
            expected=error.expected, found=error.found, where=error.where, remedy=remedy
        ) from None


def spelled(words: str) -> str:
    """The advice, with options of the command line in place of Python arguments."""
    for python, shell in SPELLINGS.items():
        words = re.sub(python, shell, words)
    return words
