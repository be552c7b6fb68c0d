r"""V as the authors' release trains it: a few gradient steps of temporal differences.

    V <- V - Adam of mean (r + gamma (1 - done) V(x') - V(x))^2, the target held fixed

One call permutes all rows and takes the first floor(N / 64) batches of 64, N being the number of *windows*;
there are five calls. The settings of the release's README give N = 70, so five steps in all, after which V is
still close to its random start. ``done`` holds at the last row of a window. Contexts and rewards are used in
their own units. The model is meant for logs made by `shpi.data._log.release.ReleasedRows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shpi._torch.networks import one_thread
from shpi._torch.perceptron import Perceptron
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.features.scale import IdentityMap
from shpi.protocols import BoolArray, Float32Array, Int64Array
from shpi.values.base import checked_gamma
from shpi.values.lstd import LinearValue
from shpi.values.neural.descent import network_value, write_td_gradient
from shpi.values.transitions import rewards_of


@dataclass(frozen=True, kw_only=True)
class BriefTD:
    """Temporal differences for ``calls`` times floor(N / ``batch``) steps; see the module docstring."""

    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 3e-3
    calls: int = 5
    batch: int = 64

    def __post_init__(self) -> None:
        if not self.hidden or min(*self.hidden, self.calls, self.batch) < 1 or not self.learning_rate > 0:
            raise ConfigError(
                expected="at least one hidden layer, and positive sizes, calls, batch and learning rate",
                found=repr(self),
            )

    def steps(self, logs: LoggedData) -> int:
        """The number of gradient steps on this log."""
        return self.calls * (logs.n_trajectories // self.batch)

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> LinearValue:
        """Train on the rows of a log whose trajectories are windows."""
        checked_gamma(gamma)
        if logs.n_trajectories < self.batch:
            raise DataError(
                expected=f"at least {self.batch} windows, so that there is one gradient step",
                found=str(logs.n_trajectories),
                remedy="use more trajectories, or a smaller batch",
            )
        draws = np.random.default_rng(seed)
        order = np.random.RandomState(int(draws.integers(2**32)))
        rewards = rewards_of(logs).astype(np.float32)
        sizes = (logs.contexts.shape[1], *self.hidden, 1)
        with one_thread() as torch, torch.no_grad():
            values = torch.from_numpy(default_weights(sizes, draws))
            values.grad = torch.zeros_like(values)
            net = Perceptron(torch, sizes, values, values.grad)
            adam = torch.optim.Adam([values], lr=self.learning_rate)
            for _ in range(self.calls):
                for rows, following, done in minibatches(logs.offsets, self.batch, order):
                    both = logs.contexts.take(np.concatenate([rows, following]), axis=0)
                    discounts = np.where(done, np.float32(0.0), np.float32(gamma))
                    parts = (torch.from_numpy(array) for array in (both, rewards[rows], discounts))
                    write_td_gradient(net, net, *parts)
                    adam.step()
        return network_value(net, IdentityMap(width_in=sizes[0], intercept=False), 1.0)


def minibatches(
    offsets: Int64Array, batch: int, order: np.random.RandomState
) -> Iterator[tuple[Int64Array, Int64Array, BoolArray]]:
    """Rows, the rows after them (the same at the end of a window) and whether they end one, [batch] each.

    There are floor(N / batch) of them, from one permutation of all rows.
    """
    shuffled = order.permutation(int(offsets[-1]))
    last = np.zeros(int(offsets[-1]), dtype=bool)
    last[offsets[1:] - 1] = True
    for number in range((len(offsets) - 1) // batch):
        rows = shuffled[number * batch : (number + 1) * batch]
        done = last[rows]
        yield rows, np.where(done, rows, rows + 1), done


def default_weights(sizes: tuple[int, ...], draws: np.random.Generator) -> Float32Array:
    """Weights and biases uniform in ±1 / sqrt(inputs), torch's default, as one vector."""
    parts = []
    for size_in, size_out in zip(sizes[:-1], sizes[1:], strict=True):
        bound = 1.0 / np.sqrt(size_in)
        parts.append(draws.uniform(-bound, bound, size=(size_in + 1) * size_out))
    return np.concatenate(parts).astype(np.float32)
