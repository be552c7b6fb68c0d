"""The paper's statements against enumeration. The numbers of docs/theory.md are produced here."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as pairs
from pathlib import Path

import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.testing.tabular import TabularMDP, random_mdp
from shpi.theory import (
    bellman_residual_minimiser,
    condition_2_bound,
    condition_2_lambda,
    fixed_point_bound,
    geometric,
    improvement_terms,
    performance_difference,
    raw_bias_bound,
    residual_bias_bound,
)

DOCS = Path(__file__).resolve().parents[1] / "docs" / "theory.md"


def in_docs(label: str, *values: float) -> None:
    """The row of the documentation's table with these numbers must exist."""
    row = "| " + " | ".join([label, *(f"{value:.4g}" for value in values)]) + " |"
    assert row in DOCS.read_text(encoding="utf-8"), f"docs/theory.md should contain the row\n{row}"


def bandit(reward, *, gamma: float) -> TabularMDP:
    """One state that everything leads back to."""
    table = np.array([reward], dtype=float)
    return TabularMDP(
        transition=np.ones((1, table.shape[1], 1)),
        reward=table,
        gamma=gamma,
        initial=np.ones(1),
        terminal=np.zeros(1, dtype=bool),
    )


# ---------------------------------------------------------------------- Theorem 1


@pytest.mark.parametrize(("gamma", "k"), [(0.9, 1), (0.9, 2), (0.7, 3), (1.0, 2), (0.9, 6), (0.9, 9)])
def test_theorem_1_holds_term_by_term_with_a_factor_gamma(gamma, k):
    for seed in range(5):
        mdp = random_mdp(5, 3, seed=seed, gamma=gamma, n_terminal=seed % 2)
        mu, pi = mdp.random_policy(seed + 1), mdp.random_policy(seed + 2)
        terms = improvement_terms(mdp, pi, mu, k=k, horizon=6)
        np.testing.assert_allclose(gamma * terms.lead[1:], terms.advantage + terms.remainder, atol=1e-12)
        own = improvement_terms(mdp, pi, mu, k=k, horizon=6, first=pi)
        np.testing.assert_allclose(own.lead[:-1], own.advantage + own.remainder, atol=1e-12)


def test_theorem_1_as_printed_lacks_the_factor():
    mdp = random_mdp(5, 3, seed=0, gamma=0.9)
    mu, pi = mdp.random_policy(1), mdp.random_policy(2)
    terms = improvement_terms(mdp, pi, mu, k=2, horizon=6)
    left, right = terms.lead[1:].sum(), (terms.advantage + terms.remainder).sum()
    assert abs(left - right) > 0.05 * abs(left)
    assert 0.9 * left == pytest.approx(right)
    in_docs("Theorem 1, printed: left and right side", left, right)
    once = replace(mdp, gamma=1.0)
    terms = improvement_terms(once, pi, mu, k=2, horizon=6)
    assert terms.lead[1:].sum() == pytest.approx((terms.advantage + terms.remainder).sum())


def test_with_k_1_the_first_term_of_theorem_1_is_zero_whatever_pi():
    mdp = random_mdp(5, 3, seed=0, gamma=0.9)
    terms = improvement_terms(mdp, mdp.random_policy(2), mdp.random_policy(1), k=1, horizon=6)
    np.testing.assert_allclose(terms.advantage, 0.0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4, 7, 20])
def test_the_performance_difference_in_steps_of_k(k):
    mdp = random_mdp(6, 3, seed=4, gamma=0.9, n_terminal=1)
    mu, pi = mdp.random_policy(1), mdp.random_policy(2)
    truth = mdp.initial @ (mdp.values_by_time(pi, 10)[0] - mdp.values_by_time(mu, 10)[0])
    assert performance_difference(mdp, pi, mu, k=k, horizon=10) == pytest.approx(truth, abs=1e-12)


def test_the_longest_k_gives_q_minus_the_value_of_mu_not_the_advantage_of_pi():
    mdp = random_mdp(5, 3, seed=1, gamma=0.9)
    mu, pi = mdp.random_policy(1), mdp.random_policy(2)
    longest = mdp.k_step_advantage_by_time(pi, mu, 6, 6)[0]
    new, old = mdp.values_by_time(pi, 6), mdp.values_by_time(mu, 6)
    advantage = mdp.reward + 0.9 * mdp.transition @ new[1] - new[0][:, None]
    np.testing.assert_allclose(longest, advantage + (new[0] - old[0])[:, None], atol=1e-12)
    assert np.abs(longest - advantage).max() > 0.1
    np.testing.assert_array_equal(longest.argmax(axis=1), advantage.argmax(axis=1))


