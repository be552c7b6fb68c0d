r"""Linear models of rewards and transitions, for estimators that need Q or V, fitted from sums over chunks.

    phi(x, a) = m_a (x) f(x)        f: features of a context [d], m_a: code of an action [q], p = q d
    reward      r(x, a)   = phi(x, a)'theta_r          ridge on the decisions whose reward was observed
    transition  E psi(x') = T' phi(x, a)               ridge on the decisions whose next context is known
    psi(x')     = sum_a' nu(a'|x') phi(x', a')              0 after a termination

``target`` is nu, the policy to evaluate: pi, or mu (by the logged mu(.|x') if there is one, else by the next
logged action). "state" has one code for all actions: a model of V^mu. With up to `OWN_SLOPES` actions the
codes are (1, indicator of a): coefficients that all actions share, plus those of each action. With more they
are (1, features of a), or without such features (1, how often a was chosen).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from shpi.data.logged import LoggedData
from shpi.features import FeatureMap
from shpi.ope.problem import Chunk, Problem
from shpi.oracles.base import action_table
from shpi.protocols import Float64Array, FloatArray, Int64Array

Target = Literal["pi", "mu", "state"]

OWN_SLOPES = 60  # number of actions up to which each has coefficients of its own
DENSE = 4  # length q of codes up to which phi(x, a) = m_a (x) f(x) is written out
_ENTRIES = 3_000_000  # entries of the largest temporary matrix
_SHORT = 200_000  # entries of a temporary matrix that stays in the CPU cache, for short codes
_MAPPED = 2000  # contexts whose features are computed at once
_CACHED = 1 << 16  # entries of a temporary matrix that is reused at once
_HELD = 12_000_000  # entries of a chunk's features, or codes, that are held while it is open, at most


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """The features of (x, a)."""

    features: FeatureMap  # without the intercept, which `of` puts first
    codes: Float64Array  # [A, q]; [1, 1] for a model of states
    target: Target
    d: int = field(init=False)  # the number of features of a context, the intercept included
    p: int = field(init=False)  # the number of features of a context and an action
    dense: bool = field(init=False)  # codes are so short that sums are cheapest with phi(x, a) written out

    def __post_init__(self) -> None:
        d, q = self.features.width + 1, int(self.codes.shape[1])
        for name, value in (("d", d), ("p", d * q), ("dense", q <= DENSE)):
            object.__setattr__(self, name, value)

    def of(self, contexts: FloatArray) -> Float64Array:
        """f(x) [b, d], in blocks so small that temporary arrays stay in the CPU cache."""
        f = np.empty((len(contexts), self.d))
        f[:, 0] = 1.0
        for start in range(0, len(f), _MAPPED):
            rows = slice(start, start + _MAPPED)
            f[rows, 1:] = self.features.transform(contexts[rows])
        return f

    def rows_of(self, chunk: Chunk, rows: slice | Int64Array, order: Hashable | None = None) -> Float64Array:
        """f(x) of some decisions [b, d], computed once per chunk for all models with this feature map.

        Args:
            chunk: chunk of the log.
            rows: rows of the decisions within the chunk.
            order: name under which to keep the result for these rows as well; None: do not keep it.
        """
        contexts = chunk.logs.contexts
        if len(contexts) * self.d > _HELD:
            return self.of(contexts[rows])
        place = ("features", id(self.features), chunk.horizon)
        if place not in chunk.shared:  # keep the map too, so that no other map can get its id
            chunk.shared[place] = (self.features, self.of(contexts))
        held: Float64Array = chunk.shared[place][1]
        return held[rows] if order is None else chunk.memo((place, order), lambda: held[rows])

    def group(self, chunk: Chunk, rows: slice) -> Int64Array:
        """The row of ``codes`` of each decision [b]."""
        if self.target == "state":
            return np.zeros(rows.stop - rows.start, dtype=np.int64)
        return chunk.logs.actions[rows].astype(np.int64)


def action_codes(logs: LoggedData, taken: Int64Array) -> Float64Array:
    """The codes [A, q]; ``taken`` [A] counts how often the whole log took each action."""
    count = logs.n_actions
    ones = np.ones((count, 1))
    if count <= OWN_SLOPES:
        return np.concatenate([ones, np.eye(count)], axis=1)
    table = action_table(logs)
    if table is not None:
        return np.concatenate([ones, table], axis=1)
    often = np.log1p(taken.astype(np.float64))
    spread = float(often.std())
    return np.concatenate([ones, ((often - often.mean()) / (spread or 1.0))[:, None]], axis=1)


# ---------------------------------------------------------------------- one pass over a chunk


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Consecutive decisions, with the features of their contexts and of the next ones."""

    rows: slice
    here: Float64Array  # [b, d] f(x_t)
    group: Int64Array  # [b] row of ``codes`` of the taken action
    after: Float64Array  # [b, d] f(x_{t+1}); 0 after a termination, or if unknown
    code: Float64Array  # [b, q] sum_a nu(a|x_{t+1}) m_a; 0 for the last decision of the chunk
    following: Int64Array | None  # [b] the next logged action, instead of ``code``; see `one_follows`
    known: Float64Array  # [b] weight of the transition; 0: the next context is unknown


