from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from shpi.cli.main import main
from shpi.envs import agents
from shpi.envs.logging import LoggingPolicy
from shpi.envs.registry import make
from shpi.envs.rollout import mean_return, rollout
from shpi.errors import ConfigError
from shpi.features import Identity
from shpi.policies import EpsilonGreedy, Greedy, LinearScorer, UniformPolicy, load_policy
from shpi.testing import check_policy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
SCORER = LinearScorer(RNG.normal(size=(4, 3)), Identity().fit(X))
MASK = RNG.random((30, 4)) < 0.5
MASK[np.arange(30), RNG.integers(0, 4, 30)] = True


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_propensities_are_exact(epsilon: float) -> None:
    policy = LoggingPolicy(epsilon=epsilon, agent=Greedy(SCORER))
    check_policy(policy, X, MASK)
    for mask in (None, MASK):
        np.testing.assert_allclose(
            policy.action_probs(X, mask), EpsilonGreedy(SCORER, epsilon).action_probs(X, mask), rtol=1e-14
        )


def test_frequencies_agree_with_the_propensities() -> None:
    policy = LoggingPolicy(epsilon=0.3, agent=Greedy(SCORER))
    n = 40_000
    actions, propensities = policy.act(np.tile(X[:1], (n, 1)), np.tile(MASK[:1], (n, 1)), seed=1)
    probs = policy.action_probs(X[:1], MASK[:1])[0]
    share = np.bincount(actions, minlength=4) / n
    assert (np.abs(share - probs) <= 4 * np.sqrt(probs * (1 - probs) / n)).all()
    assert propensities.mean() == pytest.approx((probs**2).sum(), abs=0.01)


@pytest.mark.parametrize("world", agents.shipped())
def test_shipped_agents_log_with_propensities(world: str) -> None:
    simulator = make(world)
    policy = LoggingPolicy(simulator, 0.3)
    assert policy.world == world
    logs = rollout(simulator, policy, 5, seed=11, horizon=min(simulator.horizon, 20))
    candidates = logs.candidates
    again = policy.action_probs(logs.contexts, candidates)[np.arange(len(logs)), logs.actions]
    np.testing.assert_allclose(again, logs.propensities, rtol=1e-12)
    assert set(np.round(np.unique(again), 12)) <= {
        round(0.3 / simulator.n_actions, 12),
        round(0.7 + 0.3 / simulator.n_actions, 12),
    }


def test_the_agents_are_better_than_chance_by_far() -> None:
    synthetic, store = make("synthetic"), make("storefront")
    agent, uniform = LoggingPolicy(synthetic, 0.0), LoggingPolicy(synthetic, 1.0)
    assert mean_return(synthetic, agent, 100, seed=5).mean > 7_500  # the paper's online agent: 8,144
    assert mean_return(synthetic, uniform, 100, seed=5).mean < 1_500
    table = LoggingPolicy(store, 0.0).action_probs(store.contexts)  # type: ignore[attr-defined]
    best = store.exact_value(store.optimal())  # type: ignore[attr-defined]
    assert store.exact_value(table) > 0.97 * best  # type: ignore[attr-defined]


def test_scores_in_the_manifests_come_from_other_users() -> None:
    for world in agents.shipped():
        notes = agents.describe(world).notes
        scores = notes["evaluation"]
        assert scores["seed"] == agents.EVALUATION_SEED
        assert notes["command"] == f"shpi agents train {world} --seed 0"
        assert notes["versions"]["torch"]
        gap = scores["epsilon=0"]["mean"] - scores["epsilon=1"]["mean"]
        error = np.hypot(scores["epsilon=0"]["standard_error"], scores["epsilon=1"]["standard_error"])
        assert gap > 4 * error


def test_pure_exploration_needs_no_agent() -> None:
    simulator = make("synthetic-large")
    assert isinstance(LoggingPolicy(simulator, 1.0).agent, UniformPolicy)
    with pytest.raises(ConfigError, match=r"a world with a trained agent: .*synthetic.*'synthetic-large'"):
        LoggingPolicy(simulator, 0.3)


def test_another_world_under_the_same_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"seed_world = 0, found seed_world = 3"):
        LoggingPolicy(make("synthetic", seed_world=3), 0.3)
    with pytest.raises(ConfigError, match="found world ="):
        LoggingPolicy(make("recogym", world_seed=1), 0.3)
    LoggingPolicy(
        make("synthetic", horizon=20, reward_offset=(1e5, 1e4)), 0.3
    )  # the same world, logged otherwise
    own = LoggingPolicy(make("synthetic", seed_world=3), 0.3, agent=UniformPolicy(10))
    assert own.n_actions == 10


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, float("nan")])
def test_epsilon_out_of_range(epsilon: float) -> None:
    with pytest.raises(ConfigError, match=r"epsilon in \[0, 1\]"):
        LoggingPolicy(make("synthetic"), epsilon)


def test_mismatches() -> None:
    with pytest.raises(ConfigError, match="over the 10 actions of 'synthetic'"):
        LoggingPolicy(make("synthetic"), 0.3, agent=UniformPolicy(3))
    with pytest.raises(ConfigError, match="a simulator or an agent"):
        LoggingPolicy(epsilon=0.3)


# ---------------------------------------------------------------------- training and the command line


def test_training_again_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(agents, "EVALUATION_USERS", 20)
    first, second = (agents.train_agent("storefront", tmp_path / name, seed=5, episodes=40) for name in "ab")
    assert first.sha256 == second.sha256
    names = sorted(place.name for place in (tmp_path / "a").iterdir())
    assert len(names) == 2
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert first.notes["command"] == "shpi agents train storefront --seed 5 --episodes 40"
    assert load_policy(tmp_path / "a").n_actions == 5
    with pytest.raises(ConfigError, match="a world with a recipe"):
        agents.train_agent("nowhere", tmp_path / "c")


def test_cli_train_list_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    place = str(tmp_path / "agent")
    assert main(["agents", "train", "storefront", "--seed", "1", "--episodes", "200", "--out", place]) == 0
    output = capsys.readouterr().out
    assert "epsilon=0.3:" in output
    assert "different from the agent that came with shpi" in output
    assert main(["agents", "train", "storefront", "--episodes", "200", "--out", place]) == 2
    assert "does not exist yet" in capsys.readouterr().err
    assert main(["agents", "list"]) == 0
    assert "synthetic" in capsys.readouterr().out
    assert main(["agents", "check"]) == 0
    assert "synthetic: ok, sha256" in capsys.readouterr().out


def test_cli_check_finds_a_damaged_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(agents.FOLDER / "storefront", tmp_path / "storefront")
    manifest = tmp_path / "storefront" / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"sha256": "0" * 64}))
    monkeypatch.setattr(agents, "FOLDER", tmp_path)
    assert main(["agents", "check"]) == 1
    assert "storefront: BROKEN" in capsys.readouterr().out


def test_agents_are_small() -> None:
    for result in agents.check_agents():
        assert result.problem == ""
        assert result.bytes < agents.LARGEST
