"""Numbers of every decision and action, [n, A]: kept where they fit, made again block by block where not.

With 10,000 actions a table of 200,000 decisions takes 8 GB, and several are needed at once. Beyond `KEPT` a
table is a function of rows: each use computes it anew, and memory stays that of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.oracles import PreparedOracle
from shpi.policies import Policy
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.policies.near_mu.tilted import tilt
from shpi.policies.scorers import LinearScorer, Scorer
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array, IntArray

KEPT = 50_000_000  # numbers of a table that is kept: 200 MB in single precision
SOME = 1_000_000  # numbers from which a spread is known well enough
BLOCK = 500_000  # numbers of a block: what the cache holds
LEAST = 1e-30  # of a sum of weights, below which digits are lost
NEVER = -1e30  # the logit of an action that was never seen
ROWS = 20_000  # decisions for which a kept table is computed at once

Rows = slice | Int64Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """A table of n decisions and A actions in single precision, which is asked for by rows."""

    make: Callable[[Rows], Float32Array]
    n: int
    n_actions: int
    kept: bool = False

    @classmethod
    def of(cls, table: Float32Array) -> Pairs:
        """A table that is there."""
        return cls(make=table.__getitem__, n=len(table), n_actions=table.shape[1], kept=True)

    def __getitem__(self, rows: Rows) -> Float32Array:
        return self.make(rows)

    def of_actions(self, actions: IntArray) -> Float32Array:
        """The number of each decision's own action [n]."""
        taken = np.empty(self.n, dtype=np.float32)
        for rows in self.blocks():
            table = self[rows]
            taken[rows] = table[np.arange(len(table)), actions[rows]]
        return taken

    def blocks(self) -> Iterator[slice]:
        """All rows, by blocks that the cache holds."""
        yield from _slices(self.n, max(BLOCK // self.n_actions, 1))


def probs_of(policy: Policy, logs: LoggedData) -> Pairs:
    """pi(a|x) of the logged contexts."""
    n, n_actions, masks = len(logs), logs.n_actions, logs.candidates
    if n * n_actions <= KEPT:
        table = np.empty((n, n_actions), dtype=np.float32)
        for rows in _slices(n, ROWS):
            table[rows] = policy.action_probs(logs.contexts[rows], None if masks is None else masks[rows])
        return Pairs.of(table)

    def exact(rows: Rows) -> Float32Array:
        mask = None if masks is None else masks[rows]
        return policy.action_probs(logs.contexts[rows], mask).astype(np.float32)

    if not isinstance(policy, LogisticPolicy):
        return Pairs(make=exact, n=n, n_actions=n_actions)
    columns = policy.weights.T.astype(np.float32)
    never = np.where(policy.seen, 0.0, NEVER).astype(np.float32)

    def make(rows: Rows) -> Float32Array:
        logits = policy.features.transform(logs.contexts[rows]).astype(np.float32) @ columns
        if masks is not None or policy.floor > 0:
            probs: Float32Array = policy.probs_of(logits, None if masks is None else masks[rows])
            return probs
        logits += never  # the same without copies of the block
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        return logits

    return Pairs(make=make, n=n, n_actions=n_actions)


def scores_of(scorer: Scorer, logs: LoggedData, unit: float) -> Pairs:
    """f(x, a) of the logged contexts, in a unit and up to a number for each context."""
    n, n_actions = len(logs), logs.n_actions
    if n * n_actions <= KEPT:
        table = np.empty((n, n_actions), dtype=np.float32)
        for rows in _slices(n, ROWS):
            table[rows] = scorer.scores(logs.contexts[rows]) / unit
        return Pairs.of(table)

    def relative(rows: Rows) -> Float32Array:
        scores = scorer.scores(logs.contexts[rows])
        centred: Float32Array = (scores - scores.mean(axis=1, keepdims=True)).astype(np.float32)
        return centred / np.float32(unit)

    if not isinstance(scorer, LinearScorer):
        return Pairs(make=relative, n=n, n_actions=n_actions)
    # differences, before digits are dropped
    columns = ((scorer.weights - scorer.weights.mean(axis=0)).T / unit).astype(np.float32)

    def make(rows: Rows) -> Float32Array:
        product: Float32Array = scorer.features.transform(logs.contexts[rows]).astype(np.float32) @ columns
        return product

    return Pairs(make=make, n=n, n_actions=n_actions)


def scaled(oracle: PreparedOracle, scorer: Scorer, logs: LoggedData, mu: Pairs) -> tuple[Pairs, float]:
    """F in its own standard deviations under mu, and these; a table that is kept has mean 0 under mu."""
    if not mu.kept:
        spread = spread_of(scorer, logs, mu, KEPT) or 1.0
        return scores_of(scorer, logs, spread), spread
    scores, total = np.empty((mu.n, mu.n_actions), dtype=np.float32), 0.0
    for rows, block in oracle.scores_on_log(scorer):
        probs, relative = mu[rows], scores[rows]
        relative[:] = block - block.mean(axis=1, keepdims=True)  # differences, before digits are dropped
        relative -= np.vecdot(probs, relative)[:, None]
        total += float(np.einsum("na,na,na->", probs, relative, relative))
    spread = float(np.sqrt(total / mu.n)) or 1.0
    scores /= np.float32(spread)
    return Pairs.of(scores), spread


def spread_of(scorer: Scorer, logs: LoggedData, mu: Pairs, most: int = SOME) -> float:
    """The standard deviation of f under mu, from evenly spaced rows with at most so many numbers."""
    some, total = np.arange(0, mu.n, -(-mu.n * mu.n_actions // most)), 0.0
    for chosen in _slices(len(some), max(BLOCK // mu.n_actions, 1)):
        rows = some[chosen]
        probs, scores = mu[rows], scorer.scores(logs.contexts[rows])
        scores = scores - np.vecdot(probs, scores)[:, None]
        total += float(np.einsum("na,na,na->", probs, scores, scores))
    return float(np.sqrt(total / len(some)))


def by_half(taught: BoolArray, tables: Sequence[Pairs]) -> Pairs:
    """The first table, but the rows that taught it [n] from the second; a kept one is overwritten."""
    first, second = tables
    if first.kept:
        whole = first[:]
        whole[taught] = second[:][taught]
        return first

    def make(rows: Rows) -> Float32Array:
        index = np.arange(first.n)[rows]
        table = np.empty((len(index), first.n_actions), dtype=np.float32)
        for side, pairs in enumerate(tables):
            mine = taught[index] == bool(side)
            if mine.any():
                table[mine] = pairs[index[mine]]
        return table

    return Pairs(make=make, n=first.n, n_actions=first.n_actions)


def centred(scores: Pairs, mu: Pairs, actions: IntArray) -> Float32Array:
    """The score of the action that was taken, less the mean under mu [n]."""
    if scores.kept:  # they are centred
        return scores.of_actions(actions)
    relative = np.empty(scores.n, dtype=np.float32)
    for rows in scores.blocks():
        table = scores[rows]
        relative[rows] = table[np.arange(len(table)), actions[rows]] - np.vecdot(mu[rows], table)
    return relative


def tilted(mu: Pairs, scores: Pairs | None, size: float, power: float, actions: IntArray) -> Float64Array:
    """pi(a_t|x_t) [n] of mu^power exp(size f)."""
    taken = np.empty(mu.n)
    for rows in mu.blocks():
        probs = None
        if not mu.kept and power == 1 and scores is not None:
            probs = _tilted_block(mu[rows], scores[rows], size)
        if probs is None:
            probs = tilt(mu[rows], None if scores is None else scores[rows], size, power)
        taken[rows] = probs[np.arange(len(probs)), actions[rows]]
    return taken


def _tilted_block(mu: Float32Array, scores: Float32Array, size: float) -> Float32Array | None:
    """`tilt` without logarithms and copies; None where single precision does not hold the weights."""
    scores -= scores.max(axis=1, keepdims=True)
    scores *= np.float32(size)
    np.exp(scores, out=scores)
    scores *= mu
    total = scores.sum(axis=1, keepdims=True)
    if not (total > LEAST).all():
        return None
    scores /= total
    return scores


def _slices(n: int, size: int) -> Iterator[slice]:
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))
