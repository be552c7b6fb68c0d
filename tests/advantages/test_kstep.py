from __future__ import annotations

from dataclasses import replace
from itertools import product as pairs

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.advantages import StateValues, importance_ratios, k_step_advantages, sums, window_stops
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.testing.tabular import random_mdp
from shpi.values.transitions import usable_transitions

MDP = random_mdp(6, 3, seed=0, gamma=0.9, n_terminal=1, masked=True, noise=0.3)
MU, PI = MDP.random_policy(1), MDP.random_policy(2, concentration=0.5)
LOGS = MDP.log(MU, 400, horizon=9, seed=3)
RATIOS = importance_ratios(LOGS, MDP.policy(PI))
VALUES = StateValues.of(lambda x: x @ np.arange(1.0, 7.0) ** 2, LOGS)


def by_loops(logs, values, *, k, gamma, ratios, weight_clip, form, clip, bonus_ratio):
    """The equations of the paper, one decision after the other."""
    ends, usable = np.repeat(logs.offsets[1:], np.diff(logs.offsets)), usable_transitions(logs)
    session_ends = np.repeat(logs.session_offsets[1:], np.diff(logs.session_offsets))
    rho = np.ones(len(logs)) if ratios is None else ratios
    cut = (lambda w: w) if weight_clip is None else (lambda w: min(max(w, weight_clip[0]), weight_clip[1]))
    result = np.zeros(len(logs))
    for t in range(len(logs)):
        stop = t
        limit = session_ends[t] if k == "session" else min(t + k, ends[t])
        while stop < limit and usable[stop]:
            stop += 1
        if stop == t:
            continue
        trajectory = logs.trajectory_of_row[t]
        end_value = values.rows[stop] if stop < ends[t] else values.final[trajectory]
        if stop == ends[t] and logs.terminated[trajectory]:
            end_value = 0.0
        last = rho[t + 1 : stop].prod()
        if bonus_ratio and ratios is not None and stop < ends[t]:
            last *= rho[stop]
        total = 0.0
        for m in range(stop - t):
            weight = cut(rho[t + 1 : t + m + 1].prod())
            if clip == "product" and m > 0:
                weight = cut(last)
            row, term = t + m, logs.rewards[t + m]
            if form == "residual":
                after = values.rows[row + 1] if row + 1 < stop else end_value
                term = term + gamma * after - values.rows[row]
            total += gamma**m * weight * term
        if form == "raw":
            total += gamma ** (stop - t) * cut(last) * end_value - values.rows[t]
        result[t] = total
    return result


@pytest.mark.parametrize("form", ["residual", "raw"])
@pytest.mark.parametrize("clip", ["prefix", "product"])
@pytest.mark.parametrize("weight_clip", [None, (0.5, 2.0)])
def test_agrees_with_the_equations_written_as_loops(form, clip, weight_clip, monkeypatch):
    greedy = importance_ratios(LOGS, MDP.policy(np.eye(3)[PI.argmax(axis=1)] * MDP.allowed + 1e-300))
    for k, ratios, bonus_ratio in pairs(
        (1, 2, 5, 40, "session"), (None, RATIOS, greedy * (greedy > 1e-9)), (False, True)
    ):
        options = {
            "k": k,
            "gamma": 0.9,
            "ratios": ratios,
            "weight_clip": weight_clip,
            "form": form,
            "clip": clip,
            "bonus_ratio": bonus_ratio,
        }
        expected = by_loops(LOGS, VALUES, **options)
        for block in (16, 16_384):
            monkeypatch.setattr(sums, "_BLOCK", block)
            advantages = k_step_advantages(LOGS, VALUES, **options)
            np.testing.assert_allclose(advantages.values, expected, rtol=1e-10, atol=1e-10)


def test_log_has_every_kind_of_ending():
    truncated = ~LOGS.terminated
    assert LOGS.terminated.any()
    assert (truncated & LOGS.final_observed).any()
    assert (truncated & ~LOGS.final_observed).any()
    assert (np.diff(LOGS.offsets) == 1).any()


def test_one_step_is_the_td_error():
    advantages = k_step_advantages(LOGS, VALUES, k=1, gamma=0.9, ratios=RATIOS)
    following = VALUES.following(LOGS)
    delta = LOGS.rewards + 0.9 * following - VALUES.rows
    usable = usable_transitions(LOGS)
    np.testing.assert_array_equal(advantages.valid, usable)
    np.testing.assert_allclose(advantages.values[usable], delta[usable], rtol=1e-12)
    assert (following[LOGS.offsets[1:] - 1][LOGS.terminated] == 0).all()


