r"""Discrete batch-constrained Q-learning (Fujimoto et al. 2019, "Benchmarking batch deep RL algorithms").

Two networks of the same shape: Q(x, .), and the imitation i(x, .) with G = softmax(i) over the candidates.

    eligible(x) = { a allowed : G(a|x) / max_b G(b|x) >= tau }
    a'          = argmax over eligible(x') of Q(x', a)
    y           = r + gamma Q_target(x', a')                r alone where the user is gone for good
    loss        = smooth_l1(Q(x, a) - y)  -  log G(a|x)  +  penalty mean(i^2)
    pi(x)       = argmax over eligible(x) of Q(x, a)

tau = 0 is double DQN, tau = 1 imitation. The target network follows by Polyak averaging, or by hard copies.
Settings where the authors' two programs and d3rlpy differ are arguments; the defaults are the authors' for
low-dimensional inputs, with the network and the learning rate of the paper. Our additions: masks, the endings
of `shpi.learners.neural._replay`, standardised rewards (needed for returns such as 1e10), and the averaged
networks of `shpi.learners.neural._dqn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shpi._torch.networks import one_thread
from shpi._torch.perceptron import Perceptron, perceptrons
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.learners.base import from_log
from shpi.learners.neural._dqn import check_settings, log_loss_slope, next_values, td_slope, train
from shpi.learners.neural._replay import Batch, Replay
from shpi.policies import MlpScorer, PolicyMethods, Scorer
from shpi.policies.heads import greedy_actions, masked_scores, one_hot
from shpi.protocols import BoolArray, Float64Array, FloatArray


@dataclass(frozen=True, kw_only=True)
class DiscreteBCQ:
    """Q-learning on a log, limited to actions that the logging policy is likely to take.

    Args:
        gamma: the discount.
        threshold: tau, the smallest eligible share of the likeliest action's probability.
        penalty: weight of mean(i^2); 1e-2 is the authors', d3rlpy's is 0.5.
        hidden: the sizes of the hidden layers, of both networks.
        learning_rate: learning rate of Adam; the authors use 3e-4, the paper 1e-3.
        steps: gradient steps.
        batch: transitions per step.
        polyak: step of the moving average of the parameters, which is the target network.
        copy_every: number of steps after which the target network becomes a copy of Q; None: moving average.
        average: act on the moving average; otherwise on the last iterate, as the authors do.
        standardise: learn in units in which values are of order 1, see `neural._replay`; otherwise in
            the units of the rewards.
        seed: random seed of the networks and of the samples.
        progress: show a bar; None shows it in a terminal.
    """

    gamma: float = 0.99
    threshold: float = 0.3
    penalty: float = 1e-2
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    steps: int = 10_000
    batch: int = 256
    polyak: float = 0.005
    copy_every: int | None = None
    average: bool = True
    standardise: bool = True
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        if not 0 <= self.threshold <= 1:
            raise ConfigError(expected="threshold in [0, 1]", found=str(self.threshold), where="DiscreteBCQ")
        if not 0 <= self.penalty < np.inf:
            raise ConfigError(
                expected="a penalty of at least 0", found=str(self.penalty), where="DiscreteBCQ"
            )

    @from_log
    def fit(self, logs: LoggedData) -> BatchConstrained:
        """Train both networks on a log with rewards; propensities are not used.

        Of a log in shards the networks see a sample of its users (`learners.base.learned_from`).
        """
        with one_thread() as torch, torch.no_grad():
            replay = Replay.of(
                torch, logs, gamma=self.gamma, standardise=self.standardise, learner="DiscreteBCQ"
            )
            rng = np.random.default_rng(self.seed)
            sizes = (logs.schema.width, *self.hidden, logs.n_actions)
            values, (q, imitation) = perceptrons(torch, sizes, 2, rng)
            train(self, replay, values, q, rng, partial(self._write_gradient, q, imitation))
            return BatchConstrained(
                q=replay.scorer(*q.export()),
                imitation=MlpScorer(*imitation.export(), replay.inputs),
                threshold=self.threshold,
            )

    def _write_gradient(self, q: Perceptron, imitation: Perceptron, batch: Batch, target: Perceptron) -> None:
        """The gradient of the loss at the top of this file."""
        excluded = self._excluded(imitation(batch.following), batch.forbidden_next)
        ahead = next_values(q, target, batch, excluded)
        layers = q.activations(batch.contexts)
        q.backward(layers, td_slope(layers[-1], batch, ahead))
        layers = imitation.activations(batch.contexts)
        slope = log_loss_slope(layers[-1], batch.actions, batch.forbidden)
        slope.add_(layers[-1], alpha=2.0 * self.penalty / slope.numel())
        imitation.backward(layers, slope)

    def _excluded(self, logits: Any, forbidden: Any) -> Any:
        """The actions that are not allowed, or too unlikely, [b, A]; overwrites the logits."""
        if forbidden is not None:
            logits.masked_fill_(forbidden, -np.inf)
        unlikely = logits < logits.amax(dim=1, keepdim=True) + _log(self.threshold)
        return unlikely if forbidden is None else unlikely | forbidden


@saveable("learners/batch-constrained")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BatchConstrained(PolicyMethods):
    """argmax of Q over the allowed actions whose imitation probability is at least tau times the largest."""

    q: Scorer
    imitation: Scorer  # logits of G
    threshold: float

    def __post_init__(self) -> None:
        if self.q.n_actions != self.imitation.n_actions or not 0 <= self.threshold <= 1:
            raise ConfigError(
                expected="two scorers of the same actions, and a threshold in [0, 1]",
                found=f"{self.q.n_actions} and {self.imitation.n_actions} actions, {self.threshold}",
            )

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.q.n_actions

    @property
    def width(self) -> int | None:
        """The width d of a context."""
        return self.q.width

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """All mass on the best eligible action, [n, A]."""
        logits = masked_scores(self.imitation, contexts, candidates)
        eligible = logits >= logits.max(axis=1, keepdims=True, initial=-np.inf) + _log(self.threshold)
        scores = masked_scores(self.q, contexts, candidates)
        return one_hot(greedy_actions(np.where(eligible, scores, -np.inf)), self.n_actions)


def _log(threshold: float) -> float:
    return float(np.log(threshold)) if threshold > 0 else -np.inf
