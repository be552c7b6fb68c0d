"""Against the real Vowpal Wabbit; skipped where it is not installed (``pip install 'shpi[vw]'``)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.oracles import Ridge, VowpalWabbit
from shpi.oracles.base import standardise_targets
from shpi.oracles.vw import _predict
from shpi.testing.oracle import check_oracle

vowpalwabbit = pytest.importorskip("vowpalwabbit", reason="needs the extra vw")


def log(n: int = 1500, d: int = 4, count: int = 4, **options) -> tuple[LoggedData, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n, d))
    mu = rng.dirichlet(np.full(count, 3.0), n)
    a = (mu.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    y = (x * rng.standard_normal((count, d))[a]).sum(axis=1) + rng.standard_normal(n)
    logs = LoggedData.from_arrays(
        contexts=x, actions=a, offsets=np.arange(0, n + 1, 10), propensities=mu[np.arange(n), a],
        **({"n_actions": count} | options),
    )  # fmt: skip
    return logs, y


@pytest.mark.parametrize("weights", ["mtr", "none"])
def test_conformance(weights):
    check_oracle(VowpalWabbit(passes=20, weights=weights), accuracy=0.95)


def test_equals_the_papers_options_in_the_multi_line_form():
    logs, y = log()
    prepared = VowpalWabbit(passes=2).prepare(logs, seed=0)
    scorer = prepared.fit(y)
    x = prepared.features.transform(logs.contexts).astype(np.float32)
    model = vowpalwabbit.Workspace("--coin --cb_type mtr --cb_adf -q sa --quiet -b 18")
    explore = vowpalwabbit.Workspace("--coin --cb_type mtr --cb_explore_adf -q sa --quiet -b 18")
    scaled = standardise_targets(y, len(y), weights=1 / (4 * logs.propensities))
    labels = scaled.values.astype(np.float32)

    def event(i: int, label: bool) -> list[str]:
        shared = "shared |s " + " ".join(f"{j}:{v}" for j, v in enumerate(x[i]))
        cost = f"0:{-labels[i]}:{float(logs.propensities[i])!r} "
        return [shared, *((cost if label and a == logs.actions[i] else "") + f"|a {a}" for a in range(4))]

    for _ in range(2):
        for i in prepared.order:
            model.learn(event(i, True))
            explore.learn(event(i, True))
    costs = np.array([model.predict(event(i, False)) for i in range(100)])
    pmf = np.array([explore.predict(event(i, False)) for i in range(100)])
    scores = (scorer.scores(logs.contexts[:100]) - scaled.centre) / scaled.scale
    np.testing.assert_allclose(scores, -costs, atol=2e-5)
    assert (pmf.argmax(axis=1) == scores.argmax(axis=1)).mean() >= 0.99


def test_the_linear_scorer_is_what_vw_predicts():
    logs, y = log()
    prepared = VowpalWabbit(passes=1, weights="none").prepare(logs, seed=1)
    scorer = prepared.fit(y)
    scaled = standardise_targets(y, len(y))
    with TemporaryDirectory() as folder:
        model = prepared._train(Path(folder) / "rows.txt", scaled)
    x = prepared.features.transform(logs.contexts).astype(np.float32)
    for i in range(20):
        text = "|s " + " ".join(f"{j}:{v}" for j, v in enumerate(x[i]))
        direct = [_predict(model, f"{text} |a {a}") for a in range(4)]
        scores = (scorer.scores(logs.contexts[i : i + 1])[0] - scaled.centre) / scaled.scale
        np.testing.assert_allclose(scores, direct, atol=2e-5)


def test_more_passes_approach_the_least_squares_solution():
    logs, y = log(n=4000)
    exact = Ridge.exact("mtr").prepare(logs, seed=0).fit(y).scores(logs.contexts)
    gaps = []
    for passes in (1, 5, 40):
        scores = VowpalWabbit(passes=passes).prepare(logs, seed=0).fit(y).scores(logs.contexts)
        gaps.append(np.sqrt(((scores - exact) ** 2).mean()) / exact.std())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.05


def test_action_features_carry_over():
    count = 40
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((count, 2))
    space = ActionSpace(ids=tuple(range(count)), features=vectors, feature_names=("a", "b"))
    x, a = rng.standard_normal((8000, 2)), rng.integers(0, 30, 8000)
    logs = LoggedData.from_arrays(
        contexts=x, actions=a, offsets=np.arange(0, 8001, 10), action_space=space,
        propensities=np.full(8000, 1 / 30),
    )  # fmt: skip
    y = (x * vectors[a]).sum(axis=1)
    scorer = VowpalWabbit(action_features=True, passes=10).prepare(logs, seed=0).fit(y)
    scores, truth = scorer.scores(x[:200])[:, 30:], (x[:200] @ vectors.T)[:, 30:]
    assert np.corrcoef(scores.ravel(), truth.ravel())[0, 1] > 0.95
