from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi._core import memory
from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError, MemoryLimitError
from shpi.features import Chain, Hinges, Identity, OneHot, RandomFourier, Standardise
from shpi.oracles import Ridge
from shpi.oracles.hierarchy import Coupling, Spectrum
from shpi.oracles.statistics import (
    GramStatistics,
    cross_moments,
    gram_statistics,
    merge,
    target_statistics,
)
from shpi.testing.oracle import check_oracle, example_log

LINEAR = Chain((Standardise(), Identity()))


def brute_force(phi, psi, actions, y, omega, penalty, shared):
    """The same minimisation as one big ridge regression over (B, w_1, …, w_A)."""
    (n, p), (count, m) = phi.shape, psi.shape
    rows = np.zeros((n, m * p + count * p))
    rows[:, : m * p] = (psi[actions][:, :, None] * phi[:, None, :]).reshape(n, -1)
    for i, a in enumerate(actions):
        rows[i, (m + a) * p : (m + a + 1) * p] = phi[i]
    size = np.r_[np.full(m * p, shared), np.full(count * p, penalty)]
    theta = np.linalg.solve(rows.T @ (rows * omega[:, None]) + np.diag(size), rows.T @ (omega * y))
    own = theta[m * p :].reshape(count, p)
    return psi @ theta[: m * p].reshape(m, p) + own


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    p=st.integers(1, 4),
    count=st.integers(1, 5),
    m=st.integers(1, 3),
    penalty=st.sampled_from([1e-2, 1.0, 50.0]),
    shared=st.sampled_from([1e-2, 1.0]),
)
def test_elimination_equals_the_big_regression(seed, p, count, m, penalty, shared):
    rng = np.random.default_rng(seed)
    n = 40
    phi, psi = rng.standard_normal((n, p)), rng.standard_normal((count, m))
    actions, y, omega = rng.integers(0, count, n), rng.standard_normal(n), rng.random(n) + 0.1
    grams = gram_statistics(phi.__getitem__, p, actions, count, omega)
    cross = cross_moments(phi.__getitem__, p, actions, count, omega * y)
    coefficients = Coupling.of(Spectrum.of(grams), psi, penalty).solver(shared).solve(cross)
    np.testing.assert_allclose(
        coefficients, brute_force(phi, psi, actions, y, omega, penalty, shared), rtol=1e-7, atol=1e-9
    )


def test_infinite_penalty_is_the_shared_part_alone():
    rng = np.random.default_rng(0)
    phi, psi = rng.standard_normal((60, 3)), np.c_[np.ones(4), rng.standard_normal(4)]
    actions, y = rng.integers(0, 4, 60), rng.standard_normal(60)
    spectrum = Spectrum.of(gram_statistics(phi.__getitem__, 3, actions, 4))
    cross = cross_moments(phi.__getitem__, 3, actions, 4, y)
    coefficients = Coupling.of(spectrum, psi, np.inf).solver(0.5).solve(cross)
    z = (psi[actions][:, :, None] * phi[:, None, :]).reshape(60, -1)
    theta = np.linalg.solve(z.T @ z + 0.5 * np.eye(6), z.T @ y).reshape(2, 3)
    np.testing.assert_allclose(coefficients, psi @ theta, rtol=1e-9)


@pytest.mark.parametrize(
    "oracle",
    [
        Ridge(),
        Ridge.exact(),
        Ridge.exact("mtr"),
        Ridge(weights="mtr"),
        Ridge(features=LINEAR),
        Ridge(features=(LINEAR, Chain((Standardise(), Hinges(knots=3)))), penalty=1.0),
        Ridge(features=Standardise(), cache_bytes=0),  # no intercept of its own, nothing cached
    ],
    ids=["default", "exact", "exact-mtr", "mtr", "linear", "candidates", "uncached"],
)
def test_conformance(oracle):
    check_oracle(oracle, accuracy=0.95)


