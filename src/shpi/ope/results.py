"""Results of an evaluation: estimates with their intervals, diagnostics, a verdict. Small and immutable.

All estimates have the same estimand (`shpi.ope.problem` defines it), in the unit of the reward:

    value     J(pi), the expected reward per user under the policy
    baseline  J(mu), the reward of the same users under the logging policy
    lift      J(pi) - J(mu), paired by user

An influence [users] has mean 0 and is the contribution of each user to the error: estimate - truth is about
the mean of the influences. Hence the standard error is std(influence) / sqrt(users), and value + influence
are pseudo-values whose mean over any group of users is that group's value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from shpi.errors import ConfigError
from shpi.files.atomic import write_text
from shpi.protocols import Float64Array

if TYPE_CHECKING:
    import polars as pl

Severity = Literal["fine", "note", "warning", "fatal"]
Per = Literal["user", "decision", "session"]
Decision = Literal["ship", "first step", "need more data", "hold"]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A two-sided interval and a one-sided bound, both at the same level. Users are the clusters."""

    level: float  # e.g. 0.95: both statements are meant to hold in 95 % of all logs
    lower: float  # two-sided
    upper: float  # two-sided
    lower_bound: float  # one-sided: the truth is at least this
    method: str  # "skewed", "t", "heavy", "normal", "bootstrap", "bernstein"

    @property
    def width(self) -> float:
        """Upper minus lower."""
        return self.upper - self.lower


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The importance weights of an estimator."""

    mean: float  # about 1 when the propensities are right and the support is good
    max: float  # of a user, as a mean over the user's steps
    ess: float  # effective users: (sum w)^2 / sum w^2 at each step, harmonic mean over steps
    top_share: float  # the share of all weight that the top 1 % of the users carry
    worst: float | None = None  # the effective users of the step that has the fewest


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """The result of one estimator. lift = value - baseline."""

    name: str
    value: float
    baseline: float
    lift: float
    value_error: float  # standard errors, clustered by user
    lift_error: float
    value_interval: Interval
    lift_interval: Interval
    effective_users: float
    influence_value: Float64Array  # [users] of mean 0, in the order of `logs.user_codes`
    influence_lift: Float64Array  # [users]
    weights: Weights | None = None  # None: a model-based estimator that uses none
    notes: tuple[str, ...] = ()  # what was assumed or done on the way
    # For how many decisions it follows what a decision changes; None: for all of them.
    steps: int | None = None
    # Its bias vanishes with more users, whatever a model says, and its interval holds: a witness for others.
    consistent: bool = False
    per: Per = "user"  # what it was divided by: then the baseline is not J(mu)

    def __repr__(self) -> str:
        bounds = f"{self.lift_interval.lower:+.4g} … {self.lift_interval.upper:+.4g}"
        return f"Estimate({self.name}: value {self.value:.5g}, lift {self.lift:+.4g} [{bounds}])"


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One sentence about the reliability of the log or of an estimate."""

    name: str
    severity: Severity
    sentence: str
    figure: float | None = None
    threshold: float | None = None
    estimator: str | None = None  # None: about the log or the policy, and so about all estimators


