r"""Values by stochastic gradient descent: the paper's Bellman residual, and temporal differences.

    BellmanResidual   min_V sum (r + gamma V(x') - V(x))^2                    Eq. 3 of the paper
    FittedTD          min_V sum (r + gamma V_old(x') - V(x))^2, V_old <- V every few steps

The first is what the paper prints. It is biased: one sample of x' makes the objective
E (T V - V)^2 + gamma^2 E Var(V(x')|x), so the minimiser is flatter than V^mu, and what is lost is the very
signal that advantages need (docs/theory.md has the numbers). The second has no such term. Both start with the
output at the level mean(r) / (1 - gamma), and work in units of the rewards' spread, so that neither the level
nor the scale of the rewards has to be learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shpi._torch.adam import Adam
from shpi._torch.networks import network_layers, one_thread
from shpi._torch.perceptron import Perceptron
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.features import FeatureMap, Standardise
from shpi.protocols import Int64Array
from shpi.values._lstd.choose import map_sample
from shpi.values.base import checked_gamma
from shpi.values.lstd import LSTD, LinearValue
from shpi.values.neural.network import NetworkMap
from shpi.values.transitions import goes_on, next_states, rewards_of, states, usable_transitions


@dataclass(frozen=True, kw_only=True)
class BellmanResidual:
    """The paper's estimate: Bellman residual minimisation by SGD. Biased; see the module docstring."""

    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    steps: int = 5_000
    batch: int = 256

    def __post_init__(self) -> None:
        _check(self.hidden, self.learning_rate, self.steps, self.batch)

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> LinearValue:
        """Train, with the gradient through both V(x) and V(x')."""
        return _train(self, logs, gamma=gamma, seed=seed, refresh=0)


@dataclass(frozen=True, kw_only=True)
class FittedTD:
    """Temporal differences with a target network.

    Args:
        hidden: the sizes of the hidden layers.
        learning_rate: learning rate of Adam.
        steps: gradient steps.
        batch: transitions per step.
        refresh: steps between two copies into the target network. Slow targets (200) were measured to be
            far from converged after 5,000 steps at gamma 0.99; 1 is semi-gradient TD.
        refit: solve for the last layer in closed form at the end (LSTD on the last hidden layer).
    """

    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    steps: int = 5_000
    batch: int = 256
    refresh: int = 20
    refit: bool = True

    def __post_init__(self) -> None:
        _check(self.hidden, self.learning_rate, self.steps, self.batch)
        if self.refresh < 1:
            raise ConfigError(expected="refresh of at least 1", found=str(self.refresh))

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> LinearValue:
        """Train against the target network, then refit the last layer."""
        value = _train(self, logs, gamma=gamma, seed=seed, refresh=self.refresh)
        return LSTD(features=value.features).fit(logs, gamma=gamma, seed=seed) if self.refit else value


def _train(
    model: BellmanResidual | FittedTD, logs: LoggedData, *, gamma: float, seed: int, refresh: int
) -> LinearValue:
    """Gradient steps on random transitions; ``refresh`` = 0 is the Bellman residual."""
    checked_gamma(gamma)
    rows = np.flatnonzero(usable_transitions(logs))
    if not len(rows):
        raise DataError(expected="at least one decision whose next context is known", found="none")
    draws = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    inputs = Standardise().fit(map_sample(logs.contexts, draws))
    rewards, alive = rewards_of(logs)[rows], goes_on(logs)[rows]
    unit = (float(rewards.std()) or 1.0) / np.sqrt(
        1 - gamma**2
    )  # the spread of a return of independent rewards
    level = float(rewards.mean()) / (1 - gamma * float(alive.mean())) / unit
    with one_thread() as torch, torch.no_grad():
        values, net = _network(torch, (inputs.width, *model.hidden, 1), level, seed)
        target = net.copy()
        adam = Adam(torch, values, model.learning_rate)
        sample = _sampler(torch, logs, inputs, rows, unit, gamma, model.batch, draws)
        for step in range(model.steps):
            if refresh == 0:
                write_residual_gradient(torch, net, *sample())
            else:
                if step % refresh == 0:
                    target.values.copy_(net.values)
                write_td_gradient(net, target, *sample())
            adam.step()
    return network_value(net, inputs, unit)


