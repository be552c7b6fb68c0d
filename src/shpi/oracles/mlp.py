"""A neural oracle: a perceptron with one output per action, trained on the taken actions (needs torch).

    f(x, .) = W_3 relu(W_2 relu(W_1 phi(x) + b_1) + b_2) + b_3                [A]
    minimise  sum_i omega_i (f(x_i, a_i) - y_i)^2           by Adam on mini-batches

One output per action costs |A| times less than the action as an input. The fitted network is returned as
plain matrices, so that scoring needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from shpi._torch.networks import import_torch, network_layers, one_thread
from shpi.errors import ConfigError
from shpi.features.base import FeatureMap, Recipe, fit_features
from shpi.features.scale import Standardise
from shpi.oracles.base import (
    Targets,
    WeightKind,
    combined_weights,
    score_blocks,
    standardise_targets,
    unseen_actions,
)
from shpi.policies.scorers import MlpScorer, Scorer
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """A multilayer perceptron with |A| outputs.

    Args:
        hidden: widths of the hidden layers; the paper uses 128 and 128 for its networks.
        features: features of the contexts, standardised by default.
        learning_rate: learning rate of Adam.
        batch: number of rows per gradient step.
        epochs: number of passes over the rows.
        weights: ``none`` for the plain sum of Algorithm 2, ``mtr`` for 1 / (K mu(a|x)).
        max_steps: largest number of gradient steps; None: no limit.
    """

    hidden: tuple[int, ...] = (128, 128)
    features: Recipe | FeatureMap = field(default_factory=Standardise)
    learning_rate: float = 1e-3
    batch: int = 256
    epochs: int = 10
    weights: WeightKind = "none"
    max_steps: int | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("batch", self.batch),
            ("epochs", self.epochs),
            *(("hidden", h) for h in self.hidden),
        ):
            if value < 1:
                raise ConfigError(expected=f"{name} of at least 1", found=str(value), where="Mlp")
        if not self.learning_rate > 0:
            raise ConfigError(expected="a positive learning rate", found=str(self.learning_rate), where="Mlp")

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedMlp:
        """Compute the inputs once, in float32."""
        import_torch()
        features = fit_features(self.features, logs.contexts)
        inputs = features.transform(logs.contexts).astype(np.float32)
        return PreparedMlp(config=self, logs=logs, features=features, inputs=inputs, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedMlp:
    """A perceptron prepared on a log. Every fit starts from the same random matrices."""

    config: Mlp
    logs: LoggedData
    features: FeatureMap
    inputs: Float32Array  # [n, p]
    seed: int

    @property
    def unseen(self) -> Int64Array:
        """The actions that the log never took; their output weights stay 0."""
        return unseen_actions(self.logs)

    def tune(self, targets: ArrayLike, *, valid: BoolArray | None = None) -> PreparedMlp:
        """Return itself: there is nothing to choose."""
        return self

    def fit(
        self, targets: ArrayLike, weights: ArrayLike | None = None, valid: BoolArray | None = None
    ) -> MlpScorer:
        """Train from scratch on standardised targets, and scale the last layer back."""
        omega = combined_weights(self.logs, self.config.weights, weights)
        scaled = standardise_targets(targets, len(self.logs), weights=omega, valid=valid)
        with one_thread() as torch:
            layers = _train(torch, self, scaled)
        matrices = [w.T.astype(np.float64) for w, _ in layers]
        biases = [b.astype(np.float64) for _, b in layers]
        matrices[-1] *= scaled.scale
        biases[-1] = biases[-1] * scaled.scale + scaled.centre
        return MlpScorer(weights=matrices, biases=biases, features=self.features)

    def scores_on_log(self, scorer: Scorer) -> Iterator[tuple[slice, Float64Array]]:
        """Iterate over f(x_i, .) in blocks."""
        widest = max(self.logs.n_actions, *self.config.hidden, self.features.width)
        yield from score_blocks(scorer, self.logs.contexts, widest)


def _train(torch: Any, prepared: PreparedMlp, scaled: Targets) -> list[tuple[Float32Array, Float32Array]]:
    """Fit the taken actions by Adam; return (weights [out, in], bias [out]) of each layer."""
    config, logs = prepared.config, prepared.logs
    random = torch.Generator().manual_seed(prepared.seed)
    network = network_layers(
        torch, [prepared.features.width, *config.hidden, logs.n_actions], random, last_zero=True
    )
    rows = np.arange(len(logs)) if scaled.weights is None else np.flatnonzero(scaled.weights > 0)
    inputs = torch.from_numpy(prepared.inputs[rows])
    actions = torch.from_numpy(logs.actions[rows].astype(np.int64))
    y = torch.from_numpy(scaled.values[rows].astype(np.float32))
    omega = (
        np.ones(len(rows)) if scaled.weights is None else scaled.weights[rows] / scaled.weights[rows].mean()
    )
    importance = torch.from_numpy(omega.astype(np.float32))
    optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)
    steps = 0
    for _ in range(config.epochs):
        for batch in torch.randperm(len(rows), generator=random).split(config.batch):
            if config.max_steps is not None and steps >= config.max_steps:
                break
            taken = network(inputs[batch]).gather(1, actions[batch, None])[:, 0]
            loss = (importance[batch] * (taken - y[batch]) ** 2).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            steps += 1
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    return [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in linear]