# ---------------------------------------------------------------------- Lemma 1


def variances(mu_good: float, *, gamma: float = 0.9) -> dict[tuple[str, int], float]:
    """Var of the estimators with exact V, exact weights: x_0 leads to A or B; in B one action is bad.

    In A every action earns 1. In B the good action earns 1 and the bad one -5. pi is good, T = 2.
    """
    value = {"A": 1.0, "B": mu_good - 5 * (1 - mu_good)}
    outcomes = [  # probability, next state, weight of its action, reward of its action
        (0.5, "A", 1.0, 1.0),
        (0.5 * mu_good, "B", 1 / mu_good, 1.0),
        (0.5 * (1 - mu_good), "B", 0.0, -5.0),
    ]
    p = np.array([o[0] for o in outcomes])
    here = np.array([value[o[1]] for o in outcomes])
    weighted = np.array([o[2] * o[3] for o in outcomes])
    delta = np.array([o[2] * (o[3] - value[o[1]]) for o in outcomes])
    estimates = {
        ("raw", 1): gamma * here,
        ("raw", 2): gamma * weighted,
        ("residual", 1): gamma * here,
        ("residual", 2): gamma * here + gamma * delta,
    }
    return {name: float(p @ (e - p @ e) ** 2) for name, e in estimates.items()}


def test_lemma_1_fails_with_everything_exact():
    errors = variances(0.9)
    assert errors["raw", 2] < errors["raw", 1]
    assert errors["residual", 2] < errors["residual", 1]
    in_docs("Lemma 1, raw form: MSE for k = 1 and k = 2", errors["raw", 1], errors["raw", 2])
    in_docs("Lemma 1, residual form: MSE for k = 1 and k = 2", errors["residual", 1], errors["residual", 2])


def test_lemma_1_fails_on_a_deterministic_chain_with_independent_errors_of_v():
    rng, gamma = np.random.default_rng(0), 0.9
    errors = rng.normal(size=(200_000, 6))  # of V-hat at x_t .. x_{t+5}; nothing else is random
    mse = [np.mean((gamma**k * errors[:, k] - errors[:, 0]) ** 2) for k in (1, 3, 5)]
    np.testing.assert_allclose(mse, [1 + gamma ** (2 * k) for k in (1, 3, 5)], rtol=0.02)
    assert mse[0] > mse[1] > mse[2]


def test_lemma_1_holds_on_policy_with_the_exact_value():
    mdp = random_mdp(4, 2, seed=0, gamma=0.9, branching=2)
    mu = mdp.random_policy(1)
    value = mdp.value(mu)
    spread = np.zeros(4)  # Var of sum_{m=1}^{k-1} gamma^m delta, by the law of total variance
    joint = np.einsum("sa,sat->sat", mu, mdp.transition)
    delta = mdp.reward[:, :, None] + 0.9 * value[None, None, :] - value[:, None, None]
    one_step = np.einsum("sat,sat->s", joint, delta**2)
    np.testing.assert_allclose(np.einsum("sat,sat->s", joint, delta), 0.0, atol=1e-12)
    for _ in range(5):
        longer = one_step + 0.81 * joint.sum(axis=1) @ spread  # deltas are uncorrelated: variances add up
        assert (longer >= spread - 1e-12).all()
        spread = longer


# ---------------------------------------------------------------------- Lemma 2


