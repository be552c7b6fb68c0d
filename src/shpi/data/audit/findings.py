"""Findings, and every threshold that turns a fact into one.

An *error* makes the log unfit: nothing trustworthy can be learned before it is repaired. A *warning* limits
what can be learned. An *info* is worth knowing.

| code | severity | when |
|---|---|---|
| unbalanced | error | rows in is not rows used + rows dropped |
| few_decisions | error | fewer than 30 decisions |
| single_action | error | fewer than two actions were ever chosen |
| reward_constant | error | all observed rewards are equal |
| reward_unobserved | error | every reward is censored |
| no_exploration | error | mean of -log p below 0.05 over decisions with a choice (about 1 % of exploration) |
| behaviour_outside | error | mu puts more than 1 % outside the candidates |
| inverse_propensity | error | mean of 1/p off its expectation by a factor of 2 and 4 standard errors |
| inverse_propensity | warning | mean of 1/p off its expectation by 10 % and 4 standard errors |
| uniform_ess | error | effective sample size (ESS) of the uniform policy below 30 and half of the log |
| uniform_ess | warning | that ESS below 200 or 1 % of the decisions, and half of the log |
| leaking_column | error | correlation 0.999 with a later reward, or a perfect split of a binary one |
| leaking_column | warning | correlation 0.95 with a later reward |
| only_with_reward | warning | a column leaves its usual value only where a reward came (98 % of 20 or more) |
| predicts_reward | warning | a column alone ranks rewarded decisions above others in 95 % of the pairs |
| changing_column | warning | a column differs between repeated rows of the same decision |
| many_dropped | warning | more than 10 % of the rows were dropped |
| propensities_absent | warning | there are no propensities |
| propensities_estimated | info | the propensities are estimated |
| miscalibrated | warning | a bin of the calibration is off by more than 20 % and 5 standard errors |
| reward_absent | warning | there is no reward (it can be derived) |
| reward_censored | warning | some rewards are marked as unobserved |
| never_chosen | warning | an action of the action set was never chosen |
| rare_actions | info | an action was chosen fewer than 20 times |
| duplicate_rows | warning | (user, time, action) occurs twice |
| time_ties | info | decisions of one user at the same time |
| constant_column | warning | a context column has one value only |
| same_column | warning | two context dimensions are equal in every row |
| no_context | warning | there is no context column |
| single_user | warning | one user only |
| no_sequence | warning | every trajectory is one decision: only a bandit can be learned |
| endings_unknown | warning | the log does not say how users end, which moves mu's value by 10 % or more |
| endings_unknown | info | the log does not say how users end, and little depends on that |
| thin_window | warning | fewer than 10 % of the users are observed for the whole window of the metric |
| final_unobserved | info | the context after the last decision is not in the log |
| sampled | info | the log is in shards: distributions are those of a sample of its users |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # the worst first

FEW_DECISIONS = 30  # usable decisions; fewer are an error
NO_EXPLORATION = 0.05  # mean of -log p in nats; below it, mu hardly ever chose at random
OUTSIDE_SHARE = 0.01  # share of mu's probability on actions that were not candidates
# Mean of 1/p relative to the number of candidates: factor for an error, for a warning; standard errors.
INVERSE_ERROR, INVERSE_WARNING, INVERSE_Z = 2.0, 1.1, 4.0
# Effective sample size of the uniform policy: error and warning below so many decisions; warning below a
# share of the decisions; no finding from half of the decisions on.
ESS_ERROR, ESS_WARNING, ESS_SHARE, ESS_OF_LOG = 30.0, 200.0, 0.01, 0.5
LEAK_ERROR, LEAK_WARNING = 0.999, 0.95  # correlation of one column with a reward; 1 is perfect
DROPPED_SHARE = 0.1  # share of the rows; if more are dropped, the audit warns
THIN_WINDOW = 0.1  # share of the users; if fewer are observed for the whole window, the audit warns
ENDINGS_RELATIVE_CHANGE = 0.1  # relative change of mu's value with how users end; if larger, the audit warns
CALIBRATION_GAP, CALIBRATION_Z = 0.2, 5.0  # gap of a bin relative to its prediction, and in standard errors


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a person should know before learning from the log."""

    severity: Severity
    code: str
    message: str
    remedy: str
    column: str = ""
    example_row: int | None = None  # in (user, time) order, counted from 0
    example: str = ""  # the same decision in words

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return asdict(self)
