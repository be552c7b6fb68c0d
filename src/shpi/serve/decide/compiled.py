"""`compile_policy`: a policy that answers one context at a time, without the checks of a batch.

``action_probs`` checks shapes, types and finiteness at every level: negligible for a batch, nine tenths of
the time for one context. Here everything is checked once, when the policy is compiled, and the context once,
when it is encoded. The operations are those of the policies themselves, on vectors. For policies that are not
shpi's own, ``action_probs`` is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shpi.features.chain import same_map
from shpi.policies import (
    AmongLikely,
    BehaviourRegularised,
    BoundedRatio,
    ConstantPolicy,
    EpsilonGreedy,
    Greedy,
    LinearScorer,
    Mixture,
    MlpScorer,
    Policy,
    Scorer,
    Softmax,
    Tilted,
    UniformPolicy,
)
from shpi.policies.base import context_width
from shpi.policies.heads import explored
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.protocols import BoolArray, Float64Array
from shpi.serve.decide.features import Phi, compile_features

Scores = Callable[[Float64Array], Float64Array]  # [d] to [A]
Probs = Callable[[Float64Array, BoolArray | None], Float64Array]  # [d] and a mask [A] to [A]
_TRIED = 8  # random contexts on which the compiled form is compared with the policy
_TOLERANCE = 1e-12  # largest difference of a probability


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledPolicy:
    """A policy for one context at a time.

    Args:
        n_actions: |A|.
        width: dimension d of a context; None if any will do.
        probs_at: function that computes the probabilities.
        native: False if ``probs_at`` just calls ``action_probs``.
    """

    n_actions: int
    width: int | None
    probs_at: Probs
    native: bool

    def probs(self, context: Float64Array, mask: BoolArray | None = None) -> Float64Array:
        """pi(.|x) [A] of a context [d], over the actions of a mask [A] if one is given; read-only."""
        return self.probs_at(context, mask)


def compile_policy(policy: Policy) -> CompiledPolicy:
    """The policy for one context at a time, after a check that it equals ``action_probs`` to 1e-12."""
    bare = getattr(policy, "saved_form", policy)
    width, plain = context_width(bare), _as_it_is(bare)
    probs = _policy(bare)
    if probs is None or not _agree(probs, plain, policy.n_actions, 1 if width is None else width):
        return CompiledPolicy(n_actions=policy.n_actions, width=width, probs_at=plain, native=False)
    return CompiledPolicy(n_actions=policy.n_actions, width=width, probs_at=probs, native=True)


def _agree(probs: Probs, plain: Probs, n_actions: int, width: int) -> bool:
    """Whether both give the same probabilities on random contexts; a subclass may behave differently."""
    rng = np.random.default_rng(0)
    for number in range(_TRIED):
        x, mask = rng.normal(size=width), None
        if number % 2:
            mask = rng.random(n_actions) < 0.5
            mask[rng.integers(n_actions)] = True
        try:
            wanted = plain(x, mask)
        except Exception:
            return True  # the policy takes no such context: states, for example, are integers
        if not np.abs(probs(x, mask) - wanted).max() <= _TOLERANCE:
            return False
    return True


# ---------------------------------------------------------------------- scores


def compile_scorer(scorer: Scorer) -> Scores:
    """f(x, .) for one context; for an unknown kind of scorer, ``scores`` is called."""
    if type(scorer) is LinearScorer:
        phi, weights = compile_features(scorer.features), scorer.weights
        return lambda x: weights.dot(phi(x))
    if type(scorer) is MlpScorer:
        return _perceptron(scorer)
    return lambda x: scorer.scores(x[None])[0]


def _perceptron(scorer: MlpScorer) -> Scores:
    phi, layers = compile_features(scorer.features), scorer._layers
    (last, offset), hidden = layers[-1], layers[:-1]

    def scores(x: Float64Array) -> Float64Array:
        z = phi(x)
        for matrix, bias in hidden:
            z = z @ matrix
            z += bias
            np.maximum(z, 0.0, out=z)
        values: Float64Array = z @ last + offset
        return values

    return scores


def _masked(scores: Float64Array, mask: BoolArray | None) -> Float64Array:
    return scores if mask is None else np.where(mask, scores, -np.inf)


def _softmax(logits: Float64Array) -> Float64Array:
    """Softmax in place; numpy's ``argmax`` is several times faster than its ``max``."""
    logits -= logits[logits.argmax()]
    np.exp(logits, out=logits)
    logits /= np.add.reduce(logits)
    return logits


