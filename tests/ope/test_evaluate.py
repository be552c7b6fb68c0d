import json

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.data.columns import Columns
from shpi.data.logged import LoggedData
from shpi.data.shards import prepare_shards
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.ope import (
    DR,
    FQE,
    IPS,
    PDIS,
    SLOPE,
    SNIPS,
    SNPDIS,
    WDR,
    KStepSHPI,
    Problem,
    Settings,
    Verdict,
    default_estimators,
    evaluate,
)
from shpi.policies import ConstantPolicy, Greedy, LinearScorer, UniformPolicy
from tests.ope.worlds import H, small_world, value

MDP, MU, PI = small_world()


@pytest.fixture(scope="module")
def logs() -> LoggedData:
    return MDP.log(MU, 800, H, seed=0, ragged=False)


@pytest.fixture(scope="module")
def evaluation(logs):
    return shpi.evaluate(MDP.policy(PI), logs, gamma=0.9, k=2)


def test_every_estimator_answers_and_none_is_far_off(evaluation):
    truth = value(MDP, PI) - value(MDP, MU)
    names = [estimate.name for estimate in evaluation.estimates]
    assert names[:2] == ["WDR", "SHPI(k=2)"]
    assert {"SNPDIS", "SNIPS", "PDIS", "IPS", "DR", "MAGIC", "FQE", "DM", "MIS"} < set(names)
    for estimate in evaluation.estimates:
        assert estimate.lift == pytest.approx(estimate.value - estimate.baseline)
        assert estimate.baseline == pytest.approx(evaluation["SNPDIS"].baseline)
        interval = estimate.lift_interval
        assert interval.lower < interval.lower_bound < estimate.lift < interval.upper
        assert estimate.influence_lift.shape == (800,)
        assert abs(estimate.influence_lift.mean()) < 1e-8
        assert abs(estimate.lift - truth) < 5 * estimate.lift_error + 0.15  # DM and MIS are biased by design


def test_the_evaluation_describes_itself(evaluation, logs):
    assert evaluation.users == 800
    assert evaluation.decisions == len(logs)
    assert evaluation.fingerprint == logs.fingerprint()
    assert evaluation.metric == f"reward per user over {H} decisions, gamma 0.9"
    assert evaluation.configuration["settings"]["gamma"] == 0.9
    assert json.dumps(evaluation.to_json(), allow_nan=False)
    text = str(evaluation)
    assert "WDR *" in text
    assert "next reward" in text


def test_breakdowns_add_up(evaluation, logs):
    by_column: dict[str, list] = {}
    for segment in evaluation.segments:
        by_column.setdefault(segment.column, []).append(segment)
    assert by_column
    for parts in by_column.values():
        users = np.array([segment.users for segment in parts])
        assert users @ [segment.lift for segment in parts] / users.sum() == pytest.approx(
            evaluation.decisive.lift, abs=0.05
        )
    shifts = evaluation.actions_gained_lost
    assert sum(shift.change for shift in shifts) == pytest.approx(0)
    assert shifts[0].logged == pytest.approx(np.mean(logs.actions == int(shifts[0].action)))
    product = np.prod([factor.baseline for factor in evaluation.decomposition])
    assert product == pytest.approx(np.sum(logs.rewards) / 800)


def test_short_term_is_the_bandit_view(evaluation):
    states = MDP.state_probs(MU, H) * ~MDP.terminal
    weights = 0.9 ** np.arange(H)
    alive = weights @ states.sum(axis=1)
    of_pi, of_mu = (weights @ states @ np.sum(p * MDP.reward, axis=1) / alive for p in (PI, MU))
    assert evaluation.short_term.value == pytest.approx(of_pi, abs=4 * evaluation.short_term.value_error)
    assert evaluation.short_term.lift == pytest.approx(
        of_pi - of_mu, abs=4 * evaluation.short_term.lift_error
    )


def test_per_decision_divides_by_decisions(logs):
    per_decision = evaluate(MDP.policy(MU), logs, estimators=[SNPDIS(), WDR()], per="decision", details=False)
    for estimate in per_decision.estimates:
        assert estimate.value == pytest.approx(logs.rewards.mean())
        assert estimate.lift == pytest.approx(0, abs=1e-12)
    assert "per decision" in per_decision.metric


