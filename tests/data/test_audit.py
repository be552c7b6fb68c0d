from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from shpi.data._behaviour.calibration import Calibration
from shpi.data._log.ledger import Drop, Ledger
from shpi.data._read.read import read_log
from shpi.data.audit import AuditReport, audit
from shpi.data.audit.figures import calibration_figure, share_bar
from shpi.data.audit.findings import SEVERITIES, Finding
from shpi.data.audit.propensity import effective_sample_size
from shpi.data.columns import Columns
from shpi.data.durations import MICROSECONDS
from shpi.data.logged import LoggedData
from shpi.data.rewards import ReturnWithin
from shpi.data.schema import ContextSchema, Feature
from tests.public_logs import public_audit

DAY, MINUTE = MICROSECONDS["d"], MICROSECONDS["m"]


def clean(
    *, users: int = 60, days: int = 5, per_day: int = 3, choices: int = 4, **changes: Any
) -> LoggedData:
    """A log that nothing is wrong with: uniform choices, three decisions a day, five days."""
    rng = np.random.default_rng(0)
    length = days * per_day
    n = users * length
    moment = np.arange(length) // per_day * DAY + np.arange(length) % per_day * MINUTE
    content: dict[str, Any] = {
        "contexts": rng.normal(size=(n, 3)),
        "actions": rng.integers(0, choices, n),
        "n_actions": choices,
        "offsets": np.arange(0, n + 1, length),
        "session_offsets": np.arange(0, n + 1, per_day),
        "rewards": rng.normal(size=n),
        "propensities": np.full(n, 1 / choices),
        "times": np.tile(moment, users) + 19_000 * DAY,
        "time_unit": "us",
        "final_contexts": rng.normal(size=(users, 3)),
    }
    return LoggedData.from_arrays(**(content | changes))


def finding(report: AuditReport, code: str) -> Finding:
    of_code = [entry for entry in report.findings if entry.code == code]
    assert len(of_code) == 1, f"{code} among {[entry.code for entry in report.findings]}"
    return of_code[0]


def test_a_clean_log_is_fit_and_has_no_findings() -> None:
    report = clean().audit()
    assert report.fit
    assert report.findings == ()
    structure = report.facts.structure
    assert (structure.decisions, structure.users, structure.sessions) == (900, 60, 300)
    assert structure.session_length.mean == 3
    assert structure.session_lengths == (("3-5", 300),)
    assert structure.decisions_per_user.median == 15
    assert structure.final_observed == 60
    assert report.facts.time.first == "2022-01-08 00:00:00"
    assert report.facts.time.span == "4 days"
    assert report.facts.horizon.k == 3


# ---------------------------------------------------------------- one test per finding


def test_rows_that_do_not_add_up() -> None:
    log = clean()
    report = audit(replace(log, ledger=Ledger(rows_in=1_000, rows_used=900)))
    assert finding(report, "unbalanced").severity == "error"
    assert not report.fit


def test_many_dropped_rows() -> None:
    drop = Drop(reason="context missing", rows=300, column="age", example=7, remedy="choose a policy")
    log = replace(clean(), ledger=Ledger(rows_in=1_200, rows_used=900, drops=(drop,)))
    dropped = finding(log.audit(), "many_dropped")
    assert dropped.severity == "warning"
    assert dropped.column == "age"
    assert "25%" in dropped.message
    assert "source row 7" in dropped.message
    assert dropped.remedy == "choose a policy"


def test_a_single_decision() -> None:
    log = LoggedData.from_arrays(contexts=np.zeros((1, 1)), actions=[0], offsets=[0, 1], rewards=[1.0])
    report = log.audit()
    assert not report.fit
    codes = {entry.code for entry in report.findings}
    assert {"few_decisions", "single_action", "single_user", "no_sequence", "reward_constant"} <= codes
    assert "unfit" in str(report)


def test_a_single_action() -> None:
    single = finding(clean(choices=1).audit(), "single_action")
    assert single.severity == "error"
    assert single.example_row == 0


