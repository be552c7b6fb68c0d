"""The parts of a world model: tables, donors, and what a log says about session ends and returns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.data.logged import LoggedData
from shpi.envs.fitted.donors import Cells, Nearby
from shpi.envs.fitted.outcomes import return_edges, return_kind, session_outcomes
from shpi.envs.fitted.tables import Bins, Penalty, auc, bootstrap_weights, fit_tables, sigmoid
from shpi.errors import ConfigError, DataError

LOOSE = Penalty(column=1e-6, action=1e-6, crossed=1e-6)

# ---------------------------------------------------------------------- bins


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=300), st.integers(2, 20))
@settings(max_examples=50, deadline=None)
def test_bins_keep_order_and_split_no_value(values: list[int], bins: int) -> None:
    column = np.array(values, dtype=np.float32)[:, None]
    fitted = Bins.fit(column, bins)
    codes = fitted.code(column)[:, 0]
    order = np.argsort(column[:, 0], kind="stable")
    assert (np.diff(codes[order]) >= 0).all()
    assert codes.max() < fitted.sizes[0]
    distinct = np.unique(column)
    if len(distinct) <= 64:
        assert len(np.unique(codes)) == len(distinct) == fitted.sizes[0]
    else:
        assert fitted.sizes[0] <= bins
    # A tiny error, as that of counters kept in float32, does not change the bin.
    assert (fitted.code(column + 1e-4)[:, 0] == codes).all()


def test_bins_code_some_columns_only() -> None:
    x = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    bins = Bins.fit(x, 4)
    some = bins.code(x, np.array([1]))
    np.testing.assert_array_equal(some[:, 1], bins.code(x)[:, 1])
    assert not some[:, [0, 2]].any()


# ---------------------------------------------------------------------- tables


def test_one_column_gives_the_log_odds_of_each_bin() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 4, 4000)
    y = (rng.random(4000) < np.array([0.1, 0.3, 0.5, 0.9])[x]).astype(float)
    bins = Bins.fit(x[:, None].astype(float), 8)
    tables = fit_tables(bins.sizes, bins.code(x[:, None].astype(float)), y, binary=True, penalty=LOOSE)
    chance = sigmoid(tables.eta(np.arange(4, dtype=np.int16)[:, None]))
    np.testing.assert_allclose(chance, [y[x == v].mean() for v in range(4)], atol=2e-4)


def test_action_and_crossed_tables_are_saturated() -> None:
    rng = np.random.default_rng(2)
    x, a = rng.integers(0, 3, 6000), rng.integers(0, 2, 6000)
    y = rng.normal(size=6000) + np.array([[0.0, 5.0], [2.0, -1.0], [4.0, 4.0]])[x, a]
    codes = x[:, None].astype(np.int16)
    tables = fit_tables(
        np.array([3]), codes, y, binary=False, actions=a, n_actions=2, crossed=[0], penalty=LOOSE
    )
    for value in range(3):
        for action in range(2):
            eta = tables.eta(np.array([[value]], dtype=np.int16), np.array([action]))
            assert eta[0] == pytest.approx(y[(x == value) & (a == action)].mean(), abs=1e-3)


def test_additive_tables_recover_a_logistic_model() -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 5, (20_000, 2))
    truth = -0.5 + 0.4 * (x[:, 0] - 2) - 0.8 * (x[:, 1] == 3)
    y = (rng.random(len(x)) < sigmoid(truth)).astype(float)
    tables = fit_tables(np.array([5, 5]), x.astype(np.int16), y, binary=True, penalty=Penalty(column=1.0))
    eta = tables.eta(x.astype(np.int16))
    assert np.abs(eta - truth).mean() < 0.06
    assert sigmoid(eta).mean() == pytest.approx(y.mean(), abs=1e-4)


def test_offset_is_part_of_eta_and_not_learned_again() -> None:
    rng = np.random.default_rng(4)
    offset = rng.normal(size=8000)
    y = (rng.random(8000) < sigmoid(offset + 0.7)).astype(float)
    tables = fit_tables(np.array([1]), np.zeros((8000, 1), np.int16), y, binary=True, offset=offset)
    assert tables.numbers.shape == (1, 1)
    assert tables.numbers[0, 0] == pytest.approx(0.7, abs=0.08)


def test_scaling_the_columns_keeps_the_mean_and_zero_removes_them() -> None:
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 4, (5000, 2)).astype(np.int16)
    y = (rng.random(5000) < sigmoid(codes[:, 0] - 1.5 + codes[:, 1])).astype(float)
    tables = fit_tables(np.array([4, 4]), codes, y, binary=True)
    half, none = tables.scaled(np.array([1]), 0.5), tables.scaled(np.array([1]), 0.0)
    for scaled in (half, none):
        assert scaled.eta(codes).mean() == pytest.approx(tables.eta(codes).mean(), abs=1e-9)
    assert len(np.unique(none.eta(codes).round(9))) == 4
    np.testing.assert_allclose(half.eta(codes), (tables.eta(codes) + none.eta(codes)) / 2)


def test_members_differ_as_much_as_the_standard_error() -> None:
    rng = np.random.default_rng(6)
    users, y = np.arange(2000) // 4, rng.normal(size=2000)
    weights = bootstrap_weights(users, 60, np.random.default_rng(7))
    assert weights.shape == (60, 2000)
    np.testing.assert_array_equal(weights[:, ::4], weights[:, 3::4])  # a user comes with all its rows
    tables = fit_tables(np.array([1]), np.zeros((2000, 1), np.int16), y, binary=False, weights=weights)
    assert tables.members == 60
    assert tables.numbers[1:, 0].std() == pytest.approx(1 / np.sqrt(2000), rel=0.35)


def test_auc_is_the_chance_of_the_right_order() -> None:
    assert auc(np.array([0.0, 1.0, 0.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])) == 0.75
    assert auc(np.array([0.0, 1.0]), np.array([5.0, 5.0])) == 0.5
    assert auc(np.zeros(3), np.arange(3.0)) == 0.5


def test_tables_by_action_need_actions() -> None:
    codes = np.zeros((40, 1), np.int16)
    tables = fit_tables(
        np.array([1]), codes, np.arange(40.0), binary=False, actions=np.arange(40) % 2, n_actions=2
    )
    with pytest.raises(ConfigError, match="expected actions"):
        tables.eta(codes)


# ---------------------------------------------------------------------- donors


def test_cells_draw_every_row_of_a_key_and_fall_back() -> None:
    fine = np.array([0, 0, 0, 1, 2, 2, 2])
    cells = Cells.fit([(fine, np.arange(4)), (fine * 0, np.zeros(4, dtype=np.int64))], least=3)
    uniform = (np.arange(21) + 0.5) / 21
    assert set(cells.draw(np.zeros(21, int), uniform)) == {0, 1, 2}
    assert set(cells.draw(np.full(21, 2), uniform)) == {4, 5, 6}
    assert set(cells.draw(np.full(21, 1), uniform)) == set(range(7))  # one row is too few
    assert set(cells.draw(np.full(21, 3), uniform)) == set(range(7))  # no row at all
    with pytest.raises(DataError, match="rows to draw from"):
        Cells.fit([(fine, np.arange(4))], least=1)


def test_nearby_draws_all_rows_at_the_same_point_alike() -> None:
    points = np.repeat([[0.0, 0.0], [10.0, 0.0]], [40, 60], axis=0)
    near = Nearby(points, k=5)
    uniform = (np.arange(40) + 0.5) / 40
    assert sorted(near.draw(np.tile([1.0, 0.0], (40, 1)), uniform)) == list(range(40))


@given(st.integers(1, 30), st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_nearby_draws_among_the_nearest(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, queries = rng.normal(size=(60, 2)), rng.normal(size=(20, 2))
    drawn = Nearby(points, k).draw(queries, rng.random(20))
    distance = np.linalg.norm(points[None] - queries[:, None], axis=2)
    rank = (distance < distance[np.arange(20), drawn][:, None]).sum(axis=1)
    assert (rank < k).all()


# ---------------------------------------------------------------------- session ends and returns


def small_log(**changes: object) -> LoggedData:
    """Three users; sessions [0 1 | 2] [3 | 4 | 5] [6]; the third is gone for good."""
    settings_: dict[str, object] = {
        "contexts": np.zeros((7, 1)),
        "actions": [0, 1, 0, 1, 0, 1, 0],
        "rewards": np.zeros(7),
        "offsets": [0, 3, 6, 7],
        "session_offsets": [0, 2, 3, 4, 5, 6, 7],
        "times": [0, 0, 2, 1, 2, 9, 4],
        "terminated": [False, False, True],
    }
    return LoggedData.from_arrays(**(settings_ | changes))


def test_returns_by_bin_with_what_was_not_observed_left_out() -> None:
    logs = small_log()
    ends, returns = session_outcomes(logs, np.array([1.0, 3.0]), "log")
    np.testing.assert_array_equal(ends.rows, np.arange(7))
    np.testing.assert_array_equal(ends.ended, [0, 1, 1, 1, 1, 1, 1])
    # Day 9 is the last: the session at row 5 cannot be followed at all.
    np.testing.assert_array_equal(returns.rows, [1, 2, 3, 4, 6])
    np.testing.assert_array_equal(returns.bin, [2, 0, 1, 0, 0])
    np.testing.assert_array_equal(returns.followed, [2, 2, 2, 2, 2])
    np.testing.assert_array_equal(returns.starts, [0, 2, 3, 4, 6])
    known, back = returns.within(1)
    np.testing.assert_array_equal(back, [0, 0, 1, 0, 0])
    session, which, came = returns.at_risk()
    np.testing.assert_array_equal(session, [0, 1, 3, 4])  # the session that was back in bin 1 is not at risk
    np.testing.assert_array_equal(which, 2)
    np.testing.assert_array_equal(came, [1, 0, 0, 0])
    assert len(known) == 5


def test_users_observed_as_far_as_they_decide() -> None:
    ends, returns = session_outcomes(small_log(), np.array([np.inf]), "user")
    np.testing.assert_array_equal(ends.rows, [0, 1, 3, 4, 6])  # rows 2 and 5 are cut off
    np.testing.assert_array_equal(ends.ended, [0, 1, 1, 1, 1])
    np.testing.assert_array_equal(returns.rows, [1, 3, 4, 6])
    np.testing.assert_array_equal(returns.bin, [1, 1, 1, 0])  # the user who is gone did not return


def test_partly_observed_bins_are_not_used() -> None:
    logs = small_log(times=[0, 0, 2, 1, 2, 4, 1])
    _, returns = session_outcomes(logs, np.array([1.0, 3.0]), "log")
    by_row = dict(zip(returns.rows.tolist(), returns.followed.tolist(), strict=True))
    assert by_row == {1: 2, 2: 1, 3: 2, 4: 1, 6: 2}


def test_transitions_and_their_kinds() -> None:
    rows, kind, gap = return_kind(small_log(), np.array([1.0, 3.0]))
    np.testing.assert_array_equal(rows, [0, 1, 3])  # the return after 7 days lies beyond the last bin
    np.testing.assert_array_equal(kind, [0, 2, 1])
    np.testing.assert_array_equal(gap, [0, 2, 1])


def test_default_bins_follow_the_clock() -> None:
    assert np.isinf(return_edges(small_log(), None)).all()
    stamped = small_log(time_unit="us", times=np.arange(7) * 86_400_000_000)
    np.testing.assert_allclose(return_edges(stamped, None) / 86_400e6, [1, 3, 7])
    with pytest.raises(ConfigError, match="return_bins that rise"):
        return_edges(small_log(), (3, 2))