def test_another_metric(logs):
    with_clicks = LoggedData.from_arrays(
        contexts=logs.contexts, actions=logs.actions, rewards=logs.rewards, offsets=logs.offsets,
        propensities=logs.propensities, n_actions=3, terminated=logs.terminated,
        metrics={"click": (logs.actions == 1).astype(float)},
    )  # fmt: skip
    never = np.zeros_like(PI)
    never[:, [0, 2]] = 0.5
    of_clicks = evaluate(MDP.policy(never), with_clicks, estimators=[SNPDIS()], metric="click", details=False)
    assert of_clicks.decisive.value == 0
    assert of_clicks.decisive.baseline > 0
    with pytest.raises(ConfigError, match="one of the metrics"):
        evaluate(MDP.policy(PI), with_clicks, metric="clock")


def test_a_gate_gives_the_verdict(logs):
    class Never:
        def decide(self, evaluation, problem):
            assert evaluation.verdict is None
            assert problem.users == evaluation.users
            return Verdict(decision="hold", reasons=("never",))

    gated = evaluate(MDP.policy(PI), logs, estimators=[SNPDIS()], gate=Never(), details=False)
    assert gated.verdict is not None
    assert gated.verdict.reasons == ("never",)


def test_an_estimator_without_an_answer_is_named(logs):
    taken = int(logs.actions[0])
    other = ConstantPolicy(tuple(np.eye(3)[(taken + 1) % 3]))
    report = evaluate(other, logs, estimators=[PDIS(), SNPDIS(k=1, name="bandit")], details=False)
    assert {estimate.name for estimate in report.estimates} == {"PDIS", "bandit"}
    first = logs.actions[logs.offsets[:-1]]
    nobody = logs.select(np.flatnonzero(first == taken)[:30])  # nobody begins as the policy would
    short = evaluate(other, nobody, estimators=[SNPDIS(), FQE()], details=False)
    failures = [diagnostic for diagnostic in short.diagnostics if diagnostic.name == "no estimate"]
    assert [estimate.name for estimate in short.estimates] == ["FQE"]
    assert [(diagnostic.severity, diagnostic.estimator) for diagnostic in failures] == [("fatal", "SNPDIS")]


def test_the_estimator_that_decides_has_enough_users(logs, evaluation):
    few = evaluate(MDP.policy(PI), logs.select(np.arange(25)), details=False)
    sound = [few[name] for name in ("WDR", "SHPI(k=session)", "SNPDIS", "SNIPS")]
    # Nobody has 30 effective users.
    assert few.main == max(sound, key=lambda estimate: estimate.effective_users).name
    assert evaluation.main == "WDR"
    named = evaluate(MDP.policy(PI), logs, estimators=[SNPDIS(), IPS()], main="IPS", details=False)
    assert named.main == "IPS"
    with pytest.raises(ConfigError, match="a main estimator among those with an answer"):
        evaluate(MDP.policy(PI), logs, estimators=[SNPDIS()], main="DR", details=False)


def test_one_decision_per_user_is_a_bandit():
    rng = np.random.default_rng(0)
    n = 2_000
    actions = rng.integers(4, size=n)
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 2)), actions=actions, rewards=(actions == 2) + 0.1 * rng.random(n),
        propensities=np.full(n, 0.25), offsets=np.arange(n + 1), n_actions=4,
    )  # fmt: skip
    report = evaluate(ConstantPolicy((0.0, 0.0, 1.0, 0.0)), logs, details=False)
    assert "PDIS" not in [estimate.name for estimate in report.estimates]
    for estimate in report.estimates:
        assert abs(estimate.value - 1.05) < 5 * estimate.value_error + 0.01
    weights = (actions == 2) * 4.0
    assert report["IPS"].value == pytest.approx(np.mean(weights * logs.rewards))
    assert report["SNIPS"].value == pytest.approx(np.sum(weights * logs.rewards) / weights.sum())


def test_shards_give_the_same_answer(tmp_path, logs):
    n = len(logs)
    table = pl.DataFrame(
        {
            "user": logs.users[logs.trajectory_of_row],
            "time": logs.steps,
            "a": logs.actions,
            "p": logs.propensities,
            "r": logs.rewards,
            "gone": np.isin(np.arange(n), (logs.offsets[1:] - 1)[logs.terminated]),
            **{f"x{j}": logs.contexts[:, j] for j in range(5)},
        }
    )
    columns = Columns(
        user="user", time="time", action="a", propensity="p", reward="r", terminated="gone", context=["x*"]
    )
    sharded = prepare_shards(table, columns, tmp_path / "shards", shards=3, progress=False)
    whole = LoggedData.read(table, columns)
    table_model = {"features": Identity(intercept=False)}
    models = [estimator(**table_model) for estimator in (WDR, DR, FQE)]
    estimators = [SNPDIS(), PDIS(), SNIPS(), IPS(), *models, KStepSHPI(k=2, **table_model)]
    of_whole = evaluate(MDP.policy(PI), whole, gamma=0.9, estimators=estimators)
    of_shards = evaluate(MDP.policy(PI), sharded, gamma=0.9, estimators=estimators)
    assert of_whole.users == of_shards.users
    for left, right in zip(of_whole.estimates, of_shards.estimates, strict=True):
        assert right.value == pytest.approx(left.value, rel=1e-8)
        assert right.lift_error == pytest.approx(left.lift_error, rel=1e-6)


