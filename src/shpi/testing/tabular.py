"""Small finite worlds with exact values, ratios and advantages, as the truth for tests of estimators.

mdp = random_mdp(8, 3, seed=0, gamma=0.9)
mu, pi = mdp.random_policy(seed=1), mdp.random_policy(seed=2)     # tables [S, A]
mdp.value(mu), mdp.q(mu), mdp.k_step_advantage(pi, mu, k=5), mdp.ratio(pi, mu)
logs = mdp.log(mu, 1_000, horizon=20, seed=3)                     # ragged, with every kind of ending

A policy is a table [S, A] here; `TabularMDP.policy` turns it into an object that acts on contexts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.policies import TabularPolicy, mask_probs, sample_actions
from shpi.protocols import BoolArray, Float32Array, Float64Array, FloatArray, Int64Array, Policy

Encoding = Literal["one-hot", "index"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TabularMDP:
    """A finite MDP with S states and A actions. Terminal states are absorbing and have no reward."""

    transition: Float64Array  # [S, A, S]
    reward: Float64Array  # [S, A] expected reward
    gamma: float
    initial: Float64Array  # [S] p_0
    terminal: BoolArray  # [S]
    allowed: BoolArray | None = None  # [S, A] action masks
    noise: float = 0.0  # standard deviation of Gaussian noise around the expected reward
    encoding: Encoding = "one-hot"  # contexts are one-hot vectors [S], or the number of the state

    def __post_init__(self) -> None:
        s, a = self.reward.shape
        if self.transition.shape != (s, a, s) or self.initial.shape != (s,) or self.terminal.shape != (s,):
            raise ConfigError(
                expected=f"transition {(s, a, s)}, initial and terminal {(s,)}",
                found=f"{self.transition.shape}, {self.initial.shape}, {self.terminal.shape}",
            )
        if not np.allclose(self.transition.sum(axis=2), 1) or not np.isclose(self.initial.sum(), 1):
            raise ConfigError(expected="distributions over the next state", found="sums other than 1")
        if self.initial[self.terminal].any():
            raise ConfigError(expected="nobody to start in a terminal state", found="initial mass there")

    @property
    def n_states(self) -> int:
        """The number of states S, terminal ones included."""
        return int(self.reward.shape[0])

    @property
    def n_actions(self) -> int:
        """The number of actions A."""
        return int(self.reward.shape[1])

    # ------------------------------------------------------------------ policies and contexts

    def random_policy(self, seed: int, *, concentration: float = 1.0) -> Float64Array:
        """A table [S, A] with Dirichlet rows; a small concentration gives nearly greedy rows."""
        rng = np.random.default_rng(seed)
        table = rng.dirichlet(np.full(self.n_actions, concentration), size=self.n_states) + 1e-9
        return mask_probs(table / table.sum(axis=1, keepdims=True), self.allowed)

    def policy(self, table: Float64Array) -> Policy:
        """The table as a policy on the contexts of this world."""
        return TabularPolicy(table) if self.encoding == "index" else OneHotPolicy(table)

    def contexts(self, states: Int64Array) -> Float32Array:
        """The contexts [n, d] of states [n]."""
        if self.encoding == "index":
            return states[:, None].astype(np.float32)
        return np.eye(self.n_states, dtype=np.float32)[states]

    # ------------------------------------------------------------------ without a horizon (discounted)

    def value(self, pi: Float64Array) -> Float64Array:
        """V^pi = (I - gamma P_pi)^-1 r_pi [S]; 0 in terminal states."""
        rewards, steps = self._under(pi)
        return np.linalg.solve(np.eye(self.n_states) - self.gamma * steps, rewards).astype(np.float64)

    def q(self, pi: Float64Array) -> Float64Array:
        """Q^pi = r + gamma P V^pi [S, A]."""
        return self._backup(self.value(pi))

    def k_step_advantage(
        self, pi: Float64Array, mu: Float64Array, k: int, *, bonus: Float64Array | None = None
    ) -> Float64Array:
        """A^pi_(k) of Eq. 2 [S, A]: take a, follow pi for k-1 steps, then receive the bonus V^mu.

        Args:
            pi: policy to follow.
            mu: policy whose value is the bonus and the baseline.
            k: number of steps before the bonus.
            bonus: another V [S] instead of V^mu, both as bonus and as baseline.
        """
        base = self.value(mu) if bonus is None else bonus
        ahead = base
        for _ in range(k - 1):
            ahead = np.sum(pi * self._backup(ahead), axis=1) * ~self.terminal
        return self._backup(ahead) - base[:, None]

    def occupancy(self, pi: Float64Array, *, horizon: int | None = None) -> Float64Array:
        """The state distribution of pi's decisions [S]; sums to 1 over non-terminal states.

        Without a horizon it is discounted, d = (1-gamma) sum_t gamma^t P_t. With one it is the average of the
        paper, d = (1/T) sum_{t<T} P_t.
        """
        _, steps = self._under(pi)
        if horizon is None:
            mass = np.linalg.solve(np.eye(self.n_states) - self.gamma * steps.T, self.initial)
        else:
            mass = self.state_probs(pi, horizon).sum(axis=0)
        live: Float64Array = np.where(self.terminal, 0.0, mass)
        shares: Float64Array = live / live.sum()
        return shares

    def ratio(self, pi: Float64Array, mu: Float64Array, *, horizon: int | None = None) -> Float64Array:
        """d_pi / d_mu [S]; NaN where both are 0, infinite where only d_mu is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: Float64Array = self.occupancy(pi, horizon=horizon) / self.occupancy(mu, horizon=horizon)
        return ratio

    def optimal(self) -> tuple[Float64Array, Float64Array]:
        """V* [S] and a greedy optimal policy [S, A], by policy iteration."""
        pi = mask_probs(np.full(self.reward.shape, 1.0 / self.n_actions), self.allowed)
        while True:
            scores = self.q(pi)
            if self.allowed is not None:
                scores = np.where(self.allowed, scores, -np.inf)
            current = np.sum(np.where(pi > 0, scores, 0.0) * pi, axis=1)
            better = scores.max(axis=1) > current + 1e-10 * (1 + np.abs(current))
            if not better.any():
                return self.value(pi), pi
            greedy = np.eye(self.n_actions)[scores.argmax(axis=1)]
            pi = np.where(better[:, None], greedy, pi)

    # ------------------------------------------------------------------ with a horizon (decisions 0 .. T-1)

    def state_probs(self, pi: Float64Array, horizon: int) -> Float64Array:
        """P_t(x) under pi for t = 0 .. T-1 [T, S]."""
        _, steps = self._under(pi)
        probs = [self.initial]
        for _ in range(horizon - 1):
            probs.append(probs[-1] @ steps)
        return np.array(probs)

    def values_by_time(self, pi: Float64Array, horizon: int) -> Float64Array:
        """V^pi_t [T + 1, S]: the discounted rewards of decisions t .. T-1; V_T = 0."""
        values = np.zeros((horizon + 1, self.n_states))
        for t in range(horizon - 1, -1, -1):
            values[t] = np.sum(pi * self._backup(values[t + 1]), axis=1) * ~self.terminal
        return values

    def k_step_advantage_by_time(
        self, pi: Float64Array, mu: Float64Array, k: int, horizon: int
    ) -> Float64Array:
        """A^pi_(k),t of Eq. 2 [T, S, A]; windows stop at the horizon, where the bonus is V_T = 0."""
        base = self.values_by_time(mu, horizon)
        advantages = np.empty((horizon, *self.reward.shape))
        for t in range(horizon):
            end = min(t + k, horizon)
            ahead = base[end]
            for _ in range(t + 1, end):
                ahead = np.sum(pi * self._backup(ahead), axis=1) * ~self.terminal
            advantages[t] = self._backup(ahead) - base[t][:, None]
        return advantages

    # ------------------------------------------------------------------ logs

    def log(
        self,
        mu: Float64Array,
        n: int,
        horizon: int,
        seed: int,
        *,
        ragged: bool = True,
        session_end: float = 0.3,
    ) -> LoggedData:
        """Simulate a log of n trajectories under mu, with exact propensities and behaviour.

        Args:
            mu: logging policy [S, A].
            n: number of trajectories, one per user.
            horizon: largest number of decisions per user.
            seed: random seed of the log.
            ragged: whether to cut each trajectory at a random length, and to hide half of the final contexts
                of truncated ones; otherwise all have ``horizon`` decisions unless they terminate.
            session_end: probability that a session ends after a decision.
        """
        rng = np.random.default_rng(seed)
        limit = rng.integers(1, horizon + 1, size=n) if ragged else np.full(n, horizon)
        states = np.empty((n, horizon + 1), dtype=np.int64)
        actions = np.zeros((n, horizon), dtype=np.int64)
        states[:, 0] = sample_actions(np.tile(self.initial, (n, 1)), rng.random(n))
        for t in range(horizon):
            actions[:, t] = sample_actions(mu[states[:, t]], rng.random(n))
            states[:, t + 1] = sample_actions(self.transition[states[:, t], actions[:, t]], rng.random(n))
        gone = self.terminal[states[:, 1:]]  # [n, T] whether the user is gone after decision t
        left = np.where(gone.any(axis=1), gone.argmax(axis=1) + 1, horizon + 1)
        counts = np.minimum(limit, left)
        taken = np.arange(horizon) < counts[:, None]  # [n, T]
        x, a = states[:, :-1][taken], actions[taken]
        starts = taken & (rng.random((n, horizon)) < session_end)
        starts[:, 0] = True
        observed = rng.random(n) < 0.5 if ragged else np.ones(n, dtype=bool)
        terminated = left <= limit
        rewards = self.reward[x, a] + self.noise * rng.standard_normal(len(x))
        final = states[np.arange(n), counts]
        hidden = ~(observed | terminated)
        shown = np.where(hidden, states[np.arange(n), counts - 1], final)
        return LoggedData.from_arrays(
            contexts=self.contexts(x),
            actions=a,
            rewards=rewards,
            offsets=np.append(0, np.cumsum(counts)),
            session_offsets=np.append(np.flatnonzero(starts[taken]), len(x)),
            propensities=mu[x, a],
            behaviour=mu[x],
            n_actions=self.n_actions,
            terminated=terminated,
            final_contexts=self.contexts(shown),
            final_observed=~hidden,
            candidates=None if self.allowed is None else self.allowed[x],
            final_candidates=None if self.allowed is None else self.allowed[shown],
        )

    def states_of(self, contexts: FloatArray) -> Int64Array:
        """The inverse of ``contexts``: the state numbers [n]."""
        column = contexts[:, 0] if self.encoding == "index" else contexts.argmax(axis=1)
        return np.asarray(column, dtype=np.int64)

    # ------------------------------------------------------------------ one step

    def _under(self, pi: Float64Array) -> tuple[Float64Array, Float64Array]:
        """r_pi [S] and P_pi [S, S], both 0 in terminal states."""
        live = ~self.terminal
        rewards: Float64Array = np.sum(pi * self.reward, axis=1) * live
        steps: Float64Array = np.einsum("sa,sat->st", pi, self.transition) * live[:, None]
        return rewards, steps

    def _backup(self, ahead: Float64Array) -> Float64Array:
        """The backup r + gamma P V [S, A], where V [S] counts as 0 in terminal states."""
        backed: Float64Array = self.reward + self.gamma * self.transition @ (ahead * ~self.terminal)
        return backed * ~self.terminal[:, None]


