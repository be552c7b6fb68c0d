from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.ope import IPS, PDIS, SNIPS, SNPDIS, Problem, Settings
from shpi.policies import ConstantPolicy, UniformPolicy
from tests.ope.worlds import H, brute_force, every_path, small_world, value

MDP, MU, PI = small_world()


def problem_of(logs: LoggedData, table: np.ndarray = PI, **settings: object) -> Problem:
    return Problem.of(MDP.policy(table), logs, Settings(**({"gamma": 0.9} | settings)))  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [None, 1, 2, 3, H, H + 7])
def test_steps_equal_the_obvious_loops(k):
    logs = MDP.log(MU, 300, H, seed=0, ragged=False)
    problem = problem_of(logs)
    ratios = np.exp(next(problem.chunks()).log_ratios)
    plain, normalised = brute_force(logs, ratios, 0.9, H, k=k)
    assert PDIS(k=k).estimate(problem).value == pytest.approx(plain, rel=1e-10)
    assert SNPDIS(k=k).estimate(problem).value == pytest.approx(normalised, rel=1e-10)


def test_whole_trajectories_equal_the_obvious_loops():
    logs = MDP.log(MU, 300, H, seed=0, ragged=False)
    problem = problem_of(logs)
    plain, normalised = brute_force(logs, np.exp(next(problem.chunks()).log_ratios), 0.9, H, whole=True)
    assert IPS().estimate(problem).value == pytest.approx(plain, rel=1e-10)
    assert SNIPS().estimate(problem).value == pytest.approx(normalised, rel=1e-10)


@pytest.mark.parametrize("estimator", [IPS(), PDIS()])
def test_exact_expectation_over_every_path(estimator):
    mdp, mu, pi = small_world(noise=0.0, branching=2)
    logs, chance = every_path(mdp, mu, 3)
    assert chance.sum() == pytest.approx(1.0)
    settings = Settings(gamma=0.9, errors="linearised")
    estimate = estimator.estimate(Problem.of(mdp.policy(pi), logs, settings))
    contributions = estimate.value + estimate.influence_value  # of every path, had it been the only one
    assert chance @ contributions == pytest.approx(value(mdp, pi, 3), rel=1e-10)


@pytest.mark.parametrize("estimator", [IPS(), SNIPS(), PDIS(), SNPDIS(), SNPDIS(k=2), PDIS(k=1)])
def test_the_policy_of_the_log_gives_exactly_its_own_mean(estimator):
    logs = MDP.log(MU, 500, H, seed=1, ragged=True)
    assert logs.terminated.any()
    assert (~logs.terminated).any()
    estimate = estimator.estimate(problem_of(logs, MU))
    assert estimate.value == pytest.approx(estimate.baseline, rel=1e-13)
    assert estimate.lift == 0
    assert estimate.lift_error == 0
    assert estimate.lift_interval.lower == estimate.lift_interval.upper == 0


def test_on_policy_mean_of_users_that_leave():
    logs = MDP.log(MU, 500, H, seed=1, ragged=False)
    sums = np.add.reduceat(0.9**logs.steps * logs.rewards, logs.offsets[:-1])
    assert SNPDIS().estimate(problem_of(logs)).baseline == pytest.approx(sums.mean(), rel=1e-12)


@pytest.mark.parametrize("estimator", [IPS(), SNIPS(), PDIS(), SNPDIS()])
def test_half_of_the_users_leave_after_one_step(estimator):
    """Each decision earns 1; half of the users leave after the first of two: 1.5 per user, not 2."""
    lengths = np.array([1, 2] * 50)
    logs = LoggedData.from_arrays(
        contexts=np.zeros((lengths.sum(), 1)),
        actions=np.zeros(lengths.sum(), dtype=int),
        rewards=np.ones(lengths.sum()),
        propensities=np.ones(lengths.sum()),
        offsets=np.append(0, np.cumsum(lengths)),
        terminated=lengths == 1,
        n_actions=1,
    )
    estimate = estimator.estimate(Problem.of(UniformPolicy(1), logs))
    assert estimate.value == pytest.approx(1.5)
    assert estimate.baseline == pytest.approx(1.5)


def test_a_policy_that_keeps_users_is_worth_more():
    """Action 1 drives users away at once. mu takes it half of the time, pi never: 2 against 1.5."""
    rng = np.random.default_rng(0)
    stays = rng.random(4_000) < 0.5
    lengths = np.where(stays, 2, 1)
    first = np.append(0, np.cumsum(lengths))[:-1]
    actions = np.zeros(lengths.sum(), dtype=int)
    actions[first[~stays]] = 1
    logs = LoggedData.from_arrays(
        contexts=np.zeros((len(actions), 1)),
        actions=actions,
        rewards=np.ones(len(actions)),
        propensities=np.where(np.isin(np.arange(len(actions)), first), 0.5, 1.0),
        offsets=np.append(0, np.cumsum(lengths)),
        terminated=~stays,
        n_actions=2,
    )
    for estimator in (SNPDIS(), PDIS()):
        estimate = estimator.estimate(Problem.of(ConstantPolicy((1.0, 0.0)), logs))
        assert abs(estimate.value - 2) <= 4 * estimate.value_error + 1e-9
        assert abs(estimate.baseline - 1.5) < 0.05


