"""From facts to findings: are the propensities right, and do they leave room for another policy?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shpi.data.audit.facts import describe_row
from shpi.data.audit.findings import (
    CALIBRATION_GAP,
    CALIBRATION_Z,
    ESS_ERROR,
    ESS_OF_LOG,
    ESS_SHARE,
    ESS_WARNING,
    INVERSE_ERROR,
    INVERSE_WARNING,
    INVERSE_Z,
    NO_EXPLORATION,
    OUTSIDE_SHARE,
    Finding,
)

if TYPE_CHECKING:
    from shpi.data.audit.propensity import PropensityFacts
    from shpi.data.audit.report import Facts
    from shpi.data.logged import LoggedData


def check_propensities(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """All findings about mu(a|x)."""
    if logs.propensities is None:
        yield Finding(
            severity="warning",
            code="propensities_absent",
            message="The log has no propensities, which off-policy learning and evaluation need.",
            remedy="log the probability of each choice; until then estimate it with --estimate-propensities "
            "or logs.with_estimated_propensities()",
            column="propensity",
        )
        return
    checks = facts.propensity
    if checks is None:
        if facts.actions.chosen > 1:  # else the single action has been reported already
            yield Finding(
                severity="error",
                code="no_exploration",
                message="No decision had more than one candidate: there was never a choice.",
                remedy="check the candidates column",
                column="candidates",
            )
        return
    if checks.mode == "estimated":
        yield Finding(
            severity="info",
            code="propensities_estimated",
            message="The propensities are estimated. They are right only if the logging policy used "
            "nothing but the context columns of this log (no confounding).",
            remedy="log the probability of each choice in future",
            column="propensity",
        )
    if checks.log_loss < NO_EXPLORATION:
        yield Finding(
            severity="error",
            code="no_exploration",
            message="The logging policy hardly explored: the median probability of its choices is "
            f"{checks.spread.median:.3g}, so alternatives were practically never tried.",
            remedy="check that the column is the probability of choosing, and not a constant; else log a "
            "policy that explores",
            column="propensity",
            example_row=checks.smallest_row,
            example=describe_row(logs, checks.smallest_row),
        )
    yield from _inverse(logs, checks)
    yield from _distribution(checks)
    yield from _effective(logs, checks)


def _inverse(logs: LoggedData, checks: PropensityFacts) -> Iterator[Finding]:
    """Compare the mean of 1/mu(a|x) with its expectation, the number of actions that can be chosen."""
    off = max(checks.ratio, 1 / checks.ratio)
    if off <= INVERSE_WARNING or (checks.z is not None and abs(checks.z) <= INVERSE_Z):
        return
    error = "" if checks.z is None else f", {abs(checks.z):,.0f} standard errors"
    why = (
        "The propensities are too small, or candidates are missing."
        if checks.ratio > 1
        else "The propensities are too large, or many candidates could in truth never be chosen."
    )
    yield Finding(
        severity="error" if off > INVERSE_ERROR else "warning",
        code="inverse_propensity",
        message=f"The mean of 1/p is {checks.inverse_mean:,.4g}, but {checks.inverse_expected:,.4g} actions "
        f"could be chosen on average (ratio {checks.ratio:.3g}{error}). {why}",
        remedy="check that p is mu(a|x) of the chosen action among its candidates, and log the candidates "
        "that the policy really chose from",
        column="propensity",
        example_row=checks.smallest_row,
        example=describe_row(logs, checks.smallest_row),
    )


def _distribution(checks: PropensityFacts) -> Iterator[Finding]:
    """Findings that need the full mu(.|x)."""
    if checks.outside > OUTSIDE_SHARE:
        yield Finding(
            severity="error",
            code="behaviour_outside",
            message=f"The behaviour distribution puts {checks.outside:.1%} of its probability on actions "
            "that were not candidates.",
            remedy="log mu(.|x) after exclusions were applied, or correct the candidates",
            column="behaviour",
        )
    bins = checks.calibration.bins if checks.calibration else ()
    off = [
        b
        for b in bins
        if abs(b.z) > CALIBRATION_Z and abs(b.observed - b.predicted) > CALIBRATION_GAP * b.predicted
    ]
    if off:
        worst = max(off, key=lambda b: abs(b.z))
        yield Finding(
            severity="warning",
            code="miscalibrated",
            message=f"Actions with a probability of {worst.predicted:.3%} on average were chosen in "
            f"{worst.observed:.3%} of {worst.count:,} cases.",
            remedy="check the logged distribution"
            if checks.mode == "logged"
            else "give the estimation the columns that the logging policy used",
            column="behaviour",
        )


def _effective(logs: LoggedData, checks: PropensityFacts) -> Iterator[Finding]:
    """The effective sample size for a policy far from the logged one."""
    ess, n = checks.uniform_ess, checks.decisions
    weak = ess < ESS_WARNING or ess < ESS_SHARE * n
    if not weak or ess >= ESS_OF_LOG * n:  # otherwise the log is small rather than narrow
        return
    verdict = (
        "Policies that differ much from the logged one cannot be evaluated from this log."
        if ess < ESS_ERROR
        else "Estimates for policies far from the logged one will be rough."
    )
    yield Finding(
        severity="error" if ess < ESS_ERROR else "warning",
        code="uniform_ess",
        message=f"To evaluate the uniform policy, the {n:,} decisions are worth {ess:,.1f} (effective sample "
        f"size; one decision carries {checks.top_weight:.0%} of all weight). {verdict}",
        remedy="log more exploration; until then stay close to the logged policy, with clipped weights, and "
        "trust no estimate with a small effective sample size",
        column="propensity",
        example_row=checks.smallest_row,
        example=describe_row(logs, checks.smallest_row),
    )
