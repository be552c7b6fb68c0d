"""How KuaiRand's contexts change: counters follow rules; time of day and tab are copied from the log.

The last 17 columns of a context change. All counts are stored as log(1 + count):

    past_*            decisions, clicks, long views, likes, social acts, seconds played, active days so far
    day_*             decisions, clicks, long views, seconds played today
    elapsed_days      since the first decision          gap_days   since the active day before this one
    hours_since_last  since the last decision
    hour_sin, hour_cos, tab                             the time of day, and where in the app

A session is an active day. Within a day, the next decision's time and tab are those that followed a logged
decision at this hour in this tab; a new day starts at the hour and in the tab in which a logged user, last
seen at this hour in this tab, came back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.fitted.donors import Cells
from shpi.envs.fitted.moves import FEEDBACK, MOVE
from shpi.envs.fitted.outcomes import return_kind
from shpi.envs.streams import Streams
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float32Array, Float64Array, Int64Array, IntArray

COUNTERS = (
    "past_decisions",
    "past_clicks",
    "past_long_views",
    "past_likes",
    "past_social",
    "past_play_seconds",
    "past_days",
    "day_decisions",
    "day_clicks",
    "day_long_views",
    "day_play_seconds",
    "elapsed_days",
    "gap_days",
    "hours_since_last",
    "hour_sin",
    "hour_cos",
    "tab",
)
PLACE = {name: j - len(COUNTERS) for j, name in enumerate(COUNTERS)}  # negative: from the end of a context
METRICS = ("is_click", "long_view", "is_like", "social", "play_seconds")
# The counters that each metric increases.
_COUNTED = {
    "is_click": ("past_clicks", "day_clicks"),
    "long_view": ("past_long_views", "day_long_views"),
    "is_like": ("past_likes",),
    "social": ("past_social",),
    "play_seconds": ("past_play_seconds", "day_play_seconds"),
}
FED_BACK = tuple(name for names in _COUNTED.values() for name in names)
_DECISIONS = ("past_decisions", "day_decisions")
_TODAY = ("day_decisions", "day_clicks", "day_long_views", "day_play_seconds")
_COPIED = ("hour_sin", "hour_cos", "tab")
TABS, HOURS = 16, 24  # pages of the app; hours of a day
_LEAST = 30  # donors that a key needs; else a coarser key is used


@saveable("envs/world-counters")
@dataclass(frozen=True, kw_only=True, eq=False)
class Counters:
    """The rules, and the donors from a log. Kind 0 stays in the day; kind g returns g days later."""

    width: int  # d
    group: Int64Array  # [A] group of videos of each action, 0 .. G-1
    values: Float64Array  # [n, 5] the metrics of the log
    feedback_cells: Cells  # by reward, tab and group of videos
    following: Float32Array  # [m, 4] hour_sin, hour_cos, tab, hours_since_last of the next decision
    same_day: Cells  # by tab and hour; rows of ``following``
    new_day: Cells

    def __post_init__(self) -> None:
        freeze(self, "group", ndim=1, dtype=np.int64)
        freeze(self, "values", ndim=2)
        freeze(self, "following", ndim=2, dtype=np.float32)

    @classmethod
    def fit(cls, logs: LoggedData, group: Int64Array) -> Counters:
        """Collect donors from a log whose contexts end in the 17 columns; times and sessions are days."""
        assert logs.rewards is not None
        rows, kind, _ = return_kind(logs, np.arange(1.0, 400.0))
        columns = [PLACE[name] for name in (*_COPIED, "hours_since_last")]
        x = logs.contexts
        feedback = _feedback_levels(_tab(x), logs.rewards, group[logs.actions], int(group.max()) + 1)
        places = [_levels(_tab(x[chosen]), _hour(x[chosen])) for chosen in (rows[kind == 0], rows[kind > 0])]
        order = np.concatenate([rows[kind == 0], rows[kind > 0]])
        stay, leave = (Cells.fit(levels, _LEAST) for levels in places)
        return cls(
            width=x.shape[1],
            group=group,
            values=np.stack([logs.metrics[name] for name in METRICS], axis=1),
            feedback_cells=Cells.fit(feedback, _LEAST),
            following=x[order + 1][:, columns],
            same_day=stay,
            new_day=Cells(order=leave.order + int((kind == 0).sum()), start=leave.start, count=leave.count),
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the further metrics of a decision."""
        return METRICS

    @property
    def moving(self) -> Int64Array:
        """The last 17 columns."""
        return np.arange(self.width - len(COUNTERS), self.width)

    def feedback(
        self, x: Float32Array, actions: IntArray, rewards: Float64Array, streams: Streams, step: int
    ) -> tuple[Float64Array, Float64Array]:
        """The metrics of a logged decision with this reward, in this tab, on this group of videos."""
        groups = int(self.group.max()) + 1
        keys = _feedback_key(_tab(x), rewards, self.group[actions], groups)
        return rewards, self.values[self.feedback_cells.draw(keys, streams.uniform(FEEDBACK, step))]

    def after(self, x: Float32Array, rewards: Float64Array, metrics: Float64Array) -> Float32Array:
        """The context with this decision's feedback counted."""
        counted = x.copy()
        ones = np.ones(len(x))
        for name in _DECISIONS:
            _add(counted, name, ones)
        for j, metric in enumerate(METRICS):
            for name in _COUNTED[metric]:
                _add(counted, name, metrics[:, j])
        return counted

    def move(
        self,
        x: Float32Array,
        actions: IntArray,
        rewards: Float64Array,
        after: Float32Array,
        kind: Int64Array,
        streams: Streams,
        step: int,
    ) -> tuple[Float32Array, Float64Array]:
        """Move time on, to later today or to the start of another day; ``after`` has counted the feedback."""
        moved, uniform = after.copy(), streams.uniform(MOVE, step)
        key, later = _tab(x) * HOURS + _hour(x), kind > 0
        donors = np.where(later, self.new_day.draw(key, uniform), self.same_day.draw(key, uniform))
        for j, name in enumerate(_COPIED):
            moved[:, PLACE[name]] = self.following[donors, j]
        hours = 24.0 * kind + _hour(moved) - _hour(x)
        moved[:, PLACE["hours_since_last"]] = np.where(
            later, np.log1p(np.maximum(hours, 0.0)), self.following[donors, 3]
        )
        days = kind.astype(np.float64)
        _add(moved, "past_days", later.astype(np.float64))
        _add(moved, "elapsed_days", days)
        moved[:, PLACE["gap_days"]] = np.where(later, np.log1p(days), x[:, PLACE["gap_days"]])
        for name in _TODAY:
            moved[later, PLACE[name]] = 0.0
        return moved, days