def test_an_action_that_was_never_chosen() -> None:
    log = clean()
    wider = clean(n_actions=6, propensities=None, actions=log.actions)
    unchosen = finding(wider.audit(), "never_chosen")
    assert unchosen.severity == "warning"
    assert "2 of 6" in unchosen.message
    assert "4, 5" in unchosen.message


def test_rare_actions() -> None:
    actions = np.random.default_rng(0).integers(0, 4, 900)
    actions[:3] = 4
    report = clean(actions=actions, n_actions=5, propensities=None).audit()
    assert "3× 4" in finding(report, "rare_actions").message


def test_no_reward() -> None:
    report = clean(rewards=None).audit()
    assert report.fit
    assert finding(report, "reward_absent").severity == "warning"
    assert report.facts.decomposition.ltr is None


def test_a_constant_reward() -> None:
    constant = finding(clean(rewards=np.full(900, 2.0)).audit(), "reward_constant")
    assert constant.severity == "error"
    assert "Every reward is 2" in constant.message


def test_censored_rewards_are_reported_and_left_out() -> None:
    marked = clean(rewards=None).with_rewards(ReturnWithin(horizon="2d"), censored="mark")
    report = marked.audit()
    assert "360 of 900" in finding(report, "reward_censored").message
    assert report.facts.reward is not None
    assert report.facts.reward.observed == 540
    assert report.facts.reward.spread.mean == pytest.approx(1 / 3)  # paid once a session of three
    hidden = replace(marked, reward_observed=np.zeros(900, dtype=bool))
    assert finding(hidden.audit(), "reward_unobserved").severity == "error"


def test_dropped_decisions_of_a_derived_reward_appear_in_the_rows() -> None:
    times = np.tile(np.array([0.0, 1, 5, 6, 20]) * DAY, 60).astype(np.int64)
    log = clean(days=5, per_day=1, times=times, rewards=None).with_rewards(ReturnWithin(horizon="2d"))
    text = str(log.audit())
    assert "300 = 240 used + 60 dropped   ✓ adds up" in text
    assert "future not observed" in text
    assert "ReturnWithin(horizon='2d', pays='session')" in text


def test_absent_propensities() -> None:
    report = clean(propensities=None).audit()
    assert report.fit
    assert "--estimate-propensities" in finding(report, "propensities_absent").remedy
    assert report.facts.propensity is None


def test_estimated_propensities_are_labelled_and_calibrated() -> None:
    report = clean(propensities=None, users=200).with_estimated_propensities().audit()
    assert report.fit
    assert finding(report, "propensities_estimated").severity == "info"
    assert report.facts.propensity is not None
    assert report.facts.propensity.calibration is not None
    text = str(report)
    assert "cross-fitted by user" in text
    assert "expected error" in text
    assert "÷2        │        ×2" in text


@pytest.mark.parametrize(
    ("factor", "severity"), [(0.3, "error"), (0.8, "warning"), (1.25, "warning"), (3.0, "error")]
)
def test_wrong_propensities(factor: float, severity: str) -> None:
    wrong = finding(clean(propensities=np.full(900, 0.25 * factor)).audit(), "inverse_propensity")
    assert wrong.severity == severity
    assert ("too small" in wrong.message) == (factor < 1)


def test_correct_propensities_of_a_skewed_policy_pass() -> None:
    rng = np.random.default_rng(1)
    mu = np.array([0.7, 0.2, 0.08, 0.02])
    actions = rng.choice(4, size=900, p=mu)
    report = clean(actions=actions, propensities=mu[actions]).audit()
    assert not report.has("inverse_propensity")
    assert not report.has("uniform_ess")


