"""The world of KuaiRand: its columns and rules on a made-up folder, its quality on the real logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shpi.data.logged import LoggedData
from shpi.envs import FittedWorld, kuairand_world, mean_return
from shpi.envs.fitted.fit import after_log
from shpi.envs.fitted.outcomes import session_outcomes
from shpi.envs.fitted.report import WorldReport
from shpi.envs.fitted.tables import auc
from shpi.envs.kuairand.counters import COUNTERS, METRICS
from shpi.envs.kuairand.world import USER_COLUMNS, KuaiRandLogs, fit_kuairand, kuairand_logs
from shpi.envs.registry import make, parameters
from shpi.envs.rollout import rollout
from shpi.errors import ConfigError, DataError
from shpi.policies import ConstantPolicy, UniformPolicy
from tests.envs.test_world import assert_same_log
from tests.ope.test_value_of_mu import by_hand, value_of_mu

# ---------------------------------------------------------------------- a made-up folder

MIDNIGHT = 1_650_556_800_000  # 2022-04-22 00:00 in China, milliseconds
TAGS = ("39", "9", "3", "12")


def _videos(rng: np.random.Generator) -> pl.DataFrame:
    ids = np.arange(240)
    return pl.DataFrame(
        {
            "video_id": ids,
            "video_duration": rng.uniform(5_000, 200_000, len(ids)),
            "tag": [TAGS[i % len(TAGS)] for i in ids],
        }
    )


def _users(count: int) -> pl.DataFrame:
    user = np.arange(count)
    columns: dict[str, object] = {"user_id": user}
    columns["user_active_degree"] = np.where(user % 3 == 0, "full_active", "low_active")
    columns |= {"is_lowactive_period": user * 0, "is_live_streamer": np.where(user % 2, 1, -124)}
    columns["is_video_author"] = user % 2
    for name in ("follow_user_num", "fans_user_num", "friend_user_num", "register_days"):
        columns[name] = user
        columns[f"{name}_range"] = np.where(user < count // 2, "few", "a lot")
    for j in range(18):
        columns[f"onehot_feat{j}"] = user % (2 + 7 * j) * (1.0 if j else 1)
    table = pl.DataFrame(columns)
    gaps = [
        pl.when(pl.col("user_id") % 5 == 0).then(None).otherwise(pl.col("onehot_feat4")).alias("onehot_feat4")
    ]
    return table.with_columns(gaps)


def _log(rng: np.random.Generator, users: int, videos: pl.DataFrame, *, random: bool) -> pl.DataFrame:
    """Days come and go; short videos are watched longer; who watched comes back sooner."""
    duration = videos["video_duration"].to_numpy()
    rows = []
    for user in range(users):
        day = int(rng.integers(0, 4))
        while day < 14:
            views = 0
            for _ in range(int(rng.geometric(0.5))):
                video = int(rng.integers(0, len(duration)))
                view = int(rng.random() < 0.6 - 0.4 * (duration[video] > 100_000))
                views += view
                time = MIDNIGHT + day * 86_400_000 + int(rng.uniform(7, 23.9) * 3_600_000)
                rows.append((user, video, time, view, int(rng.integers(0, 3)) if not random else 1))
            day += int(rng.geometric(0.65 if views else 0.35))
    user_id, video_id, time_ms, view, tab = (list(column) for column in zip(*rows, strict=True))
    table = pl.DataFrame({"user_id": user_id, "video_id": video_id, "time_ms": time_ms, "tab": tab})
    table = table.with_columns(pl.Series("long_view", view), pl.Series("is_click", view))
    zero = pl.lit(0)
    names = ("is_like", "is_follow", "is_comment", "is_forward", "is_hate", "is_profile_enter")
    return table.with_columns(
        *(zero.alias(name) for name in names), play_time_ms=pl.col("long_view") * 20_000 + 1_000
    ).sort("user_id", "time_ms")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, rng = tmp_path_factory.mktemp("kuairand"), np.random.default_rng(0)
    videos = _videos(rng)
    videos.write_csv(place / "video_features_basic_pure.csv")
    _users(240).write_csv(place / "user_features_pure.csv")
    _log(rng, 240, videos, random=False).write_csv(place / "log_standard_4_22_to_5_08_pure.csv")
    _log(rng, 120, videos, random=True).write_csv(place / "log_random_4_22_to_5_08_pure.csv")
    return place


@pytest.fixture(scope="module")
def made_up(folder: Path) -> KuaiRandLogs:
    return kuairand_logs(folder)


@pytest.fixture(scope="module")
def small_world(made_up: KuaiRandLogs) -> FittedWorld:
    return fit_kuairand(made_up, members=2, days=14)


def named(logs: LoggedData) -> dict[str, np.ndarray]:
    return dict(zip(logs.schema.dimensions, logs.contexts.T.astype(np.float64), strict=True))


def check_counters(logs: LoggedData) -> None:
    """Every counter follows from the log itself, row by row in plain Python."""
    x = named(logs)
    feedback = {"clicks": "is_click", "long_views": "long_view", "likes": "is_like", "social": "social"}
    day = np.rint(np.expm1(x["elapsed_days"]))
    for i in range(min(logs.n_trajectories, 60)):
        past: dict[str, float] = {}
        today: dict[str, float] = {}
        active = 0
        for row in range(logs.offsets[i], logs.offsets[i + 1]):
            first = row == logs.offsets[i]
            if not first and day[row] != day[row - 1]:
                today, active = {}, active + 1
                assert np.expm1(x["gap_days"][row]) == pytest.approx(day[row] - day[row - 1])
            for name in ("decisions", "play_seconds", *feedback):
                assert np.expm1(x[f"past_{name}"][row]) == pytest.approx(
                    past.get(name, 0), rel=1e-3, abs=1e-3
                )
                if f"day_{name}" in x:
                    counter = np.expm1(x[f"day_{name}"][row])
                    assert counter == pytest.approx(today.get(name, 0), rel=1e-3, abs=1e-3)
            assert np.expm1(x["past_days"][row]) == pytest.approx(active, abs=1e-3)
            amounts = {name: logs.metrics[metric][row] for name, metric in feedback.items()}
            for name, amount in (
                amounts | {"decisions": 1, "play_seconds": logs.metrics["play_seconds"][row]}
            ).items():
                past[name], today[name] = past.get(name, 0) + amount, today.get(name, 0) + amount


def test_columns_and_actions(made_up: KuaiRandLogs) -> None:
    standard = made_up.standard
    assert len(USER_COLUMNS) == 30
    assert len(COUNTERS) == 17
    assert standard.schema.dimensions == (*USER_COLUMNS, *COUNTERS)
    assert standard.n_actions == 13  # 4 tags × 3 lengths, and "other"
    assert standard.action_space == made_up.random.action_space
    assert standard.action_space.ids[-1] == "other"
    features = standard.action_space.features
    assert features is not None
    np.testing.assert_array_equal(features.sum(axis=1), 2)
    assert set(standard.metrics) == set(METRICS)
    for logs in (standard, made_up.random):
        sessions = logs.times[logs.session_offsets[:-1]]
        assert (np.diff(sessions)[np.diff(logs.trajectory_of_session) == 0] > 0).all()  # one per day
        check_counters(logs)


def test_user_features_as_numbers(made_up: KuaiRandLogs) -> None:
    logs = made_up.standard
    x = {name: values[logs.offsets[:-1]] for name, values in named(logs).items()}
    users = logs.users
    np.testing.assert_array_equal(x["user_active_degree"], np.where(users % 3 == 0, 8, 4))
    np.testing.assert_array_equal(x["is_live_streamer"], users % 2)
    np.testing.assert_allclose(x["fans_user_num"], np.log1p(users), rtol=1e-6)
    np.testing.assert_array_equal(x["fans_user_num_range"], users >= 120)  # the rank of the range
    np.testing.assert_array_equal(x["onehot_feat1"], users % 9)
    np.testing.assert_allclose(x["onehot_feat4"], np.where(users % 5, users % 30 / 29, -1), rtol=1e-6)


def test_rolled_out_counters_keep_their_rules(small_world: FittedWorld) -> None:
    logs = small_world.rollout(UniformPolicy(small_world.n_actions), 300, seed=1)
    check_counters(logs)
    x = named(logs)
    days = np.expm1(x["elapsed_days"])
    assert days.max() < 14
    np.testing.assert_allclose(days, np.rint(days), atol=1e-3)
    np.testing.assert_allclose(x["hour_sin"] ** 2 + x["hour_cos"] ** 2, 1.0, atol=1e-5)
    assert set(np.unique(x["tab"])) == {0, 1, 2}
    # A session ends exactly where the day changes, and time goes on within a day.
    starts = np.isin(np.arange(len(logs)), logs.session_offsets)
    assert ((x["day_decisions"] == 0) == starts).all()
    assert (logs.metrics["long_view"] == logs.rewards).all()
    fixed = logs.contexts[:, :30]
    changed = (np.diff(fixed, axis=0) != 0).any(axis=1)
    assert not changed[np.diff(logs.trajectory_of_row) == 0].any()


def test_planted_effects_are_found(small_world: FittedWorld, made_up: KuaiRandLogs) -> None:
    """Short videos are watched longer, and who watched comes back sooner: through the link, and only so."""
    ids = [str(label) for label in small_world.action_space.ids]
    short, long = (np.array([label.endswith(end) for label in ids]) for end in ("/short", "/long"))
    policies = [ConstantPolicy(mask / mask.sum()) for mask in (short, long)]
    logs = [small_world.rollout(policy, 1200, seed=2) for policy in policies]
    views = [log.rewards.mean() for log in logs if log.rewards is not None]
    assert views[0] - views[1] == pytest.approx(0.4, abs=0.08)
    assert logs[0].n_sessions > 1.05 * logs[1].n_sessions
    scores = [mean_return(small_world, policy, 1200, 2).mean for policy in policies]
    assert scores[0] > scores[1]
    cut = small_world.with_link(0.0)
    without = [cut.rollout(policy, 1200, seed=2) for policy in policies]
    np.testing.assert_array_equal(without[0].session_offsets, without[1].session_offsets)
    np.testing.assert_array_equal(without[0].offsets, without[1].offsets)
    np.testing.assert_array_equal(without[0].metrics["long_term"], without[1].metrics["long_term"])


def test_batches_do_not_matter(small_world: FittedWorld) -> None:
    for member in (None, "mix"):
        world = small_world.with_member(member)  # type: ignore[arg-type]
        policy = UniformPolicy(world.n_actions)
        whole = world.rollout(policy, 101, seed=3)
        parts = [world.rollout(policy, n, 3, first=first) for n, first in ((1, 0), (63, 1), (37, 64))]
        assert_same_log(LoggedData.concat(parts), whole)


def test_a_thousand_users_at_once_or_in_ten_calls(small_world: FittedWorld) -> None:
    policy = UniformPolicy(small_world.n_actions)
    parts = [small_world.rollout(policy, 100, 5, first=first) for first in range(0, 1000, 100)]
    assert_same_log(LoggedData.concat(parts), small_world.rollout(policy, 1000, seed=5))


def test_split_keeps_users_apart(made_up: KuaiRandLogs) -> None:
    train, held_out = made_up.split_users(0.3, seed=0)
    assert not {*train.standard.users, *train.random.users} & {
        *held_out.standard.users,
        *held_out.random.users,
    }
    assert train.random.n_users + held_out.random.n_users == 120
    with pytest.raises(DataError, match="on both sides of the split"):
        KuaiRandLogs(standard=made_up.standard, random=made_up.random.select([0])).split_users(0.3, seed=0)


def test_save_and_load(small_world: FittedWorld, tmp_path: Path) -> None:
    loaded = FittedWorld.load(small_world.save(tmp_path / "world"))
    policy = UniformPolicy(small_world.n_actions)
    assert_same_log(loaded.rollout(policy, 50, 4), small_world.rollout(policy, 50, 4))
    assert loaded.notes == small_world.notes


def test_days_and_horizon(made_up: KuaiRandLogs) -> None:
    world = fit_kuairand(made_up, members=0, days=3, horizon=4)
    logs = world.rollout(UniformPolicy(world.n_actions), 200, seed=0)
    assert np.expm1(named(logs)["elapsed_days"]).max() == pytest.approx(2)
    assert np.diff(logs.offsets).max() == 4


def test_click_as_reward_and_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHPI_DATA", str(folder))
    world = make("kuairand", members=0, reward="is_click")
    assert world.name == "kuairand"
    assert world.n_actions == 13
    assert parameters("kuairand")["days"] == 14
    logs = world.rollout(UniformPolicy(13), 20, seed=0)
    np.testing.assert_array_equal(logs.rewards, logs.metrics["is_click"])


def test_bad_input(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHPI_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"the folder with KuaiRand.*SHPI_DATA"):
        kuairand_world()
    with pytest.raises(DataError, match="KuaiRand"):
        kuairand_world(tmp_path)
    with pytest.raises(ConfigError, match="reward among long_view, is_click"):
        kuairand_world(folder, reward="likes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="days to be a whole number >= 2"):
        kuairand_world(folder, days=1)
    with pytest.raises(ConfigError, match="link"):
        kuairand_world(folder, link=-0.5)
    with pytest.raises(ConfigError, match="assumed_on among the context columns"):
        kuairand_world(folder, members=0, assumed=1.0, assumed_on="satisfaction")
    for file in folder.iterdir():
        if not file.name.startswith("user"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="user_features"):
        kuairand_world(tmp_path)


# ---------------------------------------------------------------------- the real logs


@pytest.fixture(scope="module")
def halves(data_dir: Path) -> tuple[KuaiRandLogs, KuaiRandLogs]:
    for name in ("kuairand_pure_log_standard_0425_0508", "kuairand1k_log_random_0422_0508"):
        if not (data_dir / f"{name}.csv.gz").is_file():
            pytest.skip(f"needs KuaiRand's log {name}.csv.gz in {data_dir}")
    return kuairand_logs(data_dir).split_users(0.5, seed=0)


@pytest.fixture(scope="module")
def world(halves: tuple[KuaiRandLogs, KuaiRandLogs]) -> FittedWorld:
    return fit_kuairand(halves[0], seed=0, members=0)


@pytest.fixture(scope="module")
def report(world: FittedWorld, halves: tuple[KuaiRandLogs, KuaiRandLogs]) -> WorldReport:
    return world.report(halves[1].standard)


def test_real_size(world: FittedWorld, halves: tuple[KuaiRandLogs, KuaiRandLogs]) -> None:
    assert (world.n_actions, len(world.context_names), world.window) == (112, 47, 13)
    train, held_out = halves
    assert train.standard.n_users + held_out.standard.n_users == 25_156
    days = train.standard.n_sessions + held_out.standard.n_sessions
    assert days == pytest.approx(120_471, rel=1e-3)  # user-days; the file's own dates differ in a few rows
    assert not set(train.standard.users) & set(held_out.standard.users)
    assert not set(train.random.users) & set(held_out.standard.users)


def test_real_next_day_return_is_calibrated(report: WorldReport) -> None:
    back = report.prediction("return within 1")
    assert back.rows > 50_000
    assert min(back.group_rows) > 5_000
    np.testing.assert_allclose(back.group_predicted, back.group_observed, atol=0.02)


def test_real_skill(report: WorldReport) -> None:
    """Within 0.02 of what a small boosted model reaches on held-out users of this log."""
    reward, back = report.prediction("reward, association"), report.prediction("return within 1")
    assert reward.without == pytest.approx(0.709, abs=0.02)
    assert reward.skill == pytest.approx(0.718, abs=0.02)
    assert back.without == pytest.approx(0.633, abs=0.02)
    assert back.skill == pytest.approx(0.651, abs=0.02)
    assert report.prediction("return within 7").skill == pytest.approx(0.715, abs=0.02)
    assert reward.without is not None
    assert back.without is not None
    assert reward.skill > reward.without + 0.01
    assert back.skill > back.without + 0.01


def test_real_users_simulated_again(report: WorldReport) -> None:
    assert report.length_distance < 0.03
    by_name = {row.name: row for row in report.simulated}
    for name in ("sessions per user, mean", "decisions per session", "reward per decision"):
        assert by_name[name].simulated == pytest.approx(by_name[name].held_out, rel=0.06)
    assert by_name["decisions per user, mean"].simulated == pytest.approx(8.9, rel=0.1)
    assert report.prediction("session end").skill > 0.7
    assert "assumption" in str(report)


def test_real_action_effects_hold_for_other_users(
    world: FittedWorld, halves: tuple[KuaiRandLogs, KuaiRandLogs]
) -> None:
    """Effects of one half of the randomised users tell the other half's long views apart."""
    train, held_out = halves[0].random, halves[1].random
    assert train.rewards is not None
    assert held_out.rewards is not None
    models = world.models
    by_action = [term for term in models.reward.terms if term.by_action]
    effect = models.reward.eta(
        models.bins.code(held_out.contexts), held_out.actions, 0, by_action, np.zeros(len(held_out))
    )
    skill = auc(held_out.rewards, effect)
    shuffled = np.random.default_rng(0).permutation(effect)
    assert skill > 0.55
    assert abs(auc(held_out.rewards, shuffled) - 0.5) < 0.03
    best = effect > np.quantile(effect, 0.8)
    assert held_out.rewards[best].mean() > 1.3 * held_out.rewards[~best].mean()