def blocks(problem: Problem, chunk: Chunk, design: Design) -> Iterator[Block]:
    """Iterate over all decisions of a chunk in blocks.

    mu(.|x') is unknown at the final context of a truncated trajectory, so only models of states use it.
    """
    logs, n = chunk.logs, len(chunk.logs)
    # Products with short codes should stay in the CPU cache; grouping by action needs long blocks.
    entries, width = (_SHORT, design.p) if design.dense else (_ENTRIES, design.d + design.codes.shape[1])
    size = max(entries // (width + design.d), 64)
    known = problem.known_weights(chunk, "next" if design.target == "state" else "inside")
    nothing, replaced = (known == 0) | ~chunk.goes_on, one_follows(chunk, design)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        extended = design.rows_of(chunk, slice(start, min(rows.stop + 1, n)))
        here, after = extended[: rows.stop - start], np.empty((rows.stop - start, design.d))
        after[: len(extended) - 1] = extended[1:]
        ends = slice(*np.searchsorted(logs.offsets[1:] - 1, (start, rows.stop)))
        if ends.start < ends.stop:
            after[logs.offsets[1:][ends] - 1 - start] = design.of(logs.final_contexts[ends])
        after[nothing[rows]] = 0.0
        ahead, following = slice(start + 1, min(rows.stop + 1, n)), None
        if design.target == "state":
            code = np.ones((len(here), 1))
        elif replaced:
            code, following = np.zeros((len(here), 0)), np.zeros(len(here), dtype=np.int64)
            following[: ahead.stop - ahead.start] = logs.actions[ahead]
        else:
            code = np.zeros((len(here), design.codes.shape[1]))
            code[: ahead.stop - ahead.start] = target_codes(chunk, design, ahead)
        yield Block(
            rows=rows,
            here=here,
            group=design.group(chunk, rows),
            after=after,
            code=code,
            following=following,
            known=known[rows],
        )


def one_follows(chunk: Chunk, design: Design) -> bool:
    """Whether the next code is that of the next logged action, so that its number replaces a long code."""
    return design.target == "mu" and chunk.logs.behaviour is None and not design.dense


# ---------------------------------------------------------------------- sums


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSums:
    """Sums per fold over phi = m_a (x) f: K folds, p features of a context and an action."""

    reward_gram: Float64Array  # [K, p, p] sum phi phi' where the reward is known
    reward: Float64Array  # [K, p] sum phi r
    gram: Float64Array  # [K, p, p] sum phi phi' where the next context is known
    cross: Float64Array  # [K, p, p] sum phi psi'
    initial: Float64Array  # [K, p] sum over trajectories of psi(x_0)
    rows: Float64Array  # [K, 2] number of decisions with a known reward, with a known next context

    def __add__(self, other: ModelSums) -> ModelSums:
        return ModelSums(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def without(self, fold: int | None) -> ModelSums:
        """The sums over all folds except one, as a single fold; None: over all folds."""
        other_folds = np.ones(len(self.rows), dtype=bool)
        if fold is not None:
            other_folds[fold] = False
        return ModelSums(
            **{name: value[other_folds].sum(axis=0, keepdims=True) for name, value in vars(self).items()}
        )


def model_sums(problem: Problem, design: Design) -> ModelSums:
    """Compute the sums in one pass over all chunks; for long codes, assemble them from sums by action."""
    total = problem.total(partial(_sums_of, problem=problem, design=design))
    if design.dense:
        return total
    put_together = {
        name: _assembled(design, getattr(total, name)) for name in ("reward_gram", "reward", "gram", "cross")
    }
    return replace(total, **put_together)


def reward_sums(chunk: Chunk, problem: Problem, design: Design) -> Float64Array:
    """The sums of phi r alone over a chunk [K, p], for another reward of the same decisions."""
    n, q, folds = len(chunk.logs), design.codes.shape[1], problem.settings.folds
    total = np.zeros((folds, q, design.d))
    size = max(_ENTRIES // (design.d + q), 64)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f, code = design.rows_of(chunk, rows), design.codes[design.group(chunk, rows)]
        weighted = code * np.where(chunk.observed[rows], chunk.rewards[rows], 0.0)[:, None]
        for k in range(folds):
            mine = chunk.fold[rows] == k
            total[k] += weighted[mine].T @ f[mine]
    return total.reshape(folds, design.p)


def _sums_of(chunk: Chunk, problem: Problem, design: Design) -> ModelSums:
    """The sums of a chunk: over phi for short codes, else by action, in the shapes of `_assembled`."""
    folds, p, d, actions = problem.settings.folds, design.p, design.d, len(design.codes)
    wide: tuple[int, ...] = (p,) if design.dense else (actions, d)
    ahead = (actions, actions, d, d) if one_follows(chunk, design) else (*wide, p)
    initial, rows = np.zeros((folds, p)), np.zeros((folds, 2))
    sums = {
        "reward_gram": np.zeros((folds, *wide, wide[-1])),
        "reward": np.zeros((folds, *wide)),
        "gram": np.zeros((folds, *wide, wide[-1])),
        "cross": np.zeros((folds, *ahead)),
    }
    add = _add_dense if design.dense else _add_by_action
    for block in blocks(problem, chunk, design):
        add(sums, rows, chunk, block, design)
    first, fold = chunk.logs.offsets[:-1], chunk.fold_of_user[chunk.logs.user_codes]
    for k in range(folds):  # psi(x_0), with the target's first action
        for _, psi in target_features(chunk, design, first[fold == k]):
            initial[k] += psi.sum(axis=0)
    return ModelSums(**sums, initial=initial, rows=rows)


def _add_dense(
    sums: dict[str, Float64Array], rows: Float64Array, chunk: Chunk, block: Block, design: Design
) -> None:
    rewards, observed = chunk.rewards[block.rows], chunk.observed[block.rows]
    for k, mine in positions_of(chunk.fold[block.rows]):
        phi = products(design.codes[block.group[mine]], block.here[mine])
        psi = products(block.code[mine], block.after[mine])  # 0 where the next context is unknown
        weights, seen = block.known[mine], observed[mine]
        own = phi if seen.all() else phi[seen]
        gram = own.T @ own
        sums["reward_gram"][k] += gram
        sums["reward"][k] += own.T @ rewards[mine][seen]
        known = weights > 0
        rows[k] += (seen.sum(), known.sum())
        if (weights[known] == 1).all():  # the two Gram matrices differ by a few rows
            only, other = phi[seen & ~known], phi[known & ~seen]
            sums["gram"][k] += gram - only.T @ only + other.T @ other
            sums["cross"][k] += phi.T @ psi
        else:
            left = phi.T * weights
            sums["gram"][k] += left @ phi
            sums["cross"][k] += left @ psi


def products(codes: Float64Array, features: Float64Array) -> Float64Array:
    """The features of contexts and actions, m (x) f [b, p]."""
    if codes.shape[1] == 1:
        return features if (codes == 1).all() else codes * features
    return (codes[:, :, None] * features[:, None, :]).reshape(
        len(features), codes.shape[1] * features.shape[1]
    )


def _add_by_action(
    sums: dict[str, Float64Array], rows: Float64Array, chunk: Chunk, block: Block, design: Design
) -> None:
    rewards, observed = chunk.rewards[block.rows], chunk.observed[block.rows]
    for k, a, mine in by_fold_and_action(chunk, block, design):
        f, weights, seen = block.here[mine], block.known[mine], observed[mine]
        own = f if seen.all() else f[seen]
        sums["reward_gram"][k, a] += own.T @ own
        sums["reward"][k, a] += own.T @ rewards[mine][seen]
        left = f.T * weights
        sums["gram"][k, a] += left @ f
        rows[k] += (seen.sum(), (weights > 0).sum())
        if block.following is None:
            psi = np.einsum("bq,bd->bqd", block.code[mine], block.after[mine])
            sums["cross"][k, a] += left @ psi.reshape(len(mine), -1)
    if block.following is not None:
        cross = sums["cross"].reshape(-1, design.d, design.d)  # by fold, action and next action
        actions = len(design.codes)
        for key, mine in positions_of(
            (chunk.fold[block.rows] * actions + block.group) * actions + block.following
        ):
            cross[key] += (block.here[mine].T * block.known[mine]) @ block.after[mine]


def by_fold_and_action(
    chunk: Chunk, block: Block, design: Design, *, alone: bool = False
) -> Iterator[tuple[int, int, Int64Array]]:
    """Iterate over (fold, action, positions) of a block's decisions; ``alone``: all in fold 0.

    Each group is so small that temporary arrays stay in the CPU cache.
    """
    actions = len(design.codes)
    size = max(_CACHED // (design.p + design.d), 16)
    for key, mine in positions_of((0 if alone else chunk.fold[block.rows] * actions) + block.group):
        for start in range(0, len(mine), size):
            yield key // actions, key % actions, mine[start : start + size]


def positions_of(keys: Int64Array) -> Iterator[tuple[int, Int64Array]]:
    """Iterate over the distinct keys in rising order, with the positions of each."""
    order, ordered = _sorted(keys, int(keys.max(initial=0)) + 1)
    bounds = np.append(np.flatnonzero(np.diff(ordered, prepend=-1)), len(keys))
    for low, high in zip(bounds[:-1], bounds[1:], strict=True):
        yield int(ordered[low]), order[low:high]


def _assembled(design: Design, by_action: Float64Array) -> Float64Array:
    """Turn sums by action into sums over phi = m_a (x) f, [K, p, p] or [K, p].

    ``by_action`` holds sums of f r [K, A, d], of f f' [K, A, d, d], of f psi' [K, A, d, p], or of f f(x')' by
    action and next action [K, A, A, d, d].
    """
    m, p, d = design.codes, design.p, design.d
    if by_action.ndim == 5:
        formula = "aq,br,abde->qdre"
    elif by_action.shape[-2:] == (d, d):
        formula = "aq,ar,ade->qdre"
    else:
        formula = "aq,ad...->qd..."
    codes = [m] * formula[: formula.index("->")].count(",")
    wide = [np.einsum(formula, *codes, own, optimize=True).reshape(p, -1) for own in by_action]
    return np.stack(wide) if by_action.ndim > 3 else np.stack(wide)[:, :, 0]


def target_features(
    chunk: Chunk, design: Design, rows: Int64Array
) -> Iterator[tuple[Int64Array, Float64Array]]:
    """Iterate over psi(x) = sum_a nu(a|x) phi(x, a) of some decisions, in blocks: (rows, [b, p])."""
    size = max(_ENTRIES // design.p, 64)
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        yield some, products(target_codes(chunk, design, some), design.rows_of(chunk, some))


def target_codes(chunk: Chunk, design: Design, rows: Int64Array | slice) -> Float64Array:
    """sum_a nu(a|x) m_a at some decisions [b, q]; if mu(.|x) is unknown, mu uses the logged action."""
    logs, codes = chunk.logs, design.codes
    if design.target == "state":
        return np.ones((len(logs.actions[rows]), 1))
    if design.target == "pi":
        key = ("codes", codes.tobytes())
        if design.dense:  # short enough to be kept, so that pi(.|x) is computed once
            return chunk.keep(key, partial(_expected_codes, chunk, codes), for_all=True)[rows]
        if len(logs) * codes.shape[1] <= _HELD:
            return chunk.memo(key, partial(_expected_codes, chunk, codes))[rows]
        numbers = np.arange(len(logs))[rows]
        starts = range(0, len(numbers), chunk.block)  # one block of [b, A] at a time, for many actions
        return np.concatenate([chunk.probs_of(numbers[i : i + chunk.block]) @ codes for i in starts])
    return logs.behaviour[rows] @ codes if logs.behaviour is not None else codes[logs.actions[rows]]


def _expected_codes(chunk: Chunk, codes: Float64Array) -> Float64Array:
    """sum_a pi(a|x) m_a at all decisions [n, q]."""
    return np.concatenate([probs @ codes for _, probs in chunk.probs()])


def sums_by_step(
    chunk: Chunk, design: Design, coefficients: Float64Array, problem: Problem, *, taken: bool = False
) -> Float64Array:
    """sum_i c_i psi(x_i) over the decisions of each fold and step [K, H, p]; phi(x_i, a_i) if ``taken``."""
    folds, horizon, q = problem.settings.folds, problem.horizon, design.codes.shape[1]
    total = np.zeros((folds * horizon, q, design.d))
    order, keys = chunk.memo(
        ("by fold and step", horizon), lambda: _sorted(chunk.fold * horizon + chunk.steps, folds * horizon)
    )
    size = max(_ENTRIES // (design.d + q), 64)
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        f = design.rows_of(chunk, rows, ("by fold and step", horizon, start, len(rows)))
        code = design.codes[chunk.logs.actions[rows]] if taken else target_codes(chunk, design, rows)
        code = code * coefficients[rows, None]
        bounds = np.append(np.flatnonzero(np.diff(keys[start : start + size], prepend=-1)), len(rows))
        for low, high in zip(bounds[:-1], bounds[1:], strict=True):
            total[keys[start + low]] += code[low:high].T @ f[low:high]
    return total.reshape(folds, horizon, design.p)


def _sorted(keys: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """The positions sorted by key, and the sorted keys, which must be below ``count``."""
    order = np.argsort(keys.astype(np.uint16) if count <= 1 << 16 else keys, kind="stable")  # 16 bits: fast
    return order, keys[order]
