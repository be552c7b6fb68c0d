"""Who may ship, first steps, events, rare outcomes, guards with a direction."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.ope import FQE, SNPDIS, WDR, Gate, Guard, KStepSHPI, Problem, Settings, evaluate
from shpi.ope.checks.clusters import clusters_of
from shpi.ope.verdict.events import events
from shpi.ope.verdict.rare import unseen_variance
from shpi.ope.verdict.whole_horizon import WholeHorizon
from shpi.policies import ConstantPolicy, Mixture
from shpi.testing.hard_worlds import WORLDS


def bandit(actions, rewards, propensity: float, **metrics) -> LoggedData:
    """One decision per user; action 1 was taken with the given probability."""
    behaviour = np.tile([1 - propensity, propensity], (len(actions), 1))
    return LoggedData.from_arrays(
        contexts=np.ones((len(actions), 1)), actions=actions, n_actions=2, rewards=rewards,
        offsets=np.arange(len(actions) + 1), propensities=behaviour[np.arange(len(actions)), actions],
        behaviour=behaviour, metrics=metrics,
    )  # fmt: skip


def long_log(users: int, decisions: int, seed: int) -> LoggedData:
    """A coin at each decision; action 1 brings 0.2 more, and nothing else happens."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=users * decisions)
    return LoggedData.from_arrays(
        contexts=np.ones((len(actions), 1)), actions=actions, n_actions=2,
        rewards=0.2 * actions + 0.5 * rng.standard_normal(len(actions)),
        offsets=np.arange(users + 1) * decisions, propensities=np.full(len(actions), 0.5),
        behaviour=np.full((len(actions), 2), 0.5), terminated=np.ones(users, dtype=bool),
    )  # fmt: skip


FAR = ConstantPolicy((0.02, 0.98))


def test_a_mixture_is_judged_as_if_it_were_a_policy():
    case = WORLDS["clickbait"].make(seed=3, users=600)
    problem = Problem.of(case.policy, case.logs, Settings(horizon=case.horizon))
    assert case.logs.behaviour is not None
    for share in (0.3, 1.0):
        estimate = WholeHorizon(share=share).estimate(problem)
        mixed = _Mixed(case, share)
        other = Problem.of(mixed, case.logs, Settings(horizon=case.horizon))
        exact = KStepSHPI(k=case.horizon).estimate(other)
        assert estimate.lift == pytest.approx(exact.lift, rel=1e-6)
        assert estimate.lift_error == pytest.approx(exact.lift_error, rel=1e-6)
        assert estimate.consistent


class _Mixed:
    """(1 - share) mu + share pi of a case in which mu is a table by group."""

    def __init__(self, case, share: float) -> None:
        first = {int(g): s for s, g in reversed(list(enumerate(case.setting.group)))}
        mu = np.stack([case.setting.mu[first[g]] for g in range(len(case.setting.pi))])
        self.table = (1 - share) * mu + share * case.setting.pi
        self.n_actions = case.policy.n_actions

    def action_probs(self, contexts, candidates=None):
        return np.asarray(contexts[:, : len(self.table)], dtype=np.float64) @ self.table


def test_a_first_step_is_offered_where_the_policy_is_too_far():
    logs = long_log(400, 20, seed=0)
    verdict = evaluate(FAR, logs, gate=Gate(patience=1e12), details=False).verdict
    assert verdict.decision == "first step"
    step = verdict.first_step
    assert 0 < step.share < 1
    assert 0 < step.at_least < step.lift
    truth = step.share * 0.2 * 0.48 * 20
    assert step.at_least < truth
    assert step.lift == pytest.approx(truth, rel=0.6)
    assert f"{100 * step.share:.3g} % of decisions" in verdict.reasons[0]
    served = Mixture([ConstantPolicy((0.5, 0.5)), FAR], [1 - step.share, step.share])
    assert evaluate(served, logs, gate=Gate(), details=False).verdict.ship
    without = evaluate(FAR, logs, gate=Gate(first_steps=False, patience=1e12), details=False).verdict
    assert without.decision == "need more data"
    assert without.first_step is None
    assert any("canary" in reason for reason in without.reasons)