def _add(x: Float32Array, name: str, amount: Float64Array) -> None:
    """Count ``amount`` more in a column that holds log(1 + count); whole counts stay whole."""
    count = np.expm1(x[:, PLACE[name]].astype(np.float64))
    if not name.endswith("seconds"):
        count = np.rint(count)
    x[:, PLACE[name]] = np.log1p(count + amount)


def _tab(x: Float32Array) -> Int64Array:
    return np.clip(x[:, PLACE["tab"]], 0, TABS - 1).astype(np.int64)


def _hour(x: Float32Array) -> Int64Array:
    """The hour 0 .. 23 of the day."""
    angle = np.arctan2(x[:, PLACE["hour_sin"]].astype(np.float64), x[:, PLACE["hour_cos"]])
    hour: Int64Array = np.floor(angle * (HOURS / (2 * np.pi))).astype(np.int64) % HOURS
    return hour


def _levels(tab: Int64Array, hour: Int64Array) -> list[tuple[Int64Array, Int64Array]]:
    """Keys by tab and hour, by tab, and one for all."""
    keys = np.arange(TABS * HOURS)
    return [(tab * HOURS + hour, keys), (tab, keys // HOURS), (tab * 0, keys * 0)]


def _feedback_key(tab: Int64Array, rewards: Float64Array, group: Int64Array, groups: int) -> Int64Array:
    key: Int64Array = ((rewards > 0.5) * TABS + tab) * groups + group
    return key


def _feedback_levels(
    tab: Int64Array, rewards: Float64Array, group: Int64Array, groups: int
) -> list[tuple[Int64Array, Int64Array]]:
    """Keys by reward, tab and group of videos; by reward and tab; by reward."""
    of_row = _feedback_key(tab, rewards, group, groups)
    keys = np.arange(2 * TABS * groups)
    return [(of_row // coarseness, keys // coarseness) for coarseness in (1, groups, TABS * groups)]