def test_k_beyond_every_trajectory_is_the_whole_return():
    longest = int(np.diff(LOGS.offsets).max())
    full = k_step_advantages(LOGS, VALUES, k=longest, gamma=0.9, ratios=RATIOS)
    for k in (longest + 1, 10**9):
        again = k_step_advantages(LOGS, VALUES, k=k, gamma=0.9, ratios=RATIOS)
        np.testing.assert_array_equal(again.values, full.values)


def test_without_a_bonus_it_is_session_rl_and_a_bandit():
    zero = StateValues.zeros(LOGS)
    bandit = k_step_advantages(LOGS, zero, k=1, gamma=0.9, ratios=RATIOS)
    np.testing.assert_array_equal(bandit.values[bandit.valid], LOGS.rewards[bandit.valid])
    session = k_step_advantages(LOGS, zero, k="session", gamma=0.9)
    for s in range(0, LOGS.n_sessions, 17):
        rows = np.arange(LOGS.session_offsets[s], LOGS.session_offsets[s + 1])
        if session.valid[rows].all():
            sums = np.sum(0.9 ** np.arange(len(rows)) * LOGS.rewards[rows])
            np.testing.assert_allclose(session.values[rows[0]], sums, rtol=1e-12)


def test_weights_are_one_when_the_policy_is_the_logging_policy():
    same = importance_ratios(LOGS, MDP.policy(MU))
    np.testing.assert_allclose(same, 1.0, rtol=1e-6)
    online = k_step_advantages(LOGS, VALUES, k=4, gamma=0.9)
    offline = k_step_advantages(LOGS, VALUES, k=4, gamma=0.9, ratios=np.ones(len(LOGS)))
    np.testing.assert_allclose(online.values, offline.values, rtol=1e-12)
    assert offline.weights.mean == 1.0
    assert offline.weights.effective_share == 1.0


@pytest.mark.parametrize("k", [1, 3, 100, "session"])
def test_raw_and_residual_are_equal_when_weights_are_one(k):
    raw = k_step_advantages(LOGS, VALUES, k=k, gamma=0.9, form="raw")
    residual = k_step_advantages(LOGS, VALUES, k=k, gamma=0.9, form="residual")
    np.testing.assert_allclose(raw.values, residual.values, rtol=1e-9, atol=1e-9)


def test_the_order_of_trajectories_does_not_matter():
    order = np.random.default_rng(0).permutation(LOGS.n_trajectories)
    parts = [LOGS.select(rows) for rows in np.array_split(order, 7)]
    whole = {int(u): i for i, u in enumerate(LOGS.users)}
    for k in (4, "session", 1000):
        of_whole = k_step_advantages(LOGS, VALUES, k=k, gamma=0.9, ratios=RATIOS).values
        for log in parts:
            values = StateValues.of(lambda x: x @ np.arange(1.0, 7.0) ** 2, log)
            ratios = importance_ratios(log, MDP.policy(PI))
            again = k_step_advantages(log, values, k=k, gamma=0.9, ratios=ratios).values
            rows = np.concatenate([np.arange(*LOGS.offsets[whole[int(u)] :][:2]) for u in log.users])
            np.testing.assert_array_equal(again, of_whole[rows])


# ---------------------------------------------------------------------- endings


def small_log(**changes) -> LoggedData:
    arrays = {
        "contexts": np.arange(5.0)[:, None],
        "actions": np.zeros(5, dtype=int),
        "rewards": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        "propensities": np.full(5, 0.5),
        "offsets": [0, 5],
        "session_offsets": [0, 2, 5],
        "final_contexts": [[9.0]],
        "n_actions": 2,
    }
    return LoggedData.from_arrays(**(arrays | changes))


def tenfold(x):
    return 10.0 * x[:, 0]


@pytest.mark.parametrize(
    ("changes", "full", "valid"),
    [
        ({}, 15 + 90, [1, 1, 1, 1, 1]),
        ({"terminated": [True]}, 15, [1, 1, 1, 1, 1]),
        ({"final_contexts": None}, 10 + 40, [1, 1, 1, 1, 0]),
    ],
)
def test_what_is_paid_at_the_end_of_a_trajectory(changes, full, valid):
    logs = small_log(**changes)
    advantages = k_step_advantages(logs, StateValues.of(tenfold, logs), k=10, gamma=1.0)
    assert advantages.values[0] == full - 0.0
    np.testing.assert_array_equal(advantages.valid, np.array(valid, dtype=bool))
    assert advantages.values[~advantages.valid].sum() == 0


def test_a_session_ends_with_the_bonus_of_the_first_context_after_it():
    logs = small_log()
    advantages = k_step_advantages(logs, StateValues.of(tenfold, logs), k="session", gamma=1.0)
    np.testing.assert_array_equal(advantages.lengths, [2, 1, 3, 2, 1])
    np.testing.assert_array_equal(
        advantages.values, [3 + 20, 2 + 20 - 10, 12 + 90 - 20, 9 + 90 - 30, 5 + 90 - 40]
    )


