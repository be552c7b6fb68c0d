"""The ``bandit_feedback`` dict of the Open Bandit Pipeline (obp), to and from `LoggedData`.

    n_rounds, n_actions, context [n, d], action [n], reward [n], pscore [n] or None,
    position [n] or None, action_context [A, m] or None, pi_b [n, A, positions] (synthetic data only)

A bandit has no users: each round becomes a trajectory of one decision, unless users are given.
The position was known before the action was chosen, and pscore is conditional on it. So it is part of the
context: a categorical feature ``position``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shpi.data._log import ragged
from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema, Feature
from shpi.errors import ColumnError, DataError
from shpi.protocols import Float32Array, Float64Array, Int64Array

NEEDED = ("context", "action", "reward")
UNDERSTOOD = {
    *NEEDED,
    *("n_rounds", "n_actions", "pscore", "position", "action_context", "pi_b", "user", "candidates"),
}


def from_bandit_feedback(feedback: Mapping[str, Any], *, users: ArrayLike | None = None) -> LoggedData:
    """A log from obp's dict. Rounds of one user stay in the order of the dict.

    Args:
        feedback: obp's dict. Two more keys are read, because `to_bandit_feedback` writes them: ``user`` [n]
            and ``candidates`` [n, A]. Keys with no place in a log are named in the ledger's notes.
        users: A user id per round [n]; without it (and without a key ``user``) each round is its own user.
    """
    _check_feedback(feedback)
    n = len(feedback["action"])
    ids = users if users is not None else feedback.get("user")
    labels = np.arange(n) if ids is None else _column({**feedback, "user": ids}, "user")
    order = np.argsort(labels, kind="stable")  # [n] rounds of one user together, in their old order
    starts = np.ones(n, dtype=bool)
    starts[1:] = labels[order][1:] != labels[order][:-1]
    offsets = ragged.offsets_from_starts(starts)
    contexts, schema = _contexts(feedback)
    behaviour = _behaviour(feedback)
    logs = LoggedData.from_arrays(
        contexts=contexts[order],
        actions=_column(feedback, "action")[order],
        rewards=_column(feedback, "reward")[order],
        propensities=_column(feedback, "pscore")[order] if feedback.get("pscore") is not None else None,
        behaviour=None if behaviour is None else behaviour[order],
        candidates=_column(feedback, "candidates")[order] if feedback.get("candidates") is not None else None,
        offsets=offsets,
        users=labels[order][offsets[:-1]],
        times=order,  # the number of the round
        schema=schema,
        action_space=_action_space(feedback),
    )
    unread = sorted(key for key in feedback if key not in UNDERSTOOD and feedback[key] is not None)
    notes = (f"bandit feedback: no place in a log for {', '.join(unread)}",) if unread else ()
    return replace(logs, ledger=replace(logs.ledger, notes=notes))


def to_bandit_feedback(logs: LoggedData) -> dict[str, Any]:
    """The bandit feedback of a log, one round per decision, with the keys ``user`` and ``candidates`` added.

    obp has no sessions, times or trajectories: these are dropped.
    """
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards", found="none", remedy="choose one with logs.with_rewards(...)"
        )
    context, position = _split_position(logs)
    space = logs.action_space
    feedback: dict[str, Any] = {
        "n_rounds": len(logs),
        "n_actions": logs.n_actions,
        "context": context,
        "action": logs.actions.astype(np.int64),
        "position": position,
        "reward": logs.rewards,
        "pscore": logs.propensities,
        "action_context": space.features,
        "user": logs.users[logs.trajectory_of_row],
    }
    if logs.candidates is not None:
        feedback["candidates"] = logs.candidates
    if logs.behaviour is not None:
        places = 1 if position is None else int(position.max()) + 1
        pi_b = np.zeros((len(logs), logs.n_actions, places))
        pi_b[np.arange(len(logs)), :, 0 if position is None else position] = logs.behaviour
        feedback["pi_b"] = pi_b
    return feedback


def _check_feedback(feedback: Mapping[str, Any]) -> None:
    absent = [key for key in NEEDED if feedback.get(key) is None]
    if absent:
        raise ColumnError(
            expected=f"the keys {', '.join(NEEDED)}",
            found=f"no {', '.join(absent)}",
            where="bandit feedback",
            remedy="pass the dict of obtain_batch_bandit_feedback()",
        )
    n = int(feedback.get("n_rounds", len(feedback["action"])))
    if len(feedback["action"]) != n:
        raise DataError(expected=f"{n} actions (n_rounds)", found=f"{len(feedback['action'])}")


def _column(feedback: Mapping[str, Any], key: str) -> NDArray[Any]:
    values, n = np.asarray(feedback[key]), len(feedback["action"])
    if len(values) != n:
        raise DataError(expected=f"{n} rows of '{key}', one per round", found=f"shape {values.shape}")
    return values


def _positions(feedback: Mapping[str, Any]) -> Int64Array | None:
    if feedback.get("position") is None:
        return None
    values = _column(feedback, "position").astype(np.int64)
    if (values < 0).any():
        raise DataError(
            expected="positions 0, 1, …",
            found=str(values.min()),
            where=f"key 'position', row {int(values.argmin())}",
        )
    return values


def _contexts(feedback: Mapping[str, Any]) -> tuple[Float32Array, ContextSchema]:
    x = _column(feedback, "context").astype(np.float32)
    if x.ndim != 2:
        raise DataError(expected="context of shape [n, d]", found=f"shape {x.shape}")
    schema = ContextSchema.numeric([f"x{j}" for j in range(x.shape[1])])
    position = _positions(feedback)
    if position is None:
        return x, schema
    places = tuple(str(place) for place in range(int(position.max()) + 1))
    schema = ContextSchema(
        features=(*schema.features, Feature(name="position", kind="categorical", categories=places))
    )
    one_hot = np.zeros((len(x), len(places) + 1), dtype=np.float32)  # the last is <other>
    one_hot[np.arange(len(x)), position] = 1.0
    return np.hstack([x, one_hot]), schema


def _split_position(logs: LoggedData) -> tuple[Float32Array, Int64Array | None]:
    """The context without the feature ``position``, and the positions."""
    owner = np.array([f.name for f in logs.schema.features for _ in f.dimensions], dtype=object)
    feature = next((f for f in logs.schema.features if f.name == "position"), None)
    if feature is None or feature.kind != "categorical":
        return logs.contexts, None
    codes = logs.contexts[:, owner == "position"].argmax(axis=1)
    numbers = np.array([int(category) for category in feature.categories], dtype=np.int64)
    return logs.contexts[:, owner != "position"], numbers[codes]


def _behaviour(feedback: Mapping[str, Any]) -> Float64Array | None:
    """mu(.|x, position) [n, A] from pi_b [n, A, positions]."""
    if feedback.get("pi_b") is None:
        return None
    pi_b, position = _column(feedback, "pi_b").astype(np.float64), _positions(feedback)
    if pi_b.ndim != 3 or (position is not None and position.max() >= pi_b.shape[2]):
        raise DataError(
            expected="pi_b of shape [n, A, positions]",
            found=f"shape {pi_b.shape}"
            + ("" if position is None else f" and positions up to {position.max()}"),
        )
    behaviour: Float64Array = pi_b[np.arange(len(pi_b)), :, 0 if position is None else position]
    return behaviour


def _action_space(feedback: Mapping[str, Any]) -> ActionSpace:
    actions = np.asarray(feedback["action"])
    count = int(feedback.get("n_actions", actions.max(initial=-1) + 1))
    features = feedback.get("action_context")
    if features is None:
        return ActionSpace.numbered(count)
    try:
        table = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            expected="numbers in action_context",
            found=f"dtype {np.asarray(features).dtype}",
            remedy="encode its categorical columns first, for example one-hot",
        ) from None
    if table.ndim != 2 or len(table) != count:
        raise DataError(expected=f"action_context of shape [{count}, m]", found=f"shape {table.shape}")
    names = tuple(f"action_context_{j}" for j in range(table.shape[1]))
    return ActionSpace(ids=tuple(range(count)), features=table, feature_names=names)
