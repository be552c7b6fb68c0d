"""The readings of Algorithm 2: print, release and print with two repairs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from shpi.data._log.release import ReleasedRows
from shpi.data.logged import LoggedData
from shpi.envs.logging import LoggingPolicy, with_q_shares
from shpi.envs.synthetic.release import ReleasedSynthetic
from shpi.envs.synthetic.simulator import Synthetic
from shpi.errors import ConfigError
from shpi.features import Identity
from shpi.features.scale import IdentityMap
from shpi.learners import OfflineSHPI
from shpi.learners._shpi.readings import released_settings, repaired_settings
from shpi.learners.online.released_sarsa import OneRowNetwork, OnlineSARSA
from shpi.oracles import CoinBetting
from shpi.policies import Greedy, LinearScorer, UniformPolicy, load_policy
from shpi.values import BellmanResidual, BriefTD, Constant, FittedTD
from shpi.values.neural.brief import default_weights

pytest.importorskip("torch", reason="needs the extra neural")


@pytest.fixture(scope="module")
def train() -> ReleasedSynthetic:
    return Synthetic.released(seed=0)[0]


@pytest.fixture(scope="module")
def uniform_log(train: ReleasedSynthetic) -> LoggedData:
    return train.rollout(UniformPolicy(10), 10, 0)


def test_the_readings_differ_in_what_the_table_says() -> None:
    names = {field.name for field in fields(OfflineSHPI)}
    assert set(released_settings()) | set(repaired_settings()) <= names
    paper, repaired = OfflineSHPI.paper(), OfflineSHPI.repaired()
    differing = {name for name in names - {"oracle"} if getattr(paper, name) != getattr(repaired, name)}
    assert differing == {"form", "value"}
    assert (paper.form, repaired.form) == ("raw", "residual")
    assert isinstance(paper.value, BellmanResidual)
    assert isinstance(repaired.value, FittedTD)
    assert repr(paper.oracle) == repr(repaired.oracle)


def test_changes_go_on_top_of_a_reading() -> None:
    released = OfflineSHPI.released(k=1, view=ReleasedRows(rewards="level"))
    assert (released.k, released.clip, released.iterations) == (1, "ratio", 6)
    assert isinstance(released.value, BriefTD)
    assert OfflineSHPI.repaired(seed=4).seed == 4
    assert released_settings()["oracle"] is not released_settings()["oracle"]


def test_released_is_one_action_with_exploration(uniform_log: LoggedData, tmp_path: Path) -> None:
    """Six passes, never stopped early; the policy is near one action, or shared where scores are alike."""
    policy = OfflineSHPI.released(seed=0).fit(uniform_log)
    assert len(policy.history) == 6
    assert policy.chosen == 6
    probs = policy.action_probs(uniform_log.contexts)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)
    assert probs.min() >= 0.005 - 1e-12
    assert len(np.unique(probs.argmax(axis=1))) == 1
    policy.save(tmp_path / "policy")
    back = load_policy(tmp_path / "policy")
    np.testing.assert_array_equal(back.action_probs(uniform_log.contexts), probs)


def test_released_learns_the_good_direction_from_differences(train: ReleasedSynthetic) -> None:
    """With V = 0 and 60 uniform trajectories, what it chooses moves the second coordinate up."""
    logs = train.rollout(UniformPolicy(10), 60, 1)
    policy = OfflineSHPI.released(value=Constant(0.0)).fit(logs)
    pushes = policy.action_probs(logs.contexts[:1]) @ train.action_features
    assert pushes[0, 1] > 0.03


def test_weights_follow_the_exploring_policy(uniform_log: LoggedData) -> None:
    """`explore` is in the ratios: they never reach 0, which they do for argmax."""
    shares = [
        OfflineSHPI.released(explore=explore, iterations=2, value=Constant(0.0), oracle=CoinBetting())
        .fit(uniform_log)
        .history[-1]
        .effective_share
        for explore in (0.05, 1.0)
    ]
    assert shares[0] < shares[1] == pytest.approx(1.0)


def test_the_uniform_start_has_ratio_one_on_a_uniform_log(uniform_log: LoggedData) -> None:
    options = {"iterations": 1, "k": 3, "value": Constant(0.0), "reach": None, "tested": False}
    from_uniform = OfflineSHPI(start="uniform", **options).fit(uniform_log)  # type: ignore[arg-type]
    from_behaviour = OfflineSHPI(start="behaviour", **options).fit(uniform_log)  # type: ignore[arg-type]
    assert from_uniform.history[0].advantage_mean == pytest.approx(from_behaviour.history[0].advantage_mean)
    assert from_uniform.history[0].effective_share == pytest.approx(1.0)


def test_nonsense_settings() -> None:
    with pytest.raises(ConfigError, match=r"explore in \[0, 1\]"):
        OfflineSHPI(explore=1.5)
    with pytest.raises(ConfigError, match="'uniform' or a policy"):
        OfflineSHPI(start="mu")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- the logging policy of the release


def test_reported_propensities_are_shares_of_q(train: ReleasedSynthetic) -> None:
    weights = np.zeros((10, 3))
    weights[:, 0] = -np.arange(1.0, 11.0)  # Q = -1 .. -10: the greedy action 0 has the share 1 / 55
    agent = Greedy(LinearScorer(weights, Identity().fit(np.zeros((1, 2)))))
    mu = LoggingPolicy(epsilon=0.3, agent=agent)
    logs = with_q_shares(train.rollout(mu, 200, 0), agent, 0.3, seed=0)
    assert logs.propensities is not None
    greedy = np.isclose(logs.propensities, 1 / 55)
    np.testing.assert_allclose(logs.propensities[~greedy], 0.1)
    assert (logs.actions[greedy] == 0).all()
    assert greedy.mean() == pytest.approx(0.7, abs=0.01)  # the branches have their own frequencies
    assert (logs.actions[~greedy] == 0).mean() == pytest.approx(0.1, abs=0.02)


def test_negative_shares_are_kept_and_can_be_learned_from(train: ReleasedSynthetic) -> None:
    weights = np.zeros((10, 3))
    weights[:, 0] = np.where(np.arange(10) == 0, 1.0, -1.0)  # the greedy action has the share 1 / (1 - 9)
    agent = Greedy(LinearScorer(weights, IdentityMap(width_in=2)))
    logs = with_q_shares(train.rollout(LoggingPolicy(epsilon=0.3, agent=agent), 10, 0), agent, 0.3, seed=0)
    assert logs.propensities is not None
    assert logs.propensities.min() == pytest.approx(-1 / 8)
    assert OfflineSHPI.released().fit(logs).chosen == 6


def test_online_sarsa_learns_and_repeats() -> None:
    """A world of one step: Q is the reward of each action."""

    class Arms:
        name, horizon, n_actions, context_names = "arms", 1, 3, ("x",)

        def reset(self, n: int, seed: int, *, first: int = 0) -> np.ndarray:
            return np.ones((n, 1))

        def step(self, actions: np.ndarray) -> object:
            from shpi.protocols import Step

            rewards = np.array([0.0, 1.0, 0.3])[actions]
            return Step(np.ones((1, 1)), rewards, np.ones(1, dtype=bool), {})

        def candidates(self) -> None:
            return

    config = OnlineSARSA(episodes=600, epsilon=0.5, hidden=(16,), seed=1, progress=False)
    policy, repeated = config.fit(Arms()), config.fit(Arms())  # type: ignore[arg-type]
    scores = policy.scorer.scores(np.ones((1, 1)))
    np.testing.assert_allclose(scores, [[0.0, 1.0, 0.3]], atol=0.1)
    np.testing.assert_array_equal(scores, repeated.scorer.scores(np.ones((1, 1))))
    with pytest.raises(ConfigError, match="at least one episode"):
        OnlineSARSA(episodes=0)


def test_one_row_updates_equal_torch() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra neural")
    sizes, rng = (3, 8, 8, 4), np.random.default_rng(0)
    net = OneRowNetwork(sizes, default_weights(sizes, rng), 3e-3)
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    with torch.no_grad():
        for layer, weights, bias in zip(layers, net.weights, net.biases, strict=True):
            layer.weight.copy_(torch.from_numpy(weights.T.copy()))
            layer.bias.copy_(torch.from_numpy(bias.copy()))
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    adam = torch.optim.Adam(model.parameters(), lr=3e-3, amsgrad=True)
    for _ in range(30):
        x, action, target = rng.standard_normal(3).astype(np.float32), int(rng.integers(4)), rng.normal(5.0)
        activations = net.activations(x)
        q = model(torch.from_numpy(x))
        np.testing.assert_allclose(activations[-1], q.detach().numpy(), rtol=1e-4, atol=1e-5)
        net.update(activations, action, 2.0 * (float(activations[-1][action]) - target) / 4)
        wanted = q.detach().clone()
        wanted[action] = target
        adam.zero_grad()
        ((q - wanted) ** 2).mean().backward()
        adam.step()


def test_faded_moments_become_zero_and_no_weight_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> OneRowNetwork:
        sizes, rng = (2, 8, 3), np.random.default_rng(0)
        net = OneRowNetwork(sizes, default_weights(sizes, rng), 3e-3)
        for step in range(2000):
            activations = net.activations(rng.standard_normal(2).astype(np.float32))
            action = 0 if 500 < step < 1700 else int(rng.integers(3))  # the others fade, and come back
            net.update(activations, action, float(activations[-1][action]) - 1.0)
            smallest.append(min(float(np.abs(m[m != 0]).min()) for m in (net.mean, net.square)))
        return net

    smallest: list[float] = []
    net = trained()
    assert min(smallest) >= np.finfo(np.float32).tiny
    monkeypatch.setattr("shpi.learners.online.released_sarsa._PAUSE", 10**9)
    smallest = []
    np.testing.assert_array_equal(net.values, trained().values)
    assert min(smallest) < np.finfo(np.float32).tiny