def test_an_int_k_crosses_sessions_but_never_trajectories():
    logs = small_log(offsets=[0, 3, 5], session_offsets=[0, 2, 3, 5], final_contexts=[[7.0], [9.0]])
    np.testing.assert_array_equal(window_stops(logs, 2, np.ones(5, dtype=bool)), [2, 3, 3, 5, 5])


def test_a_window_stops_before_a_censored_reward():
    logs = replace(small_log(), reward_observed=np.array([True, True, True, False, False]))
    advantages = k_step_advantages(logs, StateValues.of(tenfold, logs), k=5, gamma=1.0)
    np.testing.assert_array_equal(advantages.lengths, [3, 2, 1, 0, 0])
    assert advantages.values[0] == 6 + 30


# ---------------------------------------------------------------------- means, by enumeration of every path


def enumerate_paths(mdp, mu, start, action, steps):
    """Every path of ``steps`` decisions from (start, action): states, actions, probability."""
    paths = [([start], [action], 1.0)]
    for t in range(steps):
        longer = []
        for states, actions, p in paths:
            for after in np.flatnonzero(mdp.transition[states[-1], actions[-1]]):
                q = p * mdp.transition[states[-1], actions[-1], after]
                if t == steps - 1:
                    longer.append(([*states, after], actions, q))
                    continue
                longer += [([*states, after], [*actions, b], q * mu[after, b]) for b in range(mdp.n_actions)]
        paths = longer
    return paths


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("form", ["residual", "raw"])
@pytest.mark.parametrize("bonus_ratio", [False, True])
def test_the_mean_over_all_paths_is_equation_2(k, form, bonus_ratio):
    mdp = random_mdp(3, 2, seed=5, gamma=0.8, branching=2)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=0.5)
    wrong = np.array([3.0, -5.0, 11.0])
    for bonus in (mdp.value(mu), wrong):
        truth = mdp.k_step_advantage(pi, mu, k, bonus=bonus)
        for s, a in pairs(range(3), range(2)):
            paths = enumerate_paths(mdp, mu, s, a, k + 1)
            states, actions = np.array([p[0] for p in paths]), np.array([p[1] for p in paths])
            x, b = states[:, :-1].ravel(), actions.ravel()
            logs = LoggedData.from_arrays(
                contexts=mdp.contexts(x),
                actions=b,
                rewards=mdp.reward[x, b],
                propensities=mu[x, b],
                offsets=np.arange(len(paths) + 1) * (k + 1),
                final_contexts=mdp.contexts(states[:, -1]),
                n_actions=2,
            )
            values = StateValues.of(lambda c, v=bonus: c @ v, logs)
            advantages = k_step_advantages(
                logs,
                values,
                k=k,
                gamma=0.8,
                ratios=pi[x, b] / mu[x, b],
                weight_clip=None,
                form=form,
                bonus_ratio=bonus_ratio,
            )
            mean = np.dot([p[2] for p in paths], advantages.values[:: k + 1])
            np.testing.assert_allclose(mean, truth[s, a], rtol=1e-10, atol=1e-10)


def test_both_forms_converge_to_equation_2():
    mdp = random_mdp(5, 2, seed=7, gamma=0.9, n_terminal=1)
    mu, pi = mdp.random_policy(1, concentration=5.0), mdp.random_policy(2, concentration=5.0)
    logs = mdp.log(mu, 20_000, horizon=12, seed=0, ragged=False)
    bonus = mdp.value(mu) + np.array([1.0, -2.0, 0.5, 2.0, 0.0])  # the identity holds for any bonus
    values = StateValues.of(lambda x: x @ bonus, logs)
    ratios = importance_ratios(logs, mdp.policy(pi))
    truth = mdp.k_step_advantage(pi, mu, 3, bonus=bonus)
    complete = logs.steps <= 9  # the window is cut by a termination at most, never by the end of the log
    for form in ("raw", "residual"):
        advantages = k_step_advantages(
            logs, values, k=3, gamma=0.9, ratios=ratios, weight_clip=None, form=form
        )
        scores = []
        for s, a in pairs(range(4), range(2)):
            sample = advantages.values[complete & (logs.contexts[:, s] == 1) & (logs.actions == a)]
            assert len(sample) > 500
            scores.append((sample.mean() - truth[s, a]) / (sample.std() / np.sqrt(len(sample))))
        assert np.abs(scores).max() < 4


