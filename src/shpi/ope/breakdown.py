"""Breakdown of a lift: by segments of users, by actions, and by three factors of the reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from shpi.data.decomposition import MONTH
from shpi.data.durations import in_time_unit
from shpi.errors import ConfigError
from shpi.ope.estimators.base import Estimator
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.inference.intervals import interval_of, standard_error
from shpi.ope.inference.per import COUNTS
from shpi.ope.problem import Chunk, Problem, once
from shpi.ope.results import ActionShift, Estimate, Factor, Segment
from shpi.protocols import Float32Array, Float64Array

FEW_LABELS = 6  # a column with more distinct values than this is cut at its terciles
LEAST_USERS = 10  # smaller segments are not reported
MANY_ACTIONS = 20  # actions shown


# ---------------------------------------------------------------------- actions


def action_shifts(problem: Problem, limit: int = MANY_ACTIONS) -> tuple[ActionShift, ...]:
    """The actions whose share of the decisions would change most, contexts as logged."""
    counts = problem.total(_action_counts)  # [3, A]
    taken, wished, earned = counts
    total = taken.sum()
    order = np.argsort(-np.abs(wished - taken), kind="stable")[:limit]
    ids = problem.head.action_space.ids
    return tuple(
        ActionShift(
            action=str(ids[a]),
            logged=float(taken[a] / total),
            policy=float(wished[a] / total),
            reward=float(earned[a] / taken[a]) if taken[a] > 0 else None,
        )
        for a in order
    )


def _action_counts(chunk: Chunk) -> Float64Array:
    size, observed = chunk.logs.n_actions, chunk.observed
    actions = chunk.logs.actions
    wished = np.zeros(size)
    for rows, probs in chunk.probs():
        wished += probs[observed[rows]].sum(axis=0)
    taken = np.bincount(actions[observed], minlength=size).astype(np.float64)
    earned = np.bincount(actions[observed], weights=chunk.rewards[observed], minlength=size)
    return np.stack([taken, wished, earned])


# ---------------------------------------------------------------------- segments


def segments(
    problem: Problem, estimate: Estimate, columns: Sequence[str] | None = None
) -> tuple[Segment, ...]:
    """The lift by the user's first context: numbers by tercile, few values one by one.

    Args:
        problem: the evaluation.
        estimate: whose pseudo-values are averaged over each segment.
        columns: names of context dimensions; None takes the first four that vary.
    """
    names = problem.head.schema.dimensions
    first = problem.by_user(_first_contexts).T  # [U, d]
    if columns is None:
        varying = [j for j in range(len(names)) if np.ptp(first[:, j]) > 0][:4]
    else:
        unknown = sorted(set(columns) - set(names))
        if unknown:
            raise ConfigError(expected=f"context dimensions among {list(names)}", found=str(unknown))
        varying = [names.index(column) for column in columns]
    own, found = on_policy(problem).influence, []
    for j in varying:
        values = first[:, j].astype(np.float64)
        distinct = np.unique(values)
        if len(distinct) <= FEW_LABELS:
            labels, codes = [f"{value:g}" for value in distinct], np.searchsorted(distinct, values)
        else:
            edges = np.unique(np.quantile(values, [1 / 3, 2 / 3]))
            codes = np.searchsorted(edges, values, side="right")
            texts = [f"{edge:.3g}" for edge in edges]
            between = [f"{low} to {high}" for low, high in zip(texts[:-1], texts[1:], strict=True)]
            labels = [f"below {texts[0]}", *between, f"from {texts[-1]}"]
        for code, label in enumerate(labels):
            mine = codes == code
            if mine.sum() < LEAST_USERS:
                continue
            pseudo = estimate.lift + estimate.influence_lift[mine]
            base, lift = estimate.baseline + own[mine], float(pseudo.mean())
            found.append(
                Segment(
                    column=names[j],
                    label=label,
                    users=int(mine.sum()),
                    baseline=float(base.mean()),
                    lift=lift,
                    error=standard_error(pseudo),
                    interval=interval_of(lift, pseudo - lift, level=problem.settings.confidence),
                )
            )
    return tuple(found)


def _first_contexts(chunk: Chunk) -> Float32Array:
    """The context of each user's first decision [d, users]."""
    _, first = np.unique(chunk.logs.user_codes, return_index=True)
    contexts: Float32Array = chunk.logs.contexts[chunk.logs.offsets[:-1][first]].T
    return contexts


# ---------------------------------------------------------------------- factors


def decomposition(problem: Problem, estimator: Estimator) -> tuple[Factor, ...]:
    """reward/recommendation × recommendations/session × sessions per user and period, under mu and pi.

    Each count is estimated by the same estimator; the discount is left out, since counts have none.
    """
    totals = problem.all_of([partial(estimator.estimate, variant) for variant in variants(problem)])
    # A user counts for so many months; without calendar time, the log itself is the period.
    periods, period = 1.0, "log"
    if problem.head.time_unit == "us":
        metric = None if problem.head.counted is None else problem.head.counted.metric
        span = float(problem.times[1] - problem.times[0])
        if metric is not None and metric.window is not None:
            span = in_time_unit(metric.per or metric.window, "us")
        if span > 0:
            periods, period = span / MONTH, "month"
    (r0, d0, s0), (r1, d1, s1) = ([total.baseline for total in totals], [total.value for total in totals])
    if min(d0, d1, s0, s1) <= 0:
        return ()
    return (
        Factor(name="reward per recommendation", baseline=r0 / d0, value=r1 / d1),
        Factor(name="recommendations per session", baseline=d0 / s0, value=d1 / s1),
        Factor(name=f"sessions per user and {period}", baseline=s0 / periods, value=s1 / periods),
    )


@once
def variants(problem: Problem) -> tuple[Problem, ...]:
    """Without a discount: the problem itself, and those about the numbers of decisions and of sessions."""
    plain = replace(problem.settings, gamma=1.0)
    metrics = (problem.metric, COUNTS["decision"], COUNTS["session"])
    wanted = metrics if problem.gamma != 1 else metrics[1:]
    others = problem.all_of([partial(problem.with_metric, metric, settings=plain) for metric in wanted])
    cheap = [replace(other, values_only=True) for other in others]
    return tuple(cheap) if problem.gamma != 1 else (problem, *cheap)
