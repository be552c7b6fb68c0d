r"""Fitted Q iteration under a constraint, with any regression oracle: the core of SPIBB and MBS.

    Q <- argmin_f sum_i (f(x_i, a_i) - r_i - gamma V(x'_i))^2
    V(x) <- sum_a pi(a|x) Q(x, a)           pi: the allowed policy that is greediest in Q

It starts at the value of mu (LSTD), so that only the difference between pi and mu is left to the slow
iterations. V is kept within what the rewards of the log can sum to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.learners.constrained.baseline import Constraint, Rows, limited_means, table_oracle, table_value
from shpi.oracles import Oracle, PreparedOracle, Ridge
from shpi.policies import SupportLimited
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array
from shpi.values import StateValues
from shpi.values.base import checked_gamma
from shpi.values.transitions import rewards_of, usable_transitions


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedQ:
    """The Q function, and how it was reached."""

    scorer: Scorer
    iterations: int
    change: float  # of V in the last iteration, root mean square, as a share of its spread


def fitted_q(
    logs: LoggedData,
    prepared: PreparedOracle,
    constraint: Constraint,
    start: StateValues,
    *,
    gamma: float,
    iterations: int,
    tolerance: float,
    floor: float | None = None,
) -> FittedQ:
    """Iterate until V changes by less than ``tolerance`` of its spread.

    Args:
        logs: the log.
        prepared: the regression.
        constraint: the constraint on the policies.
        start: V of mu.
        gamma: the discount.
        iterations: largest number of iterations.
        tolerance: relative change of V at which to stop.
        floor: V where nothing is supported; None for the value of mu under Q.
    """
    checked_gamma(gamma)
    usable, rewards = usable_transitions(logs), rewards_of(logs)
    if not usable.any():
        raise DataError(
            expected="at least one decision whose reward and next context are known",
            found="none",
            remedy="log the context after the last decision, or mark trajectories as terminated",
        )
    bounds = (float(rewards[usable].min()) / (1 - gamma), float(rewards[usable].max()) / (1 - gamma))
    low, high = min(bounds[0], 0.0), max(bounds[1], 0.0)  # users may leave at any time
    rows = constraint.on(logs.contexts, logs.candidates)
    finals = constraint.on(logs.final_contexts, _allowed_at_the_end(logs))
    values, change, number = start, np.inf, 0
    for number in range(1, iterations + 1):
        ahead = np.clip(values.following(logs), low, high)
        targets = np.where(usable, rewards + gamma * ahead, 0.0)
        if number == 1:
            prepared = prepared.tune(targets, valid=usable)
        scorer = prepared.fit(targets, valid=usable)
        final_scores = ((block, scorer.scores(logs.final_contexts[block])) for block in finals.blocks())
        new = StateValues(
            rows=_values(prepared.scores_on_log(scorer), rows, floor),
            final=_values(final_scores, finals, floor),
        )
        change = float(np.sqrt(np.mean((new.rows - values.rows) ** 2))) / (float(new.rows.std()) or 1.0)
        values = new
        if change <= tolerance:
            break
    return FittedQ(scorer=scorer, iterations=number, change=change)


def _values(scores: Iterable[tuple[slice, Float64Array]], rows: Rows, floor: float | None) -> Float64Array:
    """V [n] of the allowed policy that is greediest in the scores."""
    values = np.empty(len(rows.supported))
    for block, block_scores in scores:
        values[block] = limited_means(block_scores, rows, block)
        if floor is not None:
            values[block][~rows.supported[block].any(axis=1)] = floor
    return values


def _allowed_at_the_end(logs: LoggedData) -> BoolArray | None:
    """The candidates of the final contexts; all, where nothing is said about them."""
    if logs.final_candidates is None:
        return None
    some = logs.final_candidates.any(axis=1, keepdims=True)
    return np.asarray(logs.final_candidates | ~some)


def improve_within(
    constraint: Constraint,
    logs: LoggedData,
    oracle: Oracle | None,
    *,
    gamma: float,
    iterations: int,
    tolerance: float,
    seed: int,
    pessimistic: bool,
) -> SupportLimited:
    """The policy that Q iteration reaches among those that a constraint allows.

    Args:
        constraint: the constraint on the policies.
        logs: the log.
        oracle: the regression of Q; None for a table where contexts are few and a ridge elsewhere.
        gamma: the discount.
        iterations: the largest number of iterations.
        tolerance: iteration stops when V changes by less than this share of its spread.
        seed: random seed.
        pessimistic: whether V is the lowest value of mu in the log where nothing is supported.
    """
    start = StateValues.of(table_value(constraint).fit(logs, gamma=gamma, seed=seed), logs)
    learned = fitted_q(
        logs,
        (oracle or table_oracle(constraint) or Ridge()).prepare(logs, seed=seed),
        constraint,
        start,
        gamma=gamma,
        iterations=iterations,
        tolerance=tolerance,
        floor=float(start.rows.min()) if pessimistic else None,
    )
    return constraint.policy(learned.scorer)
