"""The conformance suite must notice oracles that break its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from shpi.oracles import Oracle, Ridge
from shpi.policies import LinearScorer
from shpi.testing.oracle import check_oracle


@dataclass
class Broken:
    """A ridge with one fault."""

    fault: str
    inner: Any = None
    fits: int = 0

    def prepare(self, logs, *, seed):
        if self.fault == "mutates":
            logs.contexts[0, 0] += 1
        return Broken(self.fault, Ridge.exact().prepare(logs, seed=seed))

    @property
    def unseen(self):
        return self.inner.unseen[:0] if self.fault == "hides the unseen" else self.inner.unseen

    def tune(self, targets, *, valid=None):
        return self

    def fit(self, targets, weights=None, valid=None):
        if self.fault == "looks at invalid rows":
            weights, valid, targets = None, None, np.nan_to_num(targets)
        if self.fault == "swallows NaN":
            targets = np.nan_to_num(np.asarray(targets), posinf=0.0)
        if self.fault == "scale":
            targets = np.clip(targets, -100, 100)
        scorer = self.inner.fit(targets, weights, valid)
        shift = {"remembers": self.fits, "wrong": 0.0}.get(self.fault, 0.0)
        self.fits += 1
        factor = 0.0 if self.fault == "wrong" else 1.0
        return LinearScorer(weights=factor * scorer.weights + shift, features=scorer.features)

    def scores_on_log(self, scorer):
        for rows, scores in self.inner.scores_on_log(scorer):
            yield rows, scores + (self.fault == "other scores on the log")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("mutates", "changed the log"),
        ("hides the unseen", "never taken"),
        ("looks at invalid rows", "invalid rows must be the same"),
        ("swallows NaN", "NaN among the targets must raise"),
        ("scale", "1e12 change the fit"),
        ("remembers", "remembers the first one"),
        ("wrong", "R squared"),
        ("other scores on the log", "differs from the scorer"),
    ],
)
def test_the_suite_finds(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_oracle(Broken(fault), rows=400)


def test_without_a_fault_the_wrapper_passes():
    check_oracle(Broken("none"), rows=400)
    assert isinstance(Ridge(), Oracle)
