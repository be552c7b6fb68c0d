"""Q and V of fitted backups at every decision of a chunk, each with the number of decisions it has to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shpi.ope.models.backups import Backups
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array, Int64Array
from shpi.theory import geometric

_ENTRIES = 4_000_000  # numbers held at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """Values with H - t decisions to go, each from the fit that has not seen the user."""

    taken: Float64Array  # [n] Q(x_t, a_t)
    value: Float64Array  # [n] sum_a pi(a|x_t) Q(x_t, a); V(x_t) for a model of states
    behaviour: Float64Array | None  # [n] sum_a mu(a|x_t) Q(x_t, a), where mu(.|x) was logged
    final: Float64Array  # [N] the value of the final context; 0 where nothing follows or counts

    def following(self, chunk: Chunk, values: Float64Array | None = None) -> Float64Array:
        """The value of what comes after each decision [n]."""
        rows = self.value if values is None else values
        ahead = np.append(rows[1:], 0.0)
        ahead[chunk.logs.offsets[1:] - 1] = self.final
        return ahead


def value_limits(problem: Problem, to_go: int) -> tuple[float, float]:
    """What rewards allow over so many decisions; 0 is allowed where users can leave."""
    low, high = problem.reward_range
    if problem.any_terminated:
        low, high = min(low, 0.0), max(high, 0.0)
    weight = geometric(problem.gamma, to_go)
    return low * weight, high * weight


def predict(problem: Problem, chunk: Chunk, fits: Sequence[Backups]) -> Predicted:
    """``fits[k]`` predicts for the users of fold k; one fit predicts for all."""
    logs, n = chunk.logs, len(chunk.logs)
    design, with_mu = fits[0].design, chunk.logs.behaviour is not None
    taken, value = np.empty(n), np.empty(n)
    behaviour = np.empty(n) if with_mu and design.target != "state" else None
    fold = chunk.fold if len(fits) > 1 else np.zeros(n, dtype=np.int64)
    size = max(_ENTRIES // (design.d + 2 * len(design.codes)), 256)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f = design.of(logs.contexts[rows])
        probs = chunk.probs_of(rows) if design.target != "state" else None
        for k, t, mine in _groups(fold[rows], chunk.steps[rows]):
            table = fits[k].tables(problem.horizon - t)  # [A, d]
            low, high = value_limits(problem, problem.horizon - t)
            scores = np.clip(f[mine] @ table.T, low, high)  # [b, A]
            place = start + mine
            if probs is None:
                taken[place] = value[place] = scores[:, 0]
                continue
            taken[place] = scores[np.arange(len(mine)), logs.actions[place]]
            value[place] = np.einsum("ba,ba->b", probs[mine], scores)
            if behaviour is not None and logs.behaviour is not None:
                behaviour[place] = np.einsum("ba,ba->b", logs.behaviour[place], scores)
    final = _final(problem, chunk, fits)
    return Predicted(taken=taken, value=value, behaviour=behaviour, final=final)


def _final(problem: Problem, chunk: Chunk, fits: Sequence[Backups]) -> Float64Array:
    logs, design = chunk.logs, fits[0].design
    lengths = np.diff(logs.offsets)
    wanted = np.flatnonzero(~logs.terminated & logs.final_observed & (lengths < problem.horizon))
    final = np.zeros(logs.n_trajectories)
    fold = chunk.fold_of_user[logs.user_codes] if len(fits) > 1 else np.zeros(len(lengths), dtype=np.int64)
    for k, t, mine in _groups(fold[wanted], lengths[wanted]):
        place = wanted[mine]
        f = design.of(logs.final_contexts[place])
        low, high = value_limits(problem, problem.horizon - t)
        scores = np.clip(f @ fits[k].tables(problem.horizon - t).T, low, high)
        final[place] = (
            scores[:, 0]
            if design.target == "state"
            else np.einsum("ba,ba->b", chunk.final_probs[place], scores)
        )
    return final


def _groups(fold: Int64Array, step: Int64Array) -> list[tuple[int, int, Int64Array]]:
    """(fold, step, positions) of the rows that share a model."""
    if not len(fold):
        return []
    width = int(step.max()) + 1
    key = fold * width + step
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    return [
        (int(key_of_group) // width, int(key_of_group) % width, mine)
        for key_of_group, mine in zip(keys, np.split(order, first[1:]), strict=True)
    ]
