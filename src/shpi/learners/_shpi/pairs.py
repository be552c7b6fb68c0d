"""Numbers of every decision and action, [m, A], by blocks of decisions that the cache holds.

A block lies within one half of the users, since each half is judged by what the other has learned. What was
made once is kept where all blocks together fit (`KEPT`), and is made again where not: with 10,000 actions a
table of 200,000 decisions takes 8 GB, and several are needed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from shpi._core.softmax import row_sums
from shpi.data.logged import LoggedData
from shpi.features import FeatureMap
from shpi.policies import Policy
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.policies.near_mu.tilted import tilt
from shpi.policies.scorers import LinearScorer, Scorer
from shpi.protocols import Float32Array, Float64Array, Int64Array, IntArray

KEPT = 50_000_000  # numbers of a table that is kept: 200 MB in single precision
SOME = 1_000_000  # numbers from which a spread is known well enough
BLOCK = 200_000  # numbers of a block: what the cache holds
LEAST = 1e-30  # of a sum of weights, below which digits are lost
SAFE = 60.0  # exponents up to this are far from the largest and the least number of single precision


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Some decisions of one half of the users."""

    rows: Int64Array
    half: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """A table in single precision that is asked for by blocks, which are not to be overwritten."""

    make: Callable[[Block], Float32Array]
    keep: bool = False
    _kept: dict[Block, Float32Array] = field(default_factory=dict, repr=False)

    def __getitem__(self, block: Block) -> Float32Array:
        if not self.keep:
            return self.make(block)
        if block not in self._kept:
            self._kept[block] = self.make(block)
        return self._kept[block]


@dataclass(frozen=True, kw_only=True, eq=False)
class Decisions:
    """The logged decisions, and mu(a|x) of each."""

    logs: LoggedData
    blocks: tuple[Block, ...]  # all decisions
    some: tuple[Block, ...]  # drawn at random, about `SOME` numbers
    mu: Pairs
    _features: dict[FeatureMap, Pairs] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, logs: LoggedData, mu: Policy, half: IntArray) -> Decisions:
        """Deal the decisions of both halves [n] to blocks."""
        n, n_actions = len(logs), logs.n_actions
        blocks = tuple(block for h in (0, 1) for block in _cut(np.flatnonzero(half == h), n_actions, h))
        some = np.random.default_rng(0).permutation(n)[: max(SOME // n_actions, 1)]
        return cls(
            logs=logs,
            blocks=blocks,
            some=_cut(np.sort(some), n_actions),
            # No reference to the decisions themselves: a circle of references would keep large tables alive.
            mu=Pairs(make=partial(_probs, logs, mu), keep=n * n_actions <= KEPT),
        )

    def scores(self, scorer: Scorer) -> Pairs:
        """f(x, a), up to a number for each context: differences, before digits are dropped."""
        contexts = self.logs.contexts

        def relative(block: Block) -> Float32Array:
            scores = scorer.scores(contexts[block.rows])
            centred: Float64Array = scores - scores.mean(axis=1, keepdims=True)
            return centred.astype(np.float32)

        if not isinstance(scorer, LinearScorer):
            return Pairs(make=relative)
        features = scorer.features
        if features not in self._features:
            self._features[features] = Pairs(
                make=lambda block: features.transform(contexts[block.rows]).astype(np.float32),
                keep=len(contexts) * features.width <= KEPT,
            )
        phi = self._features[features]
        columns = np.ascontiguousarray((scorer.weights - scorer.weights.mean(axis=0)).T, dtype=np.float32)
        return Pairs(make=lambda block: phi[block] @ columns)

    def by_half(self, scorers: Sequence[Scorer], sides: Sequence[int], keep: bool = False) -> Pairs:
        """F of one side for the decisions of half 0, and of another for those of half 1."""
        tables = [self.scores(scorers[side]) for side in sides]
        return Pairs(make=lambda block: tables[block.half][block], keep=keep and self.mu.keep)

    def spread(self, scorer: Scorer) -> float:
        """The standard deviation of f under mu, from some of the decisions."""
        scores, total, count = self.scores(scorer), 0.0, 0
        for block in self.some:
            probs, table = self.mu[block], scores[block]
            total += _variances(probs, table - np.vecdot(probs, table)[:, None])
            count += len(table)
        return float(np.sqrt(total / count))

    def centred(self, scores: Pairs, spreads: Sequence[float]) -> Float32Array:
        """The score of the action that was taken, less the mean under mu [n], in the spread of its half."""
        relative = np.empty(len(self.logs), dtype=np.float32)
        for block in self.blocks:
            table = scores[block]
            taken = table[np.arange(len(table)), self.logs.actions[block.rows]]
            relative[block.rows] = (taken - np.vecdot(self.mu[block], table)) / spreads[block.half]
        return relative

    def taken_probs(self, scores: Pairs | None, sizes: Sequence[float], power: float = 1.0) -> Float64Array:
        """pi(a_t|x_t) [n] of mu^power exp(size f), with a size for each half."""
        taken = np.empty(len(self.logs))
        for block in self.blocks:
            mu, actions = self.mu[block], self.logs.actions[block.rows]
            if scores is None:
                taken[block.rows] = tilt(mu, None, 0.0, power)[np.arange(len(mu)), actions]
            else:
                taken[block.rows] = tilted(mu, scores[block], sizes[block.half], actions)
        return taken

    def of_actions(self) -> Float64Array:
        """mu(a_t|x_t) [n]."""
        taken = np.empty(len(self.logs))
        for block in self.blocks:
            taken[block.rows] = self.mu[block][np.arange(len(block.rows)), self.logs.actions[block.rows]]
        return taken


def _probs(logs: LoggedData, policy: Policy, block: Block) -> Float32Array:
    contexts, masks = logs.contexts[block.rows], logs.candidates
    mask = None if masks is None else masks[block.rows]
    if not isinstance(policy, LogisticPolicy):
        return policy.action_probs(contexts, mask).astype(np.float32)
    phi = policy.features.transform(contexts).astype(np.float32)
    logits: Float32Array = phi @ policy.weights.T.astype(np.float32)
    return policy.probs_of(logits, mask).astype(np.float32, copy=False)


def tilted(mu: Float32Array, scores: Float32Array, size: float, actions: IntArray) -> Float32Array:
    """pi(a_t|x_t) [m] of mu exp(size f): `tilt` without logarithms, where that loses no digits."""
    rows, weights = np.arange(len(mu)), scores * np.float32(size)
    if max(float(weights.max()), -float(weights.min())) > SAFE:
        weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights *= mu
    total = row_sums(weights)
    if not (total > LEAST).all():
        return tilt(mu, scores, size, 1.0)[rows, actions].astype(np.float32)
    probs: Float32Array = weights[rows, actions] / total
    return probs


def _variances(probs: Float32Array, deviations: Float32Array) -> float:
    """The sum over decisions of the variance under mu; in double precision where single is too narrow."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.vecdot(probs, deviations * deviations).sum(dtype=np.float64))
    if np.isfinite(total):
        return total
    wide = deviations.astype(np.float64)
    return float(np.vecdot(probs, wide * wide).sum())


def _cut(rows: Int64Array, n_actions: int, half: int = 0) -> tuple[Block, ...]:
    size = max(BLOCK // n_actions, 1)
    return tuple(Block(rows=rows[i : i + size], half=half) for i in range(0, len(rows), size))
