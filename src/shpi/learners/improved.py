"""What SHPI returns: a policy, and the story of how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shpi.advantages import Advantages
from shpi.learners.evidence import CLEAR
from shpi.learners.gain import Gain
from shpi.learners.horizon import HorizonChoice
from shpi.policies import Policy, PolicyMethods, save_policy
from shpi.policies.likely import AmongLikely
from shpi.protocols import BoolArray, Float64Array, FloatArray
from shpi.values import FittedValue

LEAST_EXPLORED = 1e-3  # mean of 1 - mu(a|x) over the log


@dataclass(frozen=True, kw_only=True, eq=False)
class Iteration:
    """One round of policy iteration."""

    number: int
    policy: Policy
    advantage_mean: float
    advantage_deviation: float
    changed: float  # share of the logged decisions at which the policy changed
    effective_share: float  # effective sample size of the importance products, as a share
    gain: Gain | None  # on held-out users

    @classmethod
    def of(
        cls, number: int, advantages: Advantages, changed: float, policy: Policy, gain: Gain | None
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


@dataclass(frozen=True, eq=False)
class ImprovedPolicy(PolicyMethods):
    """A policy, with its history. Saving it saves the policy."""

    policy: Policy
    history: tuple[Iteration, ...]
    chosen: int  # the number of the returned iterate; 0: a clone of mu, since no gain could be shown
    value: FittedValue  # the termination bonus
    horizon: HorizonChoice | None = None  # how k was chosen, if it was
    explored: float = 1.0  # the mean chance that mu had not taken the action that it took
    clarity: float = 0.0  # t: how clearly f predicts the advantages of held-out users

    @classmethod
    def choose(
        cls,
        history: Sequence[Iteration],
        *,
        behaviour: Policy | None,
        value: FittedValue,
        horizon: HorizonChoice | None = None,
        explored: float = 1.0,
        clarity: float = 0.0,
    ) -> ImprovedPolicy:
        """The iterate with the largest held-out gain, if there is evidence for it; else mu.

        Evidence is a gain above 0 with confidence, or an f that clearly predicts held-out advantages beside a
        gain that is not below 0 with confidence: the gain alone has little power where pi often takes what mu
        seldom took. Where mu never explores there is nothing to compare with, and gains come from the clone's
        errors.
        """
        rounds = tuple(history)
        told: dict[str, Any] = {"value": value, "horizon": horizon, "explored": explored, "clarity": clarity}
        if rounds[-1].gain is None or behaviour is None:
            return cls(rounds[-1].policy, rounds, rounds[-1].number, **told)
        best = max(rounds, key=lambda one: one.gain.lower if one.gain is not None else float("-inf"))
        if best.gain is not None and explored >= LEAST_EXPLORED:
            doubt = best.gain.estimate - best.gain.lower
            if best.gain.lower > 0 or (clarity >= CLEAR and best.gain.estimate + doubt > 0):
                return cls(best.policy, rounds, best.number, **told)
        return cls(behaviour, rounds, 0, **told)

    @property
    def proven(self) -> bool:
        """Whether the gain of the chosen iterate is above 0 with confidence."""
        gains = [one.gain for one in self.history if one.number == self.chosen]
        return bool(gains) and gains[0] is not None and gains[0].lower > 0

    @property
    def saved_form(self) -> Policy:
        """What a file keeps of it, alone or as a part of another policy."""
        return self.policy

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
        """Those of the chosen policy, [n, A]."""
        return self.policy.action_probs(contexts, candidates)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write the chosen policy to a folder; see `shpi.policies.save_policy`."""
        return save_policy(self.policy, path, **options)

    def __str__(self) -> str:
        head = "round  advantage  ± deviation  changed  effective  held-out gain (lower bound)"
        rows = [head] if self.horizon is None else [str(self.horizon), head]
        for one in self.history:
            gain = "" if one.gain is None else f"{one.gain.estimate:.4g} ({one.gain.lower:.4g})"
            mark = " <- returned" if one.number == self.chosen else ""
            rows.append(
                f"{one.number:5d}  {one.advantage_mean:9.4g}  {one.advantage_deviation:11.4g}  "
                f"{one.changed:7.1%}  {one.effective_share:9.1%}  {gain}{mark}"
            )
        if self.chosen == 0 and self.explored < LEAST_EXPLORED:
            rows.append("The logging policy never explores, so nothing can be learned: a clone is returned.")
        elif self.chosen == 0:
            rows.append("No gain over the logging policy could be shown: a clone of it is returned.")
        if isinstance(self.policy, AmongLikely):
            rows.append(self.policy.described)
        return "\n".join(rows)
