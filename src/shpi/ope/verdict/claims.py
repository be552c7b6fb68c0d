"""One condition of a gate: a margin that must be above 0, what is known of it, and how to say so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shpi._core.distributions import normal_quantile
from shpi.ope.inference.intervals import interval_of, standard_error
from shpi.ope.results import Diagnostic, Estimate, Severity
from shpi.ope.verdict.guards import Guard
from shpi.ope.verdict.needed import Factors
from shpi.ope.verdict.rare import widened
from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.ope.gate import Gate


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim:
    """margin > 0, to be proven: lift - min_lift, or what a guard metric keeps above its largest drop."""

    words: str
    margin: float
    error: float
    lower: float  # one-sided bounds of the margin
    upper: float
    shown: str  # the estimate and its bound, for people
    strict: bool  # a margin of exactly 0 does not do
    believed: bool = True  # False: the estimate leaves something out, or trusts a model, and proves nothing

    @classmethod
    def of_lift(cls, gate: Gate, estimate: Estimate, method: str, extra: float = 0.0) -> Claim:
        """The lift is above the least one that is wanted; ``extra``: see `shpi.ope.verdict.rare`."""
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
        """A guard metric falls, or rises, by no more than it may."""
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
            bound = _careful(side * margin, side * influence, gate.confidence, method, gate.seed)
            bounds.append(side * (side * margin - widened(side * margin - bound, quantile, extra)))
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
        """The lower bound says so."""
        return self.believed and (self.lower > 0 if self.strict else self.lower >= 0)

    @property
    def refuted(self) -> bool:
        """The upper bound speaks against it; a lift whose very estimate is too small is not promising."""
        return (self.margin <= 0 and not self.proven) if self.strict else self.upper < 0

    def reason(self, *, settled: bool = True) -> str:
        """In words; if nothing is ``settled``, without saying what the evidence speaks for."""
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
        """So many times the users would prove a margin of this size with the given power."""
        return Factors.of(self.margin, self.error, confidence, power)

    def diagnostic(self) -> Diagnostic:
        """For `Verdict.guards`."""
        severity: Severity = "fine" if self.proven else "fatal" if self.refuted else "warning"
        return Diagnostic(
            name=self.words, severity=severity, sentence=self.reason(), figure=self.margin, threshold=0.0
        )


def _careful(margin: float, influence: Float64Array, level: float, method: str, seed: int) -> float:
    """The lower bound by the method of the evaluation, or by "heavy" if that is lower.

    Where few users decide the standard deviation it is uncertain itself, and t_{U-1} does not know of it. A
    precaution that costs little: in 200 logs of the HIV world without any lift (kurtosis 24) WDR would have
    been shipped in 5.0 % by t and in 4.5 % by "heavy". Where tails are light both are the same.
    """
    bounds = [
        interval_of(margin, influence, level=level, method=name, seed=seed) for name in {method, "heavy"}
    ]
    return min(bound.lower_bound for bound in bounds)


def margin_of(estimate: Estimate, share: float) -> tuple[float, Float64Array]:
    """The lift plus ``share`` of |J(mu)|, and its influences: linear in both, so no ratio is needed."""
    signed = share if estimate.baseline >= 0 else -share
    base = estimate.influence_value - estimate.influence_lift
    return estimate.lift + signed * estimate.baseline, estimate.influence_lift + signed * base
