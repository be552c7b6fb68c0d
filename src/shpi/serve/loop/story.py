"""One sentence on whether the service is learning, and if not, why not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from shpi.serve.loop.control import Control
from shpi.serve.loop.state import CycleState


def sentence(folder: Path, control: Control, canary: str = "") -> str:
    """Say whether the service is learning, and if not, why not.

    Args:
        folder: folder of the service.
        control: state of the service.
        canary: a sentence on the policy on trial.
    """
    if control.canary is not None:
        return f"'{control.canary.policy}' is on trial: {canary or control.history[-1].why}."
    last, cycle = control.history[-1], CycleState.last(folder)
    if last.what == "rolled back" and (cycle is None or cycle.started <= last.time):
        return f"'{last.policy}' was rolled back on {day(last.time)}: {last.why}."
    if cycle is None:
        return f"Nothing has changed because no cycle has run yet: '{control.champion}' serves."
    if cycle.outcome is None:
        return f"Cycle {cycle.number} is under way, at the step '{cycle.next_step}'."
    if last.what == "promoted" and cycle.started <= last.time:
        return f"'{last.policy}' was promoted on {day(last.time)}: {last.why}."
    return f"Nothing has changed: {cycle.outcome}"


def day(moment: int) -> str:
    """A time, in microseconds since 1970, as readable text."""
    return datetime.fromtimestamp(moment / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
