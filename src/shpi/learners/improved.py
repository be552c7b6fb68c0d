"""The result of SHPI: a policy, its lift over mu, and the reason for its choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shpi._core.arguments import without
from shpi.advantages import Advantages
from shpi.learners._shpi.lift import Lift
from shpi.policies import Policy, PolicyMethods
from shpi.policies.base import short_repr
from shpi.protocols import BoolArray, Float64Array, FloatArray
from shpi.report.cards import improved_card
from shpi.values import FittedValue

SHOWN = 0.01  # negative share of the density ratios from which the table of trials has a column for it


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The gain of a later policy over the first one, with a one-sided lower bound."""

    estimate: float
    lower: float
    standard_error: float
    effective_decisions: float
    users: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Iteration:
    """One round of policy iteration without tests."""

    number: int
    policy: Policy
    advantage_mean: float
    advantage_deviation: float
    changed: float  # share of the logged decisions at which the policy changed
    effective_share: float  # effective sample size of the importance products, as a share
    gain: Gain | None = None  # measured online; None offline

    @classmethod
    def of(
        cls, number: int, advantages: Advantages, changed: float, policy: Policy, gain: Gain | None = None
    ) -> Iteration:
        """Summarise a round."""
        used = advantages.values[advantages.valid]
        return cls(
            number=number,
            policy=policy,
            advantage_mean=float(used.mean()) if len(used) else 0.0,
            advantage_deviation=float(used.std()) if len(used) else 0.0,
            changed=changed,
            effective_share=advantages.weights.effective_share,
            gain=gain,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One candidate and its test result."""

    words: str
    lift: Lift
    returned: bool = False


@without(
    horizon="policy.trials has the candidates with their k",
    explored="policy.notes says what the test could not see",
    clarity="policy.trials has the lift of every candidate",
    choose="OfflineSHPI chooses among its candidates by one test",
)
@dataclass(frozen=True, eq=False, repr=False)
class ImprovedPolicy(PolicyMethods):
    """A policy, with its lift over mu and its history. Saving it saves the policy."""

    policy: Policy
    history: tuple[Iteration, ...]  # rounds without tests
    chosen: int  # which round or trial is returned, from 1; 0: mu or its clone
    value: FittedValue | None = None  # the termination bonus, where one was fitted
    lift: Lift | None = None  # None: nothing was tested
    trials: tuple[Trial, ...] = ()
    notes: Sequence[str] = ()

    @property
    def proven(self) -> bool:
        """Whether the lift of this policy is above 0 with confidence, over all tests."""
        return self.chosen > 0 and self.lift is not None and self.lift.proven

    @property
    def saved_form(self) -> Policy:
        """The policy that a file keeps, alone or inside another policy."""
        return self.policy

    @property
    def learned_form(self) -> Policy | None:
        """The learned policy; None if it is mu, which may be the caller's object."""
        return self.policy if self.chosen > 0 else None

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.policy.n_actions

    @property
    def width(self) -> int | None:
        """The width d of a context."""
        width: int | None = getattr(self.policy, "width", None)
        return width

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The chosen policy's probabilities, [n, A]."""
        return self.policy.action_probs(contexts, candidates)

    def _repr_html_(self) -> str:
        """The card that notebooks show."""
        return improved_card(self, short_repr(self))

    def __str__(self) -> str:
        rows = []
        leaves = any(trial.lift.outside >= SHOWN for trial in self.trials)  # where none does, no column
        if self.trials:
            column = f" {'off support':>11s}" if leaves else ""
            rows.append(
                f"{'candidate, in test order':32s} {'lift':>10s} {'± error':>9s} {'at least':>10s}{column}"
            )
        for trial in self.trials:
            mark = "  <- returned" if trial.returned else ""
            lift = f"{trial.lift.estimate:+10.4g} {trial.lift.standard_error:9.2g} {trial.lift.lower:+10.4g}"
            column = f" {trial.lift.outside:11.0%}" if leaves else ""
            rows.append(f"{trial.words:32s} {lift}{column}{mark}")
        if self.history:
            rows.append("round  advantage  ± deviation  changed  effective")
        for step in self.history:
            mark = " <- returned" if step.number == self.chosen else ""
            gain = "" if step.gain is None else f"  {step.gain.estimate:.4g} ({step.gain.lower:.4g})"
            rows.append(
                f"{step.number:5d}  {step.advantage_mean:9.4g}  {step.advantage_deviation:11.4g}  "
                f"{step.changed:7.1%}  {step.effective_share:9.1%}{gain}{mark}"
            )
        return "\n".join([*rows, *self.notes])
