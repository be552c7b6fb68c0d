import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.ope import DR, FQE, MAGIC, MIS, WDR, DirectMethod, OracleFQE, Problem, Settings
from shpi.ope.estimators.magic import mixture, switch_places
from shpi.ope.estimators.robust import Residuals, cross_fits
from shpi.ope.inference.intervals import standard_error
from shpi.ope.models.predictions import predict
from shpi.oracles import Gbdt, Ridge
from shpi.policies import ConstantPolicy
from tests.ope.worlds import EXACT, H, small_world, value

MDP, MU, PI = small_world()
MODELS = [FQE(**EXACT), DirectMethod(**EXACT), DR(**EXACT), WDR(**EXACT)]


def problem_of(logs, table=PI, **settings):
    return Problem.of(MDP.policy(table), logs, Settings(**({"gamma": 0.9} | settings)))


def bare(logs: LoggedData, **changes) -> LoggedData:
    parts = {
        name: getattr(logs, name)
        for name in (
            "contexts",
            "actions",
            "rewards",
            "offsets",
            "propensities",
            "terminated",
            "final_contexts",
        )
    }
    return LoggedData.from_arrays(**(parts | changes), n_actions=logs.n_actions)


# ---------------------------------------------------------------------- closed forms


def counted_model(logs: LoggedData):
    """Mean rewards [S, A] and transition shares [S, A, S] of the log, and the first states' shares.

    At the horizon nothing is known of those who go on, so nothing is counted there: terminations alone
    would look too frequent.
    """
    s, a = logs.contexts.argmax(axis=1), logs.actions
    visits, total, ends, moves = np.zeros((5, 3)), np.zeros((5, 3)), np.zeros((5, 3)), np.zeros((5, 3, 5))
    np.add.at(visits, (s, a), 1)
    np.add.at(total, (s, a), logs.rewards)
    inside = np.flatnonzero(np.diff(logs.trajectory_of_row) == 0)
    np.add.at(moves, (s[inside], a[inside], s[inside + 1]), 1)
    last = (logs.offsets[1:] - 1)[logs.terminated & (np.diff(logs.offsets) < H)]
    np.add.at(ends, (s[last], a[last]), 1)
    shares = moves / np.maximum(moves.sum(axis=2) + ends, 1)[:, :, None]
    first = np.bincount(s[logs.offsets[:-1]], minlength=5) / logs.n_trajectories
    return total / np.maximum(visits, 1), shares, first


def test_fqe_is_the_value_of_the_counted_model():
    logs = MDP.log(MU, 4_000, H, seed=0, ragged=False)
    mean, moves, first = counted_model(logs)
    values = np.zeros(5)
    for _ in range(H):
        values = np.sum(PI * (mean + 0.9 * moves @ values), axis=1)
    estimate = FQE(paired=False, **EXACT).estimate(problem_of(logs))
    assert estimate.value == pytest.approx(first @ values, rel=1e-4)


def test_direct_method_is_the_mean_of_counted_rewards():
    mdp, mu, pi = small_world(n_terminal=0)
    logs = mdp.log(mu, 1_000, H, seed=0, ragged=False)
    mean, _, _ = counted_model(logs)
    states = logs.contexts.argmax(axis=1)
    by_hand = np.sum(0.9**logs.steps * np.sum(pi[states] * mean[states], axis=1)) / 1_000
    estimate = DirectMethod(paired=False, **EXACT).estimate(
        Problem.of(mdp.policy(pi), logs, Settings(gamma=0.9))
    )
    assert estimate.value == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("normalise", [False, True])
