import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.ope import SLOPE, SNPDIS, KStepSHPI, Problem, Settings
from shpi.ope.estimators.slope import select
from shpi.theory import improvement_terms
from tests.ope.test_results import an_estimate
from tests.ope.worlds import EXACT, H, advantage, session_lift, sliding_lift, small_world, value

MDP, MU, PI = small_world()


def problem_of(logs, table=PI, **settings):
    return Problem.of(MDP.policy(table), logs, Settings(**({"gamma": 0.9} | settings)))


@pytest.fixture(scope="module")
def large():
    return problem_of(MDP.log(MU, 12_000, H, seed=3, ragged=True))


@pytest.mark.parametrize("k", [1, 2, 3, H])
def test_what_k_steps_estimate(large, k):
    estimate = KStepSHPI(k=k, **EXACT).estimate(large)
    assert abs(estimate.lift - sliding_lift(MDP, PI, MU, k)) < 4 * estimate.lift_error
    assert estimate.lift_error < 0.05


def test_many_steps_are_the_lift_itself():
    assert sliding_lift(MDP, PI, MU, H) == pytest.approx(value(MDP, PI) - value(MDP, MU), rel=1e-10)


def test_one_step_is_the_first_term_of_theorem_1():
    terms = improvement_terms(MDP, PI, MU, k=1, horizon=H, first=PI)
    assert sliding_lift(MDP, PI, MU, 1) == pytest.approx(0.9 ** np.arange(H) @ terms.advantage, rel=1e-10)


def test_what_sessions_estimate(large):
    estimate = KStepSHPI(k="session", **EXACT).estimate(large)
    assert abs(estimate.lift - session_lift(MDP, PI, MU, 0.3)) < 4 * estimate.lift_error
    assert estimate.lift_error < 0.05


def test_what_the_start_estimates(large):
    """E A_(k)(x_0, a_0) with a_0 ~ pi: pi for k steps, then mu."""
    for k in (1, 3):
        estimate = KStepSHPI(k=k, form="start", **EXACT).estimate(large)
        truth = MDP.initial @ np.sum(PI * MDP.k_step_advantage_by_time(PI, MU, k, H)[0], axis=1)
        assert abs(estimate.lift - truth) < 4 * estimate.lift_error
    only_first = MDP.initial @ np.sum(PI * advantage(MDP, MU, 0), axis=1)
    assert MDP.initial @ np.sum(PI * MDP.k_step_advantage_by_time(PI, MU, 1, H)[0], axis=1) == pytest.approx(
        only_first
    )


@pytest.mark.parametrize("k", [1, 3, "session"])
def test_standard_errors_hold_the_noise_of_the_bonus(k):
    estimator = KStepSHPI(k=k, **EXACT)
    estimates = [estimator.estimate(problem_of(MDP.log(MU, 150, H, seed=s, ragged=True))) for s in range(40)]
    spread = np.std([estimate.lift for estimate in estimates])
    said = np.sqrt(np.mean([estimate.lift_error**2 for estimate in estimates]))
    assert 0.7 < said / spread < 1.5


@pytest.mark.parametrize("k", [1, 2, H, "session"])
def test_the_policy_of_the_log_has_no_lift(k):
    estimate = KStepSHPI(k=k).estimate(problem_of(MDP.log(MU, 200, H, seed=1, ragged=True), MU))
    assert estimate.lift == 0
    assert estimate.lift_error == 0
    assert estimate.value == estimate.baseline


def test_few_steps_keep_weights_that_products_lose():
    mdp, mu, pi = small_world(n_terminal=0)
    logs = mdp.log(mu, 400, 60, seed=0, ragged=False)
    problem = Problem.of(mdp.policy(pi), logs, Settings(gamma=0.95))
    short, long = KStepSHPI(k=2).estimate(problem), SNPDIS().estimate(problem)
    assert short.effective_users > 100 > long.effective_users
    truth = sliding_lift(mdp, pi, mu, 2, 60)
    assert abs(short.lift - truth) < 4 * short.lift_error
    assert short.lift_error < long.lift_error / 3


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="k to be an int of at least 1"):
        KStepSHPI(k=0)
    with pytest.raises(ConfigError, match="'start' with a number k"):
        KStepSHPI(k="session", form="start")
    assert KStepSHPI(k=3).name == "SHPI(k=3)"


# ---------------------------------------------------------------------- SLOPE


def test_slope_stops_where_the_difference_is_no_longer_noise():
    rows = [(1.0, 0.5), (1.1, 0.3), (0.9, 0.2), (0.1, 0.1), (0.9, 0.05)]  # lift, standard error
    estimates = [an_estimate(str(i), lift=lift, error=error) for i, (lift, error) in enumerate(rows)]
    assert select(estimates) == 2  # the fourth is too far from the third, so those after it are biased too
    assert select(estimates[:1]) == 0
    same = [an_estimate("a", lift=1.0, error=0.5), an_estimate("a", lift=0.9, error=0.499)]
    assert select(same) == 0  # the users agree on the difference: it is small, but it is not noise
    noisy = [an_estimate("a", lift=0.0, error=0.1), an_estimate("b", lift=5.0, error=0.2)]
    assert select(noisy) == 0  # more noise is never preferred


def test_slope_among_k_is_surer_than_the_longest_product():
    logs = MDP.log(MU, 600, H, seed=2, ragged=True)
    problem = problem_of(logs)
    chosen, longest = SLOPE().estimate(problem), KStepSHPI(k=H).estimate(problem)
    assert chosen.lift_error <= longest.lift_error
    assert chosen.name == "SLOPE"
    assert any(note.startswith("chose SHPI(k=") for note in chosen.notes)
    assert abs(chosen.lift - (value(MDP, PI) - value(MDP, MU))) < 5 * longest.lift_error


def test_slope_needs_a_candidate():
    with pytest.raises(ConfigError, match="at least one candidate"):
        SLOPE(candidates=())