@pytest.mark.parametrize("sample", ["the whole log", "held-out users"])
@pytest.mark.parametrize("rows", [1500, 3000, 6000])
def test_actions_that_were_missed_by_chance_are_no_error_of_propensities(rows: int, sample: str) -> None:
    """A table shows only what was chosen: 1 / 2000 is right though fewer actions are in the log."""
    rng = np.random.default_rng(rows)
    for factor in (1.0, 0.5):
        _, actions = np.unique(rng.integers(0, 2000, rows), return_inverse=True)
        logs = LoggedData.from_arrays(
            contexts=rng.normal(size=(rows, 1)),
            actions=actions,
            n_actions=int(actions.max()) + 1,
            offsets=np.arange(0, rows + 1, 5),
            rewards=rng.normal(size=rows),
            propensities=np.full(rows, factor / 2000),
        )
        assert logs.n_actions < 1950
        if sample == "held-out users":
            _, logs = logs.split_users(0.5, seed=0)
        assert logs.audit().has("inverse_propensity") == (factor < 1)


def test_a_long_tail_of_actions_is_no_error_of_propensities() -> None:
    """Zipf's law over 5,000 actions: a count of the rare ones, which takes them for alike, is far off."""
    probs = 1 / np.arange(1, 5001)
    probs /= probs.sum()
    for factor in (1.0, 0.5):
        rng = np.random.default_rng(0)
        shown, actions = np.unique(rng.choice(5000, 6000, p=probs), return_inverse=True)
        logs = LoggedData.from_arrays(
            contexts=rng.normal(size=(6000, 1)),
            actions=actions,
            n_actions=len(shown),
            offsets=np.arange(0, 6001, 5),
            rewards=rng.normal(size=6000),
            propensities=factor * probs[shown[actions]],
        )
        assert logs.audit().has("inverse_propensity") == (factor < 1)


def test_a_policy_that_never_explores() -> None:
    report = clean(propensities=np.ones(900)).audit()
    assert finding(report, "no_exploration").severity == "error"
    assert not report.fit


def test_no_decision_ever_had_a_choice() -> None:
    actions = np.arange(900) % 4
    alone = np.eye(4, dtype=bool)[actions]
    report = clean(actions=actions, candidates=alone, propensities=np.ones(900)).audit()
    assert "never a choice" in finding(report, "no_exploration").message


def test_one_enormous_weight_makes_a_log_unfit() -> None:
    p = np.full(900, 0.25)
    p[17] = 1e-6
    report = clean(propensities=p).audit()
    weight = finding(report, "uniform_ess")
    assert weight.severity == "error"
    assert weight.example_row == 17
    assert report.facts.propensity is not None
    assert report.facts.propensity.uniform_ess < 1.1
    assert report.facts.propensity.top_weight > 0.99


def test_a_narrow_policy_is_a_warning() -> None:
    rng = np.random.default_rng(0)
    mu = np.array([0.991, 0.003, 0.003, 0.003])
    actions = rng.choice(4, size=9_000, p=mu)
    report = clean(users=600, actions=actions, propensities=mu[actions]).audit()
    assert finding(report, "uniform_ess").severity == "warning"


def test_the_effective_sample_size() -> None:
    assert effective_sample_size(np.full(7, 3.0)) == pytest.approx(7)
    assert effective_sample_size(np.array([1.0, 1.0, 2.0])) == pytest.approx(16 / 6)
    assert effective_sample_size(np.array([1e300, 1e300])) == pytest.approx(2)


def test_mu_outside_the_candidates() -> None:
    candidates = np.ones((900, 4), bool)
    actions = np.arange(900) % 3
    candidates[:, 3] = False
    report = clean(
        actions=actions,
        candidates=candidates,
        behaviour=np.full((900, 4), 0.25),
        propensities=np.full(900, 0.25),
    ).audit()
    assert "25.0%" in finding(report, "behaviour_outside").message


def test_a_logged_distribution_that_is_not_the_policy() -> None:
    rng = np.random.default_rng(0)
    actions = rng.choice(4, size=9_000, p=[0.4, 0.3, 0.2, 0.1])
    behaviour = np.tile([0.1, 0.2, 0.3, 0.4], (9_000, 1))
    report = clean(
        users=600, actions=actions, behaviour=behaviour, propensities=behaviour[np.arange(9_000), actions]
    ).audit()
    assert finding(report, "miscalibrated").severity == "warning"


