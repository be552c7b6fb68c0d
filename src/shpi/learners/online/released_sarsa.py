r"""The online agent of the authors' release: SARSA with one update per decision, and nothing else.

    y   = r + gamma Q(x', a'),      a' a fresh epsilon-greedy draw at x'; the action then taken is drawn again
    Q  <- Q - Adam (AMSGrad) of (1/A) sum_b (Q(x, b) - y_b)^2,      y_b = Q(x, b) for all b but the taken one

There is no replay, no target network, no scaling of contexts or rewards.
The shipped logging policies were trained with `shpi.learners.online.deep_sarsa.DeepSARSA`; this agent
is for comparisons with the release. It uses numpy, which for batches of one row is several times faster than
torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi._core.progress import progress_bar
from shpi.errors import ConfigError, DataError
from shpi.features.scale import IdentityMap
from shpi.policies import Greedy, MlpScorer
from shpi.protocols import Float32Array, Simulator
from shpi.values.neural.brief import default_weights

_DECAY, _DECAY_SQUARE, _TINY = 0.9, 0.999, 1e-8  # of Adam, torch's defaults
# Moments of silent units fade below 1e-38, where the processor takes some ten times as long for a number.
# Below _FADED they no longer move any weight; in _PAUSE steps they fade by 0.9^100 = 3e-5, none gets there.
_FADED, _PAUSE = 1e-33, 100


@dataclass(frozen=True, kw_only=True)
class OnlineSARSA:
    """Train a Q-network decision by decision and return its greedy policy.

    Args:
        episodes: number of trajectories, one after the other.
        gamma: the discount.
        hidden: the sizes of the hidden layers.
        learning_rate: learning rate of Adam.
        epsilon: the share of random actions while it learns.
        seed: random seed; the users are not those of a simulator that is reset with the same number.
        progress: show a bar; None shows it on a terminal.
    """

    episodes: int = 1000
    gamma: float = 0.99
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 3e-3
    epsilon: float = 0.1
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.episodes < 1 or not self.hidden or min(self.hidden) < 1 or not self.learning_rate > 0:
            raise ConfigError(
                expected="at least one episode and hidden layer, positive sizes and learning rate",
                found=repr(self),
            )
        if not (0 <= self.epsilon <= 1 and 0 <= self.gamma < 1):
            raise ConfigError(
                expected="epsilon in [0, 1] and gamma in [0, 1)", found=f"{self.epsilon}, {self.gamma}"
            )

    def fit(self, simulator: Simulator) -> Greedy:
        """Train in ``simulator`` (which is reset), and return the greedy policy of the network."""
        words, chance = np.random.SeedSequence(self.seed).spawn(2)
        users = int(words.generate_state(1, np.uint64)[0] >> np.uint64(1))
        draws = np.random.default_rng(chance)
        sizes = (len(simulator.context_names), *self.hidden, simulator.n_actions)
        net = OneRowNetwork(sizes, default_weights(sizes, draws), self.learning_rate)
        with progress_bar(f"SARSA on {simulator.name}", self.episodes, self.progress) as advance:
            for number in range(self.episodes):
                self._episode(simulator, net, draws, users, number)
                advance(1)
        if not np.isfinite(net.values).all():
            raise DataError(
                expected="a network that converges",
                found="infinite or undefined weights",
                remedy="lower the learning rate",
            )
        return Greedy(MlpScorer(net.weights, net.biases, IdentityMap(width_in=sizes[0], intercept=False)))

    def _episode(
        self, simulator: Simulator, net: OneRowNetwork, draws: np.random.Generator, users: int, number: int
    ) -> None:
        n_actions = simulator.n_actions

        def choose(q: Float32Array) -> int:
            return int(draws.integers(n_actions) if draws.random() < self.epsilon else q.argmax())

        x = np.asarray(simulator.reset(1, users, first=number)[0], dtype=np.float32)
        for _ in range(simulator.horizon):
            layers = net.activations(x)
            action = choose(layers[-1])
            step = simulator.step(np.array([action]))
            x = np.asarray(step.contexts[0], dtype=np.float32)
            ahead = 0.0
            if not step.ended[0]:
                q = net.activations(x)[-1]
                ahead = self.gamma * float(q[choose(q)])
            error = float(layers[-1][action]) - float(step.rewards[0]) - ahead
            net.update(layers, action, 2.0 * error / n_actions)
            if step.ended[0]:
                return


class OneRowNetwork:
    """A perceptron on one flat vector that learns from single rows by AMSGrad."""

    def __init__(self, sizes: tuple[int, ...], values: Float32Array, learning_rate: float) -> None:
        self.values, self.rate, self.steps = values, learning_rate, 0
        self.slopes, self.mean, self.square, self.largest, self.room = np.zeros((5, len(values)), np.float32)
        self.weights, self.biases = _views(sizes, values)
        self._weight_slopes, self._bias_slopes = _views(sizes, self.slopes)

    def activations(self, x: Float32Array) -> list[Float32Array]:
        """The inputs [in], what each hidden layer makes of them, and the outputs [out]."""
        layers = [x]
        for number, (weights, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weights
            x += bias
            if number < len(self.weights) - 1:
                np.maximum(x, 0.0, out=x)
            layers.append(x)
        return layers

    def update(self, activations: list[Float32Array], output: int, slope: float) -> None:
        """One step on a loss whose derivative is ``slope`` in one output and 0 in the others."""
        above = np.zeros_like(activations[-1])
        above[output] = slope
        for number in range(len(self.weights) - 1, -1, -1):
            below = activations[number]
            np.multiply(below[:, None], above, out=self._weight_slopes[number])
            self._bias_slopes[number][:] = above
            if number:
                above = self.weights[number] @ above
                above *= below > 0
        self._adam()

    def _adam(self) -> None:
        self.steps += 1
        g, room = self.slopes, self.room
        self.mean *= np.float32(_DECAY)
        np.multiply(g, np.float32(1 - _DECAY), out=room)
        self.mean += room
        self.square *= np.float32(_DECAY_SQUARE)
        np.multiply(g, g, out=room)
        room *= np.float32(1 - _DECAY_SQUARE)
        self.square += room
        np.maximum(self.largest, self.square, out=self.largest)
        np.sqrt(self.largest, out=room)
        room *= np.float32(1 / np.sqrt(1 - _DECAY_SQUARE**self.steps))
        room += np.float32(_TINY)
        np.divide(self.mean, room, out=room)
        room *= np.float32(self.rate / (1 - _DECAY**self.steps))
        self.values -= room
        if self.steps % _PAUSE == 0:
            for moments in (self.mean, self.square):
                moments[np.abs(moments) < _FADED] = 0.0


def _views(sizes: tuple[int, ...], vector: Float32Array) -> tuple[list[Float32Array], list[Float32Array]]:
    """W_0 [in, out], W_1, … and b_0 [out], b_1, … as views of a flat vector."""
    weights, biases, start = [], [], 0
    for size_in, size_out in zip(sizes[:-1], sizes[1:], strict=True):
        middle = start + size_in * size_out
        weights.append(vector[start:middle].reshape(size_in, size_out))
        biases.append(vector[middle : middle + size_out])
        start = middle + size_out
    return weights, biases
