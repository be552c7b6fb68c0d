"""Progress in a terminal: stages with the remaining time, one display for nested work, silence elsewhere."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from shpi._core import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """To be called in the test itself: between its phases pytest puts its own streams back."""

    def made() -> Terminal:
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("TERM", "xterm")
        return screen

    return made


@progress.stages("evaluating")
def work() -> None:
    progress.expect({"WDR": 3.0, "checks": 1.0})
    progress.begin("WDR")
    _draw()
    progress.begin("checks")
    _draw()


def _draw() -> None:
    for bars in progress._display:
        bars.refresh()


def test_stages_are_named_and_come_with_the_time_that_is_left(terminal):
    screen = terminal()
    work()
    shown = screen.getvalue()
    assert "evaluating: WDR" in shown
    assert "evaluating: checks" in shown
    assert "left" in shown


def test_nested_work_shares_one_display(terminal):
    screen = terminal()
    with progress.progress_bar("candidates", 2) as advance:
        work()
        advance(1)
        assert len(progress._display) == 1
    assert not progress._display
    assert not progress._staged
    last = screen.getvalue().split("evaluating: checks")[0]
    assert "candidates" in last


def test_what_fails_leaves_no_display_behind(terminal):
    terminal()
    with pytest.raises(ZeroDivisionError), progress.stages("broken"):
        _ = 1 / 0
    assert not progress._display
    assert not progress._staged


def test_outside_a_terminal_nothing_is_shown(capsys):
    work()
    with progress.progress_bar("bar", 3) as advance:
        advance(1)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_an_evaluation_names_its_stages(terminal):
    import numpy as np

    import shpi

    terminal()
    rng = np.random.default_rng(0)
    logs = shpi.LoggedData.from_arrays(
        contexts=rng.random((80, 1)), actions=rng.integers(2, size=80), rewards=rng.random(80),
        propensities=np.full(80, 0.5), offsets=np.arange(0, 81, 2), n_actions=2,
    )  # fmt: skip
    named: list[str] = []
    real = progress._Staged

    class Spy(real):  # type: ignore[misc, valid-type]
        def __setattr__(self, name, value):
            if name == "costs":
                named.extend(value)
            super().__setattr__(name, value)

    progress._Staged = Spy  # type: ignore[misc]
    try:
        shpi.evaluate(shpi.UniformPolicy(2), logs)
    finally:
        progress._Staged = real  # type: ignore[misc]
    assert "WDR" in named
    assert "checks" in named
