from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.ope import SNIPS, SNPDIS, WDR, KStepSHPI, Problem, Settings, diagnose, evaluate
from shpi.ope.diagnostics.answers import about_answers, possible
from shpi.ope.diagnostics.diagnose import fatal_for
from shpi.ope.diagnostics.log import about_log
from shpi.ope.diagnostics.propensities import about_propensities
from shpi.policies import ConstantPolicy, TabularPolicy
from tests.ope.worlds import H, small_world

MDP, MU, PI = small_world()


def bandit(
    seed: int = 0, n: int = 600, mu: tuple[float, ...] = (0.5, 0.5), told: object = None, full: bool = True
) -> LoggedData:
    """One decision per user. Actions follow ``mu``; the log says ``told``. The second action earns more."""
    rng = np.random.default_rng(seed)
    actions = rng.choice(len(mu), size=n, p=mu)
    said = np.asarray(mu if told is None else told, dtype=np.float64)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 1)),
        actions=actions,
        rewards=actions + 0.5 * rng.standard_normal(n),
        propensities=said[actions],
        behaviour=np.tile(said, (n, 1)) if full else None,
        offsets=np.arange(n + 1),
        n_actions=len(mu),
    )


def diagnostic_of(policy, logs, name, *, estimators=None, **options):
    evaluation = evaluate(policy, logs, estimators=estimators or [SNIPS()], details=False, **options)
    mine = [diagnostic for diagnostic in evaluation.diagnostics if diagnostic.name == name]
    assert mine, [diagnostic.name for diagnostic in evaluation.diagnostics]
    return mine[0]


# ---------------------------------------------------------------------- a healthy log


@pytest.fixture(scope="module")
def healthy():
    logs = MDP.log(MU, 800, H, seed=0, ragged=False)
    return evaluate(MDP.policy(PI), logs, gamma=0.9, estimators=[WDR(), KStepSHPI(k=2), SNPDIS(), SNIPS()])


def test_a_healthy_log_has_no_fatal_diagnostic(healthy):
    assert not fatal_for(healthy.diagnostics, "WDR")
    names = {diagnostic.name for diagnostic in healthy.diagnostics}
    assert {
        "users", "support", "logging policy", "propensities", "effective users", "weight tails",
        "mean weight", "range", "top users", "disagreement", "sensitivity to clipping", "sensitivity to k",
    } <= names  # fmt: skip


def test_each_is_a_plain_sentence(healthy):
    for diagnostic in healthy.diagnostics:
        assert diagnostic.sentence.endswith(".")
        assert diagnostic.sentence[0].isupper() or diagnostic.sentence[0].isdigit()
        assert "nan" not in diagnostic.sentence
        assert diagnostic.figure is None or np.isfinite(diagnostic.figure)


def test_the_gravest_come_first(healthy):
    order = ["fatal", "warning", "note", "fine"]
    ranks = [order.index(diagnostic.severity) for diagnostic in healthy.diagnostics]
    assert ranks == sorted(ranks)


def test_right_logs_raise_hardly_a_false_alarm():
    policy = ConstantPolicy((0.3, 0.7))
    alarms = []
    for seed in range(40):
        logs = bandit(seed, full=seed % 2 == 0)
        problem = Problem.of(policy, logs)
        estimate = SNIPS().estimate(problem)
        alarms += [
            diagnostic.name for diagnostic in fatal_for(diagnose(problem, [estimate], "SNIPS"), "SNIPS")
        ]
    assert len(alarms) <= 2  # at a level of 1 % for the balance of the propensities
    assert set(alarms) <= {"propensity balance"}


def test_an_unknown_main_is_refused(healthy):
    problem = Problem.of(MDP.policy(PI), MDP.log(MU, 50, H, seed=0))
    with pytest.raises(ConfigError, match="a main estimator among"):
        diagnose(problem, healthy.estimates, "XYZ")


# ---------------------------------------------------------------------- weights


