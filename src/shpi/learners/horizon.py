r"""How many steps ahead: k chosen from the log, the paper's open question.

The gain of a fixed policy pi over mu for one decision, measured with A_k while mu acts in all later steps,

    theta_k = E_{x ~ d_mu, a ~ pi} [ A_k(x, a) ] - E_{x ~ d_mu, a ~ mu} [ A_k(x, a) ]

is the same number for every k if the bonus V is right. Its bias, which comes from the error of V(x_{t+k}),
falls with k: more of the window is real reward, and more of what the context does not show has come to light.
Its variance grows with k. That is the setting of Lepski's rule (SLOPE, Su et al. 2020): take the smallest k
whose estimate does not contradict that of any larger one,

    |theta_k - theta_k'| <= z se(theta_k - theta_k')      for all k' > k,

with errors of the paired differences, users as clusters. A small k is also what the clipped importance
weights of the later rounds want. k = 1 is not among these choices: it never asks what pi itself does next, so
rounds after the first add nothing. Under mu it looks as good as k = 3, and its policies are worse
(storefront, 6,000 users, seeds 100 to 111: 2.12 against 2.21).

The rule looks at the gain of one policy, not at what a regression can make of A_k. Where the advantages are
so noisy that f at this k does not predict those of held-out users (`shpi.learners.evidence`), the k at which
f predicts best is taken instead, k = 1 included: to look less far is better than to look at noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shpi.advantages import Advantages, ratios_of
from shpi.data.logged import LoggedData
from shpi.learners.evidence import CLEAR
from shpi.learners.gain import clustered_error, gain_parts
from shpi.protocols import Float64Array

HORIZONS = (3, 5, 10, 20, 40, 80, 160)
CONTRADICTION = 1.64  # z
SHORTER = (1, 3, 10, 40)  # what is tried where f sees nothing at the chosen k


@dataclass(frozen=True, kw_only=True)
class HorizonChoice:
    """The chosen k, with what it was chosen from."""

    k: int
    horizons: tuple[int, ...]
    gains: tuple[float, ...]  # theta_k
    errors: tuple[float, ...]  # their standard errors
    clarities: Mapping[int, float] = field(default_factory=dict)  # t by k, where it was looked at

    @property
    def clarity(self) -> float:
        """How clearly f at the chosen k predicts held-out advantages; 0 if nobody was held out."""
        return self.clarities.get(self.k, 0.0)

    def seen_through(
        self, held_out: Callable[[int], float], crossed: Callable[[Sequence[int]], Mapping[int, float]]
    ) -> HorizonChoice:
        """This choice, or the k at which f is clearest where it is not clear at this one.

        Args:
            held_out: t by k, on the held-out users.
            crossed: t by k on the others, each half judged by an f of the other half: slower, and sharper.
        """
        found = {self.k: held_out(self.k)}
        if found[self.k] >= CLEAR:
            return replace(self, clarities=found)
        clarities = crossed([k for k in SHORTER if k == 1 or k in self.horizons])
        return replace(self, k=max(clarities, key=lambda k: clarities[k]), clarities=clarities)

    def __str__(self) -> str:
        rows = [f"  k = {k:3d}   gain {g: .4g} ± {e:.2g}" for k, g, e in self._rows()]
        if len(self.clarities) < 2:
            return "\n".join([f"k = {self.k}, the smallest that no larger one contradicts:", *rows])
        seen = ", ".join(f"{k}: {t:.1f}" for k, t in self.clarities.items())
        return f"k = {self.k}, where f predicts the advantages of other users best (t by k: {seen})"

    def _rows(self) -> list[tuple[int, float, float]]:
        return list(zip(self.horizons, self.gains, self.errors, strict=True))


def choose_horizon(
    logs: LoggedData, advantages: Callable[[int], Advantages], probs: Float64Array
) -> HorizonChoice:
    """Apply the rule above.

    Args:
        logs: on which the gains are measured.
        advantages: A_k of its decisions under mu, by k.
        probs: pi(a_t|x_t) of the fixed policy [n].
    """
    horizons = possible_horizons(logs)
    gains, parts = [], []
    for k in horizons:
        found = advantages(k)
        gain, part = gain_parts(logs, found, np.where(found.valid, ratios_of(logs, probs), 0.0))
        gains.append(gain)
        parts.append(part)
    return HorizonChoice(
        k=horizons[smallest_uncontradicted(gains, parts)],
        horizons=horizons,
        gains=tuple(gains),
        errors=tuple(clustered_error(part) for part in parts),
    )


def possible_horizons(logs: LoggedData) -> tuple[int, ...]:
    """Those shorter than the longest trajectory, and at least the first."""
    longest = int(np.diff(logs.offsets).max(initial=1))
    return tuple(k for k in HORIZONS if k == HORIZONS[0] or k < longest)


def smallest_uncontradicted(gains: Sequence[float], parts: Sequence[Float64Array]) -> int:
    """The position of the smallest k whose gain no larger k contradicts."""
    for i in range(len(gains)):
        later = range(i + 1, len(gains))
        if all(
            abs(gains[i] - gains[j]) <= CONTRADICTION * clustered_error(parts[i] - parts[j]) for j in later
        ):
            return i
    return len(gains) - 1
