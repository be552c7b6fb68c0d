"""k-step advantages of logged decisions (Eq. 2, 4 and 5 of the paper).

values = StateValues.of(v, logs)                       # v: any fitted value of shpi.values
ratios = importance_ratios(logs, policy)               # or None if the policy itself produced the log
advantages = k_step_advantages(logs, values, k="session", gamma=0.99, ratios=ratios)
"""

from shpi.advantages.kstep import Advantages, WeightSummary, k_step_advantages
from shpi.advantages.ratios import importance_ratios, ratios_of, taken_probs
from shpi.advantages.windows import Horizon, checked_horizon, window_stops
from shpi.values.base import StateValues

__all__ = [
    "Advantages",
    "Horizon",
    "StateValues",
    "WeightSummary",
    "checked_horizon",
    "importance_ratios",
    "k_step_advantages",
    "ratios_of",
    "taken_probs",
    "window_stops",
]
