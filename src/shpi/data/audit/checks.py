"""From facts to findings: rows, structure, actions, rewards, time and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shpi.data.audit.facts import RARE, describe_row
from shpi.data.audit.findings import (
    DROPPED_SHARE,
    ENDINGS_RELATIVE_CHANGE,
    FEW_DECISIONS,
    LEAK_ERROR,
    SEVERITIES,
    THIN_WINDOW,
    Finding,
)
from shpi.data.audit.overlap import check_propensities

if TYPE_CHECKING:
    from shpi.data.audit.report import Facts
    from shpi.data.logged import LoggedData


def find(logs: LoggedData, facts: Facts) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    findings = [finding for check in _CHECKS for finding in check(logs, facts)]
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def check_rows(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Whether the rows add up, and whether enough are left."""
    ledger = facts.ledger
    if not ledger.balanced() or ledger.rows_used != facts.structure.decisions:
        yield Finding(
            severity="error",
            code="unbalanced",
            message=f"{ledger.rows_in:,} rows came in, but {ledger.rows_used:,} used, "
            f"{ledger.final_rows:,} last contexts and {ledger.rows_dropped:,} dropped do not add up to them "
            f"(the log holds {len(logs):,} decisions).",
            remedy="this is a defect of the reader or of an adapter: please report it",
        )
    unusable = [drop for drop in ledger.drops if not drop.asked]
    dropped = sum(drop.rows for drop in unusable)
    if dropped > DROPPED_SHARE * ledger.rows_in:
        worst = max(unusable, key=lambda drop: drop.rows)
        source = "" if worst.example is None else f" (e.g. source row {worst.example:,})"
        yield Finding(
            severity="warning",
            code="many_dropped",
            message=f"{dropped / ledger.rows_in:.0%} of the rows were dropped, most of them for "
            f"one reason: {worst.reason}{source}.",
            remedy=worst.remedy or "see the list of dropped rows",
            column=worst.column,
        )
    if len(logs) < FEW_DECISIONS:
        yield Finding(
            severity="error",
            code="few_decisions",
            message=f"The log has only {len(logs)} usable decisions; at least {FEW_DECISIONS} are needed.",
            remedy="log more decisions before learning from them",
        )


