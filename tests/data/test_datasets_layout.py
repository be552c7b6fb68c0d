"""The loaders on tiny files in the official layouts, made up here."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.data.datasets import heartsteps, kuairand_random, kuairand_standard, kuairand_tables, open_bandit
from shpi.errors import ColumnError, ConfigError, DataError

MINUTE, DAY = 60_000, 86_400_000
START = 1_650_556_800_000  # 2022-04-22 00:00 in China


def write(path: Path, header: str, rows: Sequence[Sequence[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    quoted = [[f'"{x}"' if "," in str(x) else str(x) for x in row] for row in rows]
    text = "\n".join(",".join(line) for line in [header.split(","), *quoted]) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


# ---------------------------------------------------------------------- KuaiRand

LOG = (
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_hate,"
    "long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_rand,tab"
)
VIDEO = (
    "video_id,author_id,video_type,upload_dt,upload_type,visible_status,video_duration,server_width,"
    "server_height,music_id,music_type,tag"
)
USER = (
    "user_id,user_active_degree,is_lowactive_period,is_live_streamer,is_video_author,follow_user_num,"
    "follow_user_num_range,fans_user_num,fans_user_num_range,friend_user_num,friend_user_num_range,"
    "register_days,register_days_range," + ",".join(f"onehot_feat{j}" for j in range(18))
)


def log_row(user: int, video: int, time: int, click: int = 0, play: int = 2_000) -> list[Any]:
    return [user, video, 20220422, 0, START + time, click, 0, 0, 0, 0, 0, click, play, 9_000, 0, 0, 0, 1, 1]


def video_row(video: int, duration: int | str, tag: str) -> list[Any]:
    return [video, 1, "NORMAL", "2022-04-10", "Kmovie", 0.0, duration, 720, 1280, 1, 9.0, tag]


def user_row(user: int) -> list[Any]:
    counts = [7, "(0,10]", 0, "0", 3, "[1,5)", 100, "61-90"]
    return [user, "full_active", 0, -124, 1, *counts, *([1] * 4), "", *([0] * 13)]


ROWS = [
    log_row(2, 10, 0),
    log_row(1, 10, 5 * MINUTE, click=1, play=4_000),
    log_row(1, 11, 0),
    log_row(1, 12, DAY),
    log_row(1, 12, DAY),  # written twice
    log_row(1, 13, DAY + 31 * MINUTE),
]
VIDEOS = [
    video_row(10, 5_000, "39,4"),
    video_row(11, 50_000, "39"),
    video_row(12, 500_000, "7"),
    video_row(13, "", ""),
]


def kuairand_folder(folder: Path, *, inner: str = "", version: str = "1k", ending: str = ".csv") -> Path:
    write(folder / inner / f"log_random_4_22_to_5_08_{version}{ending}", LOG, ROWS)
    write(folder / inner / f"video_features_basic_{version}{ending}", VIDEO, VIDEOS)
    write(folder / inner / f"user_features_{version}{ending}", USER, [user_row(1), user_row(2)])
    return folder


@pytest.mark.parametrize("inner", ["", "data", "KuaiRand-1K/data"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_kuairand_in_its_official_layout(tmp_path: Path, inner: str, ending: str) -> None:
    logs = kuairand_random(kuairand_folder(tmp_path, inner=inner, ending=ending), min_videos=1)
    assert logs.users.tolist() == [1, 2]
    assert logs.offsets.tolist() == [0, 4, 5]
    assert logs.session_offsets.tolist() == [0, 2, 3, 4, 5]  # a pause of 31 minutes starts a session
    assert [logs.action_space.ids[a] for a in logs.actions] == ["39", "39", "7", "none", "39"]
    assert logs.propensities.tolist() == pytest.approx([0.6, 0.6, 0.2, 0.2, 0.6])
    assert logs.propensity_mode == "estimated"
    assert logs.rewards.tolist() == [0, 1, 0, 0, 0]
    assert (logs.ledger.rows_in, logs.ledger.rows_used) == (6, 5)
    assert logs.ledger.drops[0].example == 4
    named = dict(zip(logs.schema.dimensions, logs.contexts.T, strict=True))
    assert np.expm1(named["past_play_seconds"]).tolist() == pytest.approx([0, 2, 6, 8, 0], rel=1e-5)
    assert np.expm1(named["past_sessions"]).tolist() == pytest.approx([0, 0, 1, 2, 0], rel=1e-5)
    assert np.expm1(named["past_days"]).tolist() == pytest.approx([0, 0, 1, 1, 0], rel=1e-5)
    assert np.expm1(named["session_clicks"]).tolist() == pytest.approx([0, 0, 0, 0, 0], abs=1e-6)
    assert np.expm1(named["hours_since_last"]).tolist() == pytest.approx(
        [0, 5 / 60, 24 - 5 / 60, 31 / 60, 0], rel=1e-5
    )
    assert np.expm1(named["follow_user_num"]).tolist() == pytest.approx([7] * 5, rel=1e-5)
    assert named["is_live_streamer"].tolist() == [0] * 5  # -124 means unknown
    assert named["onehot_feat4=<missing>"].tolist() == [1] * 5


def test_kuairand_rare_tags_and_other_rewards(tmp_path: Path) -> None:
    folder = kuairand_folder(tmp_path)
    logs = kuairand_random(folder, min_videos=2, reward="play_seconds")
    assert logs.action_space.ids == ("39", "other")
    assert logs.rewards.tolist() == [2, 4, 2, 2, 2]
    long = kuairand_random(folder, min_videos=1, session_gap="2d")
    assert long.n_sessions == 2


def test_kuairand_cells_and_videos(tmp_path: Path) -> None:
    folder = kuairand_folder(tmp_path)
    cells = kuairand_random(folder, action="tag_duration", min_videos=1)
    labels = [cells.action_space.ids[a] for a in cells.actions]
    assert labels == ["39/medium", "39/short", "7/long", "none/short", "39/short"]
    videos = kuairand_random(folder, action="video")
    assert videos.action_space.ids == (10, 11, 12, 13)
    assert set(videos.propensities) == {0.25}
    assert videos.propensity_mode == "logged"
    features = dict(zip(videos.action_space.feature_names, videos.action_space.features.T, strict=True))
    assert features["tag=39"].tolist() == [1, 1, 0, 0]
    assert np.expm1(features["log_seconds"]).tolist() == pytest.approx([5, 50, 500, 0])


def test_a_file_of_all_videos_does_not_make_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kuairand_tables, "POOL_SIZE", 4)
    folder = kuairand_folder(tmp_path)
    everything = [*VIDEOS, *(video_row(100 + i, 7_000, "7") for i in range(50))]
    write(folder / "video_features_basic_1k.csv", VIDEO, everything)
    logs = kuairand_random(folder, action="video")
    assert logs.action_space.ids == (10, 11, 12, 13)
    assert kuairand_random(folder, min_videos=2).action_space.ids == ("39", "other")


def test_kuairand_without_user_features(tmp_path: Path) -> None:
    folder = kuairand_folder(tmp_path)
    with_users = kuairand_random(folder, min_videos=1)
    (folder / "user_features_1k.csv").unlink()
    without = kuairand_random(folder, min_videos=1)
    assert without.schema.dimensions == with_users.schema.dimensions[: without.schema.width]
    assert "fans_user_num" in with_users.schema.dimensions
    assert "fans_user_num" not in without.schema.dimensions


def test_the_standard_log_comes_in_two_parts(tmp_path: Path) -> None:
    folder = kuairand_folder(tmp_path, version="pure")
    write(folder / "log_standard_4_08_to_4_21_pure.csv", LOG, [log_row(1, 10, -DAY)])
    write(folder / "log_standard_4_22_to_5_08_pure.csv.gz", LOG, [log_row(1, 11, 0), log_row(3, 12, 0)])
    write(folder / "user_features_pure.csv", USER, [user_row(user) for user in (1, 2, 3)])
    logs = kuairand_standard(folder, min_videos=1)
    assert logs.users.tolist() == [1, 3]
    assert logs.offsets.tolist() == [0, 2, 3]
    assert logs.propensity_mode == "absent"
    assert logs.ledger.notes[:2] == (
        "read log_standard_4_08_to_4_21_pure.csv",
        "read log_standard_4_22_to_5_08_pure.csv.gz",
    )


def test_two_versions_need_a_choice(tmp_path: Path) -> None:
    kuairand_folder(tmp_path, inner="KuaiRand-1K/data", version="1k")
    kuairand_folder(tmp_path, inner="KuaiRand-Pure/data", version="pure")
    with pytest.raises(ConfigError, match=r"1k and pure in .*version='1k'"):
        kuairand_random(tmp_path)
    assert len(kuairand_random(tmp_path, version="pure", min_videos=1)) == 5


def test_a_missing_file_is_named_with_its_origin(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log_random_4_22_to_5_08_1k\.csv\(\.gz\).*chongminggao/KuaiRand"):
        kuairand_random(tmp_path)
    kuairand_folder(tmp_path)
    (tmp_path / "video_features_basic_1k.csv").unlink()
    with pytest.raises(DataError, match=r"video_features_basic_1k\.csv\(\.gz\) or .*Gao et al\., CIKM 2022"):
        kuairand_random(tmp_path)
    with pytest.raises(DataError, match=r"log_standard_4_08_to_4_21_pure"):
        kuairand_standard(tmp_path, version="pure")


def test_the_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHPI_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"the folder with KuaiRand, found none.*SHPI_DATA"):
        kuairand_random()
    monkeypatch.setenv("SHPI_DATA", str(kuairand_folder(tmp_path)))
    assert len(kuairand_random(min_videos=1)) == 5
    with pytest.raises(ConfigError, match="which is no folder"):
        kuairand_random(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "author"}, "action to be one of tag, tag_duration, video, found 'author'"),
        ({"reward": "joy"}, "reward to be one of is_click, .*found 'joy'"),
        ({"propensity": "one"}, "propensity 'empirical' or 'pool'"),
        ({"version": "27k"}, "version to be one of 1k, pure"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kuairand_random(kuairand_folder(tmp_path), **options)


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    kuairand_folder(tmp_path)
    write(tmp_path / "log_random_4_22_to_5_08_1k.csv", "user_id,video,time_ms", [[1, 2, 3]])
    with pytest.raises(ColumnError, match="'video_id'"):
        kuairand_random(tmp_path)


# ---------------------------------------------------------------------- HeartSteps

SUGGESTION = (
    "user.index,decision.index,decision.index.nogap,sugg.select.utime,sugg.select.slot,avail,send,"
    "send.active,send.sedentary,jbsteps30pre,jbsteps30,dec.location.category,dec.temperature,extra"
)


def point(
    index: int, time: str, *, user: int = 1, nogap: int | str | None = None, avail: str = "True",
    send: str = "False", sedentary: str = "False", after: int | str = 100, place: str = "home",
    temperature: float | str = 20.5,
) -> list[Any]:  # fmt: skip
    count = index if nogap is None else nogap
    return [
        user, index, count, time, index % 5 + 1, avail, send, "False", sedentary, 10, after, place,
        temperature, "x",
    ]  # fmt: skip


def test_heartsteps_from_the_trials_own_files(tmp_path: Path) -> None:
    rows = [
        point(0, "", send="True"),  # no time: that of the next point
        point(1, "2015-07-22 18:30:00", avail="False", place="work"),
        point(2, "2015-07-23 01:30:00", after=""),  # still the first day; no steps were counted
        point(3, "2015-07-23 18:30:00", avail="False", send="True"),
        point(4, "2015-07-23 20:30:00", send="True", sedentary=""),
        point(5, "2015-07-23 21:30:00", place="gym", temperature=-1024),
        point(6, "2015-08-01 18:30:00", nogap=""),  # travelling
        point(7, "2015-07-24 18:30:00", nogap=6),
    ]
    write(tmp_path / "data_files" / "suggestions.csv", SUGGESTION, rows)
    minutes = [
        [1, "2015-07-22 10:00:00", 1_000],
        [1, "2015-07-22 11:00:00", 500],
        [1, "2015-07-23 11:00:00", 2_000],
    ]
    write(tmp_path / "data_files" / "jbsteps.csv", "user.index,steps.utime.local,steps", minutes)
    logs = heartsteps(tmp_path)
    assert {drop.reason: drop.rows for drop in logs.ledger.drops} == {
        "travel day": 1,
        "sent although unavailable": 1,
        "suggestion of unknown kind": 1,
    }
    assert logs.ledger.rows_in == 8
    assert logs.ledger.balanced()
    assert logs.actions.tolist() == [1, 0, 0, 0, 0]
    assert logs.propensities.tolist() == pytest.approx([0.6, 1.0, 0.4, 0.4, 0.4])
    assert logs.candidates.tolist() == [[True, True], [True, False], *([[True, True]] * 3)]
    assert logs.behaviour[1].tolist() == [1, 0]
    assert logs.session_offsets.tolist() == [0, 3, 4, 5]
    assert np.exp(logs.rewards).tolist() == pytest.approx([100.5, 100.5, 0.5, 100.5, 100.5])
    named = dict(zip(logs.schema.dimensions, logs.contexts.T, strict=True))
    assert named["dose"].tolist() == pytest.approx([0, 0.95, 0.95**2, 0.95**3, 0.95**4])
    assert named["log_steps_yesterday=<missing>"].tolist() == [1, 1, 1, 0, 0]
    assert np.exp(named["log_steps_yesterday"][3:]).tolist() == pytest.approx([1_500, 2_000], rel=1e-5)
    assert named["other_location"].tolist() == [0, 0, 0, 1, 0]
    assert named["work_location"].tolist() == [0, 1, 0, 0, 0]
    assert named["temperature=<missing>"].tolist() == [0, 0, 0, 1, 0]


def test_heartsteps_stops_after_42_days(tmp_path: Path) -> None:
    days = np.arange(np.datetime64("2015-07-01"), np.datetime64("2015-08-15"))  # 45 days
    rows = [point(i, f"{day} 18:30:00") for i, day in enumerate(days)]
    write(tmp_path / "suggestions.csv.gz", SUGGESTION, rows)
    logs = heartsteps(tmp_path)
    assert len(logs) == 42
    assert [(drop.reason, drop.rows, drop.example) for drop in logs.ledger.drops] == [
        ("after the 42nd day", 3, 42)
    ]


def test_the_long_term_reward_needs_four_of_seven_days(tmp_path: Path) -> None:
    days = np.arange(np.datetime64("2015-07-01"), np.datetime64("2015-07-13"))  # 12 days
    write(tmp_path / "suggestions.csv", SUGGESTION, [point(i, f"{d} 18:30:00") for i, d in enumerate(days)])
    minutes = [[1, f"{day} 11:00:00", 1_000 * (i + 1)] for i, day in enumerate(days)]
    write(tmp_path / "jbsteps.csv", "user.index,steps.utime.local,steps", minutes)
    logs = heartsteps(tmp_path, reward="long_term")
    # Steps of day e are known on day e + 1, so of the 12 days the steps of the first 11 are known.
    assert logs.reward_observed.tolist() == [True] * 7 + [False] * 5
    expected = [np.mean(np.log(1_000.0 * np.arange(d + 2, min(d + 8, 11) + 1))) for d in range(7)]
    assert logs.rewards[:7].tolist() == pytest.approx(expected)
    assert list(logs.metrics) == ["log_steps_30"]


def test_heartsteps_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"suggestions\.csv\(\.gz\) or .*klasnja/HeartStepsV1"):
        heartsteps(tmp_path)
    with pytest.raises(ConfigError, match="reward 'proxy' or 'long_term', found 'steps'"):
        heartsteps(tmp_path, reward="steps")


# ---------------------------------------------------------------------- Open Bandit


def open_bandit_folder(folder: Path) -> Path:
    header = ["", "timestamp", "item_id", "position", "click", "propensity_score"]
    header += [f"user_feature_{j}" for j in range(4)] + [f"user-item_affinity_{j}" for j in range(3)]
    rows = [
        [0, "2019-11-24 00:00:02+00:00", 2, 1, 0, 0.25, "a", "b", "c", "d", 0.0, 0.0, 1.0],
        [1, "2019-11-24 00:00:01+00:00", 0, 3, 1, 0.5, "a", "b", "c", "e", 0.0, 0.0, 0.0],
    ]
    items = [[j, j, j / 2, f"k{j % 2}", "l", "m"] for j in range(3)]
    names = ["", "item_id", *(f"item_feature_{j}" for j in range(4))]
    write(folder / "bts" / "men" / "men.csv", ",".join(header), rows)
    write(folder / "bts" / "men" / "item_context.csv", ",".join(names), items)
    return folder


@pytest.mark.parametrize("inner", ["", "open_bandit_dataset", "obd"])
def test_open_bandit_in_its_official_layout(tmp_path: Path, inner: str) -> None:
    open_bandit_folder(tmp_path / inner)
    logs = open_bandit(tmp_path, campaign="men", policy="bts", affinities=True)
    assert logs.actions.tolist() == [0, 2]  # in the order of time
    assert logs.propensities.tolist() == [0.5, 0.25]
    assert logs.rewards.tolist() == [1, 0]
    assert logs.n_actions == 3  # item 1 was never shown and is still an action
    assert logs.action_space.feature_names[:3] == ("item_feature_0", "item_feature_1=k0", "item_feature_1=k1")
    named = dict(zip(logs.schema.dimensions, logs.contexts.T, strict=True))
    assert named["position=3"].tolist() == [1, 0]
    assert named["affinity_2"].tolist() == [0, 1]
    single = open_bandit(tmp_path, campaign="men", policy="bts", position=1)
    assert single.actions.tolist() == [2]
    assert [(drop.reason, drop.rows) for drop in single.ledger.drops] == [("shown at another position", 1)]


def test_open_bandit_errors(tmp_path: Path) -> None:
    open_bandit_folder(tmp_path)
    with pytest.raises(DataError, match=r"random/all/all\.csv\(\.gz\) or obd_small_all.*st-tech/zr-obp"):
        open_bandit(tmp_path)
    with pytest.raises(ConfigError, match="one of random, bts, found 'greedy'"):
        open_bandit(tmp_path, policy="greedy")
    with pytest.raises(ConfigError, match="position 1, 2 or 3, found 4"):
        open_bandit(tmp_path, campaign="men", policy="bts", position=4)
    with pytest.raises(DataError, match="rows of the policy 'bts' at position 2, found none"):
        open_bandit(tmp_path, campaign="men", policy="bts", position=2)
    (tmp_path / "bts" / "men" / "item_context.csv").unlink()
    with pytest.raises(DataError, match=r"item_context\.csv"):
        open_bandit(tmp_path, campaign="men", policy="bts")