def test_doubly_robust_equals_the_obvious_loop(normalise):
    logs = MDP.log(MU, 200, H, seed=0, ragged=False)
    problem = problem_of(logs)
    estimator = (WDR if normalise else DR)(paired=False, **EXACT)
    chunk = next(problem.chunks())
    q = predict(problem, chunk, cross_fits(problem, "pi", EXACT["features"], EXACT["ridge"]).by_fold)
    ahead, ratios = q.following(chunk), np.exp(chunk.log_ratios)
    top, weight = np.zeros(H), np.zeros(H)
    for i, (start, stop) in enumerate(zip(logs.offsets, logs.offsets[1:], strict=False)):
        for t in range(H):
            row = min(start + t, stop - 1)
            w = np.prod(ratios[start : row + 1])
            weight[t] += w
            if start + t < stop:
                top[t] += w * (logs.rewards[row] + 0.9 * ahead[row] - q.taken[row])
        assert logs.terminated[i] or stop - start == H
    below = weight if normalise else np.full(H, 200.0)
    by_hand = q.value[logs.offsets[:-1]].mean() + np.sum(0.9 ** np.arange(H) * top / below)
    assert estimator.estimate(problem).value == pytest.approx(by_hand, rel=1e-10)


def test_models_with_h_decisions_to_go_find_the_true_values():
    mdp, mu, pi = small_world(noise=0.0)
    logs = mdp.log(mu, 20_000, H, seed=0, ragged=False)
    problem = Problem.of(mdp.policy(pi), logs, Settings(gamma=0.9))
    chunk = next(problem.chunks())
    q = predict(problem, chunk, cross_fits(problem, "pi", EXACT["features"], EXACT["ridge"]).by_fold)
    truth = mdp.values_by_time(pi, H)[chunk.steps, chunk.logs.contexts.argmax(axis=1)]
    assert np.abs(q.value - truth).max() < 0.15
    v = predict(problem, chunk, cross_fits(problem, "state", EXACT["features"], EXACT["ridge"]).by_fold)
    of_mu = mdp.values_by_time(mu, H)[chunk.steps, chunk.logs.contexts.argmax(axis=1)]
    assert np.abs(v.value - of_mu).max() < 0.15


# ---------------------------------------------------------------------- statistics


@pytest.mark.parametrize("estimator", [*MODELS[:1], *MODELS[2:], MAGIC(**EXACT), FQE(paired=False, **EXACT)])
def test_ragged_and_censored_logs_give_the_true_value(estimator):
    logs = MDP.log(MU, 6_000, H, seed=5, ragged=True)
    estimate = estimator.estimate(problem_of(logs))
    assert abs(estimate.lift - (value(MDP, PI) - value(MDP, MU))) < 4 * estimate.lift_error
    assert 0 < estimate.lift_error < 0.1


@pytest.mark.parametrize(
    "estimator",
    [FQE(**EXACT), FQE(paired=False, **EXACT), DirectMethod(**EXACT), WDR(**EXACT), MAGIC(**EXACT)],
)
def test_standard_errors_agree_with_the_spread_over_logs(estimator):
    estimates = [estimator.estimate(problem_of(MDP.log(MU, 150, H, seed=s, ragged=True))) for s in range(40)]
    spread = np.std([estimate.lift for estimate in estimates])
    said = np.sqrt(np.mean([estimate.lift_error**2 for estimate in estimates]))
    assert 0.7 < said / spread < 1.5  # the spread of 40 has an error of 11 %


@pytest.mark.parametrize("estimator", [*MODELS, MIS(features=Identity(intercept=False))])
def test_the_policy_of_the_log_has_no_lift(estimator):
    logs = MDP.log(MU, 300, H, seed=6, ragged=True)
    estimate = estimator.estimate(problem_of(logs, MU))
    assert estimate.lift == pytest.approx(0, abs=1e-12)
    assert estimate.lift_error == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("paired", [True, False])
def test_the_noise_of_q_times_that_of_the_weights_is_in_the_error(paired):
    """A dozen users decide what the policy brings, and Q there: in one log the two do not cancel."""
    rng = np.random.default_rng(0)
    mu = np.array([0.97, 0.03])
    actions = (rng.random(400) < 0.03).astype(int)
    logs = LoggedData.from_arrays(
        contexts=np.zeros((400, 1)), actions=actions, rewards=(rng.random(400) < 0.5).astype(float),
        propensities=mu[actions], behaviour=np.tile(mu, (400, 1)), offsets=np.arange(401), n_actions=2,
    )  # fmt: skip
    problem = Problem.of(ConstantPolicy((0.5, 0.5)), logs, Settings())
    residuals = Residuals.of(problem, None, None, paired=paired)
    alone = residuals.sums(normalise=True)[0].influence
    estimate = WDR(paired=paired).estimate(problem)
    assert 1.01 < estimate.value_error / standard_error(alone) < 1.5
    moved = residuals.noise_of_fit(np.ones(1))
    assert estimate.influence_value == pytest.approx(alone + moved - moved.mean())