def judged(name: str, seed: int, **options):
    case = WORLDS[name].make(seed, **options)
    estimators = [WDR(), KStepSHPI(k=min(4, case.horizon)), SNPDIS()]
    return case, evaluate(
        case.policy, case.logs, estimators=estimators, gate=Gate(), details=False, horizon=case.horizon
    )


def test_what_a_k_step_estimator_leaves_out_is_not_called_the_lift():
    """SHPI(k=4) says +15 with a short interval where the truth is +4: it must not lead the report."""
    case, evaluation = judged("late harm", 802, lift=0.1, users=1000)
    own = evaluation.decisive
    assert own.steps == 4
    assert own.lift_interval.lower > case.lift
    lead = evaluation.lead
    assert lead.share < 1
    assert lead.estimate.steps is None
    assert (
        lead.estimate.lift_interval.lower < case.mixture_lift(lead.share) < lead.estimate.lift_interval.upper
    )
    assert evaluation.to_json()["mixture"]["share"] == lead.share
    assert "+ leads: the largest mixture with an interval over the whole horizon" in str(evaluation)
    assert f"of {100 * lead.share:.3g} %" in repr(evaluation)
    assert "within 4 decisions" in " ".join(evaluation.verdict.reasons)
    assert evaluation.to_polars()["mark"][0] == "leads"


def test_a_large_share_can_be_proven_where_a_small_one_cannot():
    case, evaluation = judged("late harm", 801, lift=0.1, users=1400)
    step = evaluation.verdict.first_step
    assert evaluation.verdict.decision == "first step"
    assert step.share >= 0.3
    assert 0 < step.at_least < case.mixture_lift(step.share)


def test_estimated_propensities_allow_a_first_step_that_stands_half_a_hidden_cause():
    case, evaluation = judged("rule changes with time", 801, lift=0.1)
    assert evaluation.verdict.decision == "first step"
    assert evaluation.verdict.first_step.at_least < case.mixture_lift(evaluation.verdict.first_step.share)
    assert any("the gate asks for 1.14" in reason for reason in evaluation.verdict.reasons)


def test_a_change_of_the_logging_policy_is_said():
    case, evaluation = judged("drifting mu", 800, lift=0.1)
    assert case.recent_lift < 0 < case.lift  # better than what mu was, worse than what it does now
    assert not evaluation.verdict.ship
    assert any("The logging policy has changed too" in reason for reason in evaluation.verdict.reasons)


def test_days_that_share_a_coin_make_the_interval_that_leads():
    case, evaluation = judged("arms switched by day", 801, lift=0.1)
    interval = evaluation.decisive.lift_interval
    assert interval.lower < case.lift < interval.upper
    days = clusters_of(Problem.of(case.policy, case.logs), "day")
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(days.count)[days.codes]
    larger = days.enlarged(shared)
    alone = np.std(shared) / np.sqrt(len(shared))
    assert np.std(larger) / np.sqrt(len(shared)) > 5 * alone
    assert days.quantile(0.975) > days.quantile(0.95) > 1.8


def test_a_false_first_step_is_as_rare_as_one_test():
    """No mixture is better: the search over shares must not find one more often than a single test."""
    false = 0
    for seed in range(25):
        rng = np.random.default_rng([seed, 7])
        logs = long_log(150, 6, seed).with_rewards(rng.standard_normal(900))
        evaluation = evaluate(FAR, logs, estimators=[WDR()], gate=Gate(patience=1e12), details=False)
        false += evaluation.verdict.decision == "first step"
    assert false <= 5  # 5 % of 25 is 1.25; more than 5 has a chance of 0.1 %


def test_a_model_never_ships_in_memory():
    logs = long_log(400, 20, seed=1)
    for main in (FQE(), KStepSHPI(k=1)):
        verdict = evaluate(FAR, logs, estimators=[main], gate=Gate(first_steps=False), details=False).verdict
        assert not verdict.ship
        assert "cannot ship alone" in " ".join(verdict.reasons)