def check_structure(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Users, sequences and endings."""
    structure = facts.structure
    if structure.users == 1:
        yield Finding(
            severity="warning",
            code="single_user",
            message="All decisions belong to one user: no user can be held out, and no interval is possible.",
            remedy="check the user column, or log more users",
            column="user",
        )
    if structure.trajectories == structure.decisions:
        yield Finding(
            severity="warning",
            code="no_sequence",
            message="Every trajectory is a single decision: the log shows no future, so only a bandit "
            "(k = 1, no termination bonus) can be learned.",
            remedy="map the column that identifies a user, if there is one",
            column="user",
        )
        return
    yield from _check_endings(logs, facts)
    unknown = structure.truncated - structure.final_observed
    if unknown and logs.endings != "unknown":
        yield Finding(
            severity="info",
            code="final_unobserved",
            message=f"{unknown:,} of {structure.truncated:,} truncated trajectories end without the context "
            "after their last decision; values are bootstrapped from the one before it.",
            remedy="append a row with each user's last context and no action, if you have it",
        )


def _check_endings(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Whether the log says how users end, and how many are observed for the metric's window."""
    ends = facts.endings
    if ends.plain is not None and ends.censored is not None:
        hangs = abs(ends.censored - ends.plain) > ENDINGS_RELATIVE_CHANGE * abs(ends.plain)
        example = ends.churn_after or "30d"
        yield Finding(
            severity="warning" if hangs else "info",
            code="endings_unknown",
            message="The log does not say how users end: has a user who is not seen again left, or did the "
            f"log end first (censored)? The logging policy's value per user is {ends.plain:.4g} if unlogged "
            f"rewards count as 0 (the default), and {ends.censored:.4g} if all such users are censored.",
            remedy='ask in calendar time, e.g. metric = "reward in 30d" in the column map; or say who has '
            f'left, churn_after = "{example}", or map the column that marks it (terminated)',
            column="time",
        )
    counted = logs.counted
    if counted is not None and counted.observed_less > 1 - THIN_WINDOW:
        yield Finding(
            severity="warning",
            code="thin_window",
            message=f"Only {counted.by_hand_users:,} of {counted.users:,} users are observed for the whole "
            f"window of '{counted.metric.label}': its last days rest on them alone.",
            remedy="choose a shorter window, or read a longer log",
            column="time",
        )


def check_actions(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Whether several actions were chosen, and each often enough."""
    actions = facts.actions
    if actions.chosen < 2:
        yield Finding(
            severity="error",
            code="single_action",
            message=f"Only one action was ever chosen ({actions.most[0].action}): there is nothing to "
            "compare it with.",
            remedy="check the action column, or log a policy that explores",
            column="action",
            example_row=0,
            example=describe_row(logs, 0),
        )
    if actions.never_total:
        more = ", …" if actions.never_total > len(actions.never) else ""
        few = ", ".join(map(str, actions.never)) + more
        yield Finding(
            severity="warning",
            code="never_chosen",
            message=f"{actions.never_total:,} of {logs.n_actions:,} actions were never chosen ({few}): "
            "the log has no support for them.",
            remedy="keep policies on the actions that were tried, or explore the others",
            column="action",
        )
    if actions.rare_total:
        more = ", …" if actions.rare_total > len(actions.rare) else ""
        few = ", ".join(f"{action.count}× {action.action}" for action in actions.rare) + more
        yield Finding(
            severity="info",
            code="rare_actions",
            message=f"Chosen fewer than {RARE} times: {actions.rare_total:,} of {actions.chosen:,} actions "
            f"({few}).",
            remedy="merge rare actions into groups, or give learners action features",
            column="action",
        )


def check_rewards(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Whether there is a reward, and whether it varies."""
    reward = facts.reward
    if logs.rewards is None:
        names = f" from the metrics {', '.join(sorted(logs.metrics))}" if logs.metrics else ""
        yield Finding(
            severity="warning",
            code="reward_absent",
            message="The log has no reward.",
            remedy=f"map a reward column, or derive one{names}, e.g. "
            "logs.with_rewards(ReturnWithin(horizon='7d'))",
            column="reward",
        )
    elif reward is None:
        yield Finding(
            severity="error",
            code="reward_unobserved",
            message="No reward was observed: every decision's window reaches beyond the end of the log.",
            remedy="choose a shorter horizon",
            column="reward",
        )
    elif reward.spread.min == reward.spread.max:
        yield Finding(
            severity="error",
            code="reward_constant",
            message=f"Every reward is {reward.spread.min:g}: no action is better than another.",
            remedy="check the reward column, or choose another metric",
            column="reward",
            example_row=0,
            example=describe_row(logs, 0),
        )
    if reward is not None and reward.censored:
        yield Finding(
            severity="warning",
            code="reward_censored",
            message=f"{reward.censored:,} of {len(logs):,} rewards are marked as unobserved, because their "
            "future lies beyond the end of the log.",
            remedy="learn from the observed ones only, or derive the reward with censored='drop'; "
            "to learn from all, with censored=shpi.Complete()",
            column="reward",
        )


def check_time(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Repeated decisions, and ties."""
    time = facts.time
    if time.duplicate_example is not None:
        yield Finding(
            severity="warning",
            code="duplicate_rows",
            message=f"{time.duplicates:,} of {len(logs):,} decisions repeat the (user, time, action) of "
            "another.",
            remedy="read with duplicates='drop', or name an order or identity column if they are real",
            example_row=time.duplicate_example,
            example=describe_row(logs, time.duplicate_example),
        )
    if time.tie_example is not None:
        yield Finding(
            severity="info",
            code="time_ties",
            message=f"{time.ties:,} of {len(logs):,} decisions have the time of the one before them, of "
            "the same user.",
            remedy="name an order column, so that everyone who reads the log sees the same sequence",
            column="time",
            example_row=time.tie_example,
            example=describe_row(logs, time.tie_example),
        )


def check_columns(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Context columns that are absent, constant or equal."""
    if logs.schema.width == 0:
        yield Finding(
            severity="warning",
            code="no_context",
            message="There is no context column: every user is treated alike.",
            remedy="map the columns that were known when the decision was made",
            column="context",
        )
    constant, same = facts.columns.constant, facts.columns.same
    if constant:
        yield Finding(
            severity="warning",
            code="constant_column",
            message=f"Only one value occurs in {_some(constant)}.",
            remedy="leave such columns out of the column map",
            column=", ".join(constant),
        )
    if same:
        pairs = [f"{name} = {earlier}" for name, earlier in same]
        yield Finding(
            severity="warning",
            code="same_column",
            message=f"Context dimensions are equal in every row: {_some(pairs)}.",
            remedy="leave one of each pair out of the column map",
            column=", ".join(name for name, _ in same),
        )


def check_leaks(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Context columns that reveal a reward."""
    for leak in facts.columns.leaks:
        linear = abs(leak.correlation) >= LEAK_ERROR
        how = f"its correlation with it is {leak.correlation:.4f}"
        if leak.separates and not linear:
            how = "a threshold on it splits the two values without an error"
        yield Finding(
            severity="error" if linear or leak.separates else "warning",
            code="leaking_column",
            message=f"Context column '{leak.dimension}' reveals {leak.target} before it happens: {how}.",
            remedy="leave it out of the column map, unless it really was known before the decision",
            column=leak.dimension,
            example_row=leak.row,
            example=describe_row(logs, leak.row),
        )


KNOWN_WHEN = (
    "find out when it is written: if its value is stored with the decision and never updated, it may stay. "
    "If it can change afterwards, move it from 'context' to 'metrics'. If you cannot tell, leave it out: "
    "a policy that relies on it looks good here and fails when it is served"
)


def check_known_when(logs: LoggedData, facts: Facts) -> Iterator[Finding]:
    """Columns that may be known only after the decision."""
    told = {leak.dimension for leak in facts.columns.leaks}
    for name, there, usual in facts.columns.only_with_reward:
        if name not in told:
            yield Finding(
                severity="warning",
                code="only_with_reward",
                message=f"Context column '{name}' has an unusual value only where a reward came "
                f"({there:.0%} of these decisions, {usual:.0%} of all): it may be filled after the decision.",
                remedy=KNOWN_WHEN,
                column=name,
            )
        told.add(name)
    for name, chance in facts.columns.ranks:
        if name not in told:
            yield Finding(
                severity="warning",
                code="predicts_reward",
                message=f"Context column '{name}' alone separates rewarded decisions from others (in "
                f"{chance:.0%} of the pairs): hardly anything that is known before the decision does.",
                remedy=KNOWN_WHEN,
                column=name,
            )
    changing = facts.ledger.changing
    if changing:
        yield Finding(
            severity="warning",
            code="changing_column",
            message=f"Rows that repeat a decision have other values in {_some(changing)}: that was written "
            "after the decision.",
            remedy=KNOWN_WHEN,
            column=", ".join(changing),
        )


def _some(names: Sequence[object], shown: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(map(str, names[:shown])) + more


_CHECKS = (
    check_rows,
    check_structure,
    check_actions,
    check_rewards,
    check_propensities,
    check_time,
    check_leaks,
    check_known_when,
    check_columns,
)
