"""KuaiRand's tables: actions from videos, a user's history so far, user features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from shpi.data._log.ledger import Drop
from shpi.data.durations import parse_duration

PURE_USERS = ("user_features_pure", "kuairand_pure_user_features")
PURE_VIDEOS = ("video_features_basic_pure", "kuairand_pure_video_features_basic")

_FLAGS = ("is_click", "long_view", "is_like", "is_follow", "is_comment", "is_forward", "is_hate")
METRICS = (*_FLAGS, "play_seconds")
LOG_COLUMNS = ("user_id", "video_id", "time_ms", *_FLAGS, "play_time_ms", "is_profile_enter", "tab")
VIDEO_COLUMNS = ("video_id", "video_duration", "tag")
POOL_SIZE = 7_583  # videos of the random pool; KuaiRand-Pure has these and no others

# The four *_range columns repeat the numbers beside them, is_lowactive_period is constant, and
# onehot_feat2, 3, 5, 7, 8 have 34 to 1,471 values: none of them is read.
_NUMBERS = ("follow_user_num", "fans_user_num", "friend_user_num", "register_days")
_YES_NO = ("is_live_streamer", "is_video_author")
_CODES = ("user_active_degree", *(f"onehot_feat{j}" for j in (0, 1, 4, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17)))
_GAPS = ("onehot_feat4", *(f"onehot_feat{j}" for j in range(12, 18)))  # missing for some users
USER_COLUMNS = ("user_id", *_NUMBERS, *_YES_NO, *_CODES)

_COUNTED = {
    "decisions": "one",
    "clicks": "is_click",
    "long_views": "long_view",
    "likes": "is_like",
    "follows": "is_follow",
    "comments": "is_comment",
    "forwards": "is_forward",
    "hates": "is_hate",
    "profile_visits": "is_profile_enter",
    "play_seconds": "play_seconds",
}
_PAST = (
    *(f"past_{name}" for name in (*_COUNTED, "sessions", "days")),
    "hours_since_last",
    "days_since_first",
)
_SESSION = ("session_decisions", "session_clicks", "session_play_seconds")
_DAY_MS = 86_400_000  # milliseconds
_CHINA_MS = 8 * 3_600_000  # the app's users live in UTC+8, all year round


@dataclass(frozen=True, kw_only=True)
class ContextColumns:
    """The columns of the context, by role."""

    context: tuple[str, ...]
    categorical: tuple[str, ...]
    user_level: tuple[str, ...]
    with_gaps: tuple[str, ...]


def context_columns(*, with_users: bool) -> ContextColumns:
    """17 running counters, the time of day, the tab, and the user features if there are any."""
    user = (*_NUMBERS, *_YES_NO, *_CODES) if with_users else ()
    return ContextColumns(
        context=(*_PAST, *_SESSION, "hour_sin", "hour_cos", "tab", *user),
        categorical=("tab", *(_CODES if with_users else ())),
        user_level=(*_PAST, *user),
        with_gaps=_GAPS if with_users else (),
    )


def without_repeats(raw: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Drop, ...]]:
    """Keep the first row of each (user, video, time): the app wrote some events more than once."""
    first = raw.select(pl.struct("user_id", "video_id", "time_ms").is_first_distinct()).to_series()
    repeats = (~first).arg_true()
    if not len(repeats):
        return raw, ()
    drop = Drop(
        reason="repeats an earlier decision",
        rows=len(repeats),
        column="user_id, video_id, time_ms",
        example=int(repeats[0]),
        remedy="nothing to do: the first row of each is kept",
    )
    return raw.filter(first), (drop,)


def label_videos(videos: pl.DataFrame, log: pl.DataFrame, action: str, smallest: int) -> pl.DataFrame:
    """The action of every video: video_id, action, tag, length, in_pool.

    The primary tag is the first of the list, ``none`` if there is no list. Duration terciles are those of the
    pool's known durations; pictures have no duration, and count as short. Actions with fewer than
    ``smallest`` videos in the pool become ``other``.
    """
    shown = log.select("video_id").unique()
    videos = shown.join(videos, on="video_id", how="full", coalesce=True).sort("video_id")
    only_pool = videos.height <= POOL_SIZE  # else the file has all videos: the log defines the pool
    pool = pl.lit(True) if only_pool else pl.col("video_id").is_in(shown["video_id"].implode())
    known = pl.col("video_duration").filter(pl.col("in_pool"))
    videos = videos.with_columns(
        in_pool=pool,
        tag=pl.col("tag").cast(pl.String).str.split(",").list.first().fill_null("none"),
    ).with_columns(
        length=pl.when(pl.col("video_duration") > known.quantile(2 / 3, "linear"))
        .then(pl.lit("long"))
        .when(pl.col("video_duration") > known.quantile(1 / 3, "linear"))
        .then(pl.lit("medium"))
        .otherwise(pl.lit("short")),
    )
    if action == "video":
        return videos.filter("in_pool").with_columns(action="video_id")
    label = pl.col("tag") if action == "tag" else pl.col("tag") + "/" + pl.col("length")
    size = pl.col("in_pool").sum().over(label)
    return videos.with_columns(action=pl.when(size >= smallest).then(label).otherwise(pl.lit("other")))


def action_features(videos: pl.DataFrame, action: str) -> pl.DataFrame | None:
    """One row per action: tag and length, for learners that generalise over actions."""
    if action == "tag":
        return None
    if action == "video":
        seconds = (pl.col("video_duration").fill_null(0.0) / 1000).log1p()
        return videos.select("action", "tag", "length", log_seconds=seconds)
    cells = videos.filter("in_pool").select("action").unique().sort("action")
    parts = pl.col("action").str.split("/").list
    return cells.select("action", tag=parts.first(), length=parts.get(1, null_on_oob=True).fill_null("any"))


def with_history(log: pl.DataFrame, session_gap: str) -> pl.DataFrame:
    """Sort by (user, time, video), cut sessions, and add the user's history before each decision.

    Counters cover what happened strictly before the decision, as log(1 + count).
    """
    gap = parse_duration(session_gap) // 1000  # the file counts milliseconds
    local = pl.col("time_ms") + _CHINA_MS
    pause = pl.col("time_ms").diff().over("user_id")
    day = local // _DAY_MS
    log = (
        log.sort("user_id", "time_ms", "video_id")
        .with_columns(
            one=pl.lit(1),
            play_seconds=pl.col("play_time_ms") / 1000,
            new_session=(pause > gap).fill_null(True).cast(pl.Int64),
            new_day=(day != day.shift(1).over("user_id")).fill_null(True).cast(pl.Int64),
            pause=pause.fill_null(0),
        )
        .with_columns(session=pl.col("new_session").cum_sum())
    )
    angle = (local % _DAY_MS) * (2 * math.pi / _DAY_MS)
    past = [_before(column, "user_id").alias(f"past_{name}") for name, column in _COUNTED.items()]
    # The session or day that a decision opens is not counted, only earlier ones.
    past += [
        (pl.col(flag).cum_sum().over("user_id") - 1).log1p().alias(f"past_{name}")
        for name, flag in (("sessions", "new_session"), ("days", "new_day"))
    ]
    within = [
        _before(_COUNTED[name], "session").alias(f"session_{name}")
        for name in ("decisions", "clicks", "play_seconds")
    ]
    first = pl.col("time_ms").first().over("user_id")
    return log.with_columns(
        *past,
        *within,
        hours_since_last=(pl.col("pause") / 3_600_000).log1p(),
        days_since_first=((pl.col("time_ms") - first) / _DAY_MS).log1p(),
        hour_sin=angle.sin(),
        hour_cos=angle.cos(),
    )


def _before(column: str, group: str) -> pl.Expr:
    """log(1 + sum over the earlier rows of the group)."""
    value = pl.col(column).cast(pl.Float64)
    return (value.cum_sum().over(group) - value).clip(lower_bound=0.0).log1p()


def with_user_features(log: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Join the user features: counts as log(1 + count), flags as 0 or 1 (unknown is 0), codes as they are."""
    numbers = [pl.col(name).clip(lower_bound=0).cast(pl.Float64).log1p() for name in _NUMBERS]
    flags = [(pl.col(name) == 1).cast(pl.Float64) for name in _YES_NO]
    codes = [
        pl.col(name).cast(pl.Int64, strict=False).cast(pl.String)
        for name in _CODES
        if name != "user_active_degree"
    ]
    encoded = users.select("user_id", *numbers, *flags, "user_active_degree", *codes)
    return log.join(encoded, on="user_id", how="left", maintain_order="left")
