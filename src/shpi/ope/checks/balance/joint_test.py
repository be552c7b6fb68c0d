r"""Test whether the actions were chosen with the propensities of the log: all imbalances in one joint test.

For a group g of actions and a column z that is known before the decision
(`shpi.ope.checks.balance.instruments`)

    S = sum_t e_tg z_t,   V = sum_t e_tg^2 z_t^2,   S / sqrt(V) is about normal if the propensities are right

The terms are martingale differences: given the past, each decision is a fresh draw from mu. So single
decisions are the observations, without clustering by user. The sum of a user's earlier e is one more column:
it detects users who keep their arm. The action frequencies over all decisions have a level of their own,
since an override may show nowhere else; all other columns share a second one (Bonferroni).

*Detectable overrides.* An override of n decisions is invisible if n is below the random variation of a count,
about sqrt(decisions). The diagnostic states the share of decisions whose override would have been detected.

*Estimated propensities* balance the contexts (and the time) by construction, up to the error of the fit. To
remove the effect of that error, z is replaced by its residual from a regression on contexts and time, with
the weights mu (1 - mu) of the score. What remains are the negative controls.

*Outcomes that look ahead.* "Bought within 30 days" of the previous decision depends on this decision, and is
no negative control. `LoggedData.immediate` holds the part that was known at once, if the log has it. If not,
and propensities were logged, an imbalance of earlier outcomes alone is only a warning.

*Days.* If one coin is thrown for all users of a day, decisions are not independent draws. Such a log shows a
high correlation of e within days (`shpi.ope.checks.days`); the variance is then computed from sums over days.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shpi._core.distributions import normal_upper_quantile, t_tail
from shpi.data._log.clock import Clock
from shpi.data.durations import MICROSECONDS
from shpi.ope.checks.balance.instruments import Instruments, sum_before
from shpi.ope.checks.balance.residuals import Groups
from shpi.ope.checks.days import days_of
from shpi.ope.problem import Chunk, Problem, once
from shpi.ope.results import Diagnostic, Severity
from shpi.protocols import Float64Array

# Probability of a false alarm per log: for the action frequencies over all decisions, for all other columns.
# A false alarm prevents a ship; an undetected override of 2 % of 8,000 decisions causes a false one.
LEVEL_ALL, LEVEL_OTHERS = 0.01, 0.005
SEEN = 0.84  # standard errors; the 80 % normal quantile, for a power of 80 %
LEAST_VARIANCE = 25.0  # the variance V that the normal approximation needs, at least
HARMLESS = 0.01  # imbalance relative to the propensity, up to which rounding explains it
MOST_FEATURES = 60  # context dimensions in the regression of z for estimated propensities, at most
NAME = "propensity balance"
EARLIER = "earlier decisions of the user"


@dataclass(frozen=True, kw_only=True, eq=False)
class Imbalance:
    """Sums over decisions, for each group and column [G, J]."""

    excess: Float64Array  # S
    variance: Float64Array  # V
    expected: Float64Array  # sum_t mu(g|x_t) |z_t|
    weight: Float64Array  # sum_t |z_t|


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The most significant imbalance of a log."""

    where: str  # name of the column
    group: str  # name of the group of actions
    said: float  # mean propensity of the group in the column's cell
    observed: float  # frequency of the group there
    z: float
    ratio: float  # p-value divided by its level; significant below 1
    comparisons: int
    outcome: bool  # the column is an outcome of earlier decisions
    visible: float | None  # the share of decisions whose override would be detected; None: unknown

    @property
    def relative(self) -> float:
        """The gap relative to the propensity of the group or of its complement, whichever is smaller."""
        rarer = min(self.said, 1 - self.said) if self.said < 1 else self.said
        return abs(self.observed - self.said) / max(rarer, 1e-12)


def about_balance(problem: Problem) -> list[Diagnostic]:
    """One diagnostic for all imbalances, and one more if days were switched as a whole."""
    if problem.propensity_mode == "absent":
        return []
    days, finding, estimated = days_of(problem), clearest(problem), problem.propensity_mode == "estimated"
    clear = finding.ratio < 1
    severity: Severity = "fine"
    if clear:
        harmless = finding.relative <= HARMLESS or finding.outcome
        severity = "fatal" if estimated or not harmless else "warning"
    visible = "" if finding.visible is None else f" An override of {finding.visible:.1%} would be detected."
    balance = Diagnostic(
        name=NAME,
        severity=severity,
        sentence=_found(finding, estimated=estimated)
        if clear
        else "Actions were chosen as often as the propensities say, in all "
        f"{finding.comparisons:,} comparisons by action, time, step, context and earlier outcomes.{visible}",
        figure=finding.ratio,
        threshold=1.0,
    )
    return [days.diagnostic(), balance] if days is not None and days.switched else [balance]


def visible_override(problem: Problem) -> float | None:
    """The share of decisions whose override the action frequencies would show; None if mu(.|x) is unknown."""
    return clearest(problem).visible


