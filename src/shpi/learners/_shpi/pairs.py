"""Numbers of every decision and action, [m, A], by blocks of decisions that the cache holds.

A block lies within one half of the users, since each half is judged by what the other has learned. What was
made once is kept where all blocks together fit (`KEPT`), and is made again where not: with 10,000 actions a
table of 200,000 decisions takes 8 GB, and several are needed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shpi.data.logged import LoggedData
from shpi.features import FeatureMap
from shpi.policies import Policy
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.policies.near_mu.tilted import tilt
from shpi.policies.scorers import LinearScorer, Scorer
from shpi.protocols import Float32Array, Float64Array

KEPT = 50_000_000  # numbers of a table that is kept: 200 MB in single precision
SOME = 1_000_000  # numbers from which a spread is known well enough
BLOCK = 200_000  # numbers of a block: what the cache holds
LEAST = 1e-12  # of a sum of weights, below which digits are lost
FLOOR = 1e-18  # of a weight whose square is needed: smaller ones leave the numbers of single precision
LARGEST_EXPONENT = 80.0  # of a weight in single precision


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Some decisions of one half of the users."""

    rows: slice
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
    some: tuple[Block, ...]  # some of them at random, about `SOME` numbers
    mu: Pairs
    _features: dict[FeatureMap, Pairs] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, logs: LoggedData, mu: Policy, middle: int) -> Decisions:
        """Cut the decisions of each half of the users, the second from row ``middle`` on, into blocks."""
        n, n_actions = len(logs), logs.n_actions
        blocks = (*_cut(0, middle, n_actions, 0), *_cut(middle, n, n_actions, 1))
        enough = -(-SOME // BLOCK)
        some = np.random.default_rng(0).permutation(len(blocks))[:enough]
        decisions = cls(
            logs=logs,
            blocks=blocks,
            some=tuple(blocks[i] for i in sorted(some)),
            mu=Pairs(make=lambda block: decisions._probs(mu, block), keep=n * n_actions <= KEPT),
        )
        return decisions

    def _probs(self, policy: Policy, block: Block) -> Float32Array:
        contexts, masks = self.logs.contexts[block.rows], self.logs.candidates
        mask = None if masks is None else masks[block.rows]
        if not isinstance(policy, LogisticPolicy):
            return policy.action_probs(contexts, mask).astype(np.float32)
        phi = policy.features.transform(contexts).astype(np.float32)
        logits: Float32Array = phi @ policy.weights.T.astype(np.float32)
        return policy.probs_of(logits, mask).astype(np.float32, copy=False)

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

    def taken_probs(
        self,
        scores: Pairs | None,
        sizes: Sequence[float],
        power: float = 1.0,
        half_size: dict[Block, Float32Array] | None = None,
    ) -> Float64Array:
        """pi(a_t|x_t) [n] of mu^power exp(size f), with a size for each half.

        ``half_size`` has exp(size f) of half the size, or nothing, and is left with that of the size: a
        square costs a tenth of an exponential.
        """
        taken = np.empty(len(self.logs))
        keep = half_size is not None and self.mu.keep
        for block in self.blocks:
            mu, rows = self.mu[block], np.arange(block.rows.stop - block.rows.start)
            actions, size = self.logs.actions[block.rows], sizes[block.half]
            if scores is None:
                taken[block.rows] = tilt(mu, None, 0.0, power)[rows, actions]
                continue
            if half_size is not None and block in half_size:
                weights = np.square(half_size[block], out=half_size[block])
            else:
                weights = self._weights(scores[block], size, block)
            if half_size is not None and keep:
                half_size[block] = np.maximum(weights, FLOOR, out=weights)
            total = np.vecdot(weights, mu)
            if (total > LEAST).all():
                taken[block.rows] = weights[rows, actions] * mu[rows, actions] / total
            else:
                taken[block.rows] = tilt(mu, scores[block], size, 1.0)[rows, actions]
        return taken

    def _weights(self, scores: Float32Array, size: float, block: Block) -> Float32Array:
        """Exp(size f) in units of the largest among the candidates [m, A]."""
        eligible = scores
        if self.logs.candidates is not None:
            eligible = np.where(self.logs.candidates[block.rows], scores, -np.inf)
        weights: Float32Array = scores - eligible.max(axis=1, keepdims=True)
        weights *= np.float32(size)
        np.clip(weights, -LARGEST_EXPONENT, 0.0, out=weights)  # what mu cannot take has no weight
        np.exp(weights, out=weights)
        return weights

    def of_actions(self) -> Float64Array:
        """mu(a_t|x_t) [n]."""
        taken = np.empty(len(self.logs))
        for block in self.blocks:
            taken[block.rows] = self.mu[block][np.arange(len(self.mu[block])), self.logs.actions[block.rows]]
        return taken


def _variances(probs: Float32Array, deviations: Float32Array) -> float:
    """The sum over decisions of the variance under mu; in double precision where single is too narrow."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.vecdot(probs, deviations * deviations).sum(dtype=np.float64))
    if np.isfinite(total):
        return total
    wide = deviations.astype(np.float64)
    return float(np.vecdot(probs, wide * wide).sum())


def _cut(first: int, end: int, n_actions: int, half: int) -> tuple[Block, ...]:
    size = max(BLOCK // n_actions, 1)
    return tuple(Block(rows=slice(i, min(i + size, end)), half=half) for i in range(first, end, size))
