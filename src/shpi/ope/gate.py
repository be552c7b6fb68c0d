r"""`Gate`: may this policy be shipped? Ship, hold, or need more data; reasons in words.

    ship             the lower bound of the lift is above ``min_lift``, every guard metric holds, and no
                     diagnostic of the deciding estimator or of the log is fatal
    need more data   the estimate is promising, and more users could prove it; the verdict says how many
    hold             the evidence speaks against it, or a diagnostic forbids a decision

**One false ship in twenty.** At ``confidence`` 0.95 a policy whose true lift is at most ``min_lift`` passes
with probability 0.05, as far as the bound holds. All other conditions can only refuse. Guards need no
correction: a policy that violates a guard has to pass that very guard, which happens with probability 0.05,
whatever the others do (an intersection-union test).

**What a k-step estimator leaves out.** Its bound covers noise, not the effects after k decisions. So it ships
only if the same estimator over more decisions, as many as 10 effective users are left for
(`shpi.ope.longer`), proves the lift too. This can only refuse, and needs no correction either. If nothing
longer has enough effective users, more data are needed.

**How many users.** The error falls with the root of the users, so that a true lift as large as the estimate
is shipped with probability ``power`` from

    users_needed = U ((z_confidence + z_power) error / (lift - min_lift))^2

on, and the same for every guard that is undecided. The estimate is itself uncertain: take it as an order of
magnitude.

**Several candidates** (`decide_many`, `compare`). The best of many looks better than it is. All candidates
are judged on the same users, so their estimates are correlated, and how much stricter one has to be follows
from their influences: normal multipliers over users give the distribution of the largest error,
max_j sum_i e_i psi_ij / |psi_j|, and with it the level at which *all* bounds hold together. Holm's rule
would do without the correlations; candidates that are much alike (several k, several betas) would then pay
for differences that they do not have. The bounds hold for all candidates at once, so the choice among those
that ship is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shpi.errors import ConfigError, ShpiError
from shpi.ope.candidates import joint_level
from shpi.ope.claims import Claim
from shpi.ope.diagnostics import fatal_for
from shpi.ope.estimator import LEAST_EFFECTIVE, Estimator
from shpi.ope.evaluate import default_estimators
from shpi.ope.per_decision import PerDecision
from shpi.ope.problem import Problem, Rewards
from shpi.ope.results import Diagnostic, Estimate, Evaluation, Verdict

LEFT_OUT = (
    "It rests on estimators that leave out what the policy's decisions change after a few more of them: "
    "the bounds cover chance, not that. A first step in part of the traffic would show it."
)
# Fatal diagnostics that more users of the same kind would cure.
CURABLE = ("effective users", "users", "steps left out")


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A metric that must not fall by more than ``max_drop``.

    Args:
        metric: a metric of the log, or a function of a log.
        max_drop: the largest fall that is acceptable, at least 0.
        relative: as a share of what the logging policy brings (0.02 is 2 %), or in the metric's own unit.
        name: for the verdict; None takes that of the metric.
    """

    metric: Rewards
    max_drop: float = 0.0
    relative: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_drop) and self.max_drop >= 0):
            raise ConfigError(expected="max_drop of at least 0", found=str(self.max_drop), where="Guard")

    @property
    def label(self) -> str:
        """How the verdict calls it."""
        named = self.metric if isinstance(self.metric, str) else getattr(self.metric, "__name__", "guard")
        return self.name or named


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The conditions under which a policy is shipped.

    Args:
        min_lift: the lift must be above it.
        relative: ``min_lift`` is a share of what the logging policy brings.
        confidence: of the lower bound, one-sided.
        guards: metrics that must not fall.
        power: of ``users_needed``.
        patience: if more than so many times the users would be needed, the verdict is to hold.
        guard_estimator: that judges the guards; None takes the one that decides, or the first that can.
        seed: of the bootstraps.
    """

    min_lift: float = 0.0
    relative: bool = False
    confidence: float = 0.95
    guards: tuple[Guard, ...] = ()
    power: float = 0.8
    patience: float = 20.0
    guard_estimator: Estimator | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            (math.isfinite(self.min_lift), "a finite min_lift", self.min_lift),
            (0.5 <= self.confidence < 1, "confidence in [0.5, 1)", self.confidence),
            (0 < self.power < 1, "power in (0, 1)", self.power),
            (self.patience >= 1, "patience of at least 1", self.patience),
            (all(isinstance(one, Guard) for one in self.guards), "guards of type Guard", self.guards),
        )
        for fine, expected, found in checks:
            if not fine:
                raise ConfigError(expected=expected, found=repr(found), where="Gate")
        object.__setattr__(self, "guards", tuple(self.guards))

    def decide(self, evaluation: Evaluation, problem: Problem | None = None) -> Verdict:
        """The verdict on one policy; the problem is needed for guard metrics."""
        method = "skewed" if problem is None else problem.settings.interval
        lifts = [Claim.of_lift(self, one, method) for one in _witnesses(evaluation)]
        guards = [self._guard(guard, evaluation, problem) for guard in self.guards]
        stops = fatal_for(evaluation.diagnostics, evaluation.main)
        said = tuple(guard.diagnostic() for guard in guards)
        against = [claim.reason() for claim in (*lifts, *guards) if claim.refuted]
        open_ones = [claim for claim in (*lifts, *guards) if not claim.proven and not claim.refuted]
        grave = [one for one in stops if one.name not in CURABLE]
        if not stops and not against and not open_ones:
            left_out = (LEFT_OUT,) if leaves_out(evaluation) else ()
            reasons = (*(one.reason() for one in lifts), *left_out, *(guard.reason() for guard in guards))
            return Verdict(decision="ship", reasons=reasons, guards=said)
        forbids = [f"{one.sentence} No decision can rest on this." for one in grave]
        if forbids or against:
            return Verdict(decision="hold", reasons=(*forbids, *against), guards=said)
        return self._undecided(evaluation, stops, (*lifts, *guards), said)

    def _undecided(
        self,
        evaluation: Evaluation,
        stops: Sequence[Diagnostic],
        claims: Sequence[Claim],
        said: tuple[Diagnostic, ...],
    ) -> Verdict:
        """Nothing speaks against it, but not enough for it: more users, if so many can be had."""
        reasons = (*(one.sentence for one in stops), *(claim.reason() for claim in claims))
        factors = [claim.users_factor(self.confidence, self.power) for claim in claims if not claim.proven]
        factors += [(one.threshold or LEAST_EFFECTIVE) / max(one.figure or 0.0, 1e-3) for one in stops]
        factor = max(factors)
        if factor > self.patience:
            times = "no number of users" if math.isinf(factor) else f"about {factor:,.0f} times as many users"
            why = f"It would take {times} to prove it; the gate's patience is {self.patience:g} times."
            return Verdict(decision="hold", reasons=(*reasons, why), guards=said)
        return Verdict(
            decision="need more data",
            reasons=reasons,
            users_needed=_rounded_up(factor * evaluation.users),
            guards=said,
        )

    def _guard(self, guard: Guard, evaluation: Evaluation, problem: Problem | None) -> Claim:
        if problem is None:
            raise ConfigError(
                expected="the problem, for guard metrics",
                found="none",
                where="Gate.decide",
                remedy="use shpi.evaluate(policy, logs, gate=gate), or gate.decide(evaluation, problem)",
            )
        other = problem.with_metric(guard.metric)
        estimate = self._estimator(evaluation, other).estimate(other)
        return Claim.of_guard(self, guard, estimate, problem.settings.interval)

    def _estimator(self, evaluation: Evaluation, problem: Problem) -> Estimator:
        """Of the guards: the one that decides if it is a default one, else the first with enough users."""
        per_decision = evaluation.configuration.get("per") == "decision"
        able = (self.guard_estimator,) if self.guard_estimator is not None else default_estimators(problem)
        wrapped: list[Estimator] = [PerDecision(one) if per_decision else one for one in able]
        same = [one for one in wrapped if one.name == evaluation.main]
        if same or len(wrapped) == 1:
            return (same or wrapped)[0]
        for one in wrapped:
            try:
                if one.estimate(problem).effective_users >= LEAST_EFFECTIVE:
                    return one
            except ShpiError:
                continue
        return wrapped[0]

    # ------------------------------------------------------------------ several candidates

    def decide_many(
        self, evaluations: Sequence[Evaluation], problems: Sequence[Problem | None] | None = None
    ) -> tuple[Verdict, ...]:
        """A verdict for each of several candidates, judged on the same users; see the top of this file.

        Args:
            evaluations: of the candidates, all on the same log.
            problems: of the same candidates, for guard metrics; None without guards.
        """
        if not evaluations:
            raise ConfigError(expected="at least one evaluation", found="none", where="decide_many")
        known = [None] * len(evaluations) if problems is None else list(problems)
        if len(known) != len(evaluations):
            raise ConfigError(expected=f"{len(evaluations)} problems", found=str(len(known)))
        logs = {(one.fingerprint, one.users, one.metric) for one in evaluations}
        if len(logs) > 1:
            raise ConfigError(
                expected="candidates evaluated on one log, for one metric",
                found=f"{len(logs)} different ones",
                remedy="evaluate all candidates with the same log and the same options",
            )
        influences = np.stack([one.decisive.influence_lift for one in evaluations])
        level = joint_level(influences, self.confidence, seed=self.seed)
        strict = replace(self, confidence=level)
        verdicts = tuple(strict.decide(one, problem) for one, problem in zip(evaluations, known, strict=True))
        if len(evaluations) == 1:
            return verdicts
        note = (
            f"One of {len(evaluations)} candidates: each bound is at {level:.1%}, so that all of them hold "
            f"together at {self.confidence:.0%}."
        )
        return tuple(replace(one, reasons=(*one.reasons, note)) for one in verdicts)


def _witnesses(evaluation: Evaluation) -> tuple[Estimate, ...]:
    """Those that have to prove the lift: the one that decides and, if it leaves steps out, a longer one."""
    longer = evaluation.longer
    return (evaluation.decisive,) if longer is None else (evaluation.decisive, longer)


def leaves_out(evaluation: Evaluation) -> bool:
    """Whether all that was asked follows the policy's effects for some decisions only."""
    return all(one.steps is not None for one in _witnesses(evaluation))


def _rounded_up(users: float) -> int:
    """To two digits: more would pretend a precision that the estimate does not have."""
    unit = 10 ** max(math.floor(math.log10(max(users, 1))) - 1, 0)
    return int(math.ceil(users / unit) * unit)