def test_few_effective_users_are_fatal():
    logs = bandit(n=400, mu=(0.97, 0.03))
    diagnostic = diagnostic_of(ConstantPolicy((0.0, 1.0)), logs, "effective users")
    assert diagnostic.severity == "fatal"
    assert diagnostic.figure == pytest.approx(int(np.sum(logs.actions == 1)))
    assert diagnostic.threshold == 30
    assert diagnostic_of(ConstantPolicy((0.9, 0.1)), logs, "effective users").severity == "fine"


def test_heavy_tails_are_named():
    logs = bandit(n=1_000, mu=(0.99, 0.01))
    diagnostic = diagnostic_of(ConstantPolicy((0.3, 0.7)), logs, "weight tails")
    assert diagnostic.severity == "warning"
    assert diagnostic.figure > 0.5


@pytest.mark.parametrize(("told", "words"), [((0.25, 0.25), "too small"), ((0.8, 0.8), "too large")])
def test_a_mean_weight_far_from_one_is_fatal(told, words):
    diagnostic = diagnostic_of(ConstantPolicy((0.3, 0.7)), bandit(told=told, full=False), "mean weight")
    assert diagnostic.severity == "fatal"
    assert diagnostic.figure == pytest.approx(0.5 / told[0], rel=0.15)
    assert words in diagnostic.sentence


# ---------------------------------------------------------------------- support


def test_actions_that_mu_never_takes_are_counted():
    logs = bandit(mu=(0.5, 0.5, 0.0))
    diagnostic = diagnostic_of(ConstantPolicy((0.4, 0.4, 0.2)), logs, "support")
    assert diagnostic.severity == "fatal"
    assert diagnostic.figure == pytest.approx(0.2)
    blind = diagnostic_of(ConstantPolicy((0.4, 0.4, 0.2)), bandit(mu=(0.5, 0.5, 0.0), full=False), "support")
    assert blind.figure >= 0.2  # the action is not in the log at all
    assert diagnostic_of(ConstantPolicy((0.49, 0.49, 0.02)), logs, "support").severity == "warning"


def test_missing_support_shows_in_the_mean_ratio():
    rng = np.random.default_rng(0)
    n = 2_000
    state = rng.integers(2, size=n)
    actions = np.where(state == 1, rng.integers(2, size=n), 0)  # in state 0 mu knows one action only
    logs = LoggedData.from_arrays(
        contexts=state[:, None], actions=actions, rewards=actions.astype(float),
        propensities=np.where(state == 1, 0.5, 1.0), offsets=np.arange(n + 1), n_actions=2,
    )  # fmt: skip
    policy = TabularPolicy(np.array([[0.6, 0.4], [0.5, 0.5]]))
    diagnostic = diagnostic_of(policy, logs, "support")
    assert diagnostic.severity == "fatal"
    assert diagnostic.figure == pytest.approx(0.4 * np.mean(state == 0), abs=0.03)


def test_rarely_taken_actions_are_a_warning():
    logs = bandit(n=1_000, mu=(0.995, 0.005))
    diagnostic = diagnostic_of(ConstantPolicy((0.6, 0.4)), logs, "support")
    assert diagnostic.severity == "warning"
    assert "hardly ever" in diagnostic.sentence


# ---------------------------------------------------------------------- propensities


def test_wrong_probabilities_fail_mu_itself():
    logs = bandit(n=2_000, mu=(0.7, 0.3), told=(0.5, 0.5))
    diagnostic = diagnostic_of(ConstantPolicy((0.5, 0.5)), logs, "logging policy")
    assert diagnostic.severity == "fatal"
    assert "actions were not chosen with these probabilities" in diagnostic.sentence
    bold = bandit(n=2_000, mu=(0.7, 0.3), told=(0.85, 0.15))
    calibration = diagnostic_of(ConstantPolicy((0.8, 0.2)), bold, "propensities")
    assert calibration.severity == "fatal"
    assert calibration.figure == pytest.approx(1.0, abs=0.15)  # 30 % where 15 % was said
    right = bandit(n=2_000, mu=(0.7, 0.3))
    assert diagnostic_of(ConstantPolicy((0.5, 0.5)), right, "logging policy").severity == "fine"
    assert diagnostic_of(ConstantPolicy((0.5, 0.5)), right, "propensities").severity == "fine"