def clipped_mean(mdp, pi, mu, *, k, horizon, t, clip, form, v_hat=None, r_hat=None, bonus_ratio=False):
    """E[A-hat] [S, A] by enumeration of all paths, and the errors that the bounds are made of."""
    s, a = mdp.reward.shape
    value = mdp.values_by_time(mu, horizon)
    v = value if v_hat is None else v_hat
    r = mdp.reward if r_hat is None else r_hat
    ratio = pi / mu

    def cut(w):
        return float(np.clip(w, *clip))

    means, e_w, e_r, e_v = np.zeros((s, a)), np.zeros((s, a)), np.zeros((s, a)), np.zeros((s, a))
    delta_max = 0.0
    end = min(t + k, horizon)
    for x0, a0 in pairs(range(s), range(a)):
        weight_error, reward_error = np.zeros(k + 1), np.zeros(k)
        stack = [(t, x0, a0, 1.0, 1.0, 0.0)]  # time, state, action, path probability, product, sum so far
        while stack:
            now, x, b, p, w, total = stack.pop()
            m = now - t
            weight_error[m] += p * abs(cut(w) - w)
            reward_error[m] += p * abs(r[x, b] - mdp.reward[x, b])
            for y in np.flatnonzero(mdp.transition[x, b]):
                q = p * mdp.transition[x, b, y]
                ahead = v[now + 1, y]
                delta = r[x, b] + mdp.gamma * ahead - v[now, x]
                delta_max = max(delta_max, abs(delta))
                term = r[x, b] if form == "raw" else delta
                sums = total + mdp.gamma**m * cut(w) * term
                if now + 1 < end:
                    stack += [(now + 1, y, c, q * mu[y, c], w * ratio[y, c], sums) for c in range(a)]
                    continue
                e_v[x0, a0] += q * abs(ahead - value[end, y])
                if form == "raw":
                    last = [(1.0, w)] if not bonus_ratio else [(mu[y, c], w * ratio[y, c]) for c in range(a)]
                    bonus = sum(pc * cut(wc) for pc, wc in last)
                    weight_error[m + 1] += q * sum(pc * abs(cut(wc) - wc) for pc, wc in last) * bonus_ratio
                    sums += mdp.gamma ** (m + 1) * bonus * ahead
                means[x0, a0] += q * sums
        if form == "raw":
            means[x0, a0] -= v[t, x0]
        e_w[x0, a0], e_r[x0, a0] = weight_error.max(), reward_error.max()
    return means, e_w, e_r, e_v, delta_max


@pytest.mark.parametrize("t", [0, 2])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_corrected_bounds_hold_by_enumeration(k, t):
    horizon = 6
    for seed in range(4):
        mdp = random_mdp(3, 2, seed=seed, gamma=0.8, branching=2)
        mu, pi = mdp.random_policy(seed, concentration=0.7), mdp.random_policy(seed + 9, concentration=0.3)
        rng = np.random.default_rng(seed)
        value = mdp.values_by_time(mu, horizon)
        v_hat = value + 0.3 * rng.normal(size=value.shape) * (np.arange(horizon + 1) < horizon)[:, None]
        r_hat = mdp.reward + 0.2 * rng.normal(size=mdp.reward.shape)
        truth = mdp.k_step_advantage_by_time(pi, mu, k, horizon)[t]
        options = {"k": k, "horizon": horizon, "t": t, "clip": (0.5, 2.0)}
        means, e_w, e_r, e_v, _ = clipped_mean(mdp, pi, mu, form="raw", v_hat=v_hat, r_hat=r_hat, **options)
        for x, a in pairs(range(3), range(2)):
            bound = raw_bias_bound(
                k=k,
                gamma=0.8,
                steps_left=horizon - t,
                q2=2.0,
                r_max=float(np.abs(mdp.reward).max()),
                reward_error=e_r[x, a],
                weight_error=e_w[x, a],
                end_value_error=e_v[x, a],
                value_error=abs(v_hat[t, x] - value[t, x]),
            )
            assert abs(means[x, a] - truth[x, a]) <= bound + 1e-12
        means, e_w, _, _, delta = clipped_mean(mdp, pi, mu, form="residual", v_hat=v_hat, **options)
        error = float(np.abs(v_hat - value).max())
        bound = residual_bias_bound(
            k=k, gamma=0.8, delta_max=delta, weight_error=float(e_w.max()), value_error=error
        )
        assert (np.abs(means - truth) <= bound + 1e-12).all()


def printed_weight_term(k, gamma, t, horizon, r_max, e_w):
    return (1 - gamma**k + gamma ** (t + k) - gamma ** (horizon + 1)) / (1 - gamma) * abs(r_max) * e_w


def test_lemma_2_as_printed_fails_when_rewards_are_not_positive():
    mdp, mu, pi = bandit([0.0, -1.0], gamma=0.9), np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
    means, e_w, *_ = clipped_mean(mdp, pi, mu, k=2, horizon=2, t=0, clip=(0.5, 2.0), form="raw")
    bias = abs(means - mdp.k_step_advantage_by_time(pi, mu, 2, 2)[0]).max()
    printed = printed_weight_term(2, 0.9, 0, 2, r_max=mdp.reward.max(), e_w=e_w.max())
    assert bias > printed == 0.0
    in_docs("Lemma 2, r_max = sup r with rewards 0 and -1: bias and printed bound", bias, printed)


