"""What is known about the public logs, checked through the loaders. Skips where the files are absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shpi.data.datasets import heartsteps, kuairand_random, open_bandit
from shpi.data.logged import LoggedData
from tests.public_logs import public_audit, public_log

DAY = 86_400_000_000  # microseconds
CHINA = 8 * 3_600_000_000


def need(data_dir: Path, name: str) -> Path:
    if not (data_dir / name).is_file():
        pytest.skip(f"needs the public log {name} in {data_dir}")
    return data_dir


def total_variation(p: dict[object, float], q: dict[object, float]) -> float:
    return 0.5 * sum(abs(p.get(key, 0.0) - q.get(key, 0.0)) for key in {*p, *q})


def shares(logs: LoggedData) -> dict[object, float]:
    counts = np.bincount(logs.actions, minlength=logs.n_actions)
    return dict(zip(logs.action_space.ids, counts / counts.sum(), strict=True))


def effective(weights: np.ndarray) -> float:
    return float(weights.sum() ** 2 / (weights**2).sum())


# ---------------------------------------------------------------------- KuaiRand, random


@pytest.fixture(scope="module")
def random_log(data_dir: Path) -> LoggedData:
    return public_log("kuairand-random", need(data_dir, "kuairand1k_log_random_0422_0508.csv.gz"))


def test_random_counts(random_log: LoggedData) -> None:
    ledger = random_log.ledger
    assert (ledger.rows_in, ledger.rows_used, ledger.rows_dropped) == (43_028, 43_027, 1)
    assert ledger.balanced()
    assert ledger.drops[0].reason == "repeats an earlier decision"
    assert random_log.n_users == random_log.n_trajectories == 1_000
    lengths = np.diff(random_log.offsets)
    assert (lengths.min(), np.median(lengths), lengths.max()) == (10, 22, 650)
    days = np.unique((random_log.times + CHINA) // DAY).astype("datetime64[D]")
    assert (str(days[0]), str(days[-1])) == ("2022-04-22", "2022-05-08")


def test_random_outcomes(random_log: LoggedData) -> None:
    assert random_log.rewards.mean() == pytest.approx(0.174, abs=5e-4)
    assert random_log.metrics["long_view"].mean() == pytest.approx(0.084, abs=5e-4)
    assert set(random_log.metrics) >= {"is_click", "long_view", "is_like", "play_seconds"}
    assert random_log.with_rewards("long_view").rewards.mean() == pytest.approx(0.084, abs=5e-4)


def test_random_actions_and_propensities(data_dir: Path, random_log: LoggedData) -> None:
    assert random_log.n_actions == 31
    assert random_log.propensity_mode == "estimated"
    np.testing.assert_allclose(random_log.behaviour.sum(axis=1), 1.0)
    all_tags = kuairand_random(data_dir, min_videos=1, user_features=False)
    pool = kuairand_random(data_dir, min_videos=1, user_features=False, propensity="pool")
    assert all_tags.n_actions == 44
    assert pool.propensity_mode == "logged"
    of_pool = {pool.action_space.ids[a]: p for a, p in zip(pool.actions, pool.propensities, strict=True)}
    assert sum(of_pool.values()) == pytest.approx(1.0)
    assert total_variation(shares(all_tags), of_pool) == pytest.approx(0.018, abs=5e-4)


def test_random_cells_and_videos(data_dir: Path, random_log: LoggedData) -> None:
    cells = kuairand_random(data_dir, action="tag_duration", user_features=False)
    assert cells.n_actions == 71  # 70 cells of at least 20 videos, and "other"
    every = kuairand_random(
        data_dir, action="tag_duration", min_videos=1, user_features=False, propensity="pool"
    )
    assert every.n_actions == 126
    videos = kuairand_random(data_dir, action="video", user_features=False)
    assert videos.n_actions == 7_583
    np.testing.assert_allclose(videos.propensities, 1 / 7_583)
    assert videos.action_space.features.shape == (7_583, 48)


def test_random_history_only_looks_back(random_log: LoggedData) -> None:
    named = dict(zip(random_log.schema.dimensions, random_log.contexts.T, strict=True))
    first = random_log.offsets[:-1]
    assert all((named[name][first] == 0).all() for name in named if name.startswith("past_"))
    np.testing.assert_allclose(np.expm1(named["past_decisions"]), random_log.steps, rtol=1e-4)
    clicks = np.cumsum(random_log.rewards) - random_log.rewards
    clicks -= np.repeat(clicks[first], np.diff(random_log.offsets))
    np.testing.assert_allclose(np.expm1(named["past_clicks"]), clicks, rtol=1e-4, atol=1e-4)
    starts = random_log.session_offsets[:-1]
    assert (named["session_decisions"][starts] == 0).all()
    user_level = {random_log.schema.dimensions[j] for j in random_log.schema.level_dimensions("user")}
    assert {"past_clicks", "fans_user_num"} <= user_level
    assert "session_clicks" not in user_level


def test_random_known_signal(random_log: LoggedData) -> None:
    """The five best tags of half of the users, tried on the other half: about 0.23 against 0.176."""
    gains, values = [], []
    for seed in range(8):
        train, held_out = random_log.split_users(0.5, seed=seed)
        clicks = np.bincount(train.actions, weights=train.rewards, minlength=31)
        best = np.argsort(-clicks / np.maximum(np.bincount(train.actions, minlength=31), 1))[:5]
        weights = np.isin(held_out.actions, best) * 0.2 / held_out.propensities
        values.append((weights * held_out.rewards).sum() / weights.sum())
        gains.append(values[-1] - held_out.rewards.mean())
        assert effective(weights) > 1_500
    assert 0.205 < np.mean(values) < 0.240
    assert min(gains) > 0.01


# ---------------------------------------------------------------------- KuaiRand, standard


@pytest.fixture(scope="module")
def standard_log(data_dir: Path) -> LoggedData:
    return public_log("kuairand-standard", need(data_dir, "kuairand_pure_log_standard_0425_0508.csv.gz"))


def test_standard_counts(standard_log: LoggedData) -> None:
    ledger = standard_log.ledger
    assert (ledger.rows_in, ledger.rows_dropped) == (228_329, 5_885)
    assert ledger.balanced()
    assert standard_log.n_users == 25_156
    assert standard_log.propensity_mode == "absent"
    assert standard_log.propensities is None
    assert standard_log.n_sessions / standard_log.n_users == pytest.approx(7.5, abs=0.05)
    assert ledger.rows_in / standard_log.n_sessions == pytest.approx(1.2, abs=0.05)
    assert len(standard_log) / standard_log.n_sessions == pytest.approx(1.2, abs=0.05)


def test_standard_returns(standard_log: LoggedData) -> None:
    user = standard_log.user_codes[standard_log.trajectory_of_row]
    day = (standard_log.times + CHINA) // DAY
    active = np.unique(np.stack([user, day], axis=1), axis=0)  # [user-days, 2]
    assert len(active) == pytest.approx(120_471, rel=1e-3)  # the file's own dates differ in a few rows
    assert len(active) / standard_log.n_users == pytest.approx(4.8, abs=0.05)
    following = np.append(np.diff(active[:, 1]), 99)
    following[np.append(np.diff(active[:, 0]) != 0, True)] = 99  # the user's last day
    followed_a_week = active[:, 1] <= active[:, 1].max() - 7
    rates = [(following[followed_a_week] <= horizon).mean() for horizon in (1, 3, 7)]
    np.testing.assert_allclose(rates, [0.493, 0.775, 0.918], atol=1e-3)


def test_standard_is_confounded(data_dir: Path, standard_log: LoggedData, random_log: LoggedData) -> None:
    assert total_variation(shares(standard_log), shares(random_log)) == pytest.approx(0.15, abs=0.01)
    again = kuairand_random(data_dir, schema=standard_log.schema)
    assert again.schema == standard_log.schema


# ---------------------------------------------------------------------- HeartSteps


@pytest.fixture(scope="module")
def trial(data_dir: Path) -> LoggedData:
    return public_log("heartsteps", need(data_dir, "heartsteps_v1_decisions.csv.gz"))


def test_trial_counts(trial: LoggedData) -> None:
    assert len(trial) == trial.ledger.rows_in == 7_540
    assert trial.n_users == 37
    assert np.diff(trial.session_offsets).max() == 5
    available = trial.candidates[:, 1]
    assert available.mean() == pytest.approx(0.804, abs=5e-4)
    assert trial.actions[available].mean() == pytest.approx(0.593, abs=5e-4)
    assert not trial.actions[~available].any()
    named = dict(zip(trial.schema.dimensions, trial.contexts.T, strict=True))
    assert named["study_day"].max() == 41
    assert named["log_steps_yesterday=<missing>"].sum() == 382
    assert named["other_location=<missing>"].sum() == 382
    assert named["temperature=<missing>"].sum() == 1_033 + 30  # absent, or written as -1024
    assert named["temperature"].min() > -60


def test_trial_propensities(trial: LoggedData) -> None:
    available, sent = trial.candidates[:, 1], trial.actions == 1
    assert set(trial.propensities[~available]) == {1.0}
    assert set(trial.propensities[available & sent]) == {0.6}
    assert set(trial.propensities[available & ~sent]) == {0.4}
    # E[1/mu] is the mean number of candidates.
    assert (1 / trial.propensities).mean() == pytest.approx(trial.candidates.sum(axis=1).mean(), rel=0.01)


def test_the_trials_own_answer(trial: LoggedData) -> None:
    """log(0.5 + steps) on the centred suggestion, adjusted for the steps before, over available points."""
    available = trial.candidates[:, 1]
    before = trial.contexts[:, trial.schema.dimensions.index("log_steps_before")]
    design = np.column_stack([np.ones(len(trial)), trial.actions - 0.6, before])[available]
    coefficients, *_ = np.linalg.lstsq(design, trial.rewards[available], rcond=None)
    assert coefficients[1] == pytest.approx(0.13120, abs=5e-6)


def test_trial_long_term(data_dir: Path, trial: LoggedData) -> None:
    late = heartsteps(data_dir, reward="long_term")
    assert late.reward_observed.sum() == 6_290
    known = late.rewards[late.reward_observed]
    assert 3.0 < known.min() < known.max() < 11.0  # logarithms of daily steps
    np.testing.assert_array_equal(late.metrics["log_steps_30"], trial.rewards)
    assert "known for 6,290 decisions" in late.ledger.notes[0]


# ---------------------------------------------------------------------- Open Bandit


@pytest.mark.parametrize(("campaign", "items"), [("all", 80), ("men", 34), ("women", 46)])
@pytest.mark.parametrize("policy", ["random", "bts"])
def test_open_bandit_counts(data_dir: Path, campaign: str, items: int, policy: str) -> None:
    logs = public_log(f"open-bandit-{campaign}-{policy}", need(data_dir, f"obd_small_{campaign}.csv.gz"))
    assert len(logs) == logs.n_users == logs.ledger.rows_in == 10_000
    assert logs.n_actions == items
    assert 38 <= logs.rewards.sum() <= 69
    assert logs.propensity_mode == "logged"
    positions = [name for name in logs.schema.dimensions if name.startswith("position=")]
    assert positions == ["position=1", "position=2", "position=3", "position=<other>"]
    if policy == "random":
        np.testing.assert_allclose(logs.propensities, 1 / items)


def test_open_bandit_women_cannot_be_evaluated_by_bts(data_dir: Path) -> None:
    logs = public_log("open-bandit-women-bts", need(data_dir, "obd_small_women.csv.gz"))
    assert effective((1 / 46) / logs.propensities) == pytest.approx(2.08, abs=0.01)
    report = public_audit("open-bandit-women-bts", data_dir)
    assert report.has("uniform_ess")
    assert not report.fit


@pytest.mark.usefixtures("random_log", "trial")  # which skip where the files are missing
def test_the_audit_finds_the_others_fit(data_dir: Path) -> None:
    for name in ("kuairand-random", "heartsteps", "open-bandit-women-random"):
        report = public_audit(name, data_dir)
        assert report.fit, report.findings
        assert not report.has("uniform_ess")


def test_open_bandit_positions_and_affinities(data_dir: Path) -> None:
    folder = need(data_dir, "obd_small_men.csv.gz")
    parts = [open_bandit(folder, campaign="men", position=place) for place in (1, 2, 3)]
    assert sum(len(log) for log in parts) == 10_000
    assert all(log.ledger.rows_in == 10_000 and log.ledger.balanced() for log in parts)
    assert not any(name.startswith("position") for name in parts[0].schema.dimensions)
    wide = open_bandit(folder, campaign="men", affinities=True)
    assert len(wide.schema.level_dimensions("action")) == 34
    bts = open_bandit(folder, campaign="men", policy="bts", schema=parts[0].schema)
    assert bts.schema == parts[0].schema