def _tempered(scores: Float64Array, temperature: float) -> Float64Array:
    shifted: Float64Array = scores - scores[scores.argmax()]
    shifted /= temperature
    return shifted


# ---------------------------------------------------------------------- policies


def _as_it_is(policy: Policy) -> Probs:
    """``action_probs`` for one context."""
    whole = policy.action_probs
    return lambda x, mask: whole(x[None], None if mask is None else mask[None])[0]


def _policy(policy: Any) -> Probs | None:
    """The compiled form of one of shpi's own policies; None for any other."""
    maker = _MAKERS.get(type(policy))
    return None if maker is None else maker(policy)


def _part(policy: Any) -> Probs:
    """The compiled form of a component of a policy, or its ``action_probs``."""
    bare = getattr(policy, "saved_form", policy)
    compiled = _policy(bare)
    return _as_it_is(bare) if compiled is None else compiled


def _uniform(policy: UniformPolicy) -> Probs:
    equal = np.full(policy.n_actions, 1.0 / policy.n_actions)
    return lambda x, mask: equal if mask is None else np.asarray(mask / mask.sum())


def _constant(policy: ConstantPolicy) -> Probs:
    fixed, plain = policy.probs, _as_it_is(policy)

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        if mask is None:
            return fixed
        masked = np.where(mask, fixed, 0.0)
        total = masked.sum()
        return masked / total if total > 0 else plain(x, mask)  # raises an error that says what is wrong

    return probs


def _mixture(policy: Mixture) -> Probs:
    parts = [(w, _part(p)) for w, p in zip(policy.weights.tolist(), policy.policies, strict=True) if w > 0]

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        weight, probs_of_part = parts[0]
        total: Float64Array = weight * probs_of_part(x, mask)
        for weight, probs_of_part in parts[1:]:
            total += weight * probs_of_part(x, mask)
        return total

    return probs


def _greedy(policy: Greedy) -> Probs:
    scores, blank = compile_scorer(policy.scorer), np.zeros(policy.n_actions)

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        chances = blank.copy()
        chances[_masked(scores(x), mask).argmax()] = 1.0
        return chances

    return probs


def _epsilon_greedy(policy: EpsilonGreedy) -> Probs:
    scores, epsilon, ties = compile_scorer(policy.scorer), policy.epsilon, policy.ties
    noise = np.full(policy.n_actions, epsilon / policy.n_actions)

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        if mask is not None or ties is not None:
            whole = explored(_masked(scores(x), mask)[None], epsilon, ties)
            return np.asarray(whole[0])
        chances = noise.copy()
        chances[scores(x).argmax()] += 1.0 - epsilon
        return chances

    return probs


def _soft(policy: Softmax) -> Probs:
    scores, temperature = compile_scorer(policy.scorer), policy.temperature
    return lambda x, mask: _softmax(_tempered(_masked(scores(x), mask), temperature))


def _regularised(policy: BehaviourRegularised) -> Probs:
    both, beta = _with_mu(policy), policy.beta

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        behaviour, f = both(x, mask)
        supported = np.where(behaviour > 0, _masked(f, mask), -np.inf)
        with np.errstate(divide="ignore"):
            return _softmax(_tempered(supported, beta) + np.log(behaviour))

    return probs


def _bounded(policy: BoundedRatio) -> Probs:
    both, reach, blank = _with_mu(policy), policy.reach, np.zeros(policy.n_actions)

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        mu, f = both(x, mask)
        order = np.argsort(-_masked(f, mask), kind="stable")
        filled = np.minimum(np.cumsum(max(1.0, reach / mu[mu.argmax()]) * mu[order]), 1.0)
        filled[1:] -= filled[:-1].copy()
        chances = blank.copy()
        chances[order] = filled
        chances /= np.add.reduce(chances)
        return chances

    return probs


def _tilted(policy: Tilted) -> Probs:
    general, mu = _tilted_mu(policy), getattr(policy.mu, "saved_form", policy.mu)
    scorer = policy.scorer
    if not (isinstance(scorer, LinearScorer) and isinstance(mu, LogisticPolicy)):
        return general
    if not (same_map(scorer.features, mu.features) and np.all(mu.seen) and mu.floor > 0):
        return general
    return _tilted_logistic(policy, scorer, mu, general)


