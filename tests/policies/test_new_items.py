"""New items are scored by their features; policies near mu try them out; masks and files are obeyed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.errors import ConfigError
from shpi.learners import ContextualBandit
from shpi.policies import Policy, UniformPolicy, load_policy
from shpi.policies.new_items import Padded, add_items
from shpi.testing.policy import check_policy

KNOWN = pl.DataFrame(
    {"item": [f"i{j}" for j in range(12)], "price": np.linspace(-1, 1, 12), "hue": [0.0, 1.0] * 6}
)
NEW = pl.DataFrame({"item": ["cheap", "dear"], "price": [-2.0, 2.0], "hue": [0.0, 0.0]})


def log(n: int = 3000) -> shpi.LoggedData:
    """Reward = taste × price: whoever has a positive taste wants the dearest."""
    rng = np.random.default_rng(0)
    item, taste = rng.integers(12, size=n), rng.uniform(-1, 1, n)
    reward = taste * KNOWN["price"].to_numpy()[item] + 0.1 * rng.standard_normal(n)
    rows = pl.DataFrame({
        "uid": np.arange(n), "item": KNOWN["item"].to_numpy()[item], "taste": taste, "r": reward,
        "p": np.full(n, 1 / 12),
    })  # fmt: skip
    return shpi.LoggedData.read(
        rows,
        {"user": "uid", "action": "item", "reward": "r", "propensity": "p", "context": ["taste"]},
        action_features=KNOWN,
    )


@pytest.fixture(scope="module")
def logs() -> shpi.LoggedData:
    return log()


@pytest.fixture(scope="module")
def bandit(logs) -> Policy:
    return ContextualBandit(seed=0, support=None).fit(logs)


@pytest.fixture(scope="module")
def learned(logs) -> Policy:
    return shpi.OfflineSHPI(seed=0).fit(logs)


def test_the_best_new_item_is_found_by_its_features(bandit):
    policy = add_items(bandit, NEW)
    items, chances = policy.act([{"taste": -0.9}, {"taste": 0.9}], seed=0)
    assert items.tolist() == ["cheap", "dear"]
    assert chances.tolist() == [1.0, 1.0]


def test_known_items_keep_their_scores(bandit):
    after = add_items(bandit, NEW)
    mask = np.zeros((5, 14), dtype=bool)
    mask[:, :12] = True
    x = np.linspace(-1, 1, 5)[:, None]
    np.testing.assert_array_equal(after.action_probs(x, mask)[:, :12], bandit.action_probs(x))


def test_a_policy_near_mu_tries_new_items_out(learned):
    larger = add_items(learned, NEW, explore=0.1)
    assert larger.n_actions == 14
    x = np.array([[0.9], [-0.9]])
    new = larger.action_probs(x)[:, 12:]
    assert new[0, 1] > new[0, 0]
    assert new[1, 0] > new[1, 1]
    assert add_items(learned, NEW, explore=0.0).action_probs(x)[:, 12:].max() == 0


def test_it_is_a_policy_like_any_other_and_can_be_saved(learned, tmp_path):
    larger = add_items(learned, NEW)
    loaded = load_policy(larger.save(tmp_path / "p"))
    x = np.linspace(-1, 1, 7)[:, None]
    np.testing.assert_allclose(loaded.action_probs(x), larger.action_probs(x))
    assert loaded.items.actions.ids[-2:] == ("cheap", "dear")
    assert shpi.policies.training_users(loaded)


def test_padding_passes_the_suite():
    check_policy(Padded(UniformPolicy(3), 2), np.random.default_rng(0).random((20, 2)))


def test_only_new_items_may_be_allowed():
    mask = np.array([[False, False, False, True, True], [True, False, False, True, False]])
    probs = Padded(UniformPolicy(3), 2).action_probs(np.zeros((2, 1)), mask)
    np.testing.assert_allclose(probs, [[0, 0, 0, 0.5, 0.5], [1, 0, 0, 0, 0]])


def test_what_is_missing_is_said(bandit):
    with pytest.raises(ConfigError, match="features of its items"):
        add_items(UniformPolicy(3), NEW)
    with pytest.raises(ConfigError, match="without hue"):
        add_items(bandit, NEW.drop("hue"))
    with pytest.raises(ConfigError, match="explore in"):
        add_items(bandit, NEW, explore=2)


def test_new_items_on_the_command_line(learned, tmp_path, monkeypatch, capsys):
    from shpi.cli.main import main

    monkeypatch.chdir(tmp_path)
    learned.save("p")
    NEW.write_csv("new.csv")
    pl.DataFrame({"taste": [0.9] * 300}).write_csv("rows.csv")
    call = ["act", "p", "rows.csv", "--new-items", "new.csv", "--explore", "50%", "--seed", "0"]
    assert main([*call, "--out", "out.csv"]) == 0
    assert "dear" in set(pl.read_csv("out.csv")["item"])
    assert main([*call[:-4], "--explore", "x"]) == 2
    assert "--explore to be a number" in capsys.readouterr().err