def test_dr_answers_where_no_weight_is_left_at_a_step():
    actions = np.tile([1, 0], 50)  # the policy never takes 0, which everybody does at the second step
    logs = LoggedData.from_arrays(
        contexts=np.zeros((100, 1)), actions=actions, rewards=np.arange(100) % 3.0,
        propensities=np.full(100, 0.5), behaviour=np.full((100, 2), 0.5), n_actions=2,
        offsets=np.arange(51) * 2,
    )  # fmt: skip
    problem = Problem.of(ConstantPolicy((0.0, 1.0)), logs, Settings())
    estimate = DR().estimate(problem)
    assert np.isfinite(estimate.value)
    assert estimate.value_error > 0
    with pytest.raises(DataError, match="every importance product is 0"):
        WDR().estimate(problem)


def test_without_logged_distributions_pairs_are_rougher_and_say_so():
    logs = bare(MDP.log(MU, 2_000, H, seed=6, ragged=False))
    for estimator in (FQE(**EXACT), DirectMethod(**EXACT), DR(**EXACT)):
        estimate = estimator.estimate(problem_of(logs, MU))
        assert abs(estimate.lift) < 4 * estimate.lift_error
        assert any("mu(.|x) was not logged" in note for note in estimate.notes)


def test_marginalised_weights_find_the_long_run():
    mdp, mu, pi = small_world(n_terminal=0)
    logs = mdp.log(mu, 1_500, 40, seed=0, ragged=False)
    estimate = MIS(features=Identity(intercept=False)).estimate(
        Problem.of(mdp.policy(pi), logs, Settings(gamma=0.9))
    )
    truth = value(mdp, pi, 40) - value(mdp, mu, 40)
    assert abs(estimate.lift - truth) < 4 * estimate.lift_error
    assert estimate.effective_users > 300  # products over 40 steps would have left a handful


def test_marginalised_weights_follow_users_who_stay_longer():
    mdp, mu, pi = small_world()
    logs = mdp.log(mu, 3_000, 60, seed=0, ragged=False)
    estimate = MIS(features=Identity(intercept=False)).estimate(
        Problem.of(mdp.policy(pi), logs, Settings(gamma=0.9))
    )
    truth = value(mdp, pi, 60) - value(mdp, mu, 60)
    assert abs(estimate.lift - truth) < 5 * estimate.lift_error


@pytest.mark.parametrize("estimator", [FQE(), DirectMethod(), DR(), WDR(), MAGIC(), MIS()])
def test_units_of_the_reward_do_not_matter(estimator):
    logs = MDP.log(MU, 300, H, seed=7, ragged=True)
    before = estimator.estimate(problem_of(logs))
    after = estimator.estimate(problem_of(logs.with_rewards(1e6 * logs.rewards)))
    assert after.lift == pytest.approx(1e6 * before.lift, rel=1e-6)
    assert after.lift_error == pytest.approx(1e6 * before.lift_error, rel=1e-6)