@dataclass(frozen=True, eq=False)
class OneHotPolicy:
    """pi(a|x) = sum_s x_s table[s, a], for one-hot contexts."""

    table: Float64Array  # [S, A]

    @property
    def n_actions(self) -> int:
        """The number of actions A."""
        return int(self.table.shape[1])

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The row of each context's state [n, A]."""
        return mask_probs(np.asarray(contexts, dtype=np.float64) @ self.table, candidates)


def random_mdp(
    n_states: int,
    n_actions: int,
    seed: int,
    *,
    gamma: float = 0.9,
    branching: int = 3,
    n_terminal: int = 0,
    masked: bool = False,
    noise: float = 0.0,
    state_rewards: bool = False,
    encoding: Encoding = "one-hot",
) -> TabularMDP:
    """A Garnet MDP: each (state, action) leads to a few random states with random probabilities.

    Args:
        n_states: number of states S, of which the last ``n_terminal`` are terminal.
        n_actions: number of actions A.
        seed: random seed of the world.
        gamma: discount factor.
        branching: number of states that an action can lead to.
        n_terminal: number of terminal states.
        masked: whether to forbid about a third of the actions in each state.
        noise: standard deviation of the rewards around their mean.
        state_rewards: whether rewards depend on the state alone.
        encoding: encoding of the contexts, as in `TabularMDP`.
    """
    rng = np.random.default_rng(seed)
    targets = rng.random((n_states, n_actions, n_states)).argsort(axis=2)[:, :, :branching]
    transition = np.zeros((n_states, n_actions, n_states))
    weights = rng.dirichlet(np.ones(min(branching, n_states)), size=(n_states, n_actions))
    np.put_along_axis(transition, targets, weights, axis=2)
    reward = rng.normal(size=(n_states, 1 if state_rewards else n_actions)) + np.zeros((1, n_actions))
    terminal = np.arange(n_states) >= n_states - n_terminal
    transition[terminal] = np.eye(n_states)[terminal][:, None, :]
    initial = np.where(terminal, 0.0, rng.random(n_states) + 0.1)
    allowed = None
    if masked:
        allowed = rng.random((n_states, n_actions)) > 1 / 3
        allowed[np.arange(n_states), rng.integers(n_actions, size=n_states)] = True
    return TabularMDP(
        transition=transition,
        reward=np.where(terminal[:, None], 0.0, reward),
        gamma=gamma,
        initial=initial / initial.sum(),
        terminal=terminal,
        allowed=allowed,
        noise=noise,
        encoding=encoding,
    )


def with_gamma(mdp: TabularMDP, gamma: float) -> TabularMDP:
    """The same world with another discount factor."""
    return replace(mdp, gamma=gamma)