def test_forced_choices_do_not_count_in_the_checks() -> None:
    # As in HeartSteps: available 80 %, then sent with probability 0.6.
    rng = np.random.default_rng(0)
    available = rng.random(900) < 0.8
    sent = available & (rng.random(900) < 0.6)
    log = clean(
        actions=sent.astype(int), n_actions=2, candidates=np.stack([np.ones(900, bool), available], axis=1),
        propensities=np.where(available, np.where(sent, 0.6, 0.4), 1.0),
    )  # fmt: skip
    report = log.audit()
    assert report.facts.propensity is not None
    assert report.facts.propensity.decisions == available.sum()
    assert report.facts.propensity.inverse_expected == 2
    assert report.facts.actions.candidates_mean == pytest.approx(1 + available.mean())
    assert not report.has("inverse_propensity")


def test_ties_and_repeated_decisions() -> None:
    log = clean()
    times, actions = log.times.copy(), log.actions.copy()
    times[20:23] = times[20]
    actions[20:23] = [1, 2, 1]  # the repetition is not next to its original
    report = clean(times=times, actions=actions).audit()
    assert report.facts.time.ties == 2
    repeated = finding(report, "duplicate_rows")
    assert repeated.example_row == 22
    assert repeated.example == "user 1, 2022-01-09 00:02:00, action 1"
    assert finding(report, "time_ties").example_row == 21


def test_equal_times_of_different_users_are_no_ties() -> None:
    report = clean(days=1, per_day=1, users=100).audit()
    assert report.facts.time.ties == 0
    assert report.facts.time.duplicates == 0


def test_constant_and_equal_columns() -> None:
    contexts = np.random.default_rng(0).normal(size=(900, 4))
    contexts[:, 1] = 3.0
    contexts[:, 3] = contexts[:, 0]
    schema = ContextSchema.numeric(["age", "country", "tenure", "years"])
    report = clean(contexts=contexts, final_contexts=contexts[:60], schema=schema).audit()
    assert finding(report, "constant_column").column == "country"
    assert "years = age" in finding(report, "same_column").message


def test_a_category_that_never_occurs_is_not_a_constant_column() -> None:
    feature = Feature(name="kind", kind="categorical", categories=("a", "b"))
    contexts = np.eye(3)[np.arange(900) % 2]
    report = clean(
        contexts=contexts, final_contexts=contexts[:60], schema=ContextSchema(features=(feature,))
    ).audit()
    assert not report.has("constant_column")


@pytest.mark.parametrize("target", ["the reward", "the next reward", "the sum of all later rewards"])
def test_a_column_that_knows_a_later_reward(target: str) -> None:
    log = clean()
    rewards = np.asarray(log.rewards)
    contexts = log.contexts.astype(float)
    by_user = rewards.reshape(60, 15)
    known = {
        "the reward": rewards,
        "the next reward": np.roll(by_user, -1, axis=1).ravel(),
        "the sum of all later rewards": (by_user[:, ::-1].cumsum(axis=1)[:, ::-1] - by_user).ravel(),
    }[target]
    contexts[:, 1] = 5 - 2 * known
    leak = finding(clean(contexts=contexts).audit(), "leaking_column")
    assert leak.severity == "error"
    assert leak.column == "x1"
    assert target in leak.message
    assert leak.example_row is not None


def test_a_column_that_splits_a_binary_reward() -> None:
    rng = np.random.default_rng(0)
    rewards = (rng.random(900) < 0.1).astype(float)
    contexts = rng.normal(size=(900, 3))
    contexts[:, 2] = rewards * rng.exponential(10, 900) + 0.01 * rewards  # watch time: positive iff clicked
    leak = finding(clean(contexts=contexts, rewards=rewards).audit(), "leaking_column")
    assert leak.severity == "error"
    assert "splits" in leak.message


