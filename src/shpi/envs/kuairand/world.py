"""The world of KuaiRand: a short-video app, fitted to its public logs.

**What it is.** Users of the production log, day by day. 112 actions: a video's primary tag × duration
tercile, the rarest merged. 47 context columns: 30 of the user, and 17 running counters. The proxy reward is a
long view (or a click). A session is an active day. The long-term score is 2 P(active again in 7 days) - 1.
The policy chooses tag and duration; the app chooses the video among these, as in production.

**Where it comes from.** The effect of an action on the reward is estimated from the log in which videos were
inserted at random, so it is not confounded. Everything else (levels, state, session ends, returns) is
estimated from the production log, and describes users *as they were under the production recommender*.

**What it is not.** It is not evidence that recommendations change retention. In these data no effect of a
single action on any long-term outcome can be detected. Here an action can matter for the long term in one way
only: it changes the chance of a long view, long views (and what comes with them) change the counters of
feedback, and the probabilities of ending the day and of returning depend on these counters as they were
*associated* with them in the log. ``link`` multiplies that dependence: 1 is the association as estimated, 0
makes session ends and returns independent of every action. The estimate is almost zero: days with more
decisions are followed by more returns, but at the same number of decisions, long views and clicks hardly
matter. So in this world, as in the data, a policy can hardly change retention. For experiments that need a
long-term effect, ``assumed`` adds one: it is invented, and results with it say nothing about KuaiRand's
users.

Only videos of a pool of 7,583 are in the log: a return is a return to those, *pool-activity* retention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from shpi.data._log import ragged
from shpi.data.actions import ActionSpace
from shpi.data.datasets.files import read_table
from shpi.data.datasets.kuairand import KUAIRAND, USERS, Version, kuairand_random, kuairand_standard
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema, Level
from shpi.envs.base import whole_number
from shpi.envs.fitted.model import FittedWorld, WorldModel
from shpi.envs.kuairand.counters import COUNTERS, FED_BACK, HOURS, PLACE, Counters
from shpi.errors import ConfigError, DataError
from shpi.protocols import Float32Array, Float64Array, Int64Array

Proxy = Literal["long_view", "is_click"]

N_ACTIONS = 112  # combinations of tag and duration
RETURN_DAYS = 7  # a user who is not active again within these days is gone
NOTES = (
    "times are days, and a session is an active day; a return is a return to the videos of the pool",
    "'reward' uses action effects of the randomised log, 'reward, association' those of this log, where the "
    "recommender had already matched videos to users; they need not agree",
    "long-term effects of actions are an assumption of this world: action -> feedback -> session end and "
    "return, as associated in the log (link = 1); the data show no effect of single actions on returns",
)
_DAY, _CHINA = 86_400_000_000, 8 * 3_600_000_000  # microseconds: a day; the users' UTC+8
_LENGTHS = ("short", "medium", "long", "any")
_NUMBERS = ("follow_user_num", "fans_user_num", "friend_user_num", "register_days")
_RANGES = tuple(f"{name}_range" for name in _NUMBERS)
_YES_NO = ("is_lowactive_period", "is_live_streamer", "is_video_author")
_CODES = tuple(f"onehot_feat{j}" for j in range(18))
USER_COLUMNS = ("user_active_degree", *_YES_NO, *_NUMBERS, *_RANGES, *_CODES)  # 30
_DEGREES = (
    "UNKNOWN",
    "day_new",
    "2_14_day_new",
    "single_low_active",
    "low_active",
    "30day_retention",
    "middle_active",
    "high_active",
    "full_active",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class KuaiRandLogs:
    """The two logs with the same contexts and actions; times are days, sessions are active days."""

    standard: LoggedData
    random: LoggedData

    def split_users(self, held_out: float, *, seed: int) -> tuple[KuaiRandLogs, KuaiRandLogs]:
        """Split the users into two pairs of logs without a common user, for a held-out report."""
        train, test = self.standard.split_users(held_out, seed=seed)
        apart = np.isin(self.random.users, test.users)
        if apart.all() or not apart.any():
            raise DataError(
                expected="users of the randomised log on both sides of the split",
                found=f"{int(apart.sum())} of {len(apart)} held out",
                remedy="use more users, or another seed",
            )
        return (
            KuaiRandLogs(standard=train, random=self.random.select(np.flatnonzero(~apart))),
            KuaiRandLogs(standard=test, random=self.random.select(np.flatnonzero(apart))),
        )


def kuairand_world(
    folder: str | Path | None = None,
    *,
    seed: int = 0,
    reward: Proxy = "long_view",
    days: int = 14,
    link: float = 1.0,
    assumed: float = 0.0,
    assumed_on: str = "day_long_views",
    members: int = 5,
    horizon: int = 100,
    version: Version | None = None,
) -> FittedWorld:
    """The world of KuaiRand, fitted to all users of its logs; read the module's docstring before using it.

    Args:
        folder: folder of KuaiRand's files; by default the environment variable SHPI_DATA.
        seed: random seed of the ensemble.
        reward: the proxy reward of a decision.
        days: number of days for which a user is simulated. The log has 14, so 14 is the default; counters
            of more days are outside the log.
        link: factor on the effects of feedback on session ends and returns; 1: as estimated, 0: none.
        assumed: an invented effect: what one unit of ``assumed_on`` adds to the log-odds of a return.
        assumed_on: the counter with this effect, log(1 + count); today's long views by default. With seconds
            played (``day_play_seconds``) the best policies for the reward and for the long term can differ.
        members: the size of the ensemble.
        horizon: the number of decisions after which a rollout is truncated.
        version: ``"1k"`` or ``"pure"``, if the folder holds both versions of a log.
    """
    logs = kuairand_logs(folder, reward=reward, version=version)
    world = fit_kuairand(logs, seed=seed, days=days, link=link, members=members, horizon=horizon)
    return world.with_assumed(assumed, assumed_on)


def fit_kuairand(
    logs: KuaiRandLogs,
    *,
    seed: int = 0,
    days: int = 14,
    link: float = 1.0,
    members: int = 5,
    horizon: int = 100,
) -> FittedWorld:
    """Fit the world to the given logs; the other arguments are those of `kuairand_world`."""
    model = WorldModel(
        members=members,
        ridge=60.0,
        action_effects=("reward",),
        interactions=("hour_sin", "hour_cos"),
        return_bins=tuple(range(1, RETURN_DAYS + 1)),
        observed="log",
        feedback=FED_BACK,
        link=link,
        horizon=horizon,
        window=whole_number("days", days, least=2) - 1,  # the first day is day 0
        name="kuairand",
    )
    group = _lengths(logs.standard.action_space)
    world = model.fit(logs.standard, seed, action_log=logs.random, moves=Counters.fit(logs.standard, group))
    return replace(world, notes=NOTES)


# ---------------------------------------------------------------------- the logs


def kuairand_logs(
    folder: str | Path | None = None, *, reward: Proxy = "long_view", version: Version | None = None
) -> KuaiRandLogs:
    """Read both logs, with the 47 context columns and the 112 actions."""
    if reward not in get_args(Proxy):
        raise ConfigError(expected=f"reward among {', '.join(get_args(Proxy))}", found=repr(reward))
    place = KUAIRAND.folder(folder)
    options: dict[str, Any] = {"action": "tag_duration", "min_videos": 1, "user_features": False}
    standard = kuairand_standard(place, reward=reward, version=version, **options)
    random = kuairand_random(place, reward=reward, version=version, **options)
    names = [name for pair in USERS.values() for name in pair]
    users = _user_features(read_table(KUAIRAND.need(place, names[::-1]), ("user_id", *USER_COLUMNS)))
    labels = _kept_cells(random)
    return KuaiRandLogs(standard=_by_day(standard, users, labels), random=_by_day(random, users, labels))


def _kept_cells(random: LoggedData) -> list[str]:
    """The cells that the random log showed most often, and "other" for the rest: 112 in all."""
    shown = np.bincount(random.actions, minlength=random.n_actions)
    ids = [str(label) for label in random.action_space.ids]
    order = sorted(range(len(ids)), key=lambda a: (-shown[a], ids[a]))
    return [*sorted(ids[a] for a in order[: N_ACTIONS - 1]), "other"]


def _by_day(logs: LoggedData, users: _Users, labels: list[str]) -> LoggedData:
    """The log with 47 context columns, days as times and as sessions, and the merged actions."""
    assert logs.rewards is not None
    place = {label: a for a, label in enumerate(labels)}
    of_cell = np.array([place.get(str(label), len(labels) - 1) for label in logs.action_space.ids])
    local = logs.times + _CHINA
    day = local // _DAY
    # A few decisions of the first night carry the next day's date in the file; they belong to its first day.
    first = np.flatnonzero(np.bincount(day - day.min()) > 0.02 * len(day) / (np.ptp(day) + 1))[0] + day.min()
    day = np.maximum(day, first) - first
    metrics = {name: logs.metrics[name] for name in ("is_click", "long_view", "is_like", "play_seconds")}
    metrics["social"] = logs.metrics["is_follow"] + logs.metrics["is_comment"] + logs.metrics["is_forward"]
    new_day = np.append(True, day[1:] != day[:-1])
    new_day[logs.offsets[:-1]] = True
    counters = _counters(logs, day, local, new_day, metrics)
    per_user = users.of(logs.users)[logs.trajectory_of_row]
    user: Level = "user"
    session: Level = "session"
    levels = [user for _ in USER_COLUMNS] + [session for _ in COUNTERS]
    return LoggedData.from_arrays(
        contexts=np.concatenate([per_user, counters], axis=1),
        actions=of_cell[logs.actions],
        rewards=logs.rewards,
        offsets=logs.offsets,
        session_offsets=ragged.offsets_from_starts(new_day),
        users=logs.users,
        times=day,
        schema=ContextSchema.numeric((*USER_COLUMNS, *COUNTERS), levels),
        action_space=_cells(labels),
        metrics=metrics,
    )


def _counters(
    logs: LoggedData,
    day: Int64Array,
    local: Int64Array,
    new_day: np.ndarray,
    metrics: dict[str, Float64Array],
) -> Float32Array:
    """The 17 columns before each decision, [n, 17]; see `shpi.envs.kuairand.counters`."""
    whole = logs.trajectory_of_row
    today = np.cumsum(new_day) - 1
    out = np.zeros((len(logs), len(COUNTERS)))

    def put(name: str, counts: Float64Array) -> None:
        out[:, PLACE[name]] = np.log1p(counts)

    ones = np.ones(len(logs))
    for name, values, group in (
        ("past_decisions", ones, whole),
        ("past_clicks", metrics["is_click"], whole),
        ("past_long_views", metrics["long_view"], whole),
        ("past_likes", metrics["is_like"], whole),
        ("past_social", metrics["social"], whole),
        ("past_play_seconds", metrics["play_seconds"], whole),
        ("day_decisions", ones, today),
        ("day_clicks", metrics["is_click"], today),
        ("day_long_views", metrics["long_view"], today),
        ("day_play_seconds", metrics["play_seconds"], today),
    ):
        put(name, _before(values, group))
    put("past_days", _before(new_day.astype(np.float64), whole) + new_day - 1.0)
    first = logs.offsets[:-1][whole]
    put("elapsed_days", (day - day[first]).astype(np.float64))
    starts = np.flatnonzero(new_day)
    gap = np.where(whole[starts] == np.append(-1, whole[starts[:-1]]), np.append(0, np.diff(day[starts])), 0)
    put("gap_days", gap[today].astype(np.float64))
    pause = np.append(0, np.diff(local)) / (_DAY / HOURS)
    pause[logs.offsets[:-1]] = 0.0
    put("hours_since_last", pause)
    angle = (local % _DAY) * (2 * np.pi / _DAY)
    out[:, PLACE["hour_sin"]], out[:, PLACE["hour_cos"]] = np.sin(angle), np.cos(angle)
    out[:, PLACE["tab"]] = _tabs(logs)
    return out.astype(np.float32)


def _before(values: Float64Array, group: Int64Array) -> Float64Array:
    """The sum over the earlier rows of the group, for groups of consecutive rows."""
    total = np.cumsum(values) - values
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    return np.maximum(total - np.repeat(total[first], np.diff(np.append(first, len(group)))), 0.0)


def _tabs(logs: LoggedData) -> Float64Array:
    """The tab of each decision, from the one-hot columns of the loader."""
    columns = [(j, name[4:]) for j, name in enumerate(logs.schema.dimensions) if name.startswith("tab=")]
    known = [(j, int(label)) for j, label in columns if label.isdigit()]
    if not known:
        raise DataError(expected="columns of the tab in KuaiRand's log", found="none")
    tabs = np.zeros(len(logs))
    for j, number in known:
        tabs[logs.contexts[:, j] == 1] = number
    return tabs


# ---------------------------------------------------------------------- actions and users


def _cells(labels: list[str]) -> ActionSpace:
    """The actions, with one-hot features of tag and length."""
    tags = sorted({label.split("/")[0] for label in labels})
    features = np.zeros((len(labels), len(tags) + len(_LENGTHS)))
    for a, label in enumerate(labels):
        tag, _, length = label.partition("/")
        features[a, tags.index(tag)] = 1.0
        features[a, len(tags) + _LENGTHS.index(length or "any")] = 1.0
    names = (*(f"tag={tag}" for tag in tags), *(f"length={length}" for length in _LENGTHS))
    return ActionSpace(ids=tuple(labels), features=features, feature_names=names)


def _lengths(space: ActionSpace) -> Int64Array:
    """The length of each action's videos: 0 short, 1 medium, 2 long, 3 any."""
    return np.array([_LENGTHS.index(str(label).partition("/")[2] or "any") for label in space.ids])


