"""The benchmark of the hard worlds judges, keeps what it judged, and writes its page."""

from __future__ import annotations

import pytest
from benchmarks import bench_gate_hard
from benchmarks.gate_hard import judge


def test_a_page_from_a_few_judgements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gate_hard, "POLICIES", 2)
    cases = [judge(("small log", seed, None, lift, False)) for seed in (1, 2) for lift in (0.0, 0.15)]
    judgements = [case for case in cases if case is not None]
    assert len(judgements) == 4
    assert all((judgement.truth > 1e-9) == (judgement.wanted > 0) for judgement in judgements)
    page = bench_gate_hard.page(judgements)
    assert "| small log | 100 | **" in page
    assert "false ships of 2" in page


def test_what_is_within_noise() -> None:
    assert bench_gate_hard.allowed(100) == 10
    assert bench_gate_hard.allowed(20) == 3
    assert "0 of 30 (0% to 12%)" in bench_gate_hard.interval(0, 30)