def test_censoring_and_termination_together_are_unbiased():
    """Ended users stay in denominators and censored ones leave: without reweighting J would be too low."""
    errors = []
    for seed in range(40):
        logs = MDP.log(MU, 400, H, seed=seed, ragged=True)
        estimate = SNPDIS().estimate(problem_of(logs))
        errors.append((estimate.value - value(MDP, PI), estimate.baseline - value(MDP, MU)))
    mean, error = np.mean(errors, axis=0), np.std(errors, axis=0) / np.sqrt(len(errors))
    assert (np.abs(mean) < 4 * error).all()
    assert (error < 0.05).all()


def test_complete_logs_count_what_is_not_there_as_zero():
    logs = MDP.log(MU, 300, H, seed=1, ragged=True)
    sums = np.add.reduceat(0.9**logs.steps * logs.rewards, logs.offsets[:-1])
    estimate = SNPDIS().estimate(problem_of(logs, truncated="complete"))
    assert estimate.baseline == pytest.approx(sums.mean(), rel=1e-12)


@pytest.mark.parametrize("k", [None, 2])
def test_influences_are_the_jackknife(k):
    logs = MDP.log(MU, 40, H, seed=2, ragged=False)
    whole = SNPDIS(k=k).estimate(problem_of(logs))
    left_out = np.array(
        [
            SNPDIS(k=k).estimate(problem_of(logs.select(np.arange(40) != u), horizon=H)).value
            for u in range(40)
        ]
    )
    moved = 40 * (whole.value - left_out)
    factor = np.std(whole.influence_value) / np.std(moved)
    assert factor >= 1 - 1e-9  # the floor may enlarge them
    np.testing.assert_allclose(whole.influence_value, factor * (moved - moved.mean()), atol=1e-9)


def test_influences_hold_the_noise_of_the_censoring():
    logs = MDP.log(MU, 60, H, seed=4, ragged=True)
    assert logs.terminated.any()
    settings = {"horizon": H - 1}
    whole = SNPDIS().estimate(problem_of(logs, **settings))
    left_out = np.array(
        [SNPDIS().estimate(problem_of(logs.select(np.arange(60) != u), **settings)).value for u in range(60)]
    )
    moved = 60 * (whole.value - left_out)
    slope, _ = np.polyfit(moved, whole.influence_value, 1)
    assert slope >= 0.97  # to first order in the censoring, and perhaps enlarged to the floor
    assert np.corrcoef(moved, whole.influence_value)[0, 1] > 0.99


def test_several_trajectories_of_a_user_are_one_observation():
    logs = MDP.log(MU, 200, H, seed=3, ragged=False)
    twice = logs.select(np.repeat(np.arange(200), 2))  # each trajectory twice, under one user
    assert twice.n_users == 200
    once, doubled = (SNPDIS().estimate(problem_of(log, errors="linearised")) for log in (logs, twice))
    assert doubled.value == pytest.approx(2 * once.value)
    assert doubled.value_error == pytest.approx(2 * once.value_error)  # and not sqrt(2) times


@pytest.mark.parametrize("estimator", [SNIPS(), SNPDIS(), SNPDIS(k=2)])
def test_a_constant_added_to_rewards_moves_the_value_alone(estimator):
    mdp, mu, pi = small_world(n_terminal=0)
    logs = mdp.log(mu, 300, H, seed=0, ragged=True)
    policy = mdp.policy(pi)
    before = estimator.estimate(Problem.of(policy, logs, Settings(gamma=0.9)))
    shifted = logs.with_rewards(3.0 * logs.rewards + 100.0)
    after = estimator.estimate(Problem.of(policy, shifted, Settings(gamma=0.9)))
    assert after.lift == pytest.approx(3 * before.lift, rel=1e-9)
    assert after.lift_error == pytest.approx(3 * before.lift_error, rel=1e-9)
    assert after.value == pytest.approx(3 * before.value + 100 * (1 - 0.9**H) / 0.1, rel=1e-9)


def test_products_over_long_trajectories_neither_vanish_nor_overflow():
    rng = np.random.default_rng(0)
    n, steps = 20, 2_000
    p = rng.uniform(0.2, 0.8, size=n * steps)
    logs = LoggedData.from_arrays(
        contexts=p[:, None],
        actions=(rng.random(n * steps) < 0.5).astype(int),
        rewards=rng.random(n * steps),
        propensities=np.full(n * steps, 0.5),
        offsets=np.arange(n + 1) * steps,
        n_actions=2,
    )

    class FromContext:
        n_actions = 2

        def action_probs(self, contexts, candidates=None):
            return np.concatenate([1 - contexts, contexts], axis=1).astype(np.float64)

    problem = Problem.of(FromContext(), logs)
    estimate = SNPDIS().estimate(problem)
    assert np.isfinite(estimate.value)
    assert 0 < estimate.value < steps
    assert estimate.effective_users < 3
    assert np.isfinite(SNPDIS(k=3).estimate(problem).lift_error)