@pytest.mark.parametrize("estimator", [FQE(), DirectMethod(), WDR(), MAGIC(), MIS(features=Identity())])
def test_the_order_of_users_does_not_matter(estimator):
    logs = MDP.log(MU, 200, H, seed=8, ragged=True)
    shuffled = logs.select(np.random.default_rng(0).permutation(200))
    in_order, reordered = (estimator.estimate(problem_of(log)) for log in (logs, shuffled))
    assert reordered.lift == pytest.approx(in_order.lift, rel=1e-7)
    np.testing.assert_allclose(reordered.influence_lift, in_order.influence_lift, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------------- parts


def test_trees_and_other_oracles_back_values_up():
    logs = MDP.log(MU, 1_500, H, seed=9, ragged=False)
    ridge = Ridge(features=Identity(intercept=False), penalty=0.01, shared_penalty=0.01)
    by_oracle = OracleFQE(oracle=ridge, backups=3).estimate(problem_of(logs))
    linear = FQE(paired=False).estimate(problem_of(logs))
    assert by_oracle.value == pytest.approx(linear.value, abs=0.05)
    assert by_oracle.value_error >= linear.value_error * (1 - 1e-9)
    pytest.importorskip("lightgbm")
    boosted = OracleFQE(oracle=Gbdt(trees=30), backups=2).estimate(problem_of(logs, folds=2))
    assert abs(boosted.value - value(MDP, PI)) < 5 * boosted.value_error


def test_the_blend_of_magic_is_the_minimum_on_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(20):
        root = rng.standard_normal((5, 5))
        covariance, values = root @ root.T, rng.standard_normal(5)
        x = mixture(values, covariance, (-0.3, 0.4))
        outside = np.maximum(values - 0.4, 0) - np.maximum(-0.3 - values, 0)
        square = covariance + np.outer(outside, outside)
        assert x.min() >= 0
        assert x.sum() == pytest.approx(1)
        slope = square @ x
        assert (slope >= x @ square @ x - 1e-8 * np.abs(square).max()).all()  # no direction leads down


@pytest.mark.parametrize("count", [3, 6])
def test_equal_estimates_have_a_blend(count):
    """Two switches say the same, and there are fewer users than switches: many blends are equally good."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        influences = rng.standard_normal((count, 2)) * 10.0 ** rng.integers(-6, 2, (count, 1))
        influences[-1] = influences[-2] + 1e-9 * rng.standard_normal(2)
        square = influences @ influences.T
        x = mixture(np.zeros(count), square, (-1.0, 1.0))
        assert x.min() >= 0
        assert x.sum() == pytest.approx(1)
        assert (square @ x >= x @ square @ x - 1e-6 * np.abs(square).max()).all()


def test_switches_hold_both_ends():
    assert switch_places(3, 8) == [0, 1, 2, 3]
    assert switch_places(100, 6)[0] == 0
    assert switch_places(100, 6)[-1] == 100
    with pytest.raises(ConfigError, match="at least 2 switches"):
        MAGIC(switches=1)


def test_many_actions_share_their_slopes():
    rng = np.random.default_rng(0)
    n, a = 1_200, 80
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 3)),
        actions=rng.integers(a, size=n),
        rewards=rng.random(n),
        propensities=np.full(n, 1 / a),
        offsets=np.arange(0, n + 1, 3),
        n_actions=a,
        terminated=np.ones(n // 3, dtype=bool),
    )
    from shpi.policies import UniformPolicy

    for estimator in (FQE(), WDR()):
        estimate = estimator.estimate(Problem.of(UniformPolicy(a), logs))
        assert abs(estimate.lift) < 4 * estimate.lift_error + 1e-9


def test_values_that_explode_are_refused():
    rng = np.random.default_rng(0)
    n = 400
    x = np.cumprod(np.full((n // 2, 2), 3.0), axis=1).reshape(-1)  # contexts that triple at every step
    logs = LoggedData.from_arrays(
        contexts=x[:, None] + 0.01 * rng.standard_normal((n, 1)), actions=np.zeros(n, dtype=int),
        rewards=x / 9, propensities=np.ones(n), offsets=np.arange(0, n + 1, 2), n_actions=1,
        final_contexts=np.full((n // 2, 1), 27.0),
    )  # fmt: skip
    from shpi.policies import UniformPolicy

    linear = Identity(intercept=False)
    stretched = Problem.of(UniformPolicy(1), logs)
    estimate = FQE(features=linear, ridge=1e-9).estimate(stretched)  # two steps do not explode
    assert np.isfinite(estimate.value)
    with pytest.raises(ConfigError, match="a horizon of at most 2"):
        Problem.of(UniformPolicy(1), logs, Settings(horizon=60))


def test_models_need_no_propensities():
    logs = bare(MDP.log(MU, 500, H, seed=6, ragged=False), propensities=None)
    assert np.isfinite(FQE(**EXACT).estimate(problem_of(logs)).lift)
    with pytest.raises(DataError, match="a log with propensities"):
        WDR(**EXACT).estimate(problem_of(logs))