def test_lemma_2_as_printed_fails_late_in_the_episode():
    gamma, t, horizon, k = 0.9, 20, 100, 2
    mdp, mu, pi = bandit([1.0, 1.0], gamma=gamma), np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
    means, e_w, *_ = clipped_mean(mdp, pi, mu, k=k, horizon=horizon, t=t, clip=(0.5, 2.0), form="raw")
    bias = abs(means - mdp.k_step_advantage_by_time(pi, mu, k, horizon)[t]).max()
    printed = printed_weight_term(k, gamma, t, horizon, 1.0, e_w.max())
    right = raw_bias_bound(
        k=k, gamma=gamma, steps_left=horizon - t, q2=2.0, r_max=1.0, weight_error=e_w.max()
    )
    assert printed < bias <= right
    in_docs("Lemma 2 at t = 20 of T = 100: bias and printed bound", bias, printed)


def test_lemma_2_as_printed_fails_for_k_1_with_the_printed_weight_of_the_bonus():
    gamma, horizon = 0.9, 10
    mdp, mu, pi = bandit([1.0, 1.0], gamma=gamma), np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
    options = {"k": 1, "horizon": horizon, "t": 0, "clip": (0.5, 2.0), "form": "raw"}
    truth = mdp.k_step_advantage_by_time(pi, mu, 1, horizon)[0]
    means, *_ = clipped_mean(mdp, pi, mu, **options, bonus_ratio=True)
    bias = abs(means - truth).max()
    assert bias > 0.5  # the printed maximum runs over w_{t+1}^{t} = 1 alone: no error, so a bound of 0
    in_docs("Lemma 2, k = 1 with the printed weight of the bonus: bias and printed bound", bias, 0.0)
    ours, *_ = clipped_mean(mdp, pi, mu, **options)
    np.testing.assert_allclose(ours, truth, atol=1e-12)


def test_lemma_2_as_printed_fails_if_the_weight_error_is_that_of_the_mean():
    mdp, mu, pi = bandit([1.0, -1.0], gamma=0.9), np.array([[1 / 3, 2 / 3]]), np.array([[1.0, 0.0]])
    mean_weight = mu[0] @ np.clip(pi[0] / mu[0], 0.5, 2.0)
    assert mean_weight == pytest.approx(1.0)  # so that |E w-hat - E w| = 0
    means, *_ = clipped_mean(mdp, pi, mu, k=2, horizon=2, t=0, clip=(0.5, 2.0), form="raw")
    bias = abs(means - mdp.k_step_advantage_by_time(pi, mu, 2, 2)[0]).max()
    assert bias == pytest.approx(0.6)
    in_docs("Lemma 2, weights right in the mean only: bias and printed bound", bias, 0.0)


# ---------------------------------------------------------------------- Condition 2


def trap(gamma: float, k: int, error: float = 1.0) -> tuple[TabularMDP, np.ndarray]:
    """A world and a V-hat within ``error`` of V* = 0 in which "leave" is a fixed point of k-step iteration.

    State 0: stay (free), or leave for k steps at a cost; states 1 .. k-1 lead back to state 0.
    """
    cost = 2 * gamma**k * error / (1 - gamma) * (1 - 1e-9)
    transition = np.zeros((k, 2, k))
    transition[0, 0, 0] = transition[0, 1, 1] = 1.0
    for y in range(1, k):
        transition[y, :, (y + 1) % k] = 1.0
    reward = np.zeros((k, 2))
    reward[0, 1] = -cost
    bonus = np.zeros(k)
    bonus[0], bonus[k - 1] = error, -error
    mdp = TabularMDP(
        transition=transition,
        reward=reward,
        gamma=gamma,
        initial=np.eye(k)[0],
        terminal=np.zeros(k, dtype=bool),
    )
    return mdp, bonus


def iterate(
    mdp: TabularMDP, start: np.ndarray, bonus: np.ndarray, k: int, rounds: int = 50
) -> np.ndarray | None:
    """SHPI with exact expectations; the fixed point, or None if there is none within the rounds."""
    pi = start
    for _ in range(rounds):
        better = np.eye(mdp.n_actions)[mdp.k_step_advantage(pi, pi, k, bonus=bonus).argmax(axis=1)]
        if (better == pi).all():
            return pi
        pi = better
    return None