def test_plain_products_that_overflow_are_refused():
    logs = LoggedData.from_arrays(
        contexts=np.zeros((800, 1)),
        actions=np.zeros(800, dtype=int),
        rewards=np.ones(800),
        propensities=np.full(800, 0.1),
        offsets=np.array([0, 400, 800]),
        n_actions=2,
    )
    with pytest.raises(DataError, match="importance products below 1e150"):
        PDIS().estimate(Problem.of(ConstantPolicy((1.0, 0.0)), logs))


def test_no_overlap_is_refused():
    logs = MDP.log(MU, 50, H, seed=0)
    never = np.zeros_like(MU)
    unused = int(np.argmin(np.bincount(logs.actions, minlength=3)))
    only = logs.select(
        np.array(
            [
                (logs.actions[a:b] != unused).all()
                for a, b in zip(logs.offsets, logs.offsets[1:], strict=False)
            ]
        )
    )
    never[:, unused] = 1.0
    for estimator in (SNPDIS(), PDIS(), IPS(), SNIPS()):
        with pytest.raises(DataError, match="every importance weight is 0"):
            estimator.estimate(problem_of(only, never))


def test_a_step_without_overlap_is_named():
    logs = LoggedData.from_arrays(
        contexts=np.zeros((4, 1)), actions=[0, 1, 0, 1], rewards=np.ones(4), offsets=[0, 2, 4],
        propensities=np.full(4, 0.5), n_actions=2,
    )  # fmt: skip
    with pytest.raises(DataError, match=r"none at step 1.*horizon=1"):
        SNPDIS().estimate(Problem.of(ConstantPolicy((1.0, 0.0)), logs))


def test_without_propensities_weights_are_refused():
    logs = MDP.log(MU, 50, H, seed=0)
    bare = LoggedData.from_arrays(
        contexts=logs.contexts, actions=logs.actions, rewards=logs.rewards, offsets=logs.offsets, n_actions=3
    )
    with pytest.raises(DataError, match="a log with propensities"):
        SNPDIS().estimate(problem_of(bare))


def test_k_must_be_positive():
    with pytest.raises(ConfigError, match="k of at least 1"):
        PDIS(k=0)


def random_log(seed: int) -> LoggedData:
    """Any shape: several trajectories per user, endings of every kind, rewards that were not all observed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 30))
    lengths = rng.integers(1, 6, size=count)
    n = int(lengths.sum())
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 2)),
        actions=rng.integers(3, size=n),
        rewards=rng.standard_normal(n),
        propensities=rng.uniform(0.05, 1.0, size=n),
        offsets=np.append(0, np.cumsum(lengths)),
        users=np.append([0, 1], rng.integers(0, count, size=count - 2)),
        terminated=rng.random(count) < rng.random(),
        n_actions=3,
    )
    observed = rng.random(n) < 0.9
    observed[logs.steps == 0] = True
    return replace(logs, reward_observed=observed) if rng.random() < 0.5 else logs


def _seen_at_every_step(logs: LoggedData) -> bool:
    observed = np.ones(len(logs), dtype=bool) if logs.reward_observed is None else logs.reward_observed
    return bool((np.bincount(logs.steps, weights=observed) > 0).all())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([IPS(), SNIPS(), PDIS(), SNPDIS(), SNPDIS(k=2)]))
def test_any_log_in_any_order(seed, estimator):
    logs = random_log(seed)
    policy = ConstantPolicy((0.2, 0.3, 0.5))
    if not _seen_at_every_step(logs):
        with pytest.raises(DataError, match="at every step"):
            estimator.estimate(Problem.of(policy, logs))
        return
    estimate = estimator.estimate(Problem.of(policy, logs))
    assert np.isfinite([estimate.value, estimate.lift_error, estimate.effective_users]).all()
    assert estimate.effective_users <= logs.n_users * (1 + 1e-9)
    assert len(estimate.influence_value) == logs.n_users
    order = np.random.default_rng(seed).permutation(logs.n_trajectories)
    shuffled = estimator.estimate(Problem.of(policy, logs.select(order)))
    assert shuffled.value == pytest.approx(estimate.value, rel=1e-9, abs=1e-9)
    # A user who is alone at a step has a leverage of 1, which enlarges rounding.
    np.testing.assert_allclose(shuffled.influence_lift, estimate.influence_lift, rtol=1e-6, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([IPS(), SNIPS(), PDIS(), SNPDIS(), SNPDIS(k=2)]))
def test_any_log_evaluates_its_own_policy_exactly(seed, estimator):
    logs = random_log(seed)
    table = np.array([0.2, 0.3, 0.5])
    itself = replace(logs, propensities=table[logs.actions])
    assume(_seen_at_every_step(logs))
    estimate = estimator.estimate(Problem.of(ConstantPolicy(tuple(table)), itself))
    assert estimate.lift == 0
    assert estimate.lift_error <= 1e-8 * (1 + estimate.value_error)
