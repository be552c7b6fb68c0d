"""Checks that can withdraw a "ship": hidden confounding, overrides, clusters, change over time, many looks.

A gate runs these after its own verdict, on the estimate that the verdict rests on: the policy's for a ship,
the mixture's for a first step. They can only weaken a verdict, so none needs a correction of the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shpi.ope.checks.balance.joint_test import visible_override
from shpi.ope.checks.clusters import Clusters, clusters_of
from shpi.ope.checks.looks.sequence import asymptotic_width, betting_lower
from shpi.ope.checks.looks.user_values import floor_of, user_lifts
from shpi.ope.checks.over_time import change_of, entries, moved_mu
from shpi.ope.checks.sensitivity import Sensitivity
from shpi.ope.problem import Problem
from shpi.ope.results import Decision, Estimate, Evaluation, Verdict
from shpi.ope.verdict.claims import careful_bound, margin_of
from shpi.ope.verdict.whole_horizon import whole
from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.ope.gate import Gate


AT_THEIR_WORD = "taken as correct"


@dataclass(frozen=True, kw_only=True)
class Caution:
    """The result of one check."""

    sentence: str
    decision: Decision | None = None  # the decision instead of a ship; None: no objection
    users_factor: float | None = None  # how many times the present users might be enough


@dataclass(frozen=True, kw_only=True, eq=False)
class Claimed:
    """The lift that a verdict claims: an estimate, and the gate with the threshold that it must exceed."""

    gate: Gate
    problem: Problem
    estimate: Estimate
    share: float  # share of the policy in the mixture with mu; 1: the policy itself

    @property
    def per_user(self) -> float:
        """Decisions or sessions per user if the lift is per decision or session; 1 if it is per user."""
        problem = self.problem
        units = {"user": problem.users, "decision": problem.decisions, "session": problem.sessions}
        return units[self.estimate.per] / problem.users

    @property
    def margin(self) -> tuple[float, Float64Array]:
        """The lift minus the smallest lift that the gate asks for, and its influences [U]."""
        least = self.share * self.gate.min_lift
        if not self.gate.relative:
            return self.estimate.lift - least, self.estimate.influence_lift
        return margin_of(self.estimate, -least)

    @property
    def lower(self) -> float:
        """The lower bound of the margin, with users as independent observations."""
        margin, influence = self.margin
        return self.bound(margin, influence)

    def bound(self, margin: float, influence: Float64Array) -> float:
        """The smaller lower bound of the evaluation's interval method and of "heavy", as in a gate."""
        method = self.problem.settings.interval
        return careful_bound(margin, influence, self.gate.confidence, method, self.gate.seed)

    @cached_property
    def clusters(self) -> Clusters | None:
        """The gate's clusters, if set. Days switched as a whole are already in the influences."""
        chosen = self.gate.cluster
        return None if chosen is None else clusters_of(self.problem, chosen)


def cautious(gate: Gate, evaluation: Evaluation, problem: Problem, verdict: Verdict) -> Verdict:
    """A ship or a first step, or a weaker verdict with its reasons."""
    share, estimate = 1.0, evaluation.decisive
    if verdict.first_step is not None:
        share = verdict.first_step.share
        mixture = whole(problem, estimate.per, share)
        assert mixture is not None  # it was proven just before
        estimate = mixture
    claimed = Claimed(gate=gate, problem=problem, estimate=estimate, share=share)
    checks: tuple[Callable[[Claimed], Caution | None], ...] = (
        _hidden_cause,
        _overridden,
        _clustered,
        _changing,
        _any_time,
    )
    cautions = [caution for caution in (ask(claimed) for ask in checks) if caution is not None]
    against = [caution for caution in cautions if caution.decision is not None]
    if not against:
        return replace(verdict, reasons=(*verdict.reasons, *(caution.sentence for caution in cautions)))
    decision: Decision = (
        "hold" if any(caution.decision == "hold" for caution in against) else "need more data"
    )
    factors = [caution.users_factor for caution in against if caution.users_factor is not None]
    users = round(max(factors) * problem.users) if factors else None
    return _weakened(verdict, decision, tuple(caution.sentence for caution in against), users)


def _weakened(verdict: Verdict, decision: Decision, why: tuple[str, ...], users: int | None) -> Verdict:
    """The verdict with a weaker decision. A ship's reasons are kept, those of a first step dropped."""
    rest = verdict.reasons if verdict.decision == "ship" else ()
    return replace(
        verdict,
        decision=decision,
        reasons=(*why, *rest),
        users_needed=users if decision == "need more data" else None,
        users_range=None,
        first_step=None,
    )


# ---------------------------------------------------------------------- the five checks


