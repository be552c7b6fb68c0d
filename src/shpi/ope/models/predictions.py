"""Q and V of fitted backups at every decision of a chunk, with H - t decisions to go at step t."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shpi.ope.models.backups import Backups
from shpi.ope.models.linear import Design, positions_of, target_codes
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import BoolArray, Float64Array, Int64Array
from shpi.theory import geometric

_ENTRIES = 4_000_000  # entries of the largest temporary matrices


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """Values with H - t decisions to go, each from the fit without the user's fold."""

    taken: Float64Array  # [n] Q(x_t, a_t)
    value: Float64Array  # [n] sum_a pi(a|x_t) Q(x_t, a); V(x_t) for a model of states
    behaviour: Float64Array | None  # [n] sum_a mu(a|x_t) Q(x_t, a); None if mu(.|x) was not logged
    final: Float64Array  # [N] value of the final context; 0 if terminated, at the horizon, or unknown

    def following(self, chunk: Chunk, values: Float64Array | None = None) -> Float64Array:
        """The value of the context after each decision [n]."""
        rows = self.value if values is None else values
        ahead = np.append(rows[1:], 0.0)
        ahead[chunk.logs.offsets[1:] - 1] = self.final
        return ahead


def value_limits(problem: Problem, to_go: int) -> tuple[float, float]:
    """The smallest and largest possible value over ``to_go`` decisions; 0 is included if users can leave."""
    low, high = problem.reward_range
    if problem.any_terminated:
        low, high = min(low, 0.0), max(high, 0.0)
    weight = geometric(problem.gamma, to_go)
    return low * weight, high * weight


def predict(problem: Problem, chunk: Chunk, fits: Sequence[Backups]) -> Predicted:
    """Predict with ``fits[k]`` for the users of fold k; a single fit predicts for all users."""
    logs, n = chunk.logs, len(chunk.logs)
    design, with_mu = fits[0].design, chunk.logs.behaviour is not None
    taken, value = np.empty(n), np.empty(n)
    behaviour = np.empty(n) if with_mu and design.target != "state" else None
    parts = _parts(problem, chunk, fits)  # [n, q]
    bounds = np.array([value_limits(problem, problem.horizon - t) for t in range(problem.horizon)])
    plain = design.codes.shape[1] == 2 and bool((design.codes[:, 0] == 1).all())  # codes (1, number)
    size = max(_ENTRIES // (design.d + 2 * len(design.codes)), 256)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        own, (low, high) = parts[rows], bounds[chunk.steps[rows]].T
        if design.target == "state":
            taken[rows] = value[rows] = np.clip(own[:, 0], low, high)
            continue
        chosen = np.einsum("bq,bq->b", own, design.codes[logs.actions[rows]])
        taken[rows] = np.clip(chosen, low, high)
        inside = np.zeros(len(own), dtype=bool)  # decisions at which no action's value needs clipping
        if plain:
            ends = own[:, 1, None] * (design.codes[:, 1].min(), design.codes[:, 1].max()) + own[:, :1]
            inside = (ends.min(axis=1) >= low) & (ends.max(axis=1) <= high)
        value[rows] = _expected(chunk, design, rows, own, (low, high), inside, None)
        if behaviour is not None:
            behaviour[rows] = _expected(chunk, design, rows, own, (low, high), inside, logs.behaviour)
    final = _final(problem, chunk, fits)
    return Predicted(taken=taken, value=value, behaviour=behaviour, final=final)


def _parts(problem: Problem, chunk: Chunk, fits: Sequence[Backups]) -> Float64Array:
    """theta_h f(x) of every decision [n, q], with theta_h as a matrix [q, d]: Q(x, a) = m_a'theta_h f(x)."""
    n, design = len(chunk.logs), fits[0].design
    q = design.codes.shape[1]
    parts = np.empty((n, q))
    fold = chunk.fold if len(fits) > 1 else np.zeros(n, dtype=np.int64)
    size = max(_ENTRIES // design.d, 256)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f = design.rows_of(chunk, rows)
        for k, t, mine in _groups(fold[rows], chunk.steps[rows]):
            theta = fits[k].theta[problem.horizon - t].reshape(q, design.d)
            parts[start + mine] = f[mine] @ theta.T
    return parts


def _expected(
    chunk: Chunk,
    design: Design,
    rows: slice,
    parts: Float64Array,
    limits: tuple[Float64Array, Float64Array],
    inside: BoolArray,
    behaviour: Float64Array | None,
) -> Float64Array:
    """sum_a nu(a|x) Q(x, a) [b], each Q clipped to the limits; nu is pi, or the given mu(.|x)."""
    values = np.empty(len(parts))
    outside = np.flatnonzero(~inside)
    if inside.any():  # where no value is clipped, the expected code is enough
        if behaviour is None:
            codes = target_codes(chunk, replace(design, target="pi"), rows)
        else:
            codes = behaviour[rows] @ design.codes
        values = np.einsum("bq,bq->b", parts, codes)
    if len(outside):
        low, high = limits
        numbers = rows.start + outside
        whole = rows if len(outside) == len(parts) else numbers
        probs = chunk.probs_of(whole) if behaviour is None else behaviour[whole]
        scores = np.clip(parts[outside] @ design.codes.T, low[outside, None], high[outside, None])
        values[outside] = np.einsum("ba,ba->b", probs, scores)
    return values


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


def _groups(fold: Int64Array, step: Int64Array) -> Iterator[tuple[int, int, Int64Array]]:
    """Iterate over (fold, step, positions) of the rows that share a model."""
    width = int(step.max(initial=0)) + 1
    for key, mine in positions_of(fold * width + step):
        yield key // width, key % width, mine