# ---------------------------------------------------------------------- users that leave


def test_no_estimator_forgets_the_users_who_left():
    """Every decision earns 1 and half of the users leave after the first of two: 1.5 per user, not 2."""
    lengths = np.array([1, 2] * 40)
    total = int(lengths.sum())
    logs = LoggedData.from_arrays(
        contexts=np.ones((total, 1)), actions=np.arange(total) % 2, rewards=np.ones(total),
        propensities=np.full(total, 0.5), behaviour=np.full((total, 2), 0.5), n_actions=2,
        offsets=np.append(0, np.cumsum(lengths)), terminated=lengths == 1,
        final_contexts=np.ones((80, 1)),
    )  # fmt: skip
    problem = Problem.of(UniformPolicy(2), logs)
    for estimator in (*default_estimators(problem), KStepSHPI(k=1), KStepSHPI(), SLOPE()):
        estimate = estimator.estimate(problem)
        # MAGIC's model has no counterpart for mu to take away.
        within = 0.05 if estimator.name == "MAGIC" else 1e-9
        assert estimate.value == pytest.approx(1.5, abs=within), estimator.name
        assert estimate.baseline == pytest.approx(1.5, abs=1e-12)


# ---------------------------------------------------------------------- coverage, quickly


def test_intervals_cover_when_rows_share_users():
    """Strong user effects and ragged trajectories: intervals over users hold, those over rows would not."""
    policy, truth = ConstantPolicy((0.3, 0.7)), 0.2 * 3
    hits, bounds = 0, 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(2, 5, size=120)
        effect = np.repeat(2 * rng.standard_normal(120), lengths)
        actions = (rng.random(lengths.sum()) < 0.5).astype(int)
        logs = LoggedData.from_arrays(
            contexts=np.zeros((lengths.sum(), 1)), actions=actions,
            rewards=effect + actions + rng.standard_normal(lengths.sum()),
            propensities=np.full(lengths.sum(), 0.5), offsets=np.append(0, np.cumsum(lengths)), n_actions=2,
        )  # fmt: skip
        interval = SNPDIS().estimate(Problem.of(policy, logs, Settings(horizon=3))).lift_interval
        hits += interval.lower <= truth <= interval.upper
        bounds += interval.lower_bound <= truth
    assert hits >= 134  # 142 are expected, with a standard deviation of 2.7
    assert bounds >= 134


# ---------------------------------------------------------------------- bad input


def test_a_policy_for_other_actions_is_refused(logs):
    with pytest.raises(ConfigError, match="a policy over the 3 actions of the log"):
        evaluate(UniformPolicy(4), logs)


def test_a_policy_for_other_columns_is_refused(logs):
    features = Identity(intercept=False).fit(np.zeros((1, 7)))
    greedy = Greedy(LinearScorer(np.zeros((3, 7)), features))
    with pytest.raises(ConfigError, match="contexts of 5 dimensions"):
        evaluate(greedy, logs)

    class Unsaid:
        n_actions = 3

        def action_probs(self, contexts, candidates=None):
            return contexts @ np.ones((7, 3))

    with pytest.raises(ConfigError, match="a policy for contexts of 5 dimensions"):
        evaluate(Unsaid(), logs)


def test_probabilities_that_are_none_are_refused(logs):
    class Half:
        n_actions = 3

        def action_probs(self, contexts, candidates=None):
            return np.full((len(contexts), 3), 0.25)

    with pytest.raises(DataError, match="probabilities that sum to 1"):
        evaluate(Half(), logs)
    with pytest.raises(ConfigError, match=r"a policy \(n_actions and action_probs\)"):
        evaluate("policy", logs)


def test_actions_outside_the_mask_are_refused():
    mdp, mu, _ = small_world(masked=True)
    logs = mdp.log(mu, 50, H, seed=0)

    class Forbidden:
        n_actions = 3

        def action_probs(self, contexts, candidates=None):
            return np.full((len(contexts), 3), 1 / 3)

    with pytest.raises(DataError, match="over the allowed actions"):
        evaluate(Forbidden(), logs)


def test_one_user_is_refused(logs):
    with pytest.raises(DataError, match="at least two users"):
        evaluate(MDP.policy(PI), logs.select([0]))


