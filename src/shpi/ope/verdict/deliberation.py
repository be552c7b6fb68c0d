"""Turn claims, diagnostics and events into a verdict on one policy, by the rules in `shpi.ope.gate`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from shpi._core.distributions import normal_quantile
from shpi.errors import ConfigError, ShpiError
from shpi.ope.candidates import joint_level
from shpi.ope.diagnostics.diagnose import fatal_for
from shpi.ope.diagnostics.log import UNSEEN_FATAL
from shpi.ope.estimators.base import LEAST_EFFECTIVE, Estimator
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.evaluate import default_estimators
from shpi.ope.inference.per import counted_per
from shpi.ope.problem import Problem
from shpi.ope.results import Diagnostic, Estimate, Evaluation, FirstStep, MixtureEstimate, Per, Verdict
from shpi.ope.verdict.claims import Claim
from shpi.ope.verdict.events import LEAST_EVENTS, Events, events
from shpi.ope.verdict.guards import Guard
from shpi.ope.verdict.needed import Factors, rounded_up
from shpi.ope.verdict.rare import unseen_variance
from shpi.ope.verdict.whole_horizon import mixtures, whole

if TYPE_CHECKING:
    from shpi.ope.gate import Gate

# Fatal diagnostics that more users of the same kind would remedy.
CURABLE = ("effective users", "users", "steps left out")
UNSEEN_RATE = 3.0  # rule of three: an outcome that none of n users had has a rate of at most 3/n, at 95 %
SERVE = (
    "To take it, toss a coin at each decision, let the new policy choose with that probability, and log the "
    "mixture's probabilities: its log then decides about the next step."
)


def may_ship(estimate: Estimate) -> bool:
    """Whether a ship may rest on this estimate: weights over the whole horizon, no reliance on a model."""
    return estimate.consistent and estimate.steps is None


@dataclass(kw_only=True, eq=False)
class Deliberation:
    """The decision of a gate on one policy."""

    gate: Gate
    evaluation: Evaluation
    problem: Problem | None  # None: no guards, no witness and no first step are possible
    main: Estimate = field(init=False)  # the estimate that decides
    may_ship: bool = field(init=False)  # whether a ship may rest on it
    stops: tuple[Diagnostic, ...] = field(init=False)  # fatal, for the log or for the estimator that decides
    method: str = field(init=False)  # of the intervals
    lifts: tuple[Claim, ...] = field(init=False)  # by the estimator that decides, and by its witness
    guards: tuple[Claim, ...] = field(init=False)  # of the deciding estimate and the witness, the weaker one
    claims: tuple[Claim, ...] = field(init=False)  # all of these, which must be proven for a ship

    def __post_init__(self) -> None:
        self.main = self.evaluation.decisive
        self.may_ship = may_ship(self.main)
        self.stops = fatal_for(self.evaluation.diagnostics, self.evaluation.main)
        self.method = "skewed" if self.problem is None else self.problem.settings.interval
        witness = self.evaluation.longer
        if self.may_ship and not self.stops and self.problem is not None:  # a witness can only prevent a ship
            witness = whole(self.problem, self.main.per)
        judges = (self.main,) if witness is None else (self.main, witness)
        self.lifts = tuple(
            Claim.of_lift(self.gate, judge, self.method, self._rare(judge)) for judge in judges
        )
        self.guards = tuple(self._guard(guard) for guard in self.gate.guards)
        self.claims = (*self.lifts, *self.guards)

    def verdict(self) -> Verdict:
        """The first that applies: forbidden, refuted, ship, first step, held back, undecided."""
        grave = [stop for stop in self.stops if stop.name not in CURABLE]
        forbids = [diagnostic for diagnostic in grave if diagnostic.estimator is None or self.may_ship]
        against = [claim for claim in self.claims if claim.refuted]
        if forbids:
            words = [f"{forbid.sentence} No decision can rest on this." for forbid in forbids]
            return self._say("hold", *words, *(claim.reason() for claim in against))
        few = self.few_events
        if against and few is None:
            return self._say("hold", *(claim.reason() for claim in against))
        if self.may_ship and not self.stops and few is None and all(claim.proven for claim in self.claims):
            return self._say("ship", *(claim.reason() for claim in self.claims), *self._unseen())
        step = None if against else next(self.first_steps(), None)
        if step is not None:
            return self.take(step)
        if grave:  # of an estimator that may not ship
            return self._say(
                "hold", *self._never_ships(), *(diagnostic.sentence for diagnostic in grave), *self._in_part()
            )
        return self._undecided()

    def _say(self, decision: str, *reasons: str) -> Verdict:
        guards = tuple(claim.diagnostic() for claim in self.guards)
        return Verdict(decision=decision, reasons=reasons, guards=guards)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ claims

    def _rare(self, estimate: Estimate, share: float = 1.0) -> float:
        """The variance that rare extreme outcomes add to a lift; see `shpi.ope.verdict.rare`."""
        if self.problem is None or self.main.per != "user" or estimate.steps is not None:
            return 0.0
        absent = self.problem.propensity_mode == "absent"
        return 0.0 if absent else unseen_variance(self.problem, estimate, share)

    @cached_property
    def few_events(self) -> Events | None:
        """The favoured action with too few events (`shpi.ope.verdict.events`); None if there are enough."""
        if self.problem is None or self.problem.propensity_mode == "absent":
            return None
        counted = events(self.problem)
        return counted if counted is not None and counted.few else None

    # ------------------------------------------------------------------ guards

    def _guard(self, guard: Guard) -> Claim:
        if self.problem is None:
            raise ConfigError(
                expected="the problem, for guard metrics",
                found="none",
                where="Gate.decide",
                remedy="use shpi.evaluate(policy, logs, gate=gate), or gate.decide(evaluation, problem)",
            )
        problem, per = self._about(guard)
        estimates = [self._guard_estimator(problem, per).estimate(problem)]
        if self.may_ship:
            witness = whole(problem, per)
            estimates += [] if witness is None else [witness]
        return self._weakest(guard, estimates)

    def _about(self, guard: Guard) -> tuple[Problem, Per]:
        assert self.problem is not None
        problem = self.problem
        key = ("guard", problem.visits.number_of(guard.metric))
        return problem.memo(key, lambda: problem.with_metric(guard.metric)), guard.per or self.main.per

    def _weakest(
        self,
        guard: Guard,
        estimates: Sequence[Estimate],
        share: float = 1.0,
        gate: Gate | None = None,
    ) -> Claim:
        problem, per = self._about(guard)
        extra = (
            0.0 if per != "user" else max(unseen_variance(problem, estimate, share) for estimate in estimates)
        )
        claims = [
            Claim.of_guard(gate or self.gate, guard, estimate, self.method, per, extra)
            for estimate in estimates
        ]
        claim = min(claims, key=lambda claim: claim.lower)
        return claim if all(may_ship(estimate) for estimate in estimates) else replace(claim, can_prove=False)

    def _guard_estimator(self, problem: Problem, per: Per) -> Estimator:
        """The gate's own; else the deciding one if it is a default, else the first with enough users."""
        chosen = self.gate.guard_estimator
        candidates = (chosen,) if chosen is not None else default_estimators(problem)
        wrapped = [counted_per(estimator, per) for estimator in candidates]
        same = [estimator for estimator in wrapped if estimator.name == self.evaluation.main]
        if same or len(wrapped) == 1:
            return (same or wrapped)[0]
        for estimator in wrapped:
            try:
                if estimator.estimate(problem).effective_users >= LEAST_EFFECTIVE:
                    return estimator
            except ShpiError:
                continue
        return wrapped[0]

    # ------------------------------------------------------------------ a first step

    def first_steps(self) -> Iterator[FirstStep]:
        """Mixtures with mu whose lift and guards are proven over the whole horizon, the largest first."""
        if not self.gate.first_steps or self.problem is None or self.problem.propensity_mode == "absent":
            return
        if any(stop.estimator is None and stop.name not in ("support", "users") for stop in self.stops):
            return
        judged = mixtures(self.problem, self.main.per)
        if not judged:
            return
        influences = [mixture.estimate.influence_lift for mixture in judged]
        level = joint_level(influences, self.gate.confidence, seed=self.gate.seed)
        for mixture in reversed(judged):
            lower = self._step_lower(mixture, replace(self.gate, confidence=level))
            if lower is not None:
                yield FirstStep(
                    share=mixture.share,
                    lift=mixture.estimate.lift,
                    at_least=lower,
                    confidence=self.gate.confidence,
                    effective_users=mixture.estimate.effective_users,
                )

    def _step_lower(self, mixture: MixtureEstimate, strict: Gate) -> float | None:
        """The lower bound of a mixture's lift; None if its share of ``min_lift`` or a guard is unproven."""
        assert self.problem is not None
        share, estimate = mixture.share, mixture.estimate
        unseen = [stop.figure or 0.0 for stop in self.stops if stop.name == "support"]
        if any(share * outside > UNSEEN_FATAL for outside in unseen):
            return None
        for_share = replace(strict, min_lift=share * self.gate.min_lift)
        extra = self._rare(estimate, share)
        if not Claim.of_lift(for_share, estimate, self.method, extra).proven:
            return None
        for guard in self.gate.guards:
            of_guard = whole(*self._about(guard), share)
            if of_guard is None or not self._weakest(guard, [of_guard], share, strict).proven:
                return None
        return Claim.of_lift(replace(strict, min_lift=0.0), estimate, self.method, extra).lower

    def take(self, step: FirstStep, *why: str) -> Verdict:
        """The verdict "first step"; ``why``: the reasons not to ship the whole policy, if already known."""
        if why:
            return replace(self._say("first step", step.sentence(), SERVE, *why), first_step=step)
        rest = self._undecided()
        reasons = self._never_ships() or [
            *(stop.sentence for stop in self.stops),
            *(claim.reason(settled=not self.stops) for claim in self.lifts[:1]),
        ]
        spoken = self._say("first step", step.sentence(), SERVE, *reasons)
        return replace(
            spoken,
            first_step=step,
            users_needed=rest.users_needed,
            users_range=rest.users_range,
            users_prove=rest.users_prove,
        )

    # ------------------------------------------------------------------ undecided

    def _undecided(self) -> Verdict:
        """The verdict without enough evidence: "need more data", or "hold" if too many users are needed."""
        few, gate = self.few_events, self.gate
        reasons = [*self._never_ships(), *(stop.sentence for stop in self.stops)]
        reasons += [] if few is None else [few.sentence()]
        settled = few is None and not self.stops
        reasons += [claim.reason(settled=settled) for claim in self.claims]
        factors = [self._threshold(stop.figure, stop.threshold) for stop in self.stops]
        factors += [] if few is None else [Factors.certain(2 * LEAST_EVENTS / max(few.users, 0.5))]
        if few is None or not factors:
            factors += [
                claim.factors(gate.confidence, gate.power) for claim in self.claims if not claim.proven
            ]
        if not self.may_ship:
            known = None if self.problem is None else whole(self.problem, self.main.per)
            factors.append(self._threshold(0.0 if known is None else known.effective_users, None))
            reasons += [*self._in_part(), *self._canary()]
        factor = reduce(Factors.worse, factors)
        if factor.plain > gate.patience:
            return self._say("hold", *reasons, self._beyond_patience(factor.plain))
        users = self.evaluation.users
        most = None if math.isinf(factor.most) else rounded_up(factor.most * users)
        likely = factor.likely if math.isfinite(factor.likely) else factor.plain
        return replace(
            self._say("need more data", *reasons),
            users_needed=rounded_up(likely * users),
            users_range=(rounded_up(factor.least * users), most),
            users_prove=settled and self.may_ship,
        )

    def _beyond_patience(self, factor: float) -> str:
        """A sentence on what more users would do, if more are needed than the gate waits for."""
        if math.isinf(factor):
            return "More users of this kind would not prove it: the estimate is not above what is wanted."
        purpose = "for these checks to hold" if self.stops or not self.may_ship else "to prove it"
        return (
            f"It would take about {factor:,.0f} times as many users {purpose}; the gate waits for up to "
            f"{self.gate.patience:g} times."
        )

    @staticmethod
    def _threshold(figure: float | None, threshold: float | None) -> Factors:
        return Factors.certain((threshold or LEAST_EFFECTIVE) / max(figure or 0.0, 1e-3))

    def _never_ships(self) -> list[str]:
        """Why the estimator that decides may not ship; empty if it may."""
        if self.may_ship:
            return []
        name, steps = self.main.name, self.main.steps
        if steps is not None:
            what = f"leaves out a decision's effects after {steps} decisions"
        elif self.main.weights is None:
            what = "extrapolates with its model where the log has no support"
        else:
            what = "has no bound that holds with heavy-tailed weights"
        return [f"{name} {what}, so it cannot ship alone: only weights over the whole horizon can."]

    def _in_part(self) -> list[str]:
        """What is known over the whole horizon about a mixture, if not about the policy itself."""
        mixture = self.evaluation.mixture
        return [] if mixture is None else [mixture.sentence()]

    def _canary(self) -> list[str]:
        """The users that a canary of the policy needs to prove its lift, or a tenth of the present value.

        The smaller of the two is used, because a lift that leaves out later effects may be far too large.
        """
        if self.problem is None or self.main.lift <= 0:
            return []
        lift = min(self.main.lift, 0.1 * abs(self.main.baseline) or math.inf)
        spread = float(np.std(on_policy(self.problem).influence, ddof=1))
        z = float(normal_quantile(self.gate.confidence) + normal_quantile(self.gate.power))
        users = rounded_up(2 * (z * spread / lift) ** 2)
        return [
            f"A canary would show what comes later: with {users:,} users served by the policy for all "
            f"{self.problem.horizon:,} decisions, and as many without it, a lift of {lift:+.4g} is "
            f"proven with {self.gate.power:.0%} probability. Watch them to the last decision."
        ]

    def _unseen(self) -> list[str]:
        """The loss, unseen in the log, that would undo a ship."""
        lower = min(claim.lower for claim in self.lifts)
        users = self.main.effective_users
        loss = lower * users / UNSEEN_RATE
        return [
            f"A loss that none of {users:,.0f} effective users showed may still hit {UNSEEN_RATE:.0f} in "
            f"{users:,.0f}: one of {loss:.3g} per user hit would undo this."
        ]
