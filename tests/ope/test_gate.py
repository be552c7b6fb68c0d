from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import shpi
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.ope import (
    SNIPS,
    SNPDIS,
    WDR,
    Diagnostic,
    Estimate,
    Evaluation,
    Gate,
    Guard,
    Problem,
    compare,
    evaluate,
    interval_of,
)
from shpi.ope.candidates import joint_level
from shpi.ope.verdict.needed import Factors
from shpi.policies import ConstantPolicy, Greedy, LinearScorer

SHARED = {"policy_name": "pi", "metric": "reward", "main": "SNIPS"}


def estimate(lift_influence, lift: float, *, baseline: float = 10.0, base_influence=None) -> Estimate:
    """An answer with the given influences on the lift; those on J(mu) are 0 unless they are given."""
    psi = np.asarray(lift_influence, dtype=np.float64)
    psi = psi - psi.mean()
    base = np.zeros_like(psi) if base_influence is None else np.asarray(base_influence)
    error = float(psi.std(ddof=1) / np.sqrt(len(psi)))
    return Estimate(
        name="SNIPS", value=baseline + lift, baseline=baseline, lift=lift,
        value_error=error, lift_error=error,
        value_interval=interval_of(baseline + lift, psi), lift_interval=interval_of(lift, psi),
        effective_users=float(len(psi)), influence_value=psi + base, influence_lift=psi, consistent=True,
    )  # fmt: skip


def evaluation(lift: float, *, users: int = 400, sd: float = 1.0, seed: int = 0, diagnostics=(), **options):
    psi = np.random.default_rng(seed).standard_normal(users)
    psi = sd * (psi - psi.mean()) / psi.std(ddof=1)
    return Evaluation(
        estimates=(estimate(psi, lift, **options),), diagnostics=tuple(diagnostics), users=users, **SHARED
    )


def careful(margin: float, influence, level: float) -> float:
    return min(interval_of(margin, influence, level=level, method=m).lower_bound for m in ("skewed", "heavy"))


def fatal(name: str, estimator: str | None = None, **figures: float) -> Diagnostic:
    return Diagnostic(name=name, severity="fatal", sentence=f"{name}.", estimator=estimator, **figures)


# ---------------------------------------------------------------------- one candidate


def test_ships_if_and_only_if_the_lower_bound_is_above():
    enough = -careful(0.0, evaluation(0.0).decisive.influence_lift, 0.95)
    assert enough == pytest.approx(stats.t.ppf(0.95, 399) / np.sqrt(400), rel=0.05)
    assert Gate().decide(evaluation(1.01 * enough)).ship
    below = Gate().decide(evaluation(0.99 * enough))
    assert below.decision == "need more data"
    assert Gate(confidence=0.9).decide(evaluation(0.99 * enough)).ship


@settings(max_examples=60, deadline=None)
@given(
    lift=st.floats(-1, 1),
    least=st.floats(-0.5, 0.5),
    confidence=st.floats(0.6, 0.99),
    sd=st.floats(0.01, 10),
)
def test_the_verdict_follows_from_the_bounds(lift, least, confidence, sd):
    candidate = evaluation(lift, sd=sd)
    verdict = Gate(min_lift=least, confidence=confidence).decide(candidate)
    bound = careful(lift - least, candidate.decisive.influence_lift, confidence)
    assert verdict.ship == (bound > 0)
    if lift <= least:
        assert verdict.decision == "hold"
    assert (verdict.users_needed is not None) == (verdict.decision == "need more data")
    assert verdict.reasons


def test_evidence_against_it_and_no_sign_of_it_hold():
    against = Gate().decide(evaluation(-1.0))
    assert against.decision == "hold"
    assert "Evidence against the lift" in against.reasons[0]
    unclear = Gate().decide(evaluation(-0.01))
    assert unclear.decision == "hold"
    assert "No sign of the lift." in unclear.reasons[0]


def test_mu_itself_has_no_lift_to_ship():
    same = Gate().decide(evaluation(0.0, sd=0.0))
    assert same.decision == "hold"
    assert "does what the logging policy does" in same.reasons[0]
    assert Gate(min_lift=-0.1).decide(evaluation(0.0, sd=0.0)).ship  # not worse by more than 0.1, surely


