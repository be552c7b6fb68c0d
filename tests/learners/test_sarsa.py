from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.learners import DeepSARSA
from shpi.learners.online.deep_sarsa import Round, _epsilon, _round_sizes, sarsa_targets
from shpi.protocols import Step

torch = pytest.importorskip("torch")


@dataclass
class Mdp:
    """A small finite MDP with one-hot contexts; state S-1 may be an end, and actions may be masked."""

    moves: np.ndarray  # [S, A, S]
    gains: np.ndarray  # [S, A]
    allowed: np.ndarray  # [S, A]
    ends: bool = False
    horizon: int = 25
    name: str = "tiny"
    noise: float = 0.0
    level: float = 0.0  # added to every reward
    seeds: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def n_actions(self) -> int:
        return self.gains.shape[1]

    @property
    def context_names(self) -> tuple[str, ...]:
        return tuple(f"s{i}" for i in range(len(self.gains)))

    def reset(self, n: int, seed: int, *, first: int = 0) -> np.ndarray:
        self.seeds.append((n, seed, first))
        self.rng = np.random.default_rng([seed, first])
        self.state = self.rng.integers(0, len(self.gains) - self.ends, size=n)
        return self._contexts()

    def step(self, actions: np.ndarray) -> Step:
        assert self.allowed[self.state, actions][~self._ended()].all(), "a forbidden action was taken"
        reward = (
            self.gains[self.state, actions] + self.level + self.noise * self.rng.normal(size=len(actions))
        )
        cumulative = self.moves[self.state, actions].cumsum(axis=1)
        gone = self._ended()
        after = (cumulative < self.rng.random(len(actions))[:, None]).sum(axis=1)
        self.state = np.where(gone, self.state, np.minimum(after, len(self.gains) - 1))
        return Step(self._contexts(), np.where(gone, 0.0, reward), self._ended(), {})

    def candidates(self) -> np.ndarray | None:
        return None if self.allowed.all() else self.allowed[self.state]

    def rollout(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def _ended(self) -> np.ndarray:
        return (self.state == len(self.gains) - 1) if self.ends else np.zeros(len(self.state), bool)

    def _contexts(self) -> np.ndarray:
        return np.eye(len(self.gains), dtype=np.float32)[self.state]

    def value(self, table: np.ndarray, gamma: float) -> float:
        """Exact discounted value of a policy table from the uniform start."""
        live = len(self.gains) - self.ends
        moves = np.einsum("sa,sat->st", table, self.moves)[:live, :live]
        gains = (table * (self.gains + self.level)).sum(axis=1)[:live]
        return float(np.linalg.solve(np.eye(live) - gamma * moves, gains).mean())

    def best(self, gamma: float) -> np.ndarray:
        """The table of the optimal policy, by value iteration."""
        value, live = np.zeros(len(self.gains)), np.ones(len(self.gains))
        if self.ends:
            live[-1] = 0
        for _ in range(2000):
            q = np.where(self.allowed, self.gains + self.level + gamma * self.moves @ value, -np.inf)
            value = q.max(axis=1) * live
        return np.eye(self.n_actions)[q.argmax(axis=1)]


def swim(**changes: Any) -> Mdp:
    """Six states in a row; going right pays only at the end and often fails, going left pays a little."""
    size = 6
    moves, gains = np.zeros((size, 2, size)), np.zeros((size, 2))
    for s in range(size):
        moves[s, 0, max(s - 1, 0)] = 1.0
        moves[s, 1, min(s + 1, size - 1)] += 0.7
        moves[s, 1, s] += 0.3
    gains[0, 0], gains[-1, 1] = 0.2, 1.0
    return Mdp(**{"moves": moves, "gains": gains, "allowed": np.ones((size, 2), bool), **changes})


def random_mdp(seed: int, *, ends: bool, masked: bool) -> Mdp:
    rng = np.random.default_rng(seed)
    size, count = 5, 3
    moves, gains = rng.dirichlet(np.full(size, 0.4), size=(size, count)), rng.normal(size=(size, count))
    allowed = np.ones((size, count), bool)
    if masked:
        allowed[np.arange(size), rng.integers(0, count, size)] = False
        allowed[-1] = [True, False, False]
        gains[~allowed] = 10.0  # tempting, but forbidden
    return Mdp(moves=moves, gains=gains, allowed=allowed, ends=ends)


TINY = {"hidden": (32, 32), "batch_size": 128, "batch_users": 20, "gamma": 0.9}


def attained(mdp: Mdp, learner: DeepSARSA) -> tuple[float, float, float]:
    policy = learner.fit(mdp)
    states = np.eye(len(mdp.gains))
    mask = None if mdp.allowed.all() else mdp.allowed
    uniform = mdp.allowed / mdp.allowed.sum(axis=1, keepdims=True)
    tables = policy.action_probs(states, mask), mdp.best(learner.gamma), uniform
    reached, best, nothing = (mdp.value(table, learner.gamma) for table in tables)
    return reached, best, nothing


@pytest.mark.parametrize(
    ("mdp", "changes"),
    [
        (swim(), {}),
        (swim(noise=0.5), {}),
        (swim(level=30.0), {"potential": 10.0}),
        (random_mdp(1, ends=True, masked=False), {}),
        (random_mdp(2, ends=False, masked=True), {}),
        (random_mdp(3, ends=True, masked=True), {"trace": 0.0}),
    ],
    ids=["swim", "swim-noise", "swim-level-potential", "ends", "masked", "ends-masked-one-step"],
)
def test_within_one_percent_of_dynamic_programming(mdp: Mdp, changes: dict[str, Any]) -> None:
    reached, best, nothing = attained(mdp, DeepSARSA(episodes=600, seed=0, **{**TINY, **changes}))
    level = mdp.level / (1 - 0.9)  # earned by any policy, so it does not count
    assert best - nothing > 0.3 * abs(best - level)  # there is something to learn
    assert reached >= best - 0.01 * abs(best - level)


def test_the_scores_are_the_action_values_of_the_exploring_policy() -> None:
    mdp = swim(horizon=60)
    policy = DeepSARSA(episodes=400, seed=1, epsilon=(1.0, 1.0), **TINY).fit(mdp)
    moves = mdp.moves.mean(axis=1)  # always exploring: SARSA learns the values of the uniform policy
    value = np.linalg.solve(np.eye(6) - 0.9 * moves, mdp.gains.mean(axis=1))
    truth = mdp.gains + 0.9 * mdp.moves @ value
    assert np.ptp(truth) > 2
    np.testing.assert_allclose(policy.scorer.scores(np.eye(6)), truth, atol=0.06 * np.ptp(truth))


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights(seed: int) -> list[np.ndarray]:
        scorer = DeepSARSA(episodes=45, seed=seed, **TINY).fit(swim()).scorer
        return [*scorer.weights, *scorer.biases, scorer.features.mean]  # type: ignore[attr-defined]

    first, again, other = weights(3), weights(3), weights(4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_users_are_new_and_not_those_of_the_plain_seed() -> None:
    mdp = swim()
    DeepSARSA(episodes=45, seed=0, **TINY).fit(mdp)
    assert [(n, first) for n, _, first in mdp.seeds] == [(20, 0), (20, 20), (5, 40)]
    assert len({seed for _, seed, _ in mdp.seeds}) == 1
    assert mdp.seeds[0][1] > 10**6


def test_threads_and_generators_are_left_alone() -> None:
    threads, torch_state = torch.get_num_threads(), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002 - it must not be used
    DeepSARSA(episodes=5, **TINY).fit(swim())
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_progress_is_silent_off_a_terminal_and_rounds_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    rounds: list[Round] = []
    DeepSARSA(episodes=60, **TINY).fit(swim(), on_round=rounds.append)
    assert capfd.readouterr() == ("", "")
    assert [report.number for report in rounds] == [0, 1, 2]
    assert rounds[0].epsilon == 1.0
    assert all(np.isfinite(report.loss) and np.isfinite(report.mean_return) for report in rounds)
    DeepSARSA(episodes=20, progress=True, **TINY).fit(swim())


def test_huge_and_equal_rewards_do_no_harm() -> None:
    big = swim()
    big.gains = big.gains * 1e9
    reached, best, _ = attained(big, DeepSARSA(episodes=600, seed=0, **TINY))
    assert reached >= 0.99 * best
    flat = swim()
    flat.gains = np.full_like(flat.gains, 3.0)
    q = DeepSARSA(episodes=60, seed=0, **TINY).fit(flat).scorer.scores(np.eye(6))
    np.testing.assert_allclose(q, 30.0, rtol=0.05)  # 3 / (1 - gamma)


def test_a_simulator_with_nan_is_refused() -> None:
    broken = swim()
    broken.gains = broken.gains * np.nan
    with pytest.raises(DataError, match="finite rewards"):
        DeepSARSA(episodes=5, **TINY).fit(broken)


# ---------------------------------------------------------------------- the targets

RNG = np.random.default_rng(0)
R, V = RNG.normal(size=(7, 4)), RNG.normal(size=(8, 4))
STAYS = np.ones((8, 4), bool)


def test_one_step_target() -> None:
    np.testing.assert_allclose(
        sarsa_targets(R, V, STAYS, gamma=0.9, trace=0.0), R + 0.9 * V[1:], rtol=1e-14, atol=1e-14
    )


def test_monte_carlo_target_bootstraps_at_a_cut_only() -> None:
    alive = STAYS.copy()
    alive[5:, 0] = False  # user 0 ends with decision 4
    rewards = np.where(alive[:-1], R, 0.0)
    targets = sarsa_targets(rewards, V, alive, gamma=0.9, trace=1.0)
    powers = 0.9 ** np.arange(8)
    assert targets[0, 1] == pytest.approx((powers[:7] * R[:, 1]).sum() + powers[7] * V[7, 1])
    assert targets[0, 0] == pytest.approx((powers[:5] * R[:5, 0]).sum())
    assert targets[4, 0] == pytest.approx(R[4, 0])


@pytest.mark.parametrize("trace", [0.0, 0.4, 1.0])
def test_shaping_changes_targets_by_the_potential_only(trace: float) -> None:
    alive, c = STAYS.copy(), 3.0
    alive[5:, 0] = False
    rewards = np.where(alive[:-1], R, 0.0)
    plain = sarsa_targets(rewards, V, alive, gamma=0.9, trace=trace)
    shifted = V.copy()  # the shaped values are Q - c r_{t-1}
    shifted[1:] -= c * rewards
    shaped = sarsa_targets(rewards, shifted, alive, gamma=0.9, trace=trace, potential=c)
    before = np.concatenate([np.zeros((1, 4)), rewards[:-1]])
    live = alive[:-1]
    np.testing.assert_allclose(shaped[live], (plain - c * before)[live], rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------- settings


def test_schedules() -> None:
    learner = DeepSARSA(episodes=100, epsilon=(1.0, 0.1), exploration=0.5)
    assert [_epsilon(learner, k, 10) for k in (0, 5, 9)] == pytest.approx([1.0, 0.1, 0.1])
    assert _epsilon(learner, 1, 10) == pytest.approx(0.82)
    assert _round_sizes(45, 20) == [20, 20, 5]
    assert _round_sizes(3, 20) == [3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, "episodes of at least 1"),
        ({"batch_users": 0}, "batch_users of at least 1"),
        ({"memory": 0}, "memory of at least 1"),
        ({"hidden": (0,)}, "hidden layers"),
        ({"gamma": 1.0}, "gamma and averaging below 1"),
        ({"gamma": -0.1}, r"gamma in \[0, 1\]"),
        ({"trace": 1.5}, r"trace in \[0, 1\]"),
        ({"epsilon": (1.0, -0.1)}, r"epsilon in \[0, 1\]"),
        ({"learning_rate": 0.0}, "positive learning rates"),
        ({"potential": 101.0}, "potential in"),
        ({"averaging": float("nan")}, r"averaging in \[0, 1\]"),
    ],
)
def test_nonsense_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeepSARSA(**{"episodes": 10, **changes})
