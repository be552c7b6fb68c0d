"""A few seconds of what ``make fuzz`` does for an hour."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

COUNTS = {"log": 50, "map": 40, "command line": 15, "world": 30, "evaluate": 8, "fit": 8}


@pytest.mark.parametrize("name", list(TARGETS))
def test_nothing_but_errors_with_a_remedy(name: str, tmp_path: Path) -> None:
    @settings(
        max_examples=COUNTS.get(name, 80),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32))
    def attack(seed: int) -> None:
        assert TARGETS[name](random.Random(seed), tmp_path) in ("accepted", "refused")

    attack()