def write_residual_gradient(torch: Any, net: Perceptron, both: Any, rewards: Any, discounts: Any) -> None:
    """The gradient of mean (r + gamma V(x') - V(x))^2, for the contexts x [b, p] above the x' [b, p]."""
    layers = net.activations(both)
    here, ahead = layers[-1].view(2, -1)
    slope = (rewards + discounts * ahead - here).mul_(-2.0 / len(rewards))  # in V(x)
    net.backward(layers, torch.cat([slope, -discounts * slope])[:, None])


def write_td_gradient(net: Perceptron, target: Perceptron, both: Any, rewards: Any, discounts: Any) -> None:
    """The gradient of mean (r + gamma V_old(x') - V(x))^2, for the same inputs."""
    x, following = both.view(2, len(rewards), -1)
    layers = net.activations(x)
    error = rewards + discounts * target(following)[:, 0] - layers[-1][:, 0]
    net.backward(layers, error.mul_(-2.0 / len(rewards))[:, None])


def _sampler(
    torch: Any,
    logs: LoggedData,
    inputs: FeatureMap,
    rows: Int64Array,
    unit: float,
    gamma: float,
    batch: int,
    draws: np.random.Generator,
) -> Callable[[], tuple[Any, Any, Any]]:
    """Random transitions as tensors: x above x', r in units, and gamma (0 after a termination)."""
    contexts, following = states(logs, inputs), next_states(logs)
    rewards = (rewards_of(logs) / unit).astype(np.float32)
    discounts = np.where(goes_on(logs), np.float32(gamma), np.float32(0.0))

    def sample() -> tuple[Any, Any, Any]:
        chosen = rows[draws.integers(len(rows), size=min(batch, len(rows)))]
        both = contexts.take(np.concatenate([chosen, following[chosen]]), axis=0)
        return tuple(torch.from_numpy(array) for array in (both, rewards[chosen], discounts[chosen]))

    return sample


def _network(torch: Any, sizes: tuple[int, ...], level: float, seed: int) -> tuple[Any, Perceptron]:
    """Parameters, and a network on them that is the constant ``level`` before it is trained."""
    random = torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
    parts = list(network_layers(torch, sizes, random, last_zero=True).parameters())
    values = torch.cat([layer.t().reshape(-1) if layer.dim() > 1 else layer for layer in parts])
    values[-1] = level
    values.grad = torch.zeros_like(values)
    return values, Perceptron(torch, sizes, values, values.grad)


def network_value(net: Perceptron, inputs: FeatureMap, unit: float) -> LinearValue:
    """The trained network as a linear value of its last hidden layer, in the rewards' own unit."""
    weights, biases = ([array.astype(np.float64) for array in arrays] for arrays in net.export())
    if not all(np.isfinite(array).all() for array in (*weights, *biases)):
        raise DataError(
            expected="a network that converges",
            found="infinite or undefined weights",
            remedy="lower the learning rate, or use LSTD",
        )
    features = NetworkMap(inputs=inputs, weights=tuple(weights[:-1]), biases=tuple(biases[:-1]))
    return LinearValue(features=features, theta=unit * np.append(biases[-1], weights[-1][:, 0]))


def _check(hidden: tuple[int, ...], learning_rate: float, steps: int, batch: int) -> None:
    if not hidden or min(hidden) < 1 or steps < 1 or batch < 1 or not learning_rate > 0:
        raise ConfigError(
            expected="at least one hidden layer, and positive sizes, steps, batch and learning rate",
            found=f"hidden={hidden}, steps={steps}, batch={batch}, learning_rate={learning_rate}",
        )
