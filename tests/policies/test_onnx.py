from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.cli import main
from shpi.errors import ConfigError
from shpi.features import Cells, Chain, OneHot, Powers, Standardise, Union
from shpi.learners import OfflineSHPI
from shpi.oracles import Gbdt
from shpi.policies import FunctionScorer, Greedy, LinearScorer, Policy, Softmax, TabularPolicy
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.policies.near_mu.support import PolicyDensity, PseudoCounts, RelativeDensity, SupportLimited
from shpi.policies.new_items import Padded
from shpi.policies.onnx import to_onnx
from shpi.policies.onnx.export import run_onnx
from shpi.testing.tastes import Tastes
from shpi.values import LSTD
from tests.policies.test_fresh_process import learned
from tests.serve.policies import policies

pytest.importorskip("onnxruntime")
ALL = policies()
FOURIER = ("softmax", "some seen", "regularised", "tilted apart", "tilted some")


@pytest.mark.parametrize("name", ALL)
def test_onnxruntime_decides_as_we_do(name: str, tmp_path: Path) -> None:
    policy, rng = ALL[name], np.random.default_rng(2)
    policy.to_onnx(tmp_path / "p.onnx")  # type: ignore[attr-defined]
    x, mask = rng.normal(3, 2, size=(300, 5)), rng.random((300, 7)) < 0.5
    mask[np.arange(300), rng.integers(0, 7, 300)] = True
    probs = run_onnx((tmp_path / "p.onnx").read_bytes(), x, mask)
    assert probs.dtype == np.float64
    tolerance = 1e-6 if name in FOURIER else 1e-12
    assert np.abs(probs - policy.action_probs(x, mask)).max() <= tolerance


def test_other_feature_maps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 4, 200), rng.normal(size=200)]).astype(float)
    parts = Union((OneHot(n_states=4), Chain((Standardise(), Powers(degree=3, limit=1.5)))))
    phi = parts.fit(x)
    policy = Softmax(LinearScorer(rng.normal(size=(3, phi.width)), phi))
    to_onnx(policy, tmp_path / "p.onnx", check=False)  # random contexts are no states
    probs = run_onnx((tmp_path / "p.onnx").read_bytes(), x, np.ones((200, 3), dtype=bool))
    assert np.abs(probs - policy.action_probs(x)).max() <= 1e-12


def agree(policy: Policy, contexts: Any, path: Path, tolerance: float) -> None:
    """Compare with onnxruntime on these contexts, all actions allowed and some."""
    to_onnx(policy, path)
    rng = np.random.default_rng(3)
    shape = (len(contexts), policy.n_actions)
    mask = rng.random(shape) < 0.5
    mask[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = True
    for allowed in (np.ones(shape, dtype=bool), mask):
        probs = run_onnx(path.read_bytes(), np.asarray(contexts, dtype=np.float64), allowed)
        assert np.abs(probs - policy.action_probs(contexts, allowed)).max() <= tolerance


def test_what_every_learner_returns_has_an_onnx_form(tmp_path: Path) -> None:
    contexts, _ = Tastes().fresh(60, seed=3)
    for name, policy in learned().items():
        agree(policy, contexts, tmp_path / f"{name}.onnx", 1e-6)


def test_tables_and_cells(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(0, 4, size=(80, 1)).astype(float)
    table = TabularPolicy(rng.dirichlet(np.ones(3), size=4))
    agree(table, states, tmp_path / "table.onnx", 1e-12)
    x = rng.integers(0, 3, size=(100, 2)).astype(float)
    cells = Cells().fit(x)
    greedy = Greedy(LinearScorer(rng.normal(size=(3, cells.width)), cells))
    agree(greedy, x, tmp_path / "cells.onnx", 1e-12)
    mu = LogisticPolicy(rng.normal(size=(3, cells.width)), cells, np.ones(3, dtype=bool), 0.02)
    counts = PseudoCounts.fit(cells, x, rng.integers(0, 3, 100), 3)
    for mode in ("spibb", "mbs"):
        for support, least in ((counts, 4.0), (PolicyDensity(mu), 0.3), (RelativeDensity(mu), 0.5)):
            limited = SupportLimited(greedy.scorer, mu, support, least, mode)
            agree(limited, x, tmp_path / "limited.onnx", 1e-12)
    agree(Padded(mu, 2), x, tmp_path / "padded.onnx", 1e-12)


@pytest.mark.parametrize("features", [False, True])
def test_trees(features: bool, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(1)
    logs = Tastes().log(200, seed=0)
    if features:
        space = replace(
            logs.action_space,
            features=rng.normal(size=(logs.n_actions, 2)).astype(np.float32),
            feature_names=("size", "price"),
        )
        logs = replace(logs, action_space=space)
    learner = OfflineSHPI(
        oracle=Gbdt(trees=20), value=LSTD(), tested=False, k=2, iterations=1, progress=False
    )
    policy = learner.fit(logs)
    contexts, _ = Tastes().fresh(200, seed=4)
    agree(policy, contexts, tmp_path / "trees.onnx", 1e-9)


def test_what_has_no_onnx_form_says_so(tmp_path: Path) -> None:
    policy = Greedy(FunctionScorer(lambda x: np.zeros((len(x), 2)), 2, 1))
    with pytest.raises(ConfigError, match="FunctionScorer"):
        policy.to_onnx(tmp_path / "p.onnx")
    assert not (tmp_path / "p.onnx").exists()


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ALL["tilted"].save(tmp_path / "p")  # type: ignore[attr-defined]
    assert main(["export", str(tmp_path / "p"), "--onnx", str(tmp_path / "p.onnx")]) == 0
    assert "agrees" in capsys.readouterr().out
    assert (tmp_path / "p.onnx").stat().st_size > 500
    assert main(["export", str(tmp_path / "p")]) == 2