def test_the_residual_form_does_not_feel_the_level_of_the_value_and_the_raw_form_does():
    mdp = random_mdp(5, 2, seed=7, gamma=0.9)
    mdp = replace(mdp, reward=mdp.reward + 10.0)  # V is about 100, its differences are about 1
    mu, pi = mdp.random_policy(1, concentration=5.0), mdp.random_policy(2, concentration=5.0)
    logs = mdp.log(mu, 2_000, horizon=12, seed=0, ragged=False)
    values = StateValues.of(lambda x: x @ mdp.value(mu), logs)
    ratios = importance_ratios(logs, mdp.policy(pi))
    for clip in (None, (0.5, 2.0)):
        raw, residual = (
            k_step_advantages(logs, values, k=5, gamma=0.9, ratios=ratios, weight_clip=clip, form=form).values
            for form in ("raw", "residual")
        )
        assert residual.std() < 0.1 * raw.std()


# ---------------------------------------------------------------------- properties and bad input


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    k=st.one_of(st.integers(1, 8), st.just("session")),
    seed=st.integers(0, 10_000),
    block=st.sampled_from([1, 4, 16_384]),
)
def test_any_shape_agrees_with_the_loops(lengths, k, seed, block):
    rng = np.random.default_rng(seed)
    n, count = sum(lengths), len(lengths)
    offsets = np.append(0, np.cumsum(lengths))
    starts = np.union1d(offsets, np.flatnonzero(rng.random(n) < 0.3))
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(n, 2)),
        actions=rng.integers(2, size=n),
        rewards=rng.normal(size=n),
        propensities=rng.uniform(0.2, 1, size=n),
        offsets=offsets,
        session_offsets=starts,
        terminated=rng.random(count) < 0.3,
        final_contexts=rng.normal(size=(count, 2)),
        final_observed=rng.random(count) < 0.5,
        n_actions=2,
    )
    values = StateValues.of(lambda x: x.sum(axis=1), logs)
    options = {
        "k": k,
        "gamma": 0.7,
        "ratios": rng.uniform(0, 3, size=n) * (rng.random(n) < 0.7),
        "weight_clip": (0.5, 2.0),
        "form": "raw",
        "clip": "prefix",
        "bonus_ratio": True,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "_BLOCK", block)
        advantages = k_step_advantages(logs, values, **options)
    np.testing.assert_allclose(advantages.values, by_loops(logs, values, **options), rtol=1e-6, atol=1e-6)


def test_huge_products_are_clipped_or_refused_but_never_infinite():
    n = 300
    logs = small_log(
        contexts=np.zeros((n, 1)),
        actions=np.zeros(n, dtype=int),
        rewards=np.ones(n),
        offsets=[0, n],
        propensities=np.ones(n),
        session_offsets=None,
        final_contexts=[[0.0]],
    )
    values = StateValues.zeros(logs)
    for ratio in (1e9, 1e-9):
        advantages = k_step_advantages(logs, values, k=n, gamma=0.9, ratios=np.full(n, ratio))
        assert np.isfinite(advantages.values).all()
        assert 0 < advantages.weights.effective_share <= 1
    with pytest.raises(DataError, match="weight_clip"):
        k_step_advantages(logs, values, k=n, gamma=0.9, ratios=np.full(n, 1e9), weight_clip=None)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "week", None])
def test_bad_k(k):
    with pytest.raises(ConfigError, match="k to be an int of at least 1"):
        k_step_advantages(LOGS, VALUES, k=k, gamma=0.9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"weight_clip": (2.0, 0.5)}, "weight_clip"),
        ({"form": "dry"}, "form to be one of residual, raw"),
        ({"clip": "none"}, "clip to be one of"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        k_step_advantages(LOGS, VALUES, **({"k": 2, "gamma": 0.9} | options))


def test_bad_ratios():
    for ratios, message in (
        (np.full(len(LOGS), np.nan), "row 0"),
        (np.full(len(LOGS), -1.0), "at least 0"),
        (np.ones(3), "shape"),
    ):
        with pytest.raises(DataError, match=message):
            k_step_advantages(LOGS, VALUES, k=2, gamma=0.9, ratios=ratios)


def test_logs_without_propensities_or_rewards():
    bare = replace(LOGS, propensities=None, propensity_mode="absent", behaviour=None)
    with pytest.raises(DataError, match="with_estimated_propensities"):
        importance_ratios(bare, MDP.policy(PI))
    with pytest.raises(DataError, match="backshift"):
        k_step_advantages(replace(LOGS, rewards=None), VALUES, k=2, gamma=0.9)


def test_a_value_that_is_nan_is_named():
    def broken(x):
        return np.where(np.arange(len(x)) == 17, np.nan, 0.0)

    with pytest.raises(DataError, match="row 17"):
        StateValues.of(broken, LOGS)