@dataclass(frozen=True, kw_only=True)
class FirstStep:
    """A mixture (1 - share) mu + share pi, decision by decision, that is proven over the whole horizon."""

    share: float
    lift: float
    at_least: float  # the lower bound of its lift, which holds for all mixtures that were tried together
    confidence: float
    effective_users: float

    def sentence(self) -> str:
        """In words."""
        return (
            f"{100 * self.share:.3g} % of decisions by the new policy can be proven today: {self.lift:+.4g}, "
            f"at least {self.at_least:+.4g} with {100 * self.confidence:.3g} % confidence, over the whole "
            f"horizon ({self.effective_users:,.0f} effective users)."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureEstimate:
    """The lift over the whole horizon, with an interval: of the policy, or of a mixture with mu."""

    share: float  # 1: the policy itself; less: so many of the decisions by the policy, the others by mu
    estimate: Estimate

    def sentence(self) -> str:
        """In words, for a mixture."""
        bounds, sure = self.estimate.lift_interval, 100 * self.estimate.lift_interval.level
        return (
            "No interval over the whole horizon can be given for the policy itself. The largest mixture that "
            f"has one is {100 * self.share:.3g} % of decisions by the policy: {self.estimate.lift:+.4g}, "
            f"between {bounds.lower:+.4g} and {bounds.upper:+.4g} ({sure:.3g} %)."
        )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """May I ship this?"""

    decision: Decision
    reasons: tuple[str, ...] = ()
    users_needed: int | None = None  # for "need more data" and "first step": about so many users in all
    # The same if the lift is one standard error above, or below, its estimate; None: then none would do.
    users_range: tuple[int, int | None] | None = None
    users_prove: bool = True  # whether so many are meant to prove the lift; False: to judge it at all
    guards: tuple[Diagnostic, ...] = ()  # one per guard metric
    first_step: FirstStep | None = None  # for "first step": what can be done today

    @property
    def ship(self) -> bool:
        """Whether the decision is to ship."""
        return self.decision == "ship"


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One factor of reward/recommendation × recommendations/session × sessions/period."""

    name: str
    baseline: float  # under the logging policy
    value: float  # under the policy, by the main estimator's weights


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The lift among some of the users, from the main estimator's pseudo-values."""

    column: str
    label: str
    users: int
    baseline: float
    lift: float
    error: float
    interval: Interval


@dataclass(frozen=True, kw_only=True)
class ActionShift:
    """The change in the frequency of an action, over the logged contexts."""

    action: str
    logged: float  # share of the logged decisions
    policy: float  # mean of pi(a|x) over the same decisions
    reward: float | None  # mean reward of the decisions where it was chosen

    @property
    def change(self) -> float:
        """Share gained (positive) or lost (negative)."""
        return self.policy - self.logged


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts between edges, for a column of a log of any length."""

    edges: tuple[float, ...]  # rising, one more than counts
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Overlap between the policy's decisions and the logged ones."""

    logged: Histogram  # of mu(a|x), a the logged action
    policy: Histogram  # of pi(a|x), of the same decisions, where it is positive
    ratios: Histogram  # of pi/mu where it is positive
    never: int  # decisions that the policy would never make: pi(a|x) = 0
    steps: tuple[int, ...]  # 1 is the first decision of a trajectory
    effective_users: tuple[float, ...]  # left at these steps, by the whole product of ratios


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """All results of `shpi.evaluate` for one policy on one log."""

    policy_name: str
    metric: str  # in words, e.g. "reward per user over 150 decisions, gamma 1"
    question: str = ""  # what is counted, over which time, and how users end: a sentence
    estimates: tuple[Estimate, ...]
    main: str  # the name of the estimator that decides
    # If the one that decides follows some decisions only: the same over as many as the log can carry.
    longer: Estimate | None = None
    # If the one that decides has no interval over the whole horizon: the largest mixture that has one.
    mixture: MixtureEstimate | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    verdict: Verdict | None = None
    decomposition: tuple[Factor, ...] = ()
    segments: tuple[Segment, ...] = ()
    actions_gained_lost: tuple[ActionShift, ...] = ()  # the largest changes first
    short_term: Estimate | None = None  # the next reward alone, contexts as logged
    overlap: Overlap | None = None  # None: no propensities, or not asked for
    configuration: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""  # of the log
    users: int = 0
    decisions: int = 0

    def __post_init__(self) -> None:
        names = [estimate.name for estimate in self.estimates]
        if self.main not in names or len(set(names)) < len(names):
            raise ConfigError(
                expected=f"a main estimator among distinct names {names}", found=repr(self.main)
            )

    def __getitem__(self, name: str) -> Estimate:
        for estimate in self.estimates:
            if estimate.name == name:
                return estimate
        raise ConfigError(
            expected=f"one of the estimators {[estimate.name for estimate in self.estimates]}",
            found=repr(name),
        )

    @property
    def decisive(self) -> Estimate:
        """The estimate of the main estimator."""
        return self[self.main]

    @property
    def lead(self) -> MixtureEstimate:
        """The first result of a report: over the whole horizon if the effective sample size allows it."""
        return self.mixture or MixtureEstimate(share=1.0, estimate=self.decisive)

    def to_json(self, *, influences: bool = False) -> dict[str, Any]:
        """A JSON-ready description; numbers per user only if ``influences`` is True."""
        leave_out = () if influences else ("influence_value", "influence_lift")
        described: dict[str, Any] = _jsonable(self, leave_out)
        return described

    def write_json(self, path: str | Path) -> Path:
        """Write `to_json` to a file, which appears complete or not at all."""
        return write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False))

    def write_html(self, path: str | Path) -> Path:
        """Write the report as one self-contained HTML file; see `shpi.report.html`."""
        from shpi.report.html import write_html

        return write_html(self, path)

    def __str__(self) -> str:
        from shpi.report.terminal import render

        return render(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from shpi.report.cards import evaluation_card

        return evaluation_card(self)

    def to_polars(self) -> pl.DataFrame:
        """One row per estimator: value, lift, interval, effective users, and what it is to the verdict.

        Where a mixture leads it comes first.
        """
        import polars as pl

        from shpi.report.estimators import mark

        marked = [(estimate, str(mark(self, estimate))) for estimate in self.estimates]
        if self.mixture is not None:
            marked.insert(0, (self.mixture.estimate, "leads"))
        rows = [
            {
                "policy": self.policy_name,
                "estimator": estimate.name,
                "mark": mark,
                "value": estimate.value,
                "baseline": estimate.baseline,
                "lift": estimate.lift,
                "lower": estimate.lift_interval.lower,
                "upper": estimate.lift_interval.upper,
                "lower_bound": estimate.lift_interval.lower_bound,
                "effective_users": estimate.effective_users,
            }
            for estimate, mark in marked
        ]
        return pl.DataFrame(rows)

    def __repr__(self) -> str:
        estimate = self.lead.estimate
        decision = "no verdict" if self.verdict is None else self.verdict.decision
        bounds = f"{estimate.lift_interval.lower:+.4g} … {estimate.lift_interval.upper:+.4g}"
        what = "lift" if self.mixture is None else f"lift of {100 * self.mixture.share:.3g} %"
        return (
            f"Evaluation({self.policy_name!r}: {decision}; {what} {estimate.lift:+.4g} [{bounds}]; print it)"
        )


def _jsonable(value: Any, leave_out: tuple[str, ...]) -> Any:
    """Plain lists, dicts, numbers and strings; what is not finite becomes None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: _jsonable(getattr(value, item.name), leave_out)
            for item in fields(value)
            if item.name not in leave_out
        }
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item, leave_out) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item, leave_out) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _jsonable(value.tolist(), leave_out)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