def test_a_relative_lift_is_paired_with_its_baseline():
    rng = np.random.default_rng(0)
    psi, base = rng.standard_normal((2, 500))
    base -= base.mean()
    paired = estimate(psi, 0.3, baseline=-10.0, base_influence=base)
    candidate = Evaluation(estimates=(paired,), users=500, **SHARED)
    bound = careful(0.3 - 0.02 * 10, paired.influence_lift + 0.02 * base, 0.95)
    assert Gate(min_lift=0.02, relative=True).decide(candidate).ship == (bound > 0)
    assert not Gate(min_lift=0.05, relative=True).decide(candidate).ship


def test_users_needed_would_do():
    """With the users that the verdict asks for, four logs out of five of the same policy would ship."""
    lift, sd, users = 0.1, 1.0, 200
    verdict = Gate().decide(evaluation(lift, sd=sd, users=users))
    t = lift / (sd / np.sqrt(users))
    exact = (stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) ** 2 * (sd / lift) ** 2 * ((1 + t**2) / t**2) ** 2
    assert exact <= verdict.users_needed <= 1.1 * exact
    least, most = verdict.users_range
    assert least < verdict.users_needed < most
    weak = Gate(patience=1e6).decide(evaluation(0.02, sd=sd, users=users))
    assert weak.users_range[1] is None  # one standard error less, and nothing is left to be proven


def test_users_needed_holds_what_it_promises_after_selection():
    """Over true lifts of all sizes, of which those that look promising but unproven are asked about."""
    rng = np.random.default_rng(3)
    truth = np.abs(2 * rng.standard_normal(7_000))  # in standard errors of the log
    observed = truth + rng.standard_normal(len(truth))
    asked = [
        (true, Factors.of(t, 1.0, 0.95, 0.8))
        for true, t in zip(truth, observed, strict=True)
        if 0 < t < stats.norm.ppf(0.95)
    ]
    asked = [(true, factors) for true, factors in asked if factors.plain <= Gate().patience]
    rates = {
        name: np.mean([rng.normal(true * np.sqrt(getattr(factors, name))) > 1.645 for true, factors in asked])
        for name in ("plain", "likely")
    }
    assert 0.78 < rates["likely"] < 0.9
    assert rates["plain"] < 0.72  # what taking the estimate at its word would give


def test_patience_ends():
    verdict = Gate().decide(evaluation(0.005))
    assert verdict.decision == "hold"
    assert "times as many users" in verdict.reasons[-1]
    assert Gate(patience=1e6).decide(evaluation(0.005)).decision == "need more data"


def test_never_ships_on_a_fatal_diagnostic():
    for diagnostic in (fatal("mean weight", "SNIPS"), fatal("support"), fatal("logging policy")):
        verdict = Gate().decide(evaluation(5.0, diagnostics=[diagnostic]))
        assert verdict.decision == "hold"
        assert diagnostic.sentence in verdict.reasons[0]
    other = fatal("mean weight", "MIS")  # not the one that decides
    assert Gate().decide(evaluation(5.0, diagnostics=[other])).ship


def test_too_few_effective_users_are_a_matter_of_data():
    few = fatal("effective users", "SNIPS", figure=12.0, threshold=30.0)
    verdict = Gate().decide(evaluation(5.0, diagnostics=[few]))
    assert verdict.decision == "need more data"
    assert verdict.users_needed == 1_000  # 400 * 30 / 12
    hopeless = fatal("effective users", "SNIPS", figure=0.5, threshold=30.0)
    assert Gate().decide(evaluation(5.0, diagnostics=[hopeless])).decision == "hold"
    assert Gate().decide(evaluation(-5.0, diagnostics=[few])).decision == "hold"


