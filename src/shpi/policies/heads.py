"""Heads that turn scores f(x, a) into probabilities: greedy, epsilon-greedy, softmax, behaviour-regularised.

Masked actions score minus infinity. Ties of the greatest score go to the lowest action number, so that a
policy is deterministic on every machine; `EpsilonGreedy` can let nearly equal actions share the mass instead,
as Vowpal Wabbit does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shpi._core.softmax import Real, row_max
from shpi.errors import ActionError, ConfigError
from shpi.features.parts import saveable
from shpi.policies.base import ScorerPolicyMethods
from shpi.policies.sampling import check_candidates
from shpi.policies.scorers import Scorer, checked_scores
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array, Policy

VW_TIES = 1e-4  # Vowpal Wabbit treats scores with a smaller relative difference as equal


def masked_scores(scorer: Scorer, contexts: FloatArray, candidates: BoolArray | None) -> Float64Array:
    """Scores [n, A] with -inf where an action is not allowed."""
    scores = checked_scores(scorer, contexts)
    mask = check_candidates(candidates, *scores.shape)
    return scores if mask is None else np.where(mask, scores, -np.inf)


def greedy_actions(scores: Float64Array) -> Int64Array:
    """argmax_a of each row [n]; the lowest index among the maxima."""
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def one_hot(actions: Int64Array, n_actions: int) -> Float64Array:
    """Probability 1 on each action, [n, A]."""
    probs = np.zeros((len(actions), n_actions))
    probs[np.arange(len(actions)), actions] = 1.0
    return probs


def softmax(logits: NDArray[Real]) -> NDArray[Real]:
    """exp(z) / sum exp(z) by row, safe for large numbers; -inf becomes exactly 0.

    A row of nothing but -inf is an error: there is no action to take.
    """
    top = row_max(logits)
    if not np.isfinite(top).all():
        raise ActionError(
            expected="at least one action of positive probability in every row",
            found="none",
            where=f"row {int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])}",
        )
    weights: NDArray[Real] = logits - top
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def explored(scores: Float64Array, epsilon: float, ties: float | None = None) -> Float64Array:
    """The probabilities [n, A] of `EpsilonGreedy` for scores [n, A]; what is not allowed scores -inf."""
    allowed = np.isfinite(scores)
    probs: Float64Array = epsilon * allowed / allowed.sum(axis=1, keepdims=True)
    if ties is None:
        probs[np.arange(len(probs)), greedy_actions(scores)] += 1.0 - epsilon
        return probs
    top, known = scores.max(axis=1, keepdims=True), np.where(allowed, scores, 0.0)
    best = allowed & (top - known <= ties * (np.abs(top) + np.abs(known)))
    probs += (1.0 - epsilon) * best / best.sum(axis=1, keepdims=True)
    return probs


@saveable("policies/greedy")
@dataclass(frozen=True, eq=False, repr=False)
class Greedy(ScorerPolicyMethods):
    """pi(x) = argmax over the allowed actions of f(x, a); the lowest index among equals."""

    scorer: Scorer

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """All mass on the best allowed action, [n, A]."""
        return one_hot(greedy_actions(masked_scores(self.scorer, contexts, candidates)), self.n_actions)


@saveable("policies/epsilon-greedy")
@dataclass(frozen=True, eq=False, repr=False)
class EpsilonGreedy(ScorerPolicyMethods):
    """pi(a|x) = epsilon / |C(x)| + (1 - epsilon) 1[a = argmax f(x, .)] over the allowed set C(x).

    With a number for ``ties``, all actions with max f - f <= ties (|max f| + |f|) share 1 - epsilon equally.
    Vowpal Wabbit does so with `VW_TIES`.
    """

    scorer: Scorer
    epsilon: float
    ties: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(expected="epsilon in [0, 1]", found=str(self.epsilon))
        if self.ties is not None and not 0 <= self.ties < 1:
            raise ConfigError(expected="ties in [0, 1), or None", found=str(self.ties))

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """Uniform noise around the greedy action, [n, A]."""
        scores = masked_scores(self.scorer, contexts, candidates)
        return explored(scores, self.epsilon, self.ties)


@saveable("policies/softmax")
@dataclass(frozen=True, eq=False, repr=False)
class Softmax(ScorerPolicyMethods):
    """pi(a|x) ∝ exp(f(x, a) / temperature) over the allowed actions."""

    scorer: Scorer
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _positive("temperature", self.temperature)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The softmax of the scores, [n, A]."""
        return softmax(_tempered(masked_scores(self.scorer, contexts, candidates), self.temperature))


@saveable("policies/behaviour-regularised")
@dataclass(frozen=True, eq=False, repr=False)
class BehaviourRegularised(ScorerPolicyMethods):
    """pi(a|x) ∝ mu(a|x) exp(f(x, a) / beta): the best policy for E[f] - beta KL(pi || mu).

    Small beta is greedy within the support of mu, large beta is mu itself. pi never leaves mu's support.
    """

    scorer: Scorer
    mu: Policy
    beta: float = 1.0

    def __post_init__(self) -> None:
        _positive("beta", self.beta)
        same_actions(self.scorer, self.mu)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The tilted behaviour policy, [n, A]."""
        scores = masked_scores(self.scorer, contexts, candidates)
        behaviour = self.mu.action_probs(contexts, candidates)
        # Actions outside the support are taken out before the division, or a huge score there would
        # push the supported ones below the smallest exponent.
        supported = np.where(behaviour > 0, scores, -np.inf)
        with np.errstate(divide="ignore"):
            return softmax(_tempered(supported, self.beta) + np.log(behaviour))


def _tempered(scores: Float64Array, temperature: float) -> Float64Array:
    """(f - max f) / temperature: shifted before the division, which therefore cannot overflow to +inf."""
    top = scores.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(over="ignore"):  # minus infinity is the right answer for a hopeless action
        shifted: Float64Array = scores - np.where(np.isfinite(top), top, 0.0)
        shifted /= temperature
    return shifted


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ConfigError(expected=f"a positive {name}", found=str(value))


def same_actions(scorer: Scorer, mu: Policy) -> None:
    """Raise if a scorer and a policy have different numbers of actions."""
    if scorer.n_actions != mu.n_actions:
        raise ConfigError(
            expected=f"a policy mu over the scorer's {scorer.n_actions} actions",
            found=f"one over {mu.n_actions}",
        )