def test_small_propensities_are_found_without_the_whole_mu():
    diagnostic = diagnostic_of(
        ConstantPolicy((0.5, 0.5)), bandit(told=(0.25, 0.25), full=False), "propensity balance"
    )
    assert diagnostic.severity == "fatal"
    assert "times as often as the propensities say" in diagnostic.sentence
    fine = diagnostic_of(ConstantPolicy((0.5, 0.5)), bandit(full=False), "propensity balance")
    assert fine.severity == "fine"


def test_estimated_propensities_are_never_just_fine():
    bare = LoggedData.from_arrays(**_without_propensities(bandit(n=500, mu=(0.7, 0.3))))
    logs = bare.with_estimated_propensities(seed=0)
    diagnostic = diagnostic_of(ConstantPolicy((0.5, 0.5)), logs, "propensities")
    assert diagnostic.severity == "note"
    assert "were estimated from the log" in diagnostic.sentence
    unkept = replace(logs, behaviour=None)
    assert about_propensities(Problem.of(ConstantPolicy((0.5, 0.5)), unkept))[0].severity == "warning"


def test_missing_propensities_are_fatal():
    bare = LoggedData.from_arrays(**_without_propensities(bandit()))
    evaluation = evaluate(ConstantPolicy((0.5, 0.5)), bare, details=False)
    (stop,) = fatal_for(evaluation.diagnostics, evaluation.main)
    assert stop.name == "propensities"
    assert "no propensities" in stop.sentence


def _without_propensities(logs):
    return {
        "contexts": logs.contexts, "actions": logs.actions, "rewards": logs.rewards,
        "offsets": logs.offsets, "n_actions": logs.n_actions,
    }  # fmt: skip


@pytest.mark.parametrize(("n", "severity"), [(20, "fatal"), (60, "warning"), (200, "fine")])
def test_few_users_are_said(n, severity):
    policy, logs = ConstantPolicy((0.5, 0.5)), bandit(n=n)
    problem = Problem.of(policy, logs)
    users = about_log(problem, SNIPS().estimate(problem))[0]
    assert (users.name, users.severity, users.figure) == ("users", severity, n)


# ---------------------------------------------------------------------- answers


@pytest.fixture(scope="module")
def answers():
    logs = MDP.log(MU, 400, H, seed=1, ragged=False)
    problem = Problem.of(MDP.policy(PI), logs, Settings(gamma=0.9))
    return problem, [estimator.estimate(problem) for estimator in (KStepSHPI(k=1), WDR(), SNPDIS())]


def named(diagnostics, name, estimator=None):
    return next(d for d in diagnostics if d.name == name and estimator in (None, d.estimator))


def test_impossible_values_are_fatal(answers):
    problem, estimates = answers
    low, high = possible(problem)
    for value, severity in ((high * 1.01, "fatal"), (low - 1.0, "fatal"), (estimates[0].value, "fine")):
        moved = replace(estimates[0], value=value)
        diagnostics = about_answers(problem, [moved, *estimates[1:]], estimates[1])
        assert named(diagnostics, "range", moved.name).severity == severity
    assert high == pytest.approx(problem.reward_range[1] * sum(0.9**t for t in range(H)))
    assert possible(problem, per_decision=True) == problem.reward_range


def test_per_decision_has_its_own_range():
    logs = MDP.log(MU, 200, H, seed=2)
    evaluation = evaluate(MDP.policy(PI), logs, estimators=[SNPDIS()], per="decision", details=False)
    assert named(evaluation.diagnostics, "range").severity in ("fine", "note")
    assert "possible" in named(evaluation.diagnostics, "range").sentence


def test_one_user_who_brings_it_all_is_named():
    logs = bandit(n=300)
    rewards = np.where(np.arange(300) == 7, 3_000.0, 1.0)
    diagnostic = diagnostic_of(ConstantPolicy((0.5, 0.5)), logs.with_rewards(rewards), "top users")
    assert diagnostic.severity == "warning"
    assert diagnostic.figure > 0.85
    equal = diagnostic_of(ConstantPolicy((0.5, 0.5)), logs.with_rewards(np.ones(300)), "top users")
    assert equal.severity == "fine"


