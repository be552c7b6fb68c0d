"""Rewrites advice in error messages from Python arguments to options of the command line."""

from __future__ import annotations

import re

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


def spelled(words: str) -> str:
    """The advice, with options of the command line in place of Python arguments."""
    for python, shell in SPELLINGS.items():
        words = re.sub(python, shell, words)
    return words
