r"""`Gate`: may this policy be shipped? Ship, take a first step, need more data, or hold; reasons in words.

    ship             the lower bound of the lift is above ``min_lift``, every guard metric holds, and no
                     diagnostic of the deciding estimator or of the log is fatal
    first step       the policy itself is not proven, but a mixture with the logging policy is
    need more data   the estimate is promising, and more users could prove it; the verdict says how many
    hold             the evidence is against it, or a diagnostic forbids a decision

**Only weights over the whole horizon ship.** A model may be wrong outside the support of the log, and a
k-step estimator ignores effects after k decisions; no bound covers either. So a ship needs a proven estimate
that is `consistent` (WDR, SNPDIS, SNIPS), and the k-step estimator with k = H must confirm it. With few
effective users that estimator falls back to mu, not to a model (`shpi.ope.verdict.whole_horizon`). Other
estimators can only give "need more data" or "hold", with the next step: a first step, or a canary.

**One false ship in twenty.** At ``confidence`` 0.95 a policy whose true lift is at most ``min_lift`` passes
with probability 0.05, if the bound is valid. All other conditions can only refuse. Guards need no
correction: a policy that violates a guard must pass that guard's own test, which happens with probability
0.05, whatever the others do (an intersection-union test). A first step is a separate claim, at the same
level.

**Several candidates** (`decide_many`, `compare`). The best of many estimates is biased upwards. All
candidates are evaluated on the same users, so their estimates are correlated, and their influences determine
the correction: normal multipliers over users give the distribution of the largest error, max_j sum_i e_i
psi_ij / |psi_j|, and with it the level at which *all* bounds hold simultaneously. Holm's rule would ignore
the correlations and be too strict for similar candidates (several k, several betas). The bounds hold for all
candidates at once, so you may choose freely among those that ship.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shpi.errors import ConfigError
from shpi.ope.candidates import joint_level
from shpi.ope.checks.cautions import cautious
from shpi.ope.checks.clusters import Cluster
from shpi.ope.checks.looks.sequence import PLANNED
from shpi.ope.estimators.base import Estimator
from shpi.ope.problem import Problem
from shpi.ope.results import Evaluation, Verdict
from shpi.ope.verdict.deliberation import Deliberation, may_ship
from shpi.ope.verdict.guards import Guard

__all__ = ["Gate", "Guard", "may_ship"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The conditions under which a policy is shipped.

    Args:
        min_lift: the lift must be above it.
        relative: ``min_lift`` is a share of the logging policy's value.
        confidence: confidence level of the lower bound, one-sided.
        guards: metrics that must not fall, or must not rise.
        power: power of ``users_needed``.
        patience: the verdict is hold if more than this multiple of the present users would be needed.
        guard_estimator: estimator of the guards; None takes the one that decides, or the first that can.
        first_steps: look for a proven mixture with the logging policy, if the policy is not proven.
        hidden_cause: with estimated propensities, a ship must withstand hidden confounding that changes the
            odds of an action by this factor (`shpi.ope.checks.sensitivity`), and a first step its square
            root; 1 trusts the estimates.
        cluster: clusters beyond users for the standard errors: "day", "week", a context column or metric, or
            a function of a log; None detects days that were switched as a whole (`shpi.ope.checks.clusters`).
        anytime: bounds hold under repeated looks at a growing log: True or "asymptotic", or "betting"
            (`shpi.ope.checks.looks.sequence`).
        planned_users: number of users at which anytime bounds are tightest; fix it before the first look.
        seed: random seed of the bootstraps.
    """

    min_lift: float = 0.0
    relative: bool = False
    confidence: float = 0.95
    guards: tuple[Guard, ...] = ()
    power: float = 0.8
    patience: float = 20.0
    guard_estimator: Estimator | None = None
    first_steps: bool = True
    hidden_cause: float = 1.3
    cluster: Cluster | None = None
    anytime: bool | Literal["asymptotic", "betting"] = False
    planned_users: int = PLANNED
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            (self.hidden_cause >= 1, "hidden_cause of at least 1", self.hidden_cause),
            (
                self.anytime in (True, False, "asymptotic", "betting"),
                "anytime as a flag or a method",
                self.anytime,
            ),
            (self.planned_users >= 1, "planned_users of at least 1", self.planned_users),
            (math.isfinite(self.min_lift), "a finite min_lift", self.min_lift),
            (0.5 <= self.confidence < 1, "confidence in [0.5, 1)", self.confidence),
            (0 < self.power < 1, "power in (0, 1)", self.power),
            (self.patience >= 1, "patience of at least 1", self.patience),
            (all(isinstance(guard, Guard) for guard in self.guards), "guards of type Guard", self.guards),
        )
        for fine, expected, value in checks:
            if not fine:
                raise ConfigError(expected=expected, found=repr(value), where="Gate")
        object.__setattr__(self, "guards", tuple(self.guards))

    def decide(self, evaluation: Evaluation, problem: Problem | None = None) -> Verdict:
        """The verdict on one policy; guards, the confirming estimator and first steps need the problem."""
        deliberation = Deliberation(gate=self, evaluation=evaluation, problem=problem)
        verdict = deliberation.verdict()
        if problem is None or verdict.decision not in ("ship", "first step"):
            return verdict
        cautioned = cautious(self, evaluation, problem, verdict)
        if cautioned.decision == verdict.decision:
            return cautioned
        # What took back a ship, or a step, may leave a smaller one.
        why = tuple(reason for reason in cautioned.reasons if reason not in verdict.reasons)
        for step in deliberation.first_steps():
            smaller = cautious(self, evaluation, problem, deliberation.take(step, *why))
            if smaller.decision == "first step":
                return smaller
        return cautioned

    # ------------------------------------------------------------------ several candidates

    def decide_many(
        self, evaluations: Sequence[Evaluation], problems: Sequence[Problem | None] | None = None
    ) -> tuple[Verdict, ...]:
        """A verdict for each of several candidates, judged on the same users; see the top of this file.

        Args:
            evaluations: evaluations of the candidates, all on the same log.
            problems: problems of the same candidates, for guard metrics; None without guards.
        """
        if not evaluations:
            raise ConfigError(expected="at least one evaluation", found="none", where="decide_many")
        known = [None] * len(evaluations) if problems is None else list(problems)
        if len(known) != len(evaluations):
            raise ConfigError(expected=f"{len(evaluations)} problems", found=str(len(known)))
        logs = {(evaluation.fingerprint, evaluation.users, evaluation.metric) for evaluation in evaluations}
        if len(logs) > 1:
            raise ConfigError(
                expected="candidates evaluated on one log, for one metric",
                found=f"{len(logs)} different ones",
                remedy="evaluate all candidates with the same log and the same options",
            )
        if len(evaluations) == 1:
            return (self.decide(evaluations[0], known[0]),)
        influences = [evaluation.decisive.influence_lift for evaluation in evaluations]
        level = joint_level(influences, self.confidence, seed=self.seed)
        strict = replace(self, confidence=level)
        verdicts = tuple(
            strict.decide(evaluation, problem) for evaluation, problem in zip(evaluations, known, strict=True)
        )
        note = (
            f"One of {len(evaluations)} candidates: each bound is at {level:.1%}, so that all of them hold "
            f"together at {self.confidence:.0%}."
        )
        return tuple(replace(verdict, reasons=(*verdict.reasons, note)) for verdict in verdicts)
