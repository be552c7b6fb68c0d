r"""Proximal regularisation of policy iteration: a penalty on the bonus for leaving the states of the log.

    V_j(x) = V(x) - Lambda mean_{i<j} log w_i(x),         w_i = d_{pi_i} / d_mu

takes the place of the termination bonus V in round j, so that the advantages become

    A_k(x_t, a_t) - Lambda ( gamma^k log w(x_{t+k}) - log w(x_t) + (1-gamma) sum_m gamma^m log w(x_{t+m}) )

in the residual form (m = 1 .. k-1, all under the importance weights). The paper's penalty, -Lambda log w(x_t)
alone, is the same for every action and changes no decision; `shpi.shift.proximal` explains this and
the sign. Here the penalty applies at the end of the k steps, like the bonus; for k = 1 that is the next
context.

Averaging over rounds. With the ratio of the last policy alone the rounds oscillate: states that it avoids
become attractive to the next one. Averages of all rounds damp this.

Strength. Lambda is a penalty, not a bound: greedy policies change in jumps, so a small one may do nothing.
On three random worlds of 12 states and 4 actions, with exact ratios, KL(d_mu || d_pi) went from 0.142, 0.189
and 0.139 without a penalty to 0.071, 0.126 and 0.116 for a Lambda of three standard deviations of the
advantages, and the improvement over mu fell by at most 6 %.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.data.logged import LoggedData
from shpi.protocols import Float64Array
from shpi.shift import PreparedRatio, Ratio
from shpi.shift.proximal import FLOOR
from shpi.values.base import StateValues


@dataclass(frozen=True, kw_only=True, eq=False)
class Proximal:
    """The penalised bonus, round after round.

    Args:
        logs: the log.
        bonus: V on it.
        ratios: estimates d_pi / d_mu.
        strength: Lambda, in the unit of the advantages.
    """

    logs: LoggedData
    bonus: StateValues
    ratios: PreparedRatio
    strength: float
    _seen: list[Ratio] = field(default_factory=list, repr=False)  # of the rounds so far

    def penalised(self, probs: Float64Array) -> StateValues:
        """V_j for the policy with these pi(a_t|x_t) [n], and all before it.

        The first unreliable ratio is reported with numbers, in a `CoverageWarning`.
        """
        ratio = self.ratios.fit(probs)
        if all(estimate.reliable for estimate in self._seen):
            ratio.warn()
        self._seen.append(ratio)
        last = self.logs.offsets[1:] - 1
        here = np.mean([log_weights(estimate.weights) for estimate in self._seen], axis=0)
        final = np.mean([log_weights(estimate.next_weights[last]) for estimate in self._seen], axis=0)
        return StateValues(
            rows=self.bonus.rows - self.strength * here, final=self.bonus.final - self.strength * final
        )


def log_weights(weights: Float64Array) -> Float64Array:
    """The log of w, floored: log 0 would send every policy to states that the last one never visits."""
    logs: Float64Array = np.log(np.maximum(weights, FLOOR))
    return logs
