from __future__ import annotations

import numpy as np
import pytest

from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, MissingExtraError
from shpi.oracles import Gbdt, Mlp, VowpalWabbit
from shpi.testing.oracle import check_oracle, example_log


def test_mlp_conformance():
    pytest.importorskip("torch")
    check_oracle(Mlp(hidden=(16,), epochs=40, batch=64, learning_rate=0.01), accuracy=0.9, rows=500)


def test_gbdt_conformance():
    pytest.importorskip("lightgbm")
    check_oracle(Gbdt(trees=80, leaves=15), accuracy=0.85, rows=2000)


def test_mlp_learns_what_is_not_linear_and_respects_the_step_limit():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, a = rng.uniform(-2, 2, (3000, 1)), rng.integers(0, 2, 3000)
    logs = LoggedData.from_arrays(contexts=x, actions=a, offsets=np.arange(0, 3001, 10))
    y = np.abs(x[:, 0]) * (1 - 2 * a)
    threads = torch.get_num_threads()
    prepared = Mlp(hidden=(32, 32), epochs=15, batch=64).prepare(logs, seed=0)
    grid = np.linspace(-2, 2, 41)[:, None]
    scores = prepared.fit(y).scores(grid)
    assert np.abs(scores - np.abs(grid) * [1, -1]).mean() < 0.1
    assert torch.get_num_threads() == threads
    short = Mlp(hidden=(32, 32), epochs=15, batch=64, max_steps=3).prepare(logs, seed=0).fit(y).scores(grid)
    assert np.abs(short - np.abs(grid) * [1, -1]).mean() > 0.3


def test_mlp_weights_choose_between_contradicting_rows():
    pytest.importorskip("torch")
    logs = LoggedData.from_arrays(contexts=np.zeros((200, 1)), actions=np.zeros(200, int), offsets=[0, 200])
    y = np.repeat([0.0, 1.0], 100)
    weights = np.repeat([1.0, 3.0], 100)
    scorer = Mlp(hidden=(8,), epochs=60, batch=200, learning_rate=0.02).prepare(logs, seed=0).fit(y, weights)
    assert scorer.scores([[0.0]])[0, 0] == pytest.approx(0.75, abs=0.02)


def test_gbdt_uses_action_features():
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    count, n = 300, 6000
    feature = rng.uniform(-1, 1, count)
    space = ActionSpace(ids=tuple(range(count)), features=feature[:, None], feature_names=("v",))
    x, a = rng.uniform(-1, 1, (n, 1)), rng.integers(0, count // 2, n)
    logs = LoggedData.from_arrays(contexts=x, actions=a, offsets=np.arange(0, n + 1, 10), action_space=space)
    y = np.sign(x[:, 0]) * feature[a]
    scorer = Gbdt(trees=60, leaves=15).prepare(logs, seed=0).fit(y)
    scores = scorer.scores([[0.7], [-0.7]])[:, count // 2 :]  # actions that were never taken
    truth = np.array([[1.0], [-1.0]]) * feature[count // 2 :]
    assert np.corrcoef(scores.ravel(), truth.ravel())[0, 1] > 0.95


def test_gbdt_scores_do_not_depend_on_the_blocks(monkeypatch):
    pytest.importorskip("lightgbm")
    from shpi.oracles import base

    logs, truth = example_log(600)
    y = truth(logs.contexts)[np.arange(600), logs.actions]
    prepared = Gbdt(trees=10).prepare(logs, seed=0)
    scorer = prepared.fit(y)
    whole = scorer.scores(logs.contexts)
    monkeypatch.setattr(base, "BLOCK_BYTES", 1)
    monkeypatch.setattr(base, "SCORE_BYTES", 1)
    np.testing.assert_array_equal(scorer.scores(logs.contexts), whole)
    assert sum(1 for _ in prepared.scores_on_log(scorer)) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mlp(hidden=(0,)), "hidden of at least 1"),
        (lambda: Mlp(learning_rate=0.0), "positive learning rate"),
        (lambda: Gbdt(leaves=1), "2 leaves"),
        (lambda: VowpalWabbit(passes=0), "at least one pass"),
    ],
)
def test_configurations_are_checked(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("oracle", "package", "extra"),
    [(Mlp(), "torch", "neural"), (Gbdt(), "lightgbm", "gbdt"), (VowpalWabbit(), "vowpalwabbit", "vw")],
)
def test_a_missing_package_is_named_with_its_extra(oracle, package, extra, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    logs, _ = example_log(50)
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*shpi\[{extra}\]"):
        oracle.prepare(logs, seed=0)
