r"""The oracle of the authors' release: one online pass of coin betting over scores without interactions.

    f(x, a) = c + u'x + v_a                                in single precision, as Vowpal Wabbit keeps it

The ranking of the actions does not depend on x. But Vowpal Wabbit splits the probability among actions whose
scores differ by less than 1e-4 of their size (`EpsilonGreedy` with ``ties=VW_TIES``). Where |c + u'x| is
large compared with the v_a, these are all actions, so the policy can still depend on x: it is greedy for some
x and uniform for others.

For each weight j, with g = 2 (p - y) omega the slope of the squared loss, p clipped to the range of labels:

    w_j = (4 + W_j) / (L_j M_j (L_j M_j + G_j)) Z_j,       p = sum_j w_j x_j / N
    Z_j -= g x_j,  G_j += |g x_j|,  W_j -= g x_j w_j,  L_j = max(|g|, 1),  M_j = max |x_j|
    N   = the running mean of sum_j (x_j / M_j)^2, weighted by omega

Each fit is one pass over the rows in the order of the log, with omega = 1 / A: ``mtr`` with a logged
probability of 1. The next fit continues from the weights of the previous one, so a prepared oracle of this
kind has state and must not be shared. Invalid targets count as 0, like those of the last row of a window in
the release.

``engine="vw"`` runs Vowpal Wabbit itself (extra ``vw``) with the release's options; ``"own"`` does the same
arithmetic without it, compiled if numba is installed (extra ``fast``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import ConfigError
from shpi.oracles.base import check_valid, combined_weights, score_blocks, standardise_targets, unseen_actions
from shpi.oracles.vw import import_vw
from shpi.policies.scorers import Scorer
from shpi.policies.shared import SharedScorer
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

Engine = Literal["own", "vw"]
OPTIONS = ("--coin", "--cb_type", "mtr", "--cb_explore_adf", "-l", "0.01", "-b", "18", "--quiet")
_W, _Z, _G, _M, _WEALTH, _L = range(6)  # rows of the state; _W holds w_j / N as of before the last update


@dataclass(frozen=True, kw_only=True)
class CoinBetting:
    """Coin betting on f(x, a) = c + u'x + v_a, one pass per fit.

    Args:
        engine: "own", or "vw" for Vowpal Wabbit itself.
        keep: whether to continue from the weights of the previous fit, as the release does.
    """

    engine: Engine = "own"
    keep: bool = True

    def __post_init__(self) -> None:
        if self.engine not in ("own", "vw"):
            raise ConfigError(expected="engine 'own' or 'vw'", found=repr(self.engine), where="CoinBetting")

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedCoin:
        """Keep the log; nothing is random, and rows keep their order."""
        del seed
        return PreparedCoin(config=self, logs=logs)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedCoin:
    """Coin betting on one log, with its present weights."""

    config: CoinBetting
    logs: LoggedData
    _memory: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def unseen(self) -> Int64Array:
        """The actions that the log never took; their v_a is 0."""
        return unseen_actions(self.logs)

    def tune(self, targets: ArrayLike, *, valid: BoolArray | None = None) -> PreparedCoin:
        """Return itself: coin betting has no learning rate to choose."""
        del targets, valid
        return self

    def fit(
        self, targets: ArrayLike, weights: ArrayLike | None = None, valid: BoolArray | None = None
    ) -> SharedScorer:
        """Make one pass over all rows; invalid targets count as 0."""
        logs, mask = self.logs, check_valid(valid, len(self.logs))
        standardise_targets(targets, len(logs), valid=mask)  # refuses targets that are not finite
        given = np.asarray(targets, dtype=np.float64)
        costs = -(given if mask is None else np.where(mask, given, 0.0))
        omega = np.full(len(logs), 1.0 / logs.n_actions)
        own = combined_weights(logs, "none", weights)
        omega = omega if own is None else omega * own
        model = self._memory.get("model") if self.config.keep else None
        if model is None:
            kind = _Wabbit if self.config.engine == "vw" else _Coin
            model = self._memory["model"] = kind(logs.contexts.shape[1], logs.n_actions)
        model.learn(logs.contexts, logs.actions, costs, omega)
        scorer: SharedScorer = model.scorer()
        return scorer

    def scores_on_log(self, scorer: Scorer) -> Iterator[tuple[slice, Float64Array]]:
        """Iterate over f(x_i, .) in blocks."""
        yield from score_blocks(scorer, self.logs.contexts)


# ---------------------------------------------------------------------- without Vowpal Wabbit


class _Coin:
    """The model of ``engine="own"``, with weights in the order c, u_1 .. u_d, v_1 .. v_A."""

    def __init__(self, width: int, n_actions: int) -> None:
        self.width = width
        self.state = np.zeros((6, 1 + width + n_actions), dtype=np.float32)
        self.norms = np.zeros(2)  # sum of omega times squared norms, sum of omega
        self.range = np.zeros(2, dtype=np.float32)  # range of the labels, 0 included

    def learn(
        self, contexts: Float32Array, actions: np.ndarray, costs: Float64Array, omega: Float64Array
    ) -> None:
        _compiled()(
            self.state,
            self.norms,
            self.range,
            np.ascontiguousarray(contexts, dtype=np.float32),
            actions.astype(np.int64),
            costs.astype(np.float32),
            omega.astype(np.float32),
        )

    def scorer(self) -> SharedScorer:
        w = -self.state[_W]
        return SharedScorer(constant=w[:1], slopes=w[1 : 1 + self.width], actions=w[1 + self.width :])


@cache
def _compiled() -> Callable[..., None]:
    """`learn_rows`, compiled if numba is installed. Without fastmath it rounds as numpy does."""
    try:
        from numba import njit
    except ImportError:
        return learn_rows
    compiled: Callable[..., None] = njit(learn_rows)
    return compiled


def learn_rows(
    state: Float32Array,
    norms: Float64Array,
    limits: Float32Array,
    contexts: Float32Array,
    actions: Int64Array,
    labels: Float32Array,
    omega: Float32Array,
) -> None:
    """Update the state in place, row by row, by the equations at the top of this file."""
    n, d = contexts.shape
    two, alpha, beta = np.float32(2.0), np.float32(4.0), np.float32(1.0)
    place, value = np.zeros(d + 2, dtype=np.int64), np.zeros(d + 2, dtype=np.float32)
    for i in range(n):
        label, weight, count = labels[i], omega[i], 2
        place[0], value[0] = 1 + d + actions[i], np.float32(1.0)
        place[1], value[1] = 0, np.float32(1.0)
        for j in range(d):  # Vowpal Wabbit ignores features of value 0
            if contexts[i, j] != 0:
                place[count], value[count] = 1 + j, contexts[i, j]
                count += 1
        total, norm = np.float32(0.0), np.float32(0.0)
        for m in range(count):
            p, x = place[m], value[m]
            largest = max(state[3, p], abs(x))
            reach = state[5, p] * largest
            if reach > 0:
                total += (alpha + state[4, p]) / (reach * (reach + state[2, p])) * state[1, p] * x
            if largest > 0:
                norm += x * x / (largest * largest)
        norms[0] += weight * np.float64(norm)
        norms[1] += np.float64(weight)
        average = np.float32((norms[0] + 1e-6) / norms[1])
        limits[0], limits[1] = min(limits[0], label), max(limits[1], label)
        slope = two * (min(max(total / average, limits[0]), limits[1]) - label) * weight
        for m in range(count):
            p, x = place[m], value[m]
            gradient = slope * x
            state[3, p] = max(state[3, p], abs(x))
            if abs(slope) > state[5, p]:
                state[5, p] = max(abs(slope), beta)
            reach, w = state[5, p] * state[3, p], np.float32(0.0)
            if reach > 0:
                w = (alpha + state[4, p]) / (reach * (reach + state[2, p])) * state[1, p]
            state[1, p] -= gradient
            state[2, p] += abs(gradient)
            state[4, p] -= gradient * w
            state[0, p] = w / average


# ---------------------------------------------------------------------- with Vowpal Wabbit


class _Wabbit:
    """Vowpal Wabbit with the options and the text format of the release."""

    def __init__(self, width: int, n_actions: int) -> None:
        self.width, self.n_actions = width, n_actions
        self.model: Any = import_vw().Workspace(arg_list=list(OPTIONS))

    def learn(
        self, contexts: Float32Array, actions: np.ndarray, costs: Float64Array, omega: Float64Array
    ) -> None:
        for x, action, cost, weight in zip(contexts, actions, costs, omega, strict=True):
            probability = float(1.0 / (self.n_actions * weight))
            self.model.learn(self._event(x, int(action), f"0:{float(cost)!r}:{probability!r} "))

    def scorer(self) -> SharedScorer:
        """The scorer with the weights of the model, which are stored by hash."""
        names = [f"{j}" for j in range(self.width)]
        shared = self.model.hash_space("x")
        own = self.model.hash_space("a")
        weight = self.model.get_weight
        slopes = [weight(self.model.hash_feature(name, shared), 0) for name in names]
        actions = [weight(self.model.hash_feature(f"{i + 1}", own), 0) for i in range(self.n_actions)]
        constant = weight(11650396, 0)  # index of VW's constant feature
        return SharedScorer(
            constant=-np.array([constant]), slopes=-np.array(slopes), actions=-np.array(actions)
        )

    def pmf(self, context: Float32Array) -> list[float]:
        """Vowpal Wabbit's own probabilities [A] at a context."""
        probs: list[float] = self.model.predict(self._event(context, -1, ""))
        return probs

    def _event(self, x: Float32Array, taken: int, label: str) -> list[str]:
        shared = "shared |x " + " ".join(f"{j}:{float(value)!r}" for j, value in enumerate(x))
        return [shared, *((label if i == taken else "") + f"|a {i + 1}" for i in range(self.n_actions))]
