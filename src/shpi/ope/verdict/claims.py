"""One condition of a gate: a margin that must be above 0, its bounds, and its wording."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shpi._core.distributions import normal_quantile
from shpi.ope.inference.intervals import interval_of, standard_error
from shpi.ope.results import Diagnostic, Estimate, Severity
from shpi.ope.verdict.guards import Guard
from shpi.ope.verdict.needed import Factors
from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.ope.gate import Gate


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim:
    """The claim margin > 0: lift - min_lift, or how far a guard metric stays within its allowed change."""

    words: str
    margin: float
    error: float  # standard error of the margin
    lower: float  # one-sided lower bound of the margin
    upper: float  # one-sided upper bound of the margin
    shown: str  # the estimate and its bound, in words
    strict: bool  # whether the margin must be above 0; otherwise 0 is enough
    can_prove: bool = True  # False: the estimate is truncated or relies on a model, and proves nothing

    @classmethod
    def of_lift(cls, gate: Gate, estimate: Estimate, method: str, extra: float = 0.0) -> Claim:
        """The claim that the lift exceeds ``min_lift``; ``extra`` variance: see `shpi.ope.verdict.rare`."""
        share = gate.min_lift if gate.relative else 0.0
        margin, influence = margin_of(estimate, -share)
        margin -= 0.0 if gate.relative else gate.min_lift
        wanted = f"{gate.min_lift:+.3%} of the present value" if gate.relative else f"{gate.min_lift:+.4g}"
        lift = "the lift" if estimate.steps is None else f"the lift within {estimate.steps} decisions"
        words = lift if gate.min_lift == 0 else f"{lift} over {wanted}"
        return cls._of(gate, words, margin, influence, method, estimate, strict=True, extra=extra)

    @classmethod
    def of_guard(
        cls, gate: Gate, guard: Guard, estimate: Estimate, method: str, per: str, extra: float = 0.0
    ) -> Claim:
        """The claim that a guard metric falls, or rises, by no more than is allowed."""
        sign = -1.0 if guard.rises else 1.0
        margin, influence = margin_of(estimate, sign * guard.amount if guard.relative else 0.0)
        margin, influence = sign * margin, sign * influence
        margin += 0.0 if guard.relative else guard.amount
        words = guard.words(per)
        return cls._of(gate, words, margin, influence, method, estimate, strict=False, sign=sign, extra=extra)

    @classmethod
    def _of(
        cls,
        gate: Gate,
        words: str,
        margin: float,
        influence: Float64Array,
        method: str,
        estimate: Estimate,
        *,
        strict: bool,
        sign: float = 1.0,
        extra: float = 0.0,
    ) -> Claim:
        quantile = float(normal_quantile(gate.confidence))
        bounds = []
        for side in (1.0, -1.0):
            bound = careful_bound(side * margin, side * influence, gate.confidence, method, gate.seed)
            length = math.hypot(side * margin - bound, quantile * math.sqrt(extra))
            bounds.append(side * (side * margin - length))
        at = estimate.lift + sign * (bounds[0] - margin)
        shown = (
            f"{estimate.name} estimates {estimate.lift:+.4g} on {estimate.baseline:.4g}, "
            f"at {'least' if sign > 0 else 'most'} {at:+.4g} with {100 * gate.confidence:.3g} % confidence"
        )
        return cls(
            words=words,
            margin=margin,
            error=math.hypot(standard_error(influence), math.sqrt(extra)),
            lower=bounds[0],
            upper=bounds[1],
            shown=shown,
            strict=strict,
        )

    @property
    def proven(self) -> bool:
        """Whether the lower bound proves the claim."""
        return self.can_prove and (self.lower > 0 if self.strict else self.lower >= 0)

    @property
    def refuted(self) -> bool:
        """Whether the evidence is against it: a lift's estimate is too small, or a guard's upper bound."""
        return (self.margin <= 0 and not self.proven) if self.strict else self.upper < 0

    def reason(self, *, settled: bool = True) -> str:
        """The state of the claim in words; if not ``settled``, without saying what the evidence supports."""
        if not settled:
            return f"Undecided: {self.words}. {self.shown}; the bound is reliable only after that."
        if self.proven:
            return f"Proven: {self.words}. {self.shown}."
        if not self.refuted:
            return f"Promising but unproven: {self.words}. {self.shown}."
        if self.strict and self.margin == 0 and self.error == 0:
            return "The policy does what the logging policy does: there is no lift at all."
        if self.strict and self.upper > 0:
            return f"No sign of {self.words}. {self.shown}."
        return f"Evidence against {self.words}. {self.shown}."

    def factors(self, confidence: float, power: float) -> Factors:
        """How many times the present users would prove a margin of this size with the given power."""
        return Factors.of(self.margin, self.error, confidence, power)

    def diagnostic(self) -> Diagnostic:
        """The claim as a diagnostic, for `Verdict.guards`."""
        severity: Severity = "fine" if self.proven else "fatal" if self.refuted else "warning"
        return Diagnostic(
            name=self.words, severity=severity, sentence=self.reason(), figure=self.margin, threshold=0.0
        )


def careful_bound(margin: float, influence: Float64Array, level: float, method: str, seed: int) -> float:
    """The lower bound by the method of the evaluation, or by "heavy" if that is lower.

    If few users determine the standard deviation, it is itself uncertain, which t_{U-1} ignores. The
    precaution costs little: in 200 logs of the HIV world without any lift (kurtosis 24), WDR would have been
    shipped in 5.0 % by t and in 4.5 % by "heavy". With light tails both are the same.
    """
    bounds = [
        interval_of(margin, influence, level=level, method=name, seed=seed) for name in {method, "heavy"}
    ]
    return min(bound.lower_bound for bound in bounds)


def margin_of(estimate: Estimate, share: float) -> tuple[float, Float64Array]:
    """The lift plus ``share`` times |J(mu)|, and its influences. It is linear, so no ratio is needed."""
    signed = share if estimate.baseline >= 0 else -share
    base = estimate.influence_value - estimate.influence_lift
    return estimate.lift + signed * estimate.baseline, estimate.influence_lift + signed * base
