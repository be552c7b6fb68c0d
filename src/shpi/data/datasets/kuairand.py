"""KuaiRand: logs of a short-video app, one of them with videos inserted uniformly at random.

The paper: C. Gao et al., KuaiRand, CIKM 2022. The files keep their official names; see docs/datasets.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl

from shpi.data._log.ledger import Drop
from shpi.data._read.read import read_log
from shpi.data.columns import Columns
from shpi.data.datasets import kuairand_tables as tables
from shpi.data.datasets.files import Dataset, read_table, with_account
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError

Action = Literal["tag", "tag_duration", "video"]
Version = Literal["1k", "pure"]
Propensity = Literal["empirical", "pool"]

KUAIRAND = Dataset(
    name="KuaiRand",
    origin="the project chongminggao/KuaiRand (Gao et al., CIKM 2022)",
    subfolders=("", "data", "KuaiRand-1K/data", "KuaiRand-Pure/data", "KuaiRand-1K", "KuaiRand-Pure"),
)
# Official names first, then another name under which a part of the file is sometimes kept.
LogNames = Mapping[str, tuple[tuple[str, ...], str]]
RANDOM: LogNames = {
    "1k": (("log_random_4_22_to_5_08_1k",), "kuairand1k_log_random_0422_0508"),
    "pure": (("log_random_4_22_to_5_08_pure",), "kuairand_pure_log_random_0422_0508"),
}
STANDARD: LogNames = {
    "1k": (
        ("log_standard_4_08_to_4_21_1k", "log_standard_4_22_to_5_08_1k"),
        "kuairand1k_log_standard_0425_0508",
    ),
    "pure": (
        ("log_standard_4_08_to_4_21_pure", "log_standard_4_22_to_5_08_pure"),
        "kuairand_pure_log_standard_0425_0508",
    ),
}
USERS = {"1k": ("user_features_1k", "kuairand1k_user_features"), "pure": tables.PURE_USERS}
VIDEOS = {"1k": ("video_features_basic_1k", "kuairand1k_video_features_basic"), "pure": tables.PURE_VIDEOS}
SMALLEST = {"tag": 40, "tag_duration": 20, "video": 0}  # actions with fewer videos join "other"


def kuairand_random(
    folder: str | Path | None = None,
    *,
    action: Action = "tag",
    reward: str = "is_click",
    propensity: Propensity | None = None,
    version: Version | None = None,
    session_gap: str = "30m",
    min_videos: int | None = None,
    user_features: bool = True,
    schema: ContextSchema | None = None,
) -> LoggedData:
    """The log in which videos were inserted uniformly at random: its action effects are unconfounded.

    Args:
        folder: Where the files are; by default the environment variable SHPI_DATA.
        action: ``"tag"``, the video's primary tag; ``"tag_duration"``, tag and duration tercile;
            ``"video"``, the video itself.
        reward: One of the metrics: is_click, long_view, is_like, is_follow, is_comment, is_forward,
            is_hate, play_seconds.
        propensity: ``"empirical"``, the share of the action in the log (mode ``estimated``), or ``"pool"``,
            its share of the pool's videos (mode ``logged``). By default empirical, but pool for single
            videos: with about six decisions per video, a video's share is mostly noise.
        version: ``"1k"`` or ``"pure"``, where the folder holds both.
        session_gap: A longer pause starts a new session.
        min_videos: Actions with fewer videos join ``other``; by default 40 for tags and 20 for cells.
        user_features: Join the user features where their file is found.
        schema: Encode contexts as another log did, for example the other one of KuaiRand.
    """
    mode = propensity or ("pool" if action == "video" else "empirical")
    if mode not in get_args(Propensity):
        raise ConfigError(expected="propensity 'empirical' or 'pool'", found=repr(propensity))
    parts = _prepare(RANDOM, folder, action, reward, version, session_gap, min_videos, user_features)
    counts = parts.log.group_by("action").len("count")
    if mode == "pool":
        counts = parts.videos.filter(pl.col("in_pool")).group_by("action").len("count")
    shares = counts.select("action", propensity=pl.col("count") / pl.col("count").sum())
    table = parts.log.join(shares, on="action", how="left", maintain_order="left")
    logs = _read(parts, table, reward, "propensity", schema)
    if mode == "empirical":
        by_action = dict(shares.iter_rows())
        marginal = np.array([by_action.get(label, 0.0) for label in logs.action_space.ids])
        whole = None if action == "video" else np.tile(marginal, (len(logs), 1))  # [n, A]
        logs = replace(logs, propensity_mode="estimated", behaviour=whole)
    source = "the action's share of this log" if mode == "empirical" else "the action's share of the pool"
    return with_account(logs, drops=parts.drops, notes=(*parts.notes, f"propensity: {source}"))


def kuairand_standard(
    folder: str | Path | None = None,
    *,
    action: Action = "tag",
    reward: str = "is_click",
    version: Version | None = None,
    session_gap: str = "30m",
    min_videos: int | None = None,
    user_features: bool = True,
    schema: ContextSchema | None = None,
) -> LoggedData:
    """The production log: chosen by the app's own recommender, with no propensities.

    KuaiRand-Pure keeps only the videos of the random pool. A return seen here is a return to *those*
    videos: call it pool-activity retention, not retention. The arguments are those of `kuairand_random`.
    """
    parts = _prepare(STANDARD, folder, action, reward, version, session_gap, min_videos, user_features)
    return with_account(_read(parts, parts.log, reward, None, schema), drops=parts.drops, notes=parts.notes)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    log: pl.DataFrame  # one row per decision, with its action, session, history and user features
    videos: pl.DataFrame  # video_id, action, tag, length, in_pool
    features: pl.DataFrame | None  # one row per action
    columns: tables.ContextColumns
    drops: tuple[Drop, ...]
    notes: tuple[str, ...]


def _prepare(
    names: LogNames,
    folder: str | Path | None,
    action: Action,
    reward: str,
    version: Version | None,
    session_gap: str,
    min_videos: int | None,
    user_features: bool,
) -> _Parts:
    if action not in get_args(Action):
        raise ConfigError(expected=f"action to be one of {', '.join(get_args(Action))}", found=repr(action))
    if reward not in tables.METRICS:
        raise ConfigError(expected=f"reward to be one of {', '.join(tables.METRICS)}", found=repr(reward))
    place = KUAIRAND.folder(folder)
    chosen, paths = _log_files(names, place, version)
    raw = read_table(paths, tables.LOG_COLUMNS)
    log, drops = tables.without_repeats(raw)
    video_path = KUAIRAND.need(place, (*VIDEOS[chosen], *VIDEOS["pure"]))
    smallest = SMALLEST[action] if min_videos is None else min_videos
    videos = tables.label_videos(read_table(video_path, tables.VIDEO_COLUMNS), log, action, smallest)
    log = tables.with_history(log, session_gap)
    log = log.join(videos.select("video_id", "action"), on="video_id", how="left", maintain_order="left")
    notes = [f"read {path.name}" for path in (*paths, video_path)]
    user_path = KUAIRAND.find(place, (*USERS[chosen], *USERS["pure"])) if user_features else None
    if user_path is not None:
        log = tables.with_user_features(log, read_table(user_path, tables.USER_COLUMNS))
        notes.append(f"read {user_path.name}")
    return _Parts(
        log=log,
        videos=videos,
        features=tables.action_features(videos, action),
        columns=tables.context_columns(with_users=user_path is not None),
        drops=drops,
        notes=tuple(notes),
    )


def _log_files(names: LogNames, place: Path, version: Version | None) -> tuple[str, list[Path]]:
    """The version and its files: all official parts found, else the file under its other name."""
    if version is not None and version not in names:
        raise ConfigError(expected=f"version to be one of {', '.join(names)}", found=repr(version))
    files_by_version: dict[str, list[Path]] = {}
    for key in names if version is None else [version]:
        official, other = names[key]
        parts = [path for name in official if (path := KUAIRAND.find(place, [name])) is not None]
        single = KUAIRAND.find(place, [other])
        if parts or single is not None:
            files_by_version[key] = parts or [path for path in [single] if path is not None]
    if len(files_by_version) > 1:
        raise ConfigError(
            expected="one version of KuaiRand",
            found=f"{' and '.join(files_by_version)} in '{place}'",
            remedy=f"choose with version={next(iter(files_by_version))!r}",
        )
    if not files_by_version:
        wanted = [name for key in names for name in names[key][0] if version in (None, key)]
        KUAIRAND.need(place, wanted)
    return next(iter(files_by_version.items()))


def _read(
    parts: _Parts, table: pl.DataFrame, reward: str, propensity: str | None, schema: ContextSchema | None
) -> LoggedData:
    columns = Columns(
        user="user_id",
        time="time_ms",
        time_unit="ms",
        order="video_id",  # some decisions share a millisecond: fixes their order in every copy of the file
        session="session",
        context=parts.columns.context,
        categorical=parts.columns.categorical,
        user_level=parts.columns.user_level,
        missing=dict.fromkeys(parts.columns.with_gaps, "indicator"),
        action="action",
        propensity=propensity,
        reward=reward,
        metrics=tables.METRICS,
    )
    return read_log(table, columns, duplicates="keep", action_features=parts.features, schema=schema)