# ---------------------------------------------------------------------- events and rare outcomes


def test_no_conversion_on_the_favoured_action_is_no_evidence_against_it():
    rng = np.random.default_rng(0)
    actions = (rng.random(4_000) < 0.02).astype(np.int64)
    rewards = ((rng.random(4_000) < 0.03) & (actions == 0)).astype(np.float64)
    logs = bandit(actions, rewards, 0.02)
    policy = ConstantPolicy((0.7, 0.3))
    verdict = evaluate(policy, logs, estimators=[WDR()], gate=Gate(), details=False).verdict
    assert verdict.decision == "need more data"
    assert "no user had a reward other than 0" in verdict.reasons[0]
    counted = events(Problem.of(policy, logs))
    assert counted.users == 0
    assert counted.action == "1"


def test_events_count_what_comes_after_a_decision():
    logs = LoggedData.from_arrays(
        contexts=np.ones((12, 1)), actions=[1, 0] * 6, n_actions=2, offsets=[0, 2, 4, 6, 8, 10, 12],
        rewards=[0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0], propensities=np.full(12, 0.5),
    )  # fmt: skip
    counted = events(Problem.of(ConstantPolicy((0.0, 1.0)), logs))
    assert counted.users == 3  # at or after the decision for action 1
    backwards = events(Problem.of(ConstantPolicy((1.0, 0.0)), logs))
    assert backwards.users == 2  # the third user's reward came before


def test_few_extreme_outcomes_widen_a_bound_and_many_do_not():
    rng = np.random.default_rng(2)
    actions = rng.integers(2, size=2_000)
    policy = ConstantPolicy((0.2, 0.8))
    plain = rng.standard_normal(2_000)
    for struck, wide in ((0, False), (4, True), (400, False)):
        rewards = plain.copy()
        rewards[np.flatnonzero(actions == 0)[:struck]] -= 100.0  # where pi goes less often: it looks harmless
        problem = Problem.of(policy, bandit(actions, rewards, 0.5))
        estimate = WDR().estimate(problem)
        assert (unseen_variance(problem, estimate) > 0.1 * estimate.lift_error**2) == wide


# ---------------------------------------------------------------------- guards


def test_guards_have_a_direction_and_a_unit():
    with pytest.raises(ConfigError, match="both"):
        Guard(metric="x", max_drop=0.1, max_rise=0.1)
    with pytest.raises(ConfigError, match="max_rise of at least 0"):
        Guard(metric="x", max_rise=-0.1)
    assert Guard(metric="x").words("user") == "the guard 'x' per user (must not fall)"
    assert "must not rise by more than 5 %" in Guard(metric="x", max_rise=0.05).words("decision")


def test_complaints_that_rise_hold_a_ship():
    rng = np.random.default_rng(3)
    actions = rng.integers(2, size=4_000)
    rewards = 0.5 * actions + rng.standard_normal(4_000)
    complaint = (rng.random(4_000) < np.where(actions == 1, 0.26, 0.20)).astype(np.float64)
    logs = bandit(actions, rewards, 0.5, complaint=complaint)
    policy = ConstantPolicy((0.1, 0.9))

    def decided(**limits):
        gate = Gate(guards=(Guard(metric="complaint", **limits),), first_steps=False)
        return evaluate(policy, logs, estimators=[WDR()], gate=gate, details=False).verdict.decision

    assert decided(max_rise=0.0) == "hold"
    assert decided(max_rise=0.5) == "ship"
    assert decided(max_drop=0.0) == "ship"


def test_a_guard_by_a_short_estimator_proves_nothing():
    logs = long_log(400, 4, seed=2)
    gate = Gate(
        guards=(Guard(metric=lambda log: log.rewards, max_drop=0.5),),
        guard_estimator=KStepSHPI(k=1),
        first_steps=False,
    )
    near = ConstantPolicy((0.4, 0.6))
    assert not evaluate(near, logs, estimators=[WDR()], gate=gate, details=False).verdict.ship
    assert evaluate(near, logs, estimators=[WDR()], gate=Gate(), details=False).verdict.ship
