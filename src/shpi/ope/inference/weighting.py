"""Weights of decisions and of terminated trajectories, which keep counting with z = 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array, Int64Array

_SMALL = 1e-3  # leverage h of a terminated trajectory below which the factor 1 / (1 - h) is left out: 0.1 %


@dataclass(frozen=True, kw_only=True, eq=False)
class StepWeights:
    """The logarithms of the weights w, of decisions and of terminated trajectories."""

    rows: Float64Array  # [n] log w_it
    after: Float64Array  # [N] log w of a terminated trajectory, from step T_i + tail_length on
    tail_length: int = 0
    tail: Callable[[int], Float64Array] | None = None  # j -> [N] log w at step T_i + j, for j < tail_length

    @classmethod
    def equal(cls, chunk: Chunk) -> StepWeights:
        """Weights of 1, as for mu itself."""
        return cls(rows=np.zeros(len(chunk.logs)), after=np.zeros(chunk.logs.n_trajectories))


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """The terms z to average, and the factors by which known terms also stand for unknown ones."""

    values: Float64Array  # [n] z
    counts: Float64Array  # [n] `Problem.known_weights`: 0 where z is unknown


@dataclass(frozen=True, kw_only=True, eq=False)
class Ended:
    """The trajectories of a chunk that terminated before the horizon, with their log b + log w."""

    which: Int64Array  # [E] indices of these trajectories
    steps: Int64Array  # [E] T_i, the first step without a decision
    start: Int64Array  # [E] the first step at which ``after`` applies, at most the horizon
    after: Float64Array  # [E] log b w, from step T_i + tail_length on
    log_b: Float64Array  # [E]
    weights: StepWeights
    horizon: int

    @classmethod
    def of(cls, chunk: Chunk, weights: StepWeights, problem: Problem) -> Ended:
        """The terminated trajectories of one chunk."""
        lengths = np.diff(chunk.logs.offsets)
        which = np.flatnonzero(chunk.logs.terminated & (lengths < problem.horizon))
        log_b = -np.log(problem.kept[lengths[which] - 1])
        return cls(
            which=which,
            steps=lengths[which],
            start=np.minimum(lengths[which] + weights.tail_length, problem.horizon),
            after=weights.after[which] + log_b,
            log_b=log_b,
            weights=weights,
            horizon=problem.horizon,
        )

    def moving(self) -> Iterator[tuple[Int64Array, Int64Array, Float64Array]]:
        """For each j of the tail: which trajectories are before the horizon, their step, their log b w."""
        tail = self.weights.tail
        if tail is None or not len(self.which):
            return
        for j in range(min(self.weights.tail_length, self.horizon - int(self.steps.min()))):
            here = np.flatnonzero(self.steps + j < self.horizon)
            yield here, self.steps[here] + j, tail(j)[self.which[here]] + self.log_b[here]

    def top(self) -> Float64Array:
        """The largest log b w of a terminated trajectory at every step [H]."""
        top = np.full(self.horizon + 1, -np.inf)
        np.maximum.at(top, self.start, self.after)
        top = np.maximum.accumulate(top[: self.horizon])
        for _, step, log_weight in self.moving():
            np.maximum.at(top, step, log_weight)
        return top

    def weight(self, top: Float64Array, power: int = 1) -> Float64Array:
        """The sum of (b w)^power at every step, times exp(-power top) [H]."""
        by_start = np.full(self.horizon + 1, -np.inf)
        np.logaddexp.at(by_start, self.start, power * self.after)
        sums = np.logaddexp.accumulate(by_start[: self.horizon])
        total: Float64Array = np.exp(np.minimum(sums - power * top, 700.0))
        for _, step, log_weight in self.moving():
            total += add_up(step, np.exp(np.minimum(power * (log_weight - top[step]), 700.0)), self.horizon)
        return total

    def total(
        self, coefficient: Float64Array, top: Float64Array, lever: Float64Array | None = None
    ) -> Float64Array:
        """sum_{t >= T_i} coefficient_t y_t / (1 - y_t / lever_t) [E], with y_t = b w exp(-top_t).

        Without ``lever`` the denominator is 1.
        """
        start = self.start
        later = np.zeros(self.horizon + 1)  # sum_{s >= t} coefficient_s exp(top_t - top_s), from the back
        for t in range(self.horizon - 1, -1, -1):
            ahead = later[t + 1] * np.exp(min(top[t] - top[t + 1], 600.0)) if t + 1 < self.horizon else 0.0
            later[t] = coefficient[t] + ahead
        result: Float64Array = np.exp(self.after - np.append(top, np.inf)[start]) * later[start]
        if lever is not None:  # recompute, step by step, the sums of the few whose leverage is not small
            least = np.append(top + np.log(lever), np.inf)  # log of the denominators
            smallest = np.minimum.accumulate(least[::-1])[::-1]  # over all later steps
            for i in np.flatnonzero(self.after - smallest[start] > np.log(_SMALL)):
                later_steps = np.arange(start[i], self.horizon)
                scaled = np.exp(self.after[i] - top[later_steps])
                share = np.minimum(scaled / lever[later_steps], 1 - 1e-6)
                result[i] = float(np.sum(coefficient[later_steps] * scaled / (1 - share)))
        for here, step, log_weight in self.moving():
            scaled = np.exp(log_weight - top[step])
            share = np.zeros(1) if lever is None else np.minimum(scaled / lever[step], 1 - 1e-6)
            result[here] += coefficient[step] * scaled / (1 - share)
        return result


def add_up(index: Int64Array, values: Float64Array, size: int) -> Float64Array:
    """Sums of values by index [size]."""
    return np.bincount(index, weights=values, minlength=size).astype(np.float64, copy=False)