def test_the_stated_confidence_is_kept_where_there_is_no_lift():
    """One decision per user, two actions that earn the same: 5 % of the logs may ship, and not many more.

    By the bound of the lift alone: what an evaluation checks besides can only hold a policy back, which every
    tenth log that the bound holds back shows.
    """
    policy = ConstantPolicy((0.3, 0.7))
    ships = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        logs = _bandit(rng.integers(2, size=200), rng.exponential(size=200))
        bound = SNIPS().estimate(Problem.of(policy, logs))
        passes = Gate().decide(Evaluation(estimates=(bound,), users=200, **SHARED)).ship
        ships += passes
        if seed % 10 == 0 and not passes:
            verdict = evaluate(policy, logs, estimators=[SNIPS()], details=False, gate=Gate()).verdict
            assert not verdict.ship
    assert ships <= 16  # 7.5 are expected, with a standard deviation of 2.7


# ---------------------------------------------------------------------- guards


def _bandit(actions, rewards, **metrics) -> LoggedData:
    n = len(actions)
    return LoggedData.from_arrays(
        contexts=np.zeros((n, 1)), actions=actions, rewards=rewards, propensities=np.full(n, 0.5),
        behaviour=np.full((n, 2), 0.5), offsets=np.arange(n + 1), n_actions=2, metrics=metrics,
    )  # fmt: skip


def _clicks_for_rewards(users: int) -> LoggedData:
    """The second action earns more; it costs half of the clicks, and does nothing to the likes."""
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=users)
    clicks = (rng.random(users) < np.where(actions == 1, 0.2, 0.4)).astype(float)
    likes = (rng.random(users) < 0.5).astype(float)
    return _bandit(actions, actions + rng.standard_normal(users), click=clicks, like=likes)


@pytest.fixture(scope="module")
def logs() -> LoggedData:
    return _clicks_for_rewards(1_200)


BETTER = ConstantPolicy((0.2, 0.8))


def judged(logs, *guards, policy=BETTER, first_steps=False, **options):
    gate = Gate(guards=guards, first_steps=first_steps, **options)
    return evaluate(policy, logs, estimators=[SNIPS(), WDR()], gate=gate, details=False).verdict


def test_guards_that_hold_let_it_pass(logs):
    verdict = judged(logs, Guard(metric="like", max_drop=0.1))
    assert verdict.ship
    assert [guard.severity for guard in verdict.guards] == ["fine"]
    assert judged(logs, Guard(metric="click", max_drop=0.5)).ship


def test_a_guard_that_falls_holds_a_lift(logs):
    verdict = judged(logs, Guard(metric="like", max_drop=0.1), Guard(metric="click", max_drop=0.02))
    assert verdict.decision == "hold"
    assert [guard.severity for guard in verdict.guards] == ["fine", "fatal"]
    assert "Evidence against the guard 'click'" in verdict.reasons[0]


def test_an_undecided_guard_asks_for_data():
    logs = _clicks_for_rewards(3_000)
    close = Guard(metric="like", max_drop=0.005)
    verdict = judged(logs, close, patience=1e9, first_steps=True)
    assert verdict.guards[0].severity == "warning"
    assert verdict.guards[0].figure > 0
    assert verdict.decision == "first step"  # less of the policy loses less of the metric
    assert verdict.users_needed > logs.n_users
    assert judged(logs, close, patience=1e9).decision == "need more data"


def test_absolute_and_relative_guards_agree(logs):
    baseline = float(logs.metrics["click"].mean())
    for drop in (0.1, 0.4):
        absolute = Guard(metric="click", max_drop=drop * baseline, relative=False)
        relative = Guard(metric="click", max_drop=drop)
        by_absolute, by_relative = judged(logs, absolute).guards[0], judged(logs, relative).guards[0]
        # The same margin, with slightly different errors.
        assert by_absolute.figure == pytest.approx(by_relative.figure)


def test_a_guard_may_be_a_function(logs):
    def second(log: LoggedData):
        return (log.actions == 1).astype(float)

    guard = Guard(metric=second, max_drop=0.0)
    verdict = judged(logs, guard)
    assert verdict.ship
    assert "'second'" in verdict.guards[0].sentence
    assert Guard(metric=second, name="share").label == "share"