def test_real_actions_hardly_reach_the_long_term(world: FittedWorld) -> None:
    """The worst and the best cell for long views differ not at all without a link, and hardly with it."""
    term = next(term for term in world.models.reward.terms if term.by_action and term.column < 0)
    effects = world.models.reward.numbers[0, term.start : term.start + term.size]
    ranked = np.argsort(effects)
    worst, best = (ConstantPolicy(np.eye(112)[a]) for a in (ranked[0], ranked[-1]))
    cut = world.with_link(0.0)
    low, high = (mean_return(cut, policy, 3000, 5) for policy in (worst, best))
    assert high.returns.mean() > 1.5 * low.returns.mean()
    np.testing.assert_array_equal(low.scores, high.scores)
    low, high = (mean_return(world, policy, 3000, 5) for policy in (worst, best))
    assert abs(high.mean - low.mean) < 0.05  # four standard errors of a mean of 3,000 scores are 0.07
    assumed = world.with_assumed(1.0, "day_long_views")
    low, high = (mean_return(assumed, policy, 3000, 5) for policy in (worst, best))
    assert high.mean > low.mean + 0.1


def test_real_value_of_mu_is_what_one_counts(world: FittedWorld) -> None:
    logs = rollout(world, UniformPolicy(world.n_actions), 40, seed=1, horizon=12)
    assert value_of_mu(logs)[0] == pytest.approx(by_hand(logs), rel=1e-9)


def test_real_feedback_adds_nothing_to_the_return(
    world: FittedWorld, halves: tuple[KuaiRandLogs, KuaiRandLogs]
) -> None:
    """What the day adds to the prediction is that there were decisions, and when; not what came of them."""
    logs = halves[1].standard
    _, returns = session_outcomes(logs, world.edges, "log")
    known, back = returns.within(1)
    rows = returns.rows[known]
    skill = []
    for link in (0.0, 1.0):
        models = world.models.linked(link)
        codes = models.after_codes(after_log(logs, world.moves)[rows])
        skill.append(auc(back, models.hazards(codes, logs.actions[rows])[:, 0]))
    assert skill[0] == pytest.approx(skill[1], abs=0.004)


def test_real_returns_follow_the_readme(halves: tuple[KuaiRandLogs, KuaiRandLogs]) -> None:
    rates = []
    for half in halves:
        logs = half.standard
        _, returns = session_outcomes(logs, np.arange(1.0, 8.0), "log")
        whole = returns.followed == 7
        rates.append([np.isin(returns.bin[whole], range(1, b + 1)).mean() for b in (1, 3, 7)])
    np.testing.assert_allclose(np.mean(rates, axis=0), [0.493, 0.775, 0.918], atol=2e-3)
