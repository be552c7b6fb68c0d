r"""NN-IPS: a neural policy trained on its own inverse-propensity estimate, clipped and variance-penalised.

With w_i = pi(a_i|x_i) / mu(a_i|x_i), rewards r_i and the mean reward b,

    u_i  = min(w_i, M) (r_i - b)
    loss = - mean(u)  +  penalty sqrt(Var(u) / n)                        Bottou et al. 2013, Swaminathan 2015
    self-normalised:   mean(u) / mean(min(w, M)) in place of mean(u)

pi = softmax of a perceptron over the allowed actions; the log is treated as a bandit log (T = 1). The
baseline b adds no bias, since E w = 1. Without it, if all rewards are positive, raising the probability of
every logged action raises the unclipped estimate, and the network learns to imitate (propensity overfitting).

The RecoGym agent that the paper adapts never learns: it uses the outputs of all actions instead of the
logged one's, so the gradient cancels, and it clips from below. Here the logged action's probability is
used, and weights are clipped from above. Training stops where the estimate on held-out users is highest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shpi._torch.layers import export, forward, make_layers
from shpi._torch.networks import one_thread
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import FeatureMap, Standardise
from shpi.features.base import Recipe
from shpi.learners.base import from_log, propensities_of
from shpi.learners.neural._descent import Decisions, check_settings, descend
from shpi.policies import Greedy, MlpScorer, Softmax

NEVER = -1e6  # the logit of an action that the log never took: chosen only if nothing else is allowed


@dataclass(frozen=True, kw_only=True)
class NNIPS:
    """Maximise a clipped inverse-propensity estimate over neural policies.

    Args:
        clip: M, the largest weight.
        penalty: the number of standard errors that the estimate is lowered by.
        self_normalised: divide by the mean weight.
        baseline: subtract the mean reward.
        greedy: return the action of the highest probability, as RecoGym's agent does, in place of the
            distribution that was trained.
        features: features of the contexts.
        hidden: the sizes of the hidden layers.
        learning_rate: learning rate of Adam.
        steps: largest number of gradient steps.
        batch: decisions per step.
        held_out: the share of the users that decide when to stop; 0 makes all steps.
        patience: number of checks without improvement after which training stops.
        seed: random seed of the network, the split and the samples.
        progress: show a bar; None shows it in a terminal.
    """

    clip: float = 111.0
    penalty: float = 0.01
    self_normalised: bool = False
    baseline: bool = True
    greedy: bool = True
    features: Recipe | FeatureMap = field(default_factory=Standardise)
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    steps: int = 5_000
    batch: int = 1024
    held_out: float = 0.2
    patience: int = 10
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.clip > 0 or not 0 <= self.penalty < np.inf:
            raise ConfigError(
                expected="a positive clip and a penalty of at least 0",
                found=f"{self.clip} and {self.penalty}",
                where="NNIPS",
            )

    @from_log
    def fit(self, logs: LoggedData) -> Greedy | Softmax:
        """Train on a log with rewards and propensities.

        Of a log in shards the networks see a sample of its users (`learners.base.learned_from`).
        """
        mu = propensities_of(logs, "NNIPS")
        with one_thread() as torch:
            rng = np.random.default_rng(self.seed)
            data = Decisions.of(torch, logs, self.features, self.held_out, rng, "NNIPS")
            layers = make_layers(torch, (data.features.width, *self.hidden, logs.n_actions), rng, last=0.0)
            propensities = torch.from_numpy(mu.astype(np.float32))
            level = 0.0 if self.baseline else data.mean / data.spread
            unseen = np.bincount(logs.actions, minlength=logs.n_actions) == 0
            never = torch.from_numpy(unseen)[None, :]  # an estimate says nothing about what was never tried

            def loss(rows: Any) -> Any:
                logits = forward(torch, layers, data.inputs[rows])
                excluded = never if data.forbidden is None else data.forbidden[rows] | never
                probs = logits.masked_fill(excluded, -np.inf).softmax(dim=1)
                taken = probs.gather(1, data.actions[rows])[:, 0]
                weights = (taken / propensities[rows]).clamp(max=self.clip)
                return self._loss(torch, weights, data.rewards[rows] + level, len(data.train))

            descend(torch, self, data, layers, rng, loss)
            weights, biases = export(layers)
            biases[-1][unseen] = NEVER
            scorer = MlpScorer(weights, biases, data.features)
        return Greedy(scorer) if self.greedy else Softmax(scorer)

    def _loss(self, torch: Any, weights: Any, rewards: Any, n: int) -> Any:
        """Minus the estimate, plus its penalty; n decisions stand behind the estimate, not one batch."""
        estimate = (weights * rewards).mean()
        parts = weights * rewards
        if self.self_normalised:
            share = weights.mean().clamp(min=1e-6)
            estimate = estimate / share
            parts = weights * (rewards - estimate) / share  # the linearised ratio
        error = torch.sqrt((parts.var(unbiased=False) + 1e-12) / n)
        return self.penalty * error - estimate
