"""One RecoGym user at a time, with the random numbers of the original in their order, for comparison only.

The original draws everything from one numpy ``RandomState``. Drawing in the same order, oddities included,
reproduces a log bit for bit:

    world         drawn from the seed; the generator is then made again from the same seed
    a user        omega (version 1) or the first product (version 0), then the first organic phase
    a view        one categorical draw, then a tick
    a decision    the uniform policy's action, the click, then a tick; a click makes the user organic
    a tick        one categorical draw of the next state, then K normals if omega drifts
    the end       one more action is drawn and logged with click 0, although the user is gone

Otherwise use `shpi.envs.recogym.simulator.RecoGym`, which has the same distribution and advances thousands of
users together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from shpi.envs.base import whole_number
from shpi.envs.recogym.world import BANDIT, ORGANIC, STOP, ClusterWorld, LatentWorld, chain, click_curve
from shpi.protocols import Float64Array

NOTHING = -1  # no product was viewed, none was recommended, there was no click to draw


class Event(NamedTuple):
    """One row of the original's log."""

    user: int
    time: float
    is_bandit: bool
    view: int
    action: int
    click: int


class _User(Protocol):
    clock: float

    def view(self) -> int: ...
    def click(self, action: int) -> int: ...
    def tick(self, state: int) -> None: ...


class _LatentUser:
    """A user of version 1; the clock advances by 1 with every tick."""

    def __init__(
        self, world: LatentWorld, rng: np.random.RandomState, sigma_initial: float, sigma: float
    ) -> None:
        self.world, self.rng, self.sigma = world, rng, sigma
        self.omega = rng.normal(0.0, sigma_initial, size=world.latent)
        self.clock = 0.0

    def view(self) -> int:
        return int(self.rng.choice(self.world.n_products, p=self.world.organic_probs(self.omega[None])[0]))

    def click(self, action: int) -> int:
        chance = click_curve(self.world.beta[action] @ self.omega + self.world.mu_bandit[action])
        return int(self.rng.choice(2, p=[1.0 - chance, chance]))

    def tick(self, state: int) -> None:
        self.clock += 1.0
        if state == ORGANIC:
            self.omega = self.rng.normal(self.omega, self.sigma)


class _ClusterUser:
    """A user of version 0; the clock stands still."""

    def __init__(self, world: ClusterWorld, rng: np.random.RandomState) -> None:
        self.transition, self.clicks, self.rng = world.product_transition, world.click_probs(), rng
        uniform = np.full(world.n_products, 1.0 / world.n_products)  # choice() with p draws differently
        self.product = int(rng.choice(world.n_products, p=uniform))
        self.clock = 0.0

    def view(self) -> int:
        self.product = int(self.rng.choice(len(self.clicks), p=self.transition[self.product]))
        return self.product

    def click(self, action: int) -> int:
        return int(self.rng.binomial(1, self.clicks[action, self.product]))

    def tick(self, state: int) -> None:
        """Nothing but the state changes."""


def replay(
    world: LatentWorld | ClusterWorld,
    n_users: int,
    seed: int,
    *,
    prob_organic_to_bandit: float = 0.25,
    prob_bandit_to_organic: float = 0.05,
    prob_leave: float = 0.01,
    sigma_omega_initial: float = 1.0,
    sigma_omega: float = 0.1,
) -> Iterator[Event]:
    """The log of ``n_users`` users of the original under its uniform policy, event by event."""
    whole_number("n_users", n_users, least=1)
    rng = np.random.RandomState(seed)
    states = chain(prob_organic_to_bandit, prob_bandit_to_organic, prob_leave, prob_leave)
    for number in range(n_users):
        user: _User
        if isinstance(world, LatentWorld):
            user = _LatentUser(world, rng, sigma_omega_initial, sigma_omega)
        else:
            user = _ClusterUser(world, rng)
        yield from _one_user(user, number, world.n_products, states, rng)


def _one_user(
    user: _User, number: int, n_products: int, states: Float64Array, rng: np.random.RandomState
) -> Iterator[Event]:
    def tick(state: int) -> int:
        state = int(rng.choice(3, p=states[state]))
        user.tick(state)
        return state

    state = ORGANIC
    while True:
        while state == ORGANIC:
            yield Event(number, user.clock, False, user.view(), NOTHING, NOTHING)
            state = tick(state)
        action, time = int(rng.choice(n_products)), user.clock
        if state == STOP:
            yield Event(number, time, True, NOTHING, action, 0)  # the phantom row after the end
            return
        click = user.click(action)
        state = tick(BANDIT)
        if click:
            state = ORGANIC
        yield Event(number, time, True, NOTHING, action, click)