def test_missing_rewards_are_refused(logs):
    bare = LoggedData.from_arrays(
        contexts=logs.contexts, actions=logs.actions, offsets=logs.offsets,
        propensities=logs.propensities, n_actions=3,
    )  # fmt: skip
    with pytest.raises(DataError, match="a log with rewards"):
        evaluate(MDP.policy(PI), bare)


def test_missing_propensities_leave_the_models(logs):
    bare = LoggedData.from_arrays(
        contexts=logs.contexts, actions=logs.actions, rewards=logs.rewards, offsets=logs.offsets, n_actions=3
    )
    report = evaluate(MDP.policy(PI), bare, gamma=0.9)
    assert [estimate.name for estimate in report.estimates] == ["FQE", "DM"]
    assert report.short_term is None
    with pytest.raises(DataError, match="a log with propensities"):
        evaluate(MDP.policy(PI), bare, estimators=[SNPDIS()])


def test_a_constant_reward_has_no_lift_where_nobody_leaves():
    mdp, mu, pi = small_world(n_terminal=0)
    logs = mdp.log(mu, 100, H, seed=0, ragged=True)
    constant = logs.with_rewards(np.full(len(logs), 2.0))
    report = evaluate(mdp.policy(pi), constant, estimators=[SNPDIS(), SNIPS(), WDR(), KStepSHPI(k=2)])
    for estimate in report.estimates:
        assert estimate.lift == pytest.approx(0, abs=1e-6)
        assert estimate.lift_error == pytest.approx(0, abs=1e-6)


def test_settings_are_checked(logs):
    policy = MDP.policy(PI)
    for options, message in (
        ({"gamma": 1.5}, "gamma in"),
        ({"confidence": 0.3}, "confidence in"),
        ({"horizon": 0}, "a horizon of at least 1"),
        ({"horizon": 99}, "a horizon of at most 5"),
        ({"truncated": "maybe"}, "truncated 'censored' or 'complete'"),
        ({"interval": "hoeffding"}, "one of"),
        ({"per": "click"}, "per 'user', 'decision' or 'session'"),
        ({"estimators": [SNPDIS]}, "make an instance"),
        ({"estimators": []}, "at least one estimator"),
        ({"estimators": [SNPDIS(), SNPDIS()]}, "distinct names"),
        ({"segment_by": ["age"], "estimators": [SNPDIS()]}, "context dimensions among"),
    ):
        with pytest.raises(ConfigError, match=message):
            evaluate(policy, logs, **options)
    with pytest.raises(ConfigError, match="a LoggedData or a ShardedLog"):
        evaluate(policy, "log.parquet")


def test_unobserved_rewards_leave_their_step(logs):
    from dataclasses import replace

    observed = np.random.default_rng(0).random(len(logs)) < 0.7
    partly = replace(logs, reward_observed=observed)
    of_whole, of_partly = (
        evaluate(MDP.policy(PI), log, estimators=[SNPDIS()], details=False) for log in (logs, partly)
    )
    assert of_partly.decisive.value != of_whole.decisive.value
    assert of_partly.decisive.value == pytest.approx(
        of_whole.decisive.value, abs=4 * of_partly.decisive.value_error
    )
    with pytest.raises(DataError, match="every reward is censored"):
        evaluate(MDP.policy(PI), replace(logs, reward_observed=np.zeros(len(logs), dtype=bool)))


def test_default_estimators_suit_the_log(logs):
    problem = Problem.of(MDP.policy(PI), logs)
    assert default_estimators(problem)[1].name == "SHPI(k=session)"
    assert default_estimators(problem, k=3)[1].name == "SHPI(k=3)"


def test_a_saved_policy_names_its_actions_and_columns(tmp_path, logs):
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema
    from shpi.ope import check_saved
    from shpi.policies import read_policy_file, save_policy

    def saved(name, ids, columns):
        schema = ContextSchema.numeric(columns)
        save_policy(UniformPolicy(3), tmp_path / name, schema=schema, actions=ActionSpace(ids=ids))
        return read_policy_file(tmp_path / name)

    own = [f"x{j}" for j in range(5)]
    check_saved(saved("same", (0, 1, 2), own), logs)
    with pytest.raises(ConfigError, match=r"such as \['shoes'\]"):
        check_saved(saved("other", (0, 1, "shoes"), own), logs)
    with pytest.raises(ConfigError, match="another order"):
        check_saved(saved("order", (0, 2, 1), own), logs)
    with pytest.raises(ConfigError, match=r"context dimensions of the log.*such as \['age'\]"):
        check_saved(saved("columns", (0, 1, 2), ["age", *own[1:]]), logs)