def test_exact_is_least_squares_for_each_action():
    logs, _ = example_log(500)
    y = np.sin(logs.contexts[:, 0]) + logs.actions
    scores = Ridge.exact().prepare(logs, seed=0).fit(y).scores(logs.contexts)
    for a in range(4):
        mine = logs.actions == a
        x = np.c_[np.ones(mine.sum()), logs.contexts[mine].astype(float)]
        beta = np.linalg.lstsq(x, y[mine], rcond=None)[0]
        np.testing.assert_allclose(scores[mine, a], x @ beta, atol=1e-6)


def test_mtr_weighs_rows_by_the_inverse_propensity():
    logs, _ = example_log(800)
    y = np.abs(logs.contexts[:, 0]) + logs.actions
    k = logs.candidates.sum(axis=1).mean()
    by_hand = Ridge.exact().prepare(logs, seed=0).fit(y, weights=1 / (k * logs.propensities))
    mtr = Ridge.exact("mtr").prepare(logs, seed=0).fit(y)
    x = logs.contexts[:50]
    np.testing.assert_allclose(mtr.scores(x), by_hand.scores(x), rtol=1e-12)
    plain = Ridge.exact().prepare(logs, seed=0).fit(y)
    assert np.abs(mtr.scores(x) - plain.scores(x)).max() > 0.01


