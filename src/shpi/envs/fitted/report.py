"""The report on a world model, as numbers and as text; `fitted.check` computes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_SHOWN_ACTIONS = 12  # most lines of the table of actions


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One outcome, predicted for held-out decisions. ``skill`` is AUC, or R² for real-valued outcomes."""

    name: str
    rows: int
    observed: float  # mean of the outcome
    predicted: float
    measure: str  # "AUC" or "R2"
    skill: float
    without: float | None = None  # skill without the inputs that ``part`` names
    part: str = ""
    group_rows: tuple[int, ...] = ()  # ten groups from the least to the greatest prediction
    group_predicted: tuple[float, ...] = ()
    group_observed: tuple[float, ...] = ()

    @property
    def worst(self) -> float:
        """The largest difference between predicted and observed over the ten groups."""
        return max(abs(p - o) for p, o in zip(self.group_predicted, self.group_observed, strict=True))


@dataclass(frozen=True, kw_only=True)
class ActionRow:
    """One action in the held-out log: its mean reward and its standard error, and the predicted mean."""

    action: str
    rows: int
    observed: float
    predicted: float
    error: float


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A quantity in the held-out log and in the simulation of the same users."""

    name: str
    held_out: float
    simulated: float


@dataclass(frozen=True, kw_only=True)
class WorldReport:
    """How well a world matches held-out users; can be printed or turned into JSON."""

    world: str
    users: int
    sessions: int
    decisions: int
    predictions: tuple[Prediction, ...]
    actions: tuple[ActionRow, ...]  # most frequent first
    lengths: tuple[Simulated, ...]  # shares of session lengths; empty if no session ends
    simulated: tuple[Simulated, ...]
    spread: dict[str, float]  # mean standard deviation over the ensemble
    notes: tuple[str, ...] = ()

    def prediction(self, name: str) -> Prediction:
        """The prediction of that name, e.g. ``reward`` or ``return within 1``."""
        return next(row for row in self.predictions if row.name == name)

    @property
    def length_distance(self) -> float:
        """The total variation between the two distributions of session lengths."""
        return 0.5 * sum(abs(row.held_out - row.simulated) for row in self.lengths)

    @property
    def action_distance(self) -> float:
        """The mean difference between observed and predicted reward of an action, weighted by decisions."""
        total = sum(row.rows for row in self.actions)
        return sum(row.rows * abs(row.observed - row.predicted) for row in self.actions) / total

    def to_json(self) -> dict[str, Any]:
        """All numbers, JSON-ready."""
        summary = {"length_distance": self.length_distance, "action_distance": self.action_distance}
        worst = {row.name: row.worst for row in self.predictions}
        return asdict(self) | summary | {"worst_calibration": worst}

    def __str__(self) -> str:
        return "\n".join(_text(self))


# ---------------------------------------------------------------------- text


def _text(report: WorldReport) -> list[str]:
    lines = [
        f"World '{report.world}' against {report.users:,} held-out users "
        f"({report.sessions:,} sessions, {report.decisions:,} decisions)",
        "",
        "Prediction             moments  observed  predicted     skill  worst group off by",
    ]
    for row in report.predictions:
        lines.append(
            f"  {row.name:<20}{row.rows:>8,}{row.observed:>10.4g}{row.predicted:>11.4g}"
            f"{row.measure:>5}{row.skill:>6.3f}{row.worst:>12.4f}"
        )
        if row.without is not None:
            lines.append(f"    {f'without the {row.part}':<45}{row.measure:>5}{row.without:>6.3f}")
    for row in report.predictions:
        if row.name.startswith("return"):
            lines += _calibration(row)
    lines += ["", f"{'The same users, simulated':<32}{'held out':>10}{'simulated':>11}"]
    lines += [f"  {row.name:<30}{row.held_out:>10.4g}{row.simulated:>11.4g}" for row in report.simulated]
    if report.lengths:
        title = f"Session lengths (distance {report.length_distance:.3f})"
        lines += ["", f"{title:<32}{'held out':>10}{'simulated':>11}"]
        lines += [f"  {row.name:<30}{row.held_out:>10.1%}{row.simulated:>11.1%}" for row in report.lengths]
    lines += _action_text(report)
    if report.spread:
        parts = ", ".join(f"{name} ± {value:.4g}" for name, value in report.spread.items())
        lines += ["", f"Spread over the ensemble, on average per decision: {parts}"]
    return lines + [f"Note: {note}" for note in report.notes]


def _calibration(row: Prediction) -> list[str]:
    def numbers(values: tuple[float, ...]) -> str:
        return "".join(f"{value:>8.3f}" for value in values)

    off = tuple(p - o for p, o in zip(row.group_predicted, row.group_observed, strict=True))
    return [
        "",
        f"Calibration of '{row.name}', ten groups from the least likely to the most likely",
        f"  predicted{numbers(row.group_predicted)}",
        f"  observed {numbers(row.group_observed)}",
        f"  off by   {''.join(f'{value:>+8.3f}' for value in off)}",
    ]


def _action_text(report: WorldReport) -> list[str]:
    shown = report.actions[:_SHOWN_ACTIONS]
    rest = len(report.actions) - len(shown)
    lines = ["", f"Reward by action (mean difference {report.action_distance:.4f})"]
    lines.append(f"  {'action':<18}{'decisions':>10}{'observed':>10}{'± s.e.':>10}{'predicted':>11}")
    lines += [
        f"  {row.action:<18}{row.rows:>10,}{row.observed:>10.4g}{row.error:>10.2g}{row.predicted:>11.4g}"
        for row in shown
    ]
    return [*lines, f"  … and {rest} more"] if rest else lines
