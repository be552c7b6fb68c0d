"""RecoGym as the authors' release wraps it; `recogym.simulator` has the paper's reward.

    context    the views of each product in the organic phase after the recommendation; 0 without one
    m_t[k]     = max over all products recommended so far, clicked or not, of Gamma[., k]   (print: clicked)
    Y_t        = <omega_{t+1}, m_t> from the first click on, 0 before

Y may fall and may be negative. Users leave as in the original, with the same probability in both states. A
user who leaves before the first recommendation still gets one, and stays after a click. The score is the mean
of Y over the steps taken.

`ReleasedRecoGym` has this distribution for many users at once; `replay` draws one user after the other from
the original's generator, and equals it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from shpi.envs.base import whole_number
from shpi.envs.recogym.ltr import row_dots
from shpi.envs.recogym.replay import _LatentUser
from shpi.envs.recogym.simulator import RecoGym, _Batch
from shpi.envs.recogym.users import LatentUsers
from shpi.envs.recogym.world import ORGANIC, STOP, LatentWorld, chain
from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array, IntArray, Step

PROBABILITIES = (0.25, 0.05, 0.01)  # organic to bandit, bandit to organic, leave: the original's defaults
SIGMA_INITIAL, SIGMA = 1.0, 0.1  # standard deviations of the interests and of their drift


class RecommendedReward:
    """Y of n users: from the maximum over all recommended products, once one was clicked."""

    def __init__(self, embedding: Float64Array, n: int) -> None:
        self._embedding = embedding  # [P, K]
        self._best: Float64Array = np.full((n, embedding.shape[1]), -np.inf)
        self._clicked: BoolArray = np.zeros(n, dtype=bool)
        self.value: Float64Array = np.zeros(n)  # [n]

    def after(self, rows: Int64Array, actions: Int64Array, clicks: BoolArray, omega: Float64Array) -> None:
        """Update the users ``rows`` [m] after a step: recommended, clicked, and the new interests [m, K]."""
        self._best[rows] = np.maximum(self._best[rows], self._embedding[actions])
        self._clicked[rows] |= clicks
        self.value[rows] = np.where(self._clicked[rows], row_dots(omega, self._best[rows]), 0.0)


@dataclass(kw_only=True, eq=False)
class ReleasedRecoGym(RecoGym):
    """A batch simulator with the contexts, the reward and the leaving of the release.

    Args are those of `RecoGym`; ``leaving`` and ``as_original`` are always True, the version is 1.
    """

    leaving: bool = True
    as_original: bool = True

    def __post_init__(self) -> None:
        if self.version != 1 or not self.leaving or not self.as_original:
            raise ConfigError(
                expected="version 1 with leaving and as_original",
                found=f"version={self.version}, leaving={self.leaving}, as_original={self.as_original}",
                where="ReleasedRecoGym",
            )
        super().__post_init__()
        self._long_term: RecommendedReward | None = None
        self._sum: Float64Array = np.zeros(0)
        self._lost: BoolArray = np.zeros(0, dtype=bool)  # whether a user left before the first recommendation

    @property
    def name(self) -> str:
        """Not registered."""
        return "recogym-released"

    def reset(self, n: int, seed: int, *, first: int = 0) -> Float32Array:
        """Start users first .. first+n-1 and return the views [n, P] of their first organic phase."""
        assert isinstance(self.world, LatentWorld)
        self._lost = np.zeros(n, dtype=bool)
        self._long_term, self._sum = RecommendedReward(self.world.gamma, n), np.zeros(n)
        return super().reset(n, seed, first=first)

    def step(self, actions: IntArray) -> Step:
        """Recommend one product to every user. Actions of users that have ended are ignored."""
        batch = self._running()
        rows, before = batch.rows, batch.users.counts.copy()
        step = super().step(actions)
        assert self._long_term is not None
        clicks = step.info["click"][rows] > 0
        chosen = np.asarray(actions, dtype=np.int64)[rows]
        self._long_term.after(rows, chosen, clicks, _omega(batch)[rows])
        long_term = np.zeros(len(before))
        long_term[rows] = self._long_term.value[rows]
        self._sum += long_term
        info = {**step.info, "ltr": long_term}
        info.pop("phantom", None)
        return Step(step.contexts - before, info[self.reward].copy(), step.ended, info)

    def score(self) -> Float64Array:
        """The mean of Y_t over the decisions made for each user so far, [n]."""
        mean: Float64Array = self._sum / np.maximum(self.decisions, 1)
        return mean

    def _tick(self, batch: _Batch, clicked: Int64Array) -> tuple[Int64Array, Int64Array]:
        """As in `RecoGym`; a user who has left before the first recommendation returns only by a click."""
        lost = np.flatnonzero(self._lost[batch.rows])
        if not len(lost):
            return super()._tick(batch, clicked)
        omega = _omega(batch)[batch.rows[lost]].copy()
        organic, stopped = super()._tick(batch, clicked)
        _omega(batch)[batch.rows[lost]] = omega  # they remain in "stop": no drift
        self._lost[:] = False
        gone = np.setdiff1d(lost, clicked)
        return np.setdiff1d(organic, gone), np.union1d(stopped, gone)

    def _leave(self, batch: _Batch, gone: Int64Array) -> None:
        """End the users who leave; before the first recommendation they are only marked as lost."""
        if batch.time == 0:
            self._lost[gone] = True
            return
        super()._leave(batch, gone)
        batch.ended[gone] = True


def _omega(batch: _Batch) -> Float64Array:
    """The interests [n, K]."""
    assert isinstance(batch.users, LatentUsers)
    return batch.users.omega


# ---------------------------------------------------------------------- the original's own random numbers


class ServedUser(NamedTuple):
    """One user of the release's wrapper, step by step."""

    context0: Int64Array  # [P]
    omega0: Float64Array  # [K] after the first organic phase
    left: bool  # whether the user left before the first recommendation
    clicks: Int64Array  # [T]
    rewards: Float64Array  # [T] Y
    done: BoolArray  # [T]
    omega: Float64Array  # [T, K] after each step
    contexts: Int64Array  # [T, P] after each step


