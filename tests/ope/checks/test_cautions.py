"""What takes a ship back: hidden causes, clusters, a change, many looks."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.ope import SNIPS, Evaluation, Gate, Problem, evaluate
from shpi.ope.checks.cautions import AT_THEIR_WORD
from shpi.ope.checks.clusters import Clusters, clusters_of
from shpi.ope.checks.looks.sequence import asymptotic_lower, betting_lower, wealth
from shpi.ope.checks.looks.user_values import floor_of, user_lifts
from shpi.ope.checks.over_time import change_of
from shpi.ope.checks.sensitivity import Sensitivity, least_mean
from shpi.policies import ConstantPolicy
from shpi.testing.hard_worlds import WORLDS

DAY = 86_400_000_000


def bandit(
    seed: int, users: int = 2_000, effect: float = 0.3, late_effect: float | None = None
) -> LoggedData:
    """One decision per user, users come over 30 days; rewards are 0 or 1."""
    rng = np.random.default_rng(seed)
    actions, when = rng.integers(2, size=users), np.sort(rng.integers(0, 30 * DAY, size=users))
    size = np.where(when > 20 * DAY, effect if late_effect is None else late_effect, effect)
    rewards = (rng.random(users) < 0.3 + size * actions).astype(float)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((users, 1)), actions=actions, n_actions=2, rewards=rewards,
        propensities=np.full(users, 0.5), behaviour=np.full((users, 2), 0.5), offsets=np.arange(users + 1),
        times=when, time_unit="us", terminated=np.ones(users, dtype=bool),
        metrics={"store": rng.integers(5, size=users).astype(float)},
    )  # fmt: skip


POLICY = ConstantPolicy((0.2, 0.8))


def judged(logs: LoggedData, gate: Gate, **options: object) -> Evaluation:
    return evaluate(POLICY, logs, estimators=[SNIPS()], gate=gate, details=False, **options)


# ---------------------------------------------------------------------- hidden causes


def test_the_least_mean_is_that_of_all_corners():
    rng = np.random.default_rng(0)
    values, low = np.sort(rng.standard_normal(8)), rng.random(8) + 0.1
    high = low + rng.random(8)
    corners = [np.where(np.array(list(f"{i:08b}")) == "1", high, low) for i in range(256)]
    assert least_mean(values, low, high) == pytest.approx(min(np.average(values, weights=w) for w in corners))


def test_one_decision_with_a_coin_has_a_closed_form():
    logs = bandit(0)
    sensitivity = Sensitivity.of(Problem.of(ConstantPolicy((0.0, 1.0)), logs))
    share = float(logs.rewards[logs.actions == 1].mean())  # of ones among those who got action 1
    low, high = 1 + 1 / 1.5, 1 + 1.5
    assert sensitivity.value(1.5) == pytest.approx(share * low / (share * low + (1 - share) * high))
    assert sensitivity.value(1.0) == pytest.approx(share)
    assert sensitivity.bias(sensitivity.tipping(0.05)) == pytest.approx(0.05, abs=1e-3)
    assert (sensitivity.tipping(-1.0), sensitivity.tipping(1e9)) == (1.0, math.inf)


def test_estimated_propensities_do_not_ship_on_a_small_lift():
    absent = {"propensities": None, "behaviour": None, "propensity_mode": "absent"}
    small, large = (replace(bandit(0, effect=e), **absent).with_estimated_propensities() for e in (0.1, 0.5))
    held = judged(small, Gate()).verdict
    assert held.decision == "hold"
    assert "confounder must change the odds" in held.reasons[0]
    assert judged(small, Gate(hidden_cause=1.0)).verdict.ship
    shipped = judged(large, Gate()).verdict
    assert shipped.ship
    assert any("confounder must change the odds" in reason for reason in shipped.reasons)


# ---------------------------------------------------------------------- overridden decisions


def overridden(share: float, seed: int = 0, users: int = 4_000) -> LoggedData:
    """No effect; some users who were about to buy were shown action 1, whatever had been drawn."""
    rng = np.random.default_rng(seed)
    drawn, buys = rng.integers(2, size=users), rng.random(users) < 0.3
    actions = np.where(buys & (rng.random(users) < share / 0.3), 1, drawn)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((users, 1)), actions=actions, n_actions=2, rewards=buys.astype(float),
        propensities=np.full(users, 0.5), behaviour=np.full((users, 2), 0.5), offsets=np.arange(users + 1),
        terminated=np.ones(users, dtype=bool),
    )  # fmt: skip


def test_a_ship_says_how_few_false_propensities_would_undo_it():
    """A share of 2 % is too small for the frequencies; a true effect does not hang on so few users."""
    evaluation = judged(overridden(0.02), Gate())
    assert evaluation.verdict.ship  # wrongly, and nobody can know
    said = next(reason for reason in evaluation.verdict.reasons if AT_THEIR_WORD in reason)
    few, shown = (float(number) for number in re.findall(r"([\d.]+) %", said))
    assert 0.5 < few < 2.5
    assert few < shown < 4
    true = judged(bandit(0), Gate())
    assert true.verdict.ship
    assert not any(AT_THEIR_WORD in reason for reason in true.verdict.reasons)


# ---------------------------------------------------------------------- clusters


def test_clusters_are_found_by_name_and_function():
    logs = bandit(0)
    problem = Problem.of(POLICY, logs)
    assert clusters_of(problem, "store").count == 5
    assert clusters_of(problem, "day").count == 30
    assert clusters_of(problem, lambda log: log.actions).count == 2
    with pytest.raises(ConfigError, match="a cluster among"):
        clusters_of(problem, "shop")


def test_the_error_of_clusters_that_share_their_luck():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(40), 50)
    shared = rng.standard_normal(40)[codes] + rng.standard_normal(2_000)
    clusters = Clusters(codes=codes, words="store")
    assert clusters.error(shared) == pytest.approx(math.sqrt((1 + 1 / 50) / 40), rel=0.25)
    alone = rng.standard_normal(2_000)
    assert clusters.error(alone) == pytest.approx(1 / math.sqrt(2_000), rel=0.3)


def test_a_ship_by_users_may_not_be_one_by_clusters():
    logs = bandit(0, effect=0.1)
    assert judged(logs, Gate()).verdict.ship
    few = judged(logs, Gate(cluster=lambda log: (log.contexts[:, 0] > 0).astype(int))).verdict
    assert few.decision == "need more data"
    assert "clusters" in few.reasons[0]
    assert few.users_needed > 2_000


def test_days_that_share_a_coin_make_the_bounds():
    world = WORLDS["arms switched by day"]
    shipped = []
    for seed in range(12):
        case = world.make(100 + seed)
        verdict = evaluate(case.policy, case.logs, estimators=[SNIPS()], gate=Gate(), details=False,
                           **case.options).verdict  # fmt: skip
        shipped.append(verdict.ship)
    assert sum(shipped) <= 2


# ---------------------------------------------------------------------- change


def test_an_effect_that_has_gone_is_found_and_not_shipped():
    verdict = judged(bandit(0, effect=0.3, late_effect=-0.1), Gate()).verdict
    assert verdict.decision == "hold"
    assert "The effect is changing" in verdict.reasons[0]
    assert judged(bandit(0), Gate()).verdict.ship


def test_the_test_for_change_keeps_its_level():
    clear = 0
    for seed in range(150):
        problem = Problem.of(POLICY, bandit(seed, 300))
        change = change_of(problem, SNIPS().estimate(problem))
        clear += change is not None and change.clear
    assert clear <= 9  # of 150 at 2 %: more has a chance of 0.1 %


def test_the_report_shows_the_lift_over_time():
    evaluation = evaluate(POLICY, bandit(0), estimators=[SNIPS()])
    pieces = [segment for segment in evaluation.segments if segment.column == "time of entry"]
    assert len(pieces) == 5
    assert sum(segment.users for segment in pieces) == 2_000
    assert np.average([p.lift for p in pieces], weights=[p.users for p in pieces]) == pytest.approx(
        evaluation.decisive.lift
    )


# ---------------------------------------------------------------------- looks


def test_sequences_hold_at_all_looks_together():
    rng = np.random.default_rng(0)
    wrong = {"fixed": 0, "asymptotic": 0, "betting": 0}
    for _ in range(200):
        values = rng.exponential(size=1_000) - 1  # of mean 0, at least -1
        looks = range(50, 1_001, 50)
        lowers = {
            "fixed": [values[:n].mean() - 1.645 * values[:n].std() / math.sqrt(n) for n in looks],
            "asymptotic": [asymptotic_lower(values[:n].mean(), values[:n], 0.05, 500) for n in looks],
            "betting": [0.01 if wealth(values, 0.0, -1.0, 0.05) >= 20 else -0.01],
        }
        for name, bounds in lowers.items():
            wrong[name] += max(bounds) > 0
    assert wrong["fixed"] > 25  # the disease
    assert wrong["asymptotic"] <= 18  # 5 % of 200, and three standard errors
    assert wrong["betting"] <= 18


def test_betting_finds_a_mean_above_its_bound():
    values = np.random.default_rng(0).random(3_000)
    bound = betting_lower(values, 0.0, 0.05)
    assert 0.46 < bound < 0.5
    assert wealth(values, bound - 0.01, 0.0, 0.05) >= 20 > wealth(values, bound + 0.01, 0.0, 0.05)


def test_values_of_users_have_the_lift_as_their_mean():
    logs = bandit(0)
    problem = Problem.of(POLICY, logs)
    values = user_lifts(problem)
    assert values.mean() == pytest.approx(SNIPS().estimate(problem).lift, abs=0.02)
    assert values.min() >= floor_of(problem)


@pytest.mark.parametrize("method", [True, "betting"])
def test_any_time_ships_later(method):
    logs = bandit(1, 300, effect=0.15)
    small = judged(logs, Gate(anytime=method)).verdict
    assert judged(logs, Gate()).verdict.ship
    assert small.decision == "need more data"
    assert "However often the log is evaluated" in small.reasons[0]
    assert judged(bandit(0, 4_000, effect=0.4), Gate(anytime=method)).verdict.ship


def test_nonsense_is_refused():
    for bad in ({"hidden_cause": 0.5}, {"anytime": "sometimes"}, {"planned_users": 0}):
        with pytest.raises(ConfigError):
            Gate(**bad)