def test_guards_per_decision(logs):
    gate = Gate(guards=(Guard(metric="like", max_drop=0.1),))
    per_decision = evaluate(BETTER, logs, estimators=[SNIPS()], gate=gate, per="decision", details=False)
    assert per_decision.verdict.ship


# ---------------------------------------------------------------------- several candidates


def test_copies_need_no_correction_and_strangers_sidaks():
    rng = np.random.default_rng(0)
    influence = rng.standard_normal(2_000)
    copies = np.stack([influence, influence, 3 * influence])
    assert joint_level(copies, 0.95) == pytest.approx(0.95, abs=0.003)
    many = rng.standard_normal((5, 2_000))
    assert joint_level(many, 0.95) == pytest.approx(0.95 ** (1 / 5), abs=0.003)
    assert joint_level(influence[None], 0.95) == 0.95
    assert joint_level(np.stack([influence, 0 * influence]), 0.95) == 0.95  # mu itself has no error
    big = rng.standard_normal((3, 12_000))
    assert joint_level(big, 0.9) == pytest.approx(0.9 ** (1 / 3), abs=0.006)


@settings(max_examples=30, deadline=None)
@given(m=st.integers(1, 6), seed=st.integers(0, 999), confidence=st.floats(0.6, 0.99))
def test_the_level_lies_between_one_candidate_and_bonferroni(m, seed, confidence):
    level = joint_level(np.random.default_rng(seed).standard_normal((m, 50)), confidence)
    assert confidence <= level <= 1 - (1 - confidence) / m + 1e-12


def test_false_ships_of_a_family_stay_below_the_level():
    """Six candidates without any lift, half of them alike: one of them ships in at most 5 % of the logs."""
    rng = np.random.default_rng(3)
    any_ship = naive = 0
    for number in range(80):
        shared = rng.standard_normal(300)
        rows = [0.9 * shared + 0.4 * rng.standard_normal(300) for _ in range(3)]
        rows += [rng.standard_normal(300) for _ in range(3)]
        family = [
            Evaluation(estimates=(estimate(row, row.mean()),), users=300, fingerprint="x", **SHARED)
            for row in rows
        ]
        any_ship += any(verdict.ship for verdict in Gate().decide_many(family))
        if number % 2 == 0:
            naive += any(Gate().decide(candidate).ship for candidate in family)
    assert any_ship <= 10  # 4 are expected, with a standard deviation of 2
    assert naive >= 4  # of 40; about 8 are expected: the test can fail


def test_compare_names_the_best(logs):
    policies = {
        "worse": ConstantPolicy((0.8, 0.2)),
        "better": ConstantPolicy((0.4, 0.6)),
        "best": ConstantPolicy((0.1, 0.9)),
    }
    gate = Gate(first_steps=False)
    comparison = compare(policies, logs, gate, estimators=[SNIPS()], details=False)
    assert [candidate.verdict.decision for candidate in comparison.evaluations] == ["hold", "ship", "ship"]
    assert comparison.best == "best"
    assert comparison["better"].policy_name == "better"
    assert "One of 3 candidates" in comparison["best"].verdict.reasons[-1]
    assert compare({"worse": policies["worse"]}, logs, gate, estimators=[SNIPS()], details=False).best is None
    with pytest.raises(ConfigError, match="one of the candidates"):
        comparison["other"]
    with pytest.raises(ConfigError, match="at least one policy"):
        compare({}, logs, Gate())


def test_candidates_must_share_a_log():
    on_a, on_b = (replace(evaluation(1.0), fingerprint=name) for name in "ab")
    with pytest.raises(ConfigError, match="candidates evaluated on one log"):
        Gate().decide_many([on_a, on_b])
    with pytest.raises(ConfigError, match="at least one evaluation"):
        Gate().decide_many([])
    with pytest.raises(ConfigError, match="1 problems"):
        Gate().decide_many([on_a], [None, None])


# ---------------------------------------------------------------------- bad input


