"""View a log as sessions: each session is a short trajectory that ends with the session.

This is for importance weights that restart at every session. The end of a session then counts as a
termination: the session keeps its weight in the denominators of later positions. `session_discounts` corrects
for censoring.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from shpi.data.logged import LoggedData
from shpi.ope._log.facts import Facts
from shpi.ope.problem import Chunk, Problem, Settings, once
from shpi.protocols import Float64Array


@once
def as_sessions(problem: Problem) -> Problem:
    """The same decisions, users and metric, with steps counted within sessions."""
    settings = replace(problem.settings, horizon=None, truncated="censored")
    facts = problem.total(partial(_facts_of_sessions, settings=settings))
    return problem.from_facts(
        facts,
        policy=problem.policy,
        source=problem.source,
        settings=settings,
        metric=None,
        visits=problem.visits,
        base=problem,
        view=session_view,
    )


def _facts_of_sessions(chunk: Chunk, settings: Settings) -> Facts:
    return Facts.of(session_view(chunk.logs), chunk.policy, None, settings)


def session_view(logs: LoggedData) -> LoggedData:
    """One trajectory per session."""
    home = logs.trajectory_of_session
    last = np.append(home[1:] != home[:-1], True)  # the last session of its trajectory
    following = np.minimum(logs.session_offsets[1:], len(logs) - 1)
    return replace(
        logs,
        offsets=logs.session_offsets,
        users=logs.users[home],
        terminated=np.ones(len(home), dtype=bool),
        final_contexts=np.where(last[:, None], logs.final_contexts[home], logs.contexts[following]),
        final_observed=np.where(last, logs.final_observed[home], True),
        final_candidates=None,
    )


def session_discounts(problem: Problem, chunk: Chunk) -> Float64Array:
    """gamma^(first step of the session) / G_t [n]: the weight of a session within its trajectory."""
    logs = chunk.logs
    start = chunk.steps[logs.session_offsets[:-1]][logs.session_of_row]
    discounts: Float64Array = problem.gamma**start / problem.kept[chunk.steps]
    return discounts