@dataclass(frozen=True, eq=False)
class _Users:
    ids: Int64Array  # [u] increasing
    features: Float32Array  # [u, 30]

    def of(self, ids: Int64Array) -> Float32Array:
        place = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        features: Float32Array = self.features[place]
        features[self.ids[place] != ids] = -1.0
        return features


def _user_features(table: pl.DataFrame) -> _Users:
    """The 30 user features as numbers; missing values are -1.

    Counts become log(1 + count), ranges and degrees their rank, flags 0 or 1. Codes stay as they are, or are
    divided by the largest where there are more than ten.
    """
    table = table.sort("user_id")
    columns: list[pl.Expr] = [
        pl.col("user_active_degree").replace_strict(
            list(_DEGREES), list(range(len(_DEGREES))), default=-1, return_dtype=pl.Float64
        )
    ]
    columns += [(pl.col(name) == 1).cast(pl.Float64) for name in _YES_NO]
    columns += [pl.col(name).cast(pl.Float64).clip(lower_bound=0).log1p() for name in _NUMBERS]
    columns += [
        pl.col(number).min().over(name).rank("dense").cast(pl.Float64).alias(name) - 1
        for name, number in zip(_RANGES, _NUMBERS, strict=True)
    ]
    for name in _CODES:
        code = pl.col(name).cast(pl.Float64)
        columns.append(code / pl.when(code.max() > 10).then(code.max()).otherwise(1.0))
    encoded = table.select(column.fill_null(-1.0) for column in columns)
    return _Users(table["user_id"].to_numpy(), encoded.to_numpy().astype(np.float32))