@once
def clearest(problem: Problem) -> Finding:
    """The most significant imbalance."""
    groups, days, sample = Groups.of(problem), days_of(problem), problem.sample()
    instruments = Instruments.of(sample)
    estimated = problem.propensity_mode == "estimated"
    switched = days is not None and days.switched
    sums = _sums(sample, groups, instruments, estimated=estimated, by_day=switched)
    freedom = float(days.count - 1) if switched and days is not None else math.inf
    enough = sums.variance >= (1e-9 if switched else LEAST_VARIANCE)
    z = np.where(enough, sums.excess / np.sqrt(np.where(enough, sums.variance, 1.0)), 0.0)
    tail = t_tail(np.abs(z), freedom) * 2 if groups.exact else t_tail(z, freedom)
    columns = z.shape[1]
    levels = np.full(columns, LEVEL_OTHERS / max(groups.candidates * (columns - 1), 1))
    levels[0] = LEVEL_ALL / groups.candidates
    ratio = tail / levels  # below 1: significant
    g, j = np.unravel_index(int(np.argmin(ratio)), ratio.shape)
    expected = sums.expected[g, j] / max(sums.weight[g, j], 1e-12)
    visible = None
    if groups.exact:  # what is detected in four of five logs, towards one action
        standard_errors = float(normal_upper_quantile(float(levels[0]) / 2)) + SEEN
        visible = standard_errors * float(np.sqrt(sums.variance[:, 0].max()) / sums.weight[0, 0])
    names = (*instruments.names, EARLIER)
    return Finding(
        where=names[j],
        group=groups.names[g],
        said=float(expected),
        observed=float(expected + sums.excess[g, j] / max(sums.weight[g, j], 1e-12)),
        z=float(z[g, j]),
        ratio=float(ratio[g, j]),
        comparisons=groups.candidates * columns,
        outcome=instruments.first_outcome <= int(j) < len(instruments.names),
        visible=visible,
    )


def _sums(
    chunk: Chunk, groups: Groups, instruments: Instruments, *, estimated: bool, by_day: bool
) -> Imbalance:
    residuals = groups.residuals(chunk)  # [n, G]
    columns = instruments.columns  # [n, J], zeros and ones
    # mu(g|x_t) [n, G]; the number of actions in g if only the taken action's propensity is known
    behaviour, count = chunk.logs.behaviour, len(groups.names)
    member = groups.of_action[:, None] == np.arange(count)  # [A, G]
    if behaviour is None or not groups.exact:
        propensities = np.tile(member.sum(axis=0).astype(np.float64), (len(chunk.logs), 1))
    else:
        propensities = behaviour @ member
    earlier = sum_before(chunk, np.clip(residuals, -5.0, 5.0))  # [n, G]
    expected = np.column_stack([propensities.T @ columns, np.sum(propensities * np.abs(earlier), axis=0)])
    weight = np.column_stack([np.tile(columns.sum(axis=0), (count, 1)), np.abs(earlier).sum(axis=0)])
    if not estimated and not by_day:
        own = residuals * earlier
        excess = np.column_stack([residuals.T @ columns, own.sum(axis=0)])
        variance = np.column_stack([(residuals**2).T @ columns, np.sum(own**2, axis=0)])
        return Imbalance(excess=excess, variance=variance, expected=expected, weight=weight)
    features = _features(chunk) if estimated else None
    by_column = []
    for g in range(count):
        z = np.column_stack([columns, earlier[:, g]])
        if features is not None:
            z = _cleared(z, features, np.clip(propensities[:, g] * (1 - propensities[:, g]), 1e-4, None))
        terms = residuals[:, g, None] * z
        sums = _by_day(chunk, terms) if by_day else terms
        by_column.append((terms.sum(axis=0), np.sum(sums**2, axis=0)))
    excess, variance = (np.stack(rows) for rows in zip(*by_column, strict=True))
    return Imbalance(excess=excess, variance=variance, expected=expected, weight=weight)


def _by_day(chunk: Chunk, terms: Float64Array) -> Float64Array:
    """The sums of the terms by day [D, J]."""
    day = chunk.logs.times // MICROSECONDS["d"]
    order = np.argsort(day, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(day[order]) > 0))
    return np.add.reduceat(terms[order], first, axis=0)


def _features(chunk: Chunk) -> Float64Array:
    """The features of the propensity model [n, F]."""
    logs = chunk.logs
    columns = [np.ones((len(logs), 1)), logs.contexts[:, :MOST_FEATURES].astype(np.float64)]
    clock = Clock.of(logs)
    if clock is not None:
        columns.append(clock.features(logs))
    return np.concatenate(columns, axis=1)


def _cleared(z: Float64Array, features: Float64Array, weights: Float64Array) -> Float64Array:
    """The residuals of z from its weighted regression on the features; 0 if they are negligible."""
    weighted = features * weights[:, None]
    gram = features.T @ weighted
    gram[np.diag_indices_from(gram)] += 1e-8 * np.trace(gram) / len(gram) + 1e-12
    rest: Float64Array = z - features @ np.linalg.solve(gram, weighted.T @ z)
    left = np.einsum("nj,n,nj->j", rest, weights, rest) / np.maximum(
        np.einsum("nj,n,nj->j", z, weights, z), 1e-300
    )
    return np.where(left > 1e-3, rest, 0.0)


def _found(finding: Finding, *, estimated: bool) -> str:
    clearly = f"({abs(finding.z):.1f} standard errors)"
    if finding.where == EARLIER:
        return (
            f"Users keep their arm: how often {finding.group} is chosen depends on a user's earlier "
            f"decisions beyond what the propensities say {clearly}. Products of propensities are then wrong."
        )
    if finding.said < 1:
        gap = f"{finding.observed:.2%} of the time; the propensities say {finding.said:.2%}"
    else:
        gap = f"{finding.observed / finding.said:.3g} times as often as the propensities say"
    why = "Actions were not chosen with them: actions were overridden, or propensities are out of date."
    if estimated:
        why = "They leave out something that the logging policy used: add it to the contexts."
    if finding.outcome:
        why += " Or this outcome includes later events, and the log does not say so (delayed=True)."
    return f"{finding.where} {finding.group} was chosen {gap} {clearly}. {why}"
