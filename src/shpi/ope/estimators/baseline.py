"""J(mu), the mean reward of the log's users, step by step: the baseline of every lift."""

from __future__ import annotations

from shpi.ope.inference.steps import StepMeans, step_means
from shpi.ope.inference.weighting import StepWeights, Terms
from shpi.ope.problem import Chunk, Problem, once


def reward_terms(problem: Problem, chunk: Chunk) -> Terms:
    """The rewards, where they were observed."""
    return Terms(values=chunk.rewards, counts=problem.known_weights(chunk, "reward"))


@once
def on_policy(problem: Problem) -> StepMeans:
    """J(mu), computed once for all estimators."""
    return step_means(problem, StepWeights.equal, reward_terms, normalise=True)