def test_the_statistics_of_shards_add_up_in_any_order():
    logs, _ = example_log(1200)
    prepared = Ridge(features=Chain((Standardise(), RandomFourier(n_features=20)))).prepare(logs, seed=0)
    phi, y = prepared.features, 1e12 + np.sin(logs.contexts[:, 0].astype(float))
    cuts = [0, 300, 301, 700, 1200]
    shards = [slice(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    grams, targets = [], []
    for rows in shards:
        features = phi.transform(logs.contexts[rows])
        grams.append(gram_statistics(features.__getitem__, phi.width, logs.actions[rows], 5))
        targets.append(target_statistics(features.__getitem__, phi.width, logs.actions[rows], 5, y[rows]))
    whole, total, moments = prepared.statistics(), merge(grams), merge(targets[::-1])
    np.testing.assert_allclose(total.grams, whole.grams, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(total.counts, whole.counts)
    assert moments.mean == pytest.approx(y.mean(), rel=1e-15)
    assert moments.squares == pytest.approx(((y - y.mean()) ** 2).sum(), rel=1e-3)  # 1e12 has 4 decimals
    solver = Coupling.of(Spectrum.of(total), prepared.psi, prepared.penalty).solver(prepared.shared_penalty)
    weights = solver.solve(moments.cross)
    weights[:, 0] += moments.mean
    x = logs.contexts[:100]
    np.testing.assert_allclose(
        phi.transform(x) @ weights.T - 1e12, prepared.fit(y).scores(x) - 1e12, atol=2e-3
    )


def test_statistics_of_different_features_do_not_add():
    parts = [GramStatistics(grams=np.zeros((2, p, p)), counts=np.zeros(2, dtype=np.int64)) for p in (3, 4)]
    with pytest.raises(DataError, match="one fitted feature map"):
        merge(parts)
    with pytest.raises(DataError, match="at least one shard"):
        merge([])


def test_own_parts_are_shrunk_towards_the_shared_part():
    logs, _ = example_log(2000)
    y = logs.contexts[:, 0] * (1.0 + (logs.actions == 1))  # action 1 has twice the slope of the others
    slopes = []
    for penalty in (1e-3, 300.0, 1e9):
        prepared = Ridge(features=LINEAR, penalty=penalty, shared_penalty=1e-3).prepare(logs, seed=0)
        weights = prepared.fit(y).weights[:, 1] / logs.contexts[:, 0].std()
        slopes.append(weights[1] - weights[0])
    assert slopes[0] == pytest.approx(1.0, abs=0.01)
    assert 0.2 < slopes[1] < 0.9
    assert abs(slopes[2]) < 1e-3


def test_an_action_without_data_gets_the_shared_part():
    logs, _ = example_log(1000)
    y = 2.0 * logs.contexts[:, 1] + 1.0
    prepared = Ridge(features=LINEAR, penalty=1.0, shared_penalty=1e-3).prepare(logs, seed=0)
    scores = prepared.fit(y).scores(logs.contexts[:20])
    assert prepared.unseen.tolist() == [4]
    np.testing.assert_allclose(scores[:, 4], y[:20], atol=0.05)


def test_factors_are_computed_once_for_the_same_rows():
    logs, _ = example_log(1000)
    prepared = Ridge(features=LINEAR).prepare(logs, seed=0)
    valid = np.arange(1000) % 2 == 0
    prepared.fit(logs.rewards, valid=valid)
    first = prepared._memo["factors"][-1]
    prepared.fit(logs.rewards + 1.0, valid=valid.copy())
    assert prepared._memo["factors"][-1] is first
    prepared.fit(logs.rewards)
    assert prepared._memo["factors"][-1] is not first


# ---------------------------------------------------------------------- tuning


def wavy_log(n: int, noise: float, seed: int = 0) -> tuple[LoggedData, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, a = rng.uniform(-3, 3, (n, 2)), rng.integers(0, 3, n)
    signal = np.sin(2.0 * x[:, 0] + a) + np.cos(x[:, 1])
    logs = LoggedData.from_arrays(
        contexts=x, actions=a, offsets=np.arange(0, n + 1, 10), n_actions=3, propensities=np.full(n, 1 / 3)
    )
    return logs, signal + noise * rng.standard_normal(n)


def test_tuning_picks_a_narrow_bandwidth_for_a_wavy_function_and_linear_for_a_line():
    logs, y = wavy_log(6000, noise=0.3)
    wavy = Ridge().prepare(logs, seed=0).tune(y)
    assert wavy.choice.error < 0.15  # 0.09 of 1.09 is noise
    assert wavy.features.width > 100
    line = logs.contexts[:, 0] + logs.actions + np.random.default_rng(1).standard_normal(6000)
    assert Ridge().prepare(logs, seed=0).tune(line).features.width == 3


def test_tuning_penalises_more_when_there_is_more_noise():
    chosen = []
    for noise in (0.1, 20.0):
        logs, y = wavy_log(3000, noise=noise)
        recipe = Chain((Standardise(), RandomFourier(n_features=100)))
        chosen.append(Ridge(features=recipe).prepare(logs, seed=0).tune(y).penalty)
    assert chosen[0] < chosen[1]


def test_held_out_error_from_sums_equals_a_pass_over_the_rows():
    from shpi.oracles.base import standardise_targets
    from shpi.oracles.crossval import deal_users, fold_sums, held_out_errors

    logs, y = wavy_log(900, noise=0.5)
    features = LINEAR.fit(logs.contexts)
    scaled = standardise_targets(y, 900)
    fold = deal_users(logs, 3, 10_000, seed=0)
    errors = held_out_errors(fold_sums(features, logs, [scaled], fold), np.ones((3, 1)), [2.0], [0.5])
    direct = 0.0
    for f in range(3):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        phi = features.transform(logs.contexts)
        beta = brute_force(
            phi[train],
            np.ones((3, 1)),
            logs.actions[train],
            scaled.values[train],
            np.ones(len(train)),
            2.0,
            0.5,
        )
        direct += ((scaled.values[test] - (phi[test] * beta[logs.actions[test]]).sum(axis=1)) ** 2).sum()
    assert errors[0, 0, 0] == pytest.approx(direct, rel=1e-9)


def test_several_targets_are_tuned_for_as_each_alone():
    logs, y = wavy_log(900, noise=0.5)
    noise = np.random.default_rng(1).standard_normal(900)
    prepared = Ridge(features=(LINEAR, RandomFourier(n_features=20))).prepare(logs, seed=0)
    valid = np.arange(900) % 7 > 0
    together = prepared.tune_each([y, noise, y + 5 * noise], valid=valid)
    alone = [prepared.tune(target, valid=valid) for target in (y, noise, y + 5 * noise)]
    for tuned, other in zip(together, alone, strict=True):
        assert tuned.choice is not None
        assert other.choice is not None
        assert tuned.choice.error == pytest.approx(other.choice.error, rel=1e-9)
        assert (tuned.penalty, tuned.shared_penalty) == (other.penalty, other.shared_penalty)
        assert tuned.choice.candidate == other.choice.candidate
    assert len({tuned.penalty for tuned in together}) > 1


def test_folds_keep_users_together_and_respect_the_sample():
    from shpi.oracles.crossval import deal_users

    logs, _ = wavy_log(3000, noise=0.1)
    fold = deal_users(logs, 3, 1000, seed=1)
    by_user = fold.reshape(-1, 10)
    assert (by_user == by_user[:, :1]).all()
    assert 1000 <= (fold >= 0).sum() <= 1010
    one_user = LoggedData.from_arrays(contexts=np.zeros((9, 1)), actions=np.zeros(9, int), offsets=[0, 9])
    assert deal_users(one_user, 3, 100, seed=0).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_tuning_leaves_what_is_fixed():
    logs, y = wavy_log(600, noise=0.3)
    fixed = Ridge(features=LINEAR, penalty=3.0, shared_penalty=0.2).prepare(logs, seed=0)
    assert fixed.tune(y) is fixed
    tuned = Ridge(penalty=3.0).prepare(logs, seed=0).tune(y)
    assert tuned.penalty == 3.0
    assert tuned.choice is not None


# ---------------------------------------------------------------------- many actions


def test_action_features_carry_over_to_actions_without_data():
    rng = np.random.default_rng(0)
    count, n = 1500, 4_000
    vectors = rng.standard_normal((count, 4))
    space = ActionSpace(ids=tuple(range(count)), features=vectors, feature_names=("a", "b", "c", "d"))
    x, a = rng.standard_normal((n, 6)), rng.integers(0, count // 2, n)  # half of the actions never taken
    matrix = rng.standard_normal((6, 4))
    y = np.einsum("ij,jk,ik->i", x, matrix, vectors[a]) + 0.5 * rng.standard_normal(n)
    logs = LoggedData.from_arrays(contexts=x, actions=a, offsets=np.arange(0, n + 1, 20), action_space=space)
    prepared = Ridge().prepare(logs, seed=0).tune(y)
    assert prepared.psi.shape == (count, 5)
    assert len(prepared.unseen) >= count // 2
    fresh = rng.standard_normal((200, 6))
    truth = fresh @ matrix @ vectors.T
    scores = prepared.fit(y).scores(fresh)
    for actions in (slice(0, count // 2), slice(count // 2, count)):
        assert np.corrcoef(scores[:, actions].ravel(), truth[:, actions].ravel())[0, 1] > 0.99
    without = Ridge(action_features=False).prepare(logs, seed=0).tune(y).fit(y).scores(fresh)
    assert np.corrcoef(without[:, : count // 2].ravel(), truth[:, : count // 2].ravel())[0, 1] < 0.9


def test_popular_actions_keep_a_part_of_their_own_beside_their_features():
    rng = np.random.default_rng(1)
    n, count = 6000, 4
    space = ActionSpace(
        ids=tuple(range(count)), features=np.arange(count)[:, None] * 1.0, feature_names=("a",)
    )
    x, a = rng.standard_normal((n, 2)), rng.integers(0, count, n)
    own = np.array([0.0, 3.0, -3.0, 0.0])  # not a line in the action feature
    y = own[a] + 0.1 * rng.standard_normal(n)
    logs = LoggedData.from_arrays(contexts=x, actions=a, offsets=np.arange(0, n + 1, 20), action_space=space)
    scores = (
        Ridge(features=LINEAR, penalty=1.0, action_features=True).prepare(logs, seed=0).fit(y).scores(x[:5])
    )
    np.testing.assert_allclose(scores, np.tile(own, (5, 1)), atol=0.05)


def test_auto_leaves_the_features_of_few_well_known_actions_alone():
    rng = np.random.default_rng(1)
    space = ActionSpace(ids=(0, 1), features=np.array([[0.0], [1.0]]), feature_names=("a",))
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((5000, 6)), actions=rng.integers(0, 2, 5000), offsets=[0, 2500, 5000],
        action_space=space,
    )  # fmt: skip
    assert Ridge().prepare(logs, seed=0).psi.shape == (2, 1)
    assert Ridge(action_features=True).prepare(logs, seed=0).psi.shape == (2, 2)


# ---------------------------------------------------------------------- awkward input


def test_identical_contexts_and_constant_columns():
    n = 400
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, n)
    y = np.array([1.0, 5.0, -2.0])[a] + 0.01 * rng.standard_normal(n)
    for contexts in (np.full((n, 2), 7.0), np.full((n, 20), 1e6), np.zeros((n, 0))):
        logs = LoggedData.from_arrays(contexts=contexts, actions=a, offsets=[0, 100, 200, 400], n_actions=4)
        prepared = Ridge().prepare(logs, seed=0)
        scores = prepared.tune(y).fit(y).scores(logs.contexts[:2])
        np.testing.assert_allclose(scores[:, :3], [[1.0, 5.0, -2.0]] * 2, atol=0.3)
        assert np.isfinite(scores).all()


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_targets_of_any_size(size):
    logs, truth = example_log(500)
    y = truth(logs.contexts)[np.arange(500), logs.actions]
    prepared = Ridge.exact().prepare(logs, seed=0)
    scores = prepared.fit(size * y).scores(logs.contexts[:9]) / size
    np.testing.assert_allclose(scores, prepared.fit(y).scores(logs.contexts[:9]), rtol=1e-9, atol=1e-9)


def test_one_row_is_enough():
    logs = LoggedData.from_arrays(contexts=[[1.0, 2.0]], actions=[1], offsets=[0, 1], n_actions=3)
    prepared = Ridge().prepare(logs, seed=0)
    assert prepared.tune([5.0]) is prepared
    np.testing.assert_allclose(prepared.fit([5.0]).scores(logs.contexts), 5.0)


def test_one_hot_contexts_recover_the_table():
    rng = np.random.default_rng(0)
    s, a = rng.integers(0, 6, 3000), rng.integers(0, 3, 3000)
    table = rng.standard_normal((6, 3))
    logs = LoggedData.from_arrays(contexts=s[:, None], actions=a, offsets=np.arange(0, 3001, 10))
    prepared = Ridge(features=OneHot(n_states=6), penalty=1e-6, shared_penalty=1e-6).prepare(logs, seed=0)
    np.testing.assert_allclose(prepared.fit(table[s, a]).scores(np.arange(6.0)[:, None]), table, atol=1e-5)


def test_bad_input_says_what_to_do():
    logs, _ = example_log(100)
    prepared = Ridge().prepare(logs, seed=0)
    with pytest.raises(DataError, match="at least one row of positive weight"):
        prepared.fit(np.zeros(100), valid=np.zeros(100, bool))
    with pytest.raises(DataError, match="boolean mask of 100 rows"):
        prepared.fit(np.zeros(100), valid=np.ones(99, bool))
    with pytest.raises(DataError, match="non-negative weights"):
        prepared.fit(np.zeros(100), weights=np.full(100, -1.0))
    with pytest.raises(ConfigError, match="positive penalty"):
        Ridge(penalty=0.0)
    with pytest.raises(ConfigError, match="action features in the log"):
        Ridge(action_features=True).prepare(logs, seed=0)
    with pytest.raises(ConfigError, match="at least one feature map"):
        Ridge(features=())
    bare = LoggedData.from_arrays(contexts=np.zeros((3, 1)), actions=[0, 1, 0], offsets=[0, 3])
    with pytest.raises(DataError, match="with_estimated_propensities"):
        Ridge(weights="mtr").prepare(bare, seed=0).fit(np.zeros(3))


def test_too_many_gram_matrices_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**33)
    logs = LoggedData.from_arrays(
        contexts=np.zeros((3, 2)), actions=[0, 1, 0], offsets=[0, 3], n_actions=20_000
    )
    wide = Chain((Standardise(), RandomFourier(n_features=200)))
    with pytest.raises(MemoryLimitError, match="GiB of memory for Gram matrices"):
        Ridge(features=wide).prepare(logs, seed=0)
