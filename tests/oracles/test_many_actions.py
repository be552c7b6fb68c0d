"""Many actions: memory is estimated before the work, and a default that does not fit is not chosen."""

from __future__ import annotations

import numpy as np
import pytest

from shpi._core import memory
from shpi._core.memory import forget_peak, peak_memory
from shpi.data.logged import LoggedData
from shpi.errors import MemoryLimitError
from shpi.features import Chain, RandomFourier, Standardise
from shpi.learners import ContextualBandit
from shpi.oracles import Ridge


def wide_log(n: int, actions: int) -> LoggedData:
    random = np.random.default_rng(0)
    taken = random.integers(0, actions, n)
    return LoggedData.from_arrays(
        contexts=random.normal(size=(n, 5)),
        actions=taken,
        rewards=(random.random(n) < 0.1 + 0.1 * (taken % 7 == 0)).astype(float),
        propensities=np.full(n, 1 / actions),
        n_actions=actions,
        offsets=np.arange(0, n + 1, 10),
    )


def test_ten_thousand_actions_fit_in_memory() -> None:
    """20,000 rows here, 200,000 in the benchmark: before, 3 GB for every copy of the Gram matrices."""
    logs = wide_log(20_000, 10_000)
    forget_peak()
    before = peak_memory()
    prepared = Ridge().prepare(logs, seed=0)
    scorer = prepared.tune(np.asarray(logs.rewards)).fit(np.asarray(logs.rewards))
    after = peak_memory()
    assert scorer.n_actions == 10_000
    assert before is not None
    assert after is not None
    assert after - before < 1e9


def test_what_does_not_fit_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = wide_log(1_000, 500)
    curves = Chain((Standardise(), RandomFourier(n_features=200)))
    Ridge(features=curves).prepare(logs, seed=0)
    monkeypatch.setattr(memory, "available_memory", lambda: 10**8)
    with pytest.raises(MemoryLimitError, match="GiB of memory for Gram matrices of 500 actions") as caught:
        ContextualBandit(oracle=Ridge(features=curves)).fit(logs)
    assert "fewer features" in caught.value.remedy


def test_available_memory_is_a_number_here() -> None:
    there = memory.available_memory()
    assert there is None or there > 0