def test_a_good_predictor_is_not_a_leak() -> None:
    log = clean()
    contexts = log.contexts.astype(float)
    contexts[:, 0] = np.asarray(log.rewards) + np.random.default_rng(5).normal(size=900)
    assert not clean(contexts=contexts).audit().has("leaking_column")


def test_yesterdays_reward_is_no_leak() -> None:
    log = clean()
    contexts = log.contexts.astype(float)
    contexts[1:, 0] = np.asarray(log.rewards)[:-1]
    assert not clean(contexts=contexts).audit().has("leaking_column")


def test_no_context_one_user_and_no_sequence() -> None:
    report = clean(contexts=np.zeros((900, 0)), final_contexts=np.zeros((60, 0))).audit()
    assert report.has("no_context")
    assert finding(clean(users=1, days=40).audit(), "single_user").severity == "warning"
    bandit = clean(days=1, per_day=1, users=200).audit()
    assert finding(bandit, "no_sequence").severity == "warning"
    assert bandit.facts.horizon.k == 1


def test_unknown_last_contexts() -> None:
    told = clean(final_contexts=None, terminated=np.zeros(60, dtype=bool))
    unobserved = finding(told.audit(), "final_unobserved")
    assert "60 of 60" in unobserved.message


# ---------------------------------------------------------------- horizon


def test_single_decisions_get_their_horizon_from_gaps() -> None:
    log = clean(session_offsets=np.arange(901))  # each decision alone, though three come within minutes
    horizon = log.audit().facts.horizon
    assert horizon.k == 3
    assert "100% of the sessions are a single decision" in horizon.reason
    assert horizon.gaps[0].gap == "30m"
    assert horizon.gaps[0].mean_length == 3


def test_decisions_too_rare_for_sessions() -> None:
    times = np.tile(np.arange(5) * 10 * DAY, 60)
    horizon = clean(per_day=1, times=times).audit().facts.horizon
    assert "too rarely" in horizon.reason


def test_steps_without_a_calendar() -> None:
    log = clean(times=None, time_unit="step", session_offsets=np.arange(901))
    assert log.audit().facts.horizon.k == 5


def test_a_long_horizon_is_capped() -> None:
    log = clean(days=1, per_day=100, users=20)
    horizon = log.audit().facts.horizon
    assert horizon.k == 20
    assert "kept at 20" in horizon.reason


# ---------------------------------------------------------------- text and JSON


def everything_wrong() -> LoggedData:
    contexts = np.zeros((900, 3))
    p = np.full(900, 0.25)
    p[3] = 1e-5
    return clean(contexts=contexts, propensities=p, final_contexts=None, times=np.zeros(900, np.int64))


@pytest.mark.parametrize("make", [clean, everything_wrong])
def test_the_json_is_plain_and_complete(make: Any) -> None:
    report = make().audit()
    content = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert content["fit"] == report.fit
    assert [entry["code"] for entry in content["findings"]] == [entry.code for entry in report.findings]
    assert content["facts"]["rows"]["balanced"] is True
    assert content["facts"]["structure"]["users"] == 60
    assert content["facts"]["decomposition"]["sessions_per_period"] > 0


def test_extreme_numbers_stay_numbers() -> None:
    p = np.full(900, 0.25)
    p[:2] = 1e-320
    rewards = np.random.default_rng(0).normal(size=900) * 1e29
    content = clean(propensities=p, rewards=rewards).audit().to_json()
    assert json.loads(json.dumps(content, allow_nan=False))["fit"] is False


def test_the_short_form_does_not_flood_a_prompt() -> None:
    assert repr(clean().audit()) == "AuditReport(fit, 0 errors, 0 warnings; print it)"