@pytest.mark.parametrize(("gamma", "k"), [(0.9, 2), (0.9, 5), (0.99, 5)])
def test_condition_2_as_printed_fails_and_the_fixed_point_bound_is_sharp(gamma, k):
    mdp, bonus = trap(gamma, k)
    np.testing.assert_allclose(mdp.optimal()[0], 0.0, atol=1e-9)
    leave = np.eye(2)[np.ones(k, dtype=int)]
    fixed_point = iterate(mdp, leave, bonus, k)
    assert fixed_point is not None
    assert fixed_point[0, 1] == 1.0
    loss = -mdp.value(fixed_point)[0]
    printed, ours = condition_2_bound(1.0, gamma=gamma, k=k), fixed_point_bound(1.0, gamma=gamma, k=k)
    assert loss > printed
    assert loss == pytest.approx(ours, rel=1e-6)
    in_docs(f"Condition 2, gamma = {gamma}, k = {k}: loss and printed bound", loss, printed)


def test_the_fixed_point_bound_holds_on_random_worlds():
    reached = 0
    for seed in range(60):
        gamma, k = (0.5, 0.8, 0.95)[seed % 3], (1, 2, 3, 5)[seed % 4]
        mdp = random_mdp(5, 3, seed=seed, gamma=gamma, branching=2)
        best = mdp.optimal()[0]
        rng = np.random.default_rng(seed)
        bonus = best + rng.uniform(-1, 1, size=5)
        fixed_point = iterate(mdp, np.eye(3)[rng.integers(3, size=5)], bonus, k)
        if fixed_point is None:
            continue
        reached += 1
        error = float(np.abs(bonus - best).max())
        assert (best - mdp.value(fixed_point)).max() <= fixed_point_bound(error, gamma=gamma, k=k) + 1e-9
        exact = iterate(mdp, fixed_point, best, k)
        if exact is not None:  # with V-hat = V* every fixed point is optimal
            np.testing.assert_allclose(mdp.value(exact), best, atol=1e-8)
    assert reached > 30


def test_condition_2_holds_for_the_reshaped_world_it_was_taken_from():
    for seed in range(40):
        gamma, k = (0.5, 0.8, 0.95)[seed % 3], (1, 2, 5, 20)[seed % 4]
        mdp = random_mdp(5, 3, seed=seed, gamma=gamma, branching=2)
        best = mdp.optimal()[0]
        bonus = best + np.random.default_rng(seed).uniform(-1, 1, size=5)
        mix = condition_2_lambda(k, np.inf)
        shaped = replace(
            mdp, gamma=mix * gamma, reward=mdp.reward + (1 - mix) * gamma * mdp.transition @ bonus
        )
        loss = (best - mdp.value(shaped.optimal()[1])).max()
        assert loss <= condition_2_bound(float(np.abs(bonus - best).max()), gamma=gamma, k=k) + 1e-9


def test_lambda_at_its_ends():
    assert condition_2_lambda(1, 150) == 0.0
    assert condition_2_lambda(150, 150) == pytest.approx(1.0)
    assert condition_2_lambda(5, np.inf) == 0.8
    assert condition_2_bound(2.0, gamma=0.9, k=150, horizon=150) == pytest.approx(2.0)


# ---------------------------------------------------------------------- Eq. 3 and small things


def test_the_slope_of_the_bellman_residual():
    slopes = []
    for seed in range(5):
        mdp = random_mdp(10, 3, seed=seed, gamma=0.9)
        mu = mdp.random_policy(seed + 1)
        d = mdp.occupancy(mu, horizon=50)
        minimiser, truth = bellman_residual_minimiser(mdp, mu, d), mdp.value(mu)
        centred = truth - d @ truth
        slopes.append(float(d @ (minimiser * centred) / (d @ centred**2)))
    assert max(slopes) < 0.75
    in_docs(
        "Eq. 3, slope of the minimiser on V^mu in five random worlds: least and largest",
        min(slopes),
        max(slopes),
    )


def test_geometric_sums():
    assert geometric(1.0, 7) == 7.0
    assert geometric(0.5, np.inf) == 2.0
    assert geometric(0.9, 0) == 0.0
    for gamma, steps in ((1.0, np.inf), (1.5, 3), (0.9, -1)):
        with pytest.raises(ConfigError, match="gamma"):
            geometric(gamma, steps)


def test_bad_k():
    for make in (
        lambda: fixed_point_bound(1.0, gamma=0.9, k=0),
        lambda: residual_bias_bound(k=0, gamma=0.9, delta_max=1.0),
        lambda: raw_bias_bound(k=0, gamma=0.9, steps_left=3, q2=2.0, r_max=1.0),
        lambda: condition_2_lambda(0, 10),
        lambda: condition_2_lambda(11, 10),
    ):
        with pytest.raises(ConfigError, match="k"):
            make()