def _tilted_logistic(policy: Tilted, scorer: LinearScorer, mu: LogisticPolicy, general: Probs) -> Probs:
    """SHPI's default policy: one matrix product gives the logits of mu and the scores."""
    phi, n, power = compile_features(scorer.features), policy.n_actions, policy.power
    stacked = np.concatenate([mu.weights, policy.size * scorer.weights])
    unmixed, noise = 1.0 - mu.floor, mu.floor / n

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        if mask is not None:
            return general(x, mask)
        both = stacked.dot(phi(x))
        logits: Float64Array = both[:n]
        logits -= logits[logits.argmax()]
        np.exp(logits, out=logits)
        logits *= unmixed / np.add.reduce(logits)
        logits += noise
        np.log(logits, out=logits)
        if power != 1:
            logits *= power
        logits += both[n:]
        return _softmax(logits)

    return probs


def _tilted_mu(policy: Tilted) -> Probs:
    both, size, power = _with_mu(policy), policy.size, policy.power

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        mu, f = both(x, mask)
        if mask is not None:
            f = np.where(mask, f, 0.0)
        if mask is None and mu.all():
            logits: Float64Array = np.log(mu)
        else:
            with np.errstate(divide="ignore"):
                logits = np.log(mu)
        if power != 1:
            logits *= power
        if size:
            f = f - f[f.argmax()]
            f *= size
            logits += f
        return _softmax(logits)

    return probs


def _likely(policy: AmongLikely) -> Probs:
    both, share, blank = _with_mu(policy), policy.share, np.zeros(policy.n_actions)

    def probs(x: Float64Array, mask: BoolArray | None) -> Float64Array:
        mu, f = both(x, mask)
        likely = np.where(mu >= share * mu.max(), _masked(f, mask), -np.inf)
        chances = blank.copy()
        chances[likely.argmax()] = 1.0
        return chances

    return probs


def _logistic(policy: LogisticPolicy) -> Probs:
    phi, weights, head = compile_features(policy.features), policy.weights, _logistic_head(policy)
    return lambda x, mask: head(weights.dot(phi(x)), mask)


def _logistic_head(policy: LogisticPolicy) -> Probs:
    """A function from logits to probabilities; it overwrites the logits."""
    floor, noise = policy.floor, policy.floor / policy.n_actions
    simple = bool(np.all(policy.seen))

    def probs(logits: Float64Array, mask: BoolArray | None) -> Float64Array:
        if mask is not None or not simple:
            return np.asarray(policy.probs_of(logits[None], None if mask is None else mask[None])[0])
        chances = _softmax(logits)
        if floor:
            chances *= 1 - floor
            chances += noise
        return chances

    return probs


def _with_mu(policy: Any) -> Callable[[Float64Array, BoolArray | None], tuple[Float64Array, Float64Array]]:
    """mu(.|x) and f(x, .); if both are linear in the same features, the features are computed once."""
    scorer, mu = policy.scorer, getattr(policy.mu, "saved_form", policy.mu)
    if type(scorer) is LinearScorer and type(mu) is LogisticPolicy and same_map(scorer.features, mu.features):
        phi: Phi = compile_features(scorer.features)
        head, of_mu, of_f = _logistic_head(mu), mu.weights, scorer.weights

        def shared(x: Float64Array, mask: BoolArray | None) -> tuple[Float64Array, Float64Array]:
            z = phi(x)
            return head(of_mu.dot(z), mask), of_f.dot(z)

        return shared
    scores, behaviour = compile_scorer(scorer), _part(mu)
    return lambda x, mask: (behaviour(x, mask), scores(x))


_MAKERS: dict[type[Any], Callable[[Any], Probs]] = {
    AmongLikely: _likely,
    BehaviourRegularised: _regularised,
    BoundedRatio: _bounded,
    ConstantPolicy: _constant,
    EpsilonGreedy: _epsilon_greedy,
    Greedy: _greedy,
    LogisticPolicy: _logistic,
    Mixture: _mixture,
    Softmax: _soft,
    Tilted: _tilted,
    UniformPolicy: _uniform,
}