def test_the_worst_findings_come_first() -> None:
    ranks = [SEVERITIES.index(entry.severity) for entry in everything_wrong().audit().findings]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_text_fits_the_width(width: int) -> None:
    stream = io.StringIO()
    log = everything_wrong()
    log.audit().show(Console(file=stream, width=width, color_system=None))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any("unfit for learning" in line for line in lines)


def test_labels_of_the_data_are_not_markup() -> None:
    log = clean(action_space=None)
    named = replace(log, action_space=type(log.action_space)(ids=("[red]", "[/b]", "c", "d")))
    assert "[/b]" in str(named.audit())


def test_a_terminal_without_unicode() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    clean(propensities=None).with_estimated_propensities().audit().show(Console(file=stream, width=100))
    text = raw.getvalue().decode("ascii")
    assert "+ fit for learning" in text
    assert "?" not in text


def test_every_code_is_in_the_table() -> None:
    from shpi.data.audit import checks, findings, overlap

    table = findings.__doc__ or ""
    sources = [Path(module.__file__ or "").read_text() for module in (checks, overlap)]
    codes = {line.split('"')[1] for text in sources for line in text.splitlines() if "code=" in line}
    assert len(codes) > 20
    assert {code for code in codes if f"| {code} |" not in table} == set()


def test_figures() -> None:
    assert share_bar(0.5, width=4) == "██  "
    assert share_bar(0.0, width=4) == "    "
    assert share_bar(1e-6, width=4) == "▏   "
    behaviour = np.tile([0.25, 0.75], (400, 1))
    table = Calibration.of(behaviour, np.repeat([0, 1], 200))
    header, low, high = calibration_figure(table)
    assert "predicted" in header
    assert "│██████████" in low  # chosen twice as often as predicted
    assert "██████│" in high


# ---------------------------------------------------------------- public logs


def test_heartsteps(data_dir: Path) -> None:
    report = public_audit("heartsteps", data_dir)
    facts = report.facts
    assert report.fit
    assert (facts.structure.decisions, facts.structure.users) == (7_540, 37)
    assert facts.propensity is not None
    assert facts.propensity.decisions / facts.structure.decisions == pytest.approx(0.804, abs=5e-4)
    assert facts.propensity.calibration is not None
    sent = facts.propensity.calibration.bins[-1]
    assert sent.predicted == pytest.approx(0.6)
    assert sent.observed == pytest.approx(0.593, abs=5e-4)


def test_kuairand_random(data_dir: Path) -> None:
    report = public_audit("kuairand-random", data_dir)
    facts = report.facts
    assert report.fit
    assert facts.ledger.rows_in == 43_028
    assert facts.ledger.rows_dropped == 1
    assert facts.structure.users == 1_000
    spread = facts.structure.decisions_per_user
    assert (spread.min, spread.median, spread.max) == (10, 22, 650)
    assert facts.actions.chosen == 31


def test_kuairand_standard(data_dir: Path) -> None:
    columns = Columns(
        user="user_id", time="time_ms", time_unit="ms", session_gap="30m", action="tab", reward="long_view",
        context=("duration_ms",), identity=("user_id", "video_id", "time_ms"),
    )  # fmt: skip
    report = read_log(data_dir / "kuairand_pure_log_standard_0425_0508.csv.gz", columns).audit()
    facts = report.facts
    assert facts.ledger.rows_in == 228_329
    assert facts.ledger.rows_dropped == 5_885
    assert facts.structure.users == 25_156
    assert facts.structure.sessions_per_user.mean == pytest.approx(7.5, abs=0.05)
    assert facts.structure.session_length.mean == pytest.approx(1.2, abs=0.05)
    assert finding(report, "propensities_absent").severity == "warning"


def test_open_bandit_women_is_unfit_for_the_uniform_policy(data_dir: Path) -> None:
    report = public_audit("open-bandit-women-bts", data_dir)
    assert not report.fit
    assert finding(report, "uniform_ess").severity == "error"
    assert report.facts.propensity is not None
    assert round(report.facts.propensity.uniform_ess) == 2
    assert public_audit("open-bandit-women-random", data_dir).fit