def _hidden_cause(claimed: Claimed) -> Caution | None:
    problem, gamma = claimed.problem, claimed.gate.hidden_cause
    if problem.propensity_mode != "estimated":
        return None
    # The sensitivity bounds are per user: scale a bound per decision or session by their number per user.
    scale = claimed.per_user
    tipping = Sensitivity.of(problem, claimed.share).tipping(scale * claimed.lower)
    # The log of a first step will have known propensities and settle the question, so ask for less.
    gamma = gamma if claimed.share == 1 else math.sqrt(gamma)
    size = "more than 10" if math.isinf(tipping) else f"{tipping:.2f}"
    sentence = (
        "The propensities are estimated. A confounder must change the odds of an action by a factor of "
        f"{size} to undo this"
    )
    if tipping > gamma:
        return Caution(sentence=f"{sentence}; the gate asks for {gamma:.3g}.")
    return Caution(
        sentence=f"{sentence}; the gate asks for {gamma:.3g}. Log the probabilities of actions, or say how "
        "strong a confounder can be (hidden_cause, --hidden-cause).",
        decision="hold",
    )


def _overridden(claimed: Claimed) -> Caution | None:
    """How few false logged propensities would undo the result.

    If a decision was overridden after logging, with an action that the policy favours, for a user about to
    buy, it looks like an effect. So drop the users who support the lift most, until it is no longer proven.
    """
    problem = claimed.problem
    if problem.propensity_mode == "estimated" or claimed.share < 1:  # the log of a first step settles it
        return None
    _, influence = claimed.margin
    sums = np.cumsum(np.sort(claimed.lower + influence))  # [U] sums without the users who support it more
    share = (len(sums) - np.searchsorted(sums > 0, True)) / problem.decisions
    visible = visible_override(problem)
    if visible is not None and share >= visible:
        return None
    seen = (
        "this log cannot detect it"
        if visible is None
        else f"the log detects it from {100 * visible:.2g} % on"
    )
    return Caution(
        sentence=f"The propensities are {AT_THEIR_WORD}: if {100 * share:.2g} % of the decisions had been "
        f"changed afterwards in favour of the policy, this would not be proven, and {seen}."
    )


def _clustered(claimed: Claimed) -> Caution | None:
    clusters = claimed.clusters
    if clusters is None:
        return None
    margin, influence = claimed.margin
    lower = clusters.lower(margin, influence, claimed.gate.confidence)
    sentence = (
        f"By {clusters.count:,} clusters ({clusters.words}) the lift is at least "
        f"{claimed.estimate.lift + lower - margin:+.4g}"
    )
    if lower > 0:
        return Caution(sentence=f"{sentence}.")
    factor = ((margin - lower) / margin) ** 2 if margin > 0 else None
    return Caution(
        sentence=f"{sentence}: unproven, since users of one cluster are not independent.",
        decision="need more data",
        users_factor=factor,
    )


def _changing(claimed: Claimed) -> Caution | None:
    change = change_of(claimed.problem, claimed.estimate)
    if change is None or not change.clear:
        return None
    margin, influence = claimed.margin
    pseudo = (margin + influence)[change.late]
    recent = float(pseudo.mean())
    lower = claimed.bound(recent, pseudo - recent)
    sentence = change.diagnostic().sentence + moved_mu(claimed.problem, change.late)
    if lower > 0:
        return Caution(sentence=f"{sentence} The last third proves a lift by itself.")
    return Caution(
        sentence=f"{sentence} The last third does not prove a lift by itself, and future users resemble it.",
        decision="hold" if recent <= 0 else "need more data",
        users_factor=None if recent <= 0 else ((recent - lower) / recent) ** 2,
    )


def _any_time(claimed: Claimed) -> Caution | None:
    gate = claimed.gate
    if not gate.anytime:
        return None
    margin, influence = claimed.margin
    alpha, users = 1 - gate.confidence, len(influence)
    if gate.anytime == "betting":
        lower = _betting(claimed, alpha)
    else:
        deviation = float(np.std(influence, ddof=1))
        clusters = claimed.clusters
        if clusters is not None:
            deviation = max(deviation, clusters.error(influence) * math.sqrt(users))
        lower = margin - asymptotic_width(users, deviation, alpha, gate.planned_users)
    sentence = (
        f"However often the log is evaluated, the lift is at least "
        f"{claimed.estimate.lift + lower - margin:+.4g} with {100 * gate.confidence:.3g} % confidence"
    )
    if lower > 0:
        return Caution(sentence=f"{sentence}.")
    factor = ((margin - lower) / margin) ** 2 if margin > 0 and math.isfinite(lower) else None
    return Caution(
        sentence=f"{sentence}: not proven yet. Evaluate again with more users.",
        decision="need more data",
        users_factor=factor,
    )


def _betting(claimed: Claimed, alpha: float) -> float:
    """The anytime lower bound of the margin, by betting on users in their order of entry."""
    problem, gate = claimed.problem, claimed.gate
    values = user_lifts(problem, claimed.share)
    when = entries(problem)
    if when is not None:
        values = values[np.argsort(when, kind="stable")]
    scale = claimed.per_user
    least = claimed.share * gate.min_lift * (abs(claimed.estimate.baseline) if gate.relative else 1.0)
    return betting_lower(values / scale, floor_of(problem) / scale, alpha) - least