def test_settings_are_checked():
    assert shpi.Gate is Gate
    for options, message in (
        ({"confidence": 1.0}, "confidence in"),
        ({"power": 0.0}, "power in"),
        ({"min_lift": float("nan")}, "a finite min_lift"),
        ({"patience": 0.5}, "patience of at least 1"),
        ({"guards": ("click",)}, "guards of type Guard"),
    ):
        with pytest.raises(ConfigError, match=message):
            Gate(**options)
    with pytest.raises(ConfigError, match="max_drop of at least 0"):
        Guard(metric="click", max_drop=-0.02)


def test_guards_need_the_problem(logs):
    gate = Gate(guards=(Guard(metric="click"),))
    with pytest.raises(ConfigError, match="the problem, for guard metrics"):
        gate.decide(evaluation(1.0))
    with pytest.raises(ConfigError, match="one of the metrics"):
        judged(logs.select(np.arange(200)), Guard(metric="clock"))


def test_a_policy_for_other_actions_or_columns_is_refused(logs):
    with pytest.raises(ConfigError, match="a policy over the 2 actions of the log"):
        evaluate(ConstantPolicy((0.2, 0.3, 0.5)), logs, gate=Gate())
    wide = Greedy(LinearScorer(np.zeros((2, 7)), Identity(intercept=False).fit(np.zeros((1, 7)))))
    with pytest.raises(ConfigError, match="contexts of 1 dimensions"):
        evaluate(wide, logs, gate=Gate())


def test_an_empty_overlap_is_refused_or_held():
    rng = np.random.default_rng(0)
    never = _bandit(np.zeros(300, dtype=int), rng.random(300))  # the log never shows the second action
    with pytest.raises(DataError, match="every importance weight is 0"):
        evaluate(ConstantPolicy((0.0, 1.0)), never, estimators=[SNIPS(), SNPDIS()], gate=Gate())
    half = evaluate(ConstantPolicy((0.4, 0.6)), never, estimators=[SNIPS()], gate=Gate(), details=False)
    assert half.verdict.decision == "hold"
    assert "No decision can rest on this" in half.verdict.reasons[0]
    defaults = evaluate(ConstantPolicy((0.0, 1.0)), never, gate=Gate(), details=False)
    assert defaults.verdict.decision == "hold"  # only models are left, and the support is empty


def test_one_user_is_refused_and_a_few_are_not_enough():
    with pytest.raises(DataError, match="at least two users"):
        evaluate(BETTER, _bandit(np.array([1]), np.array([1.0])), gate=Gate())
    rng = np.random.default_rng(0)
    actions = np.arange(12) % 2
    few = evaluate(
        BETTER, _bandit(actions, actions + 0.01 * rng.random(12)), estimators=[SNIPS()], gate=Gate()
    )
    assert few.decisive.lift_interval.lower_bound > 0
    assert few.verdict.decision == "need more data"
    assert few.verdict.users_needed >= 30


def test_a_constant_reward_has_nothing_to_ship(logs):
    constant = logs.with_rewards(np.full(len(logs), 2.0))
    verdict = evaluate(BETTER, constant, gate=Gate(), details=False, truncated="censored").verdict
    assert verdict.decision == "hold"


def test_missing_propensities_are_held(logs):
    some = logs.select(np.arange(600))
    bare = LoggedData.from_arrays(
        contexts=some.contexts, actions=some.actions, rewards=some.rewards, offsets=some.offsets, n_actions=2
    )
    verdict = evaluate(BETTER, bare, gate=Gate(), details=False).verdict
    assert verdict.decision == "hold"
    assert "no propensities" in verdict.reasons[0]


def test_wrong_propensities_are_held(logs):
    wrong = replace(logs, propensities=logs.propensities / 2, behaviour=None)
    verdict = judged(wrong)
    assert verdict.decision == "hold"
    assert "too small" in " ".join(verdict.reasons)


def test_the_verdict_is_printed_and_written(logs, tmp_path):
    shipped = evaluate(BETTER, logs, estimators=[SNIPS()], gate=Gate(), details=False)
    assert "VERDICT: SHIP" in str(shipped)
    assert '"decision": "ship"' in shipped.write_json(tmp_path / "e.json").read_text()
    assert shipped.to_json()["verdict"]["decision"] == "ship"
    assert Gate().decide(replace(shipped, verdict=None), Problem.of(BETTER, logs)).ship