def replay(
    world: LatentWorld, seed: int, n_users: int, action: Callable[[int, int], int], *, horizon: int = 200
) -> Iterator[ServedUser]:
    """Users of the wrapper in its own order; ``action(user, step)`` returns the recommendation.

    The wrapper's constructor consumes one user before the first.
    """
    whole_number("n_users", n_users, least=1)
    random = np.random.RandomState(seed)
    to_bandit, to_organic, leave = PROBABILITIES
    states = chain(to_bandit, to_organic, leave, leave)
    for number in range(-1, n_users):
        served = _serve(world, random, states, partial(action, number), 0 if number < 0 else horizon)
        if number >= 0:
            yield served


def _serve(
    world: LatentWorld,
    random: np.random.RandomState,
    states: Float64Array,
    action: Callable[[int], int],
    horizon: int,
) -> ServedUser:
    user = _LatentUser(world, random, SIGMA_INITIAL, SIGMA)

    def tick(state: int) -> int:
        following = int(random.choice(3, p=states[state]))
        user.tick(following)
        return following

    def browse() -> tuple[Int64Array, int]:
        views, state = np.zeros(world.n_products, dtype=np.int64), ORGANIC
        while state == ORGANIC:
            views[user.view()] += 1
            state = tick(state)
        return views, state

    context0, state = browse()
    omega0 = user.omega.copy()
    left, ltr = state == STOP, RecommendedReward(world.gamma, 1)
    clicks, rewards, done, omega, contexts = [], [], [], [], []
    for t in range(horizon):
        chosen = action(t)
        clicks.append(user.click(chosen))
        state = tick(state)
        views = np.zeros(world.n_products, dtype=np.int64)
        if clicks[-1] or state == ORGANIC:
            views, state = browse()
        ltr.after(np.array([0]), np.array([chosen]), np.array([clicks[-1] == 1]), user.omega[None])
        rewards.append(ltr.value[0])
        done.append(state == STOP)
        omega.append(user.omega.copy())
        contexts.append(views)
        if done[-1]:
            break
    return ServedUser(
        context0, omega0, left, np.array(clicks), np.array(rewards), np.array(done), np.array(omega),
        np.array(contexts),
    )  # fmt: skip