def test_a_main_that_promises_more_than_sound_ones_is_stopped(answers):
    problem, estimates = answers
    first, *others = estimates
    up = replace(first, lift=first.lift + 12 * first.lift_error)
    down = replace(first, lift=first.lift - 12 * first.lift_error)
    assert named(about_answers(problem, [up, *others], up), "disagreement").severity == "fatal"
    assert named(about_answers(problem, [down, *others], down), "disagreement").severity == "warning"
    assert named(about_answers(problem, estimates, others[0]), "disagreement").severity in ("fine", "note")


def test_a_k_step_lift_that_falls_with_k_is_stopped(answers):
    problem, estimates = answers
    first = estimates[0]
    assert named(about_answers(problem, estimates, first), "drift with k").severity == "fine"
    up = replace(first, lift=first.lift + 12 * first.lift_error)
    drift = named(about_answers(problem, [up, *estimates[1:]], up), "drift with k")
    assert drift.severity == "fatal"
    assert drift.figure > 2
    assert not [d for d in about_answers(problem, estimates, estimates[1]) if d.name == "drift with k"]


def test_sensitivity_to_k_names_the_lifts(answers):
    problem, estimates = answers
    sentence = named(about_answers(problem, estimates, estimates[1]), "sensitivity to k").sentence
    for k in (1, 2, 4):
        assert f"(k = {k})" in sentence
        assert f"{KStepSHPI(k=k).estimate(problem).lift:+.4g}" in sentence


def test_capping_changes_nothing_where_weights_are_equal():
    logs = bandit()
    same = diagnostic_of(ConstantPolicy((0.5, 0.5)), logs, "sensitivity to clipping")
    assert (same.severity, same.figure) == ("fine", 0.0)


def test_capping_shows_what_a_few_weights_carry():
    rng = np.random.default_rng(0)
    n = 2_000
    mu = np.array([0.995, 0.005])
    actions = (np.arange(n) % 200 == 0).astype(int)
    logs = LoggedData.from_arrays(
        contexts=np.zeros((n, 1)), actions=actions, rewards=actions + 0.01 * rng.standard_normal(n),
        propensities=mu[actions], offsets=np.arange(n + 1), n_actions=2,
    )  # fmt: skip
    diagnostic = diagnostic_of(ConstantPolicy((0.5, 0.5)), logs, "sensitivity to clipping")
    assert diagnostic.severity == "warning"
    assert diagnostic.figure < -0.4  # capped at 0.5, the second action is all but lost


def test_few_users_behind_the_error_are_said():
    logs = bandit(n=300)
    ordinary = diagnostic_of(ConstantPolicy((0.5, 0.5)), logs, "users behind the error")
    assert ordinary.severity == "fine"
    assert ordinary.figure > 100
    rewards = np.where(np.arange(300) < 3, 100.0, logs.rewards)
    few = diagnostic_of(ConstantPolicy((0.1, 0.9)), logs.with_rewards(rewards), "users behind the error")
    assert few.severity == "warning"
    assert few.figure < few.threshold


@pytest.mark.parametrize(("longest", "severity"), [(120, "warning"), (3, "fine")])
def test_a_few_users_with_long_histories_are_named(longest, severity):
    """Effective users are many, since users who left count at every later step."""
    rng = np.random.default_rng(0)
    lengths = np.where(np.arange(600) < 6, longest, 3)
    rows = int(lengths.sum())
    actions = rng.integers(2, size=rows)
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((rows, 1)), actions=actions, n_actions=2, rewards=np.ones(rows),
        propensities=np.full(rows, 0.5), offsets=np.append(0, np.cumsum(lengths)),
        terminated=np.ones(600, dtype=bool),
    )  # fmt: skip
    evaluation = evaluate(ConstantPolicy((0.4, 0.6)), logs, estimators=[WDR()], details=False)
    check = named(evaluation.diagnostics, "late value")
    assert check.severity == severity
    assert check.figure == pytest.approx(6 * 117 / rows if longest > 3 else 0.0)
    assert evaluation.decisive.effective_users > 200
