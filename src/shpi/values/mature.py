r"""Complete rewards that have not matured when the log ends, by the expected value of the unseen rest.

    R_t = sum of m_j over the window from t on  =  what the log shows  +  the rest,     R^_t = shown + E[rest]

A derived reward (`shpi.data.rewards`) is unknown for every decision whose window reaches beyond the log: the
last week of a 7-day metric. Dropping these decisions is right where time alone decides which ones go, but
a log of ten days keeps three. And where users leave for good at different times, only a completion is right.

*Steps.* Where the clock counts decisions, the rest is the value U of the metric over the steps that are left,
at the context after the last decision. All are computed from the same sums over one step (`LstdSums`):

    U_0 = 0,     U_j = Pi (m + gamma U_{j-1}(x')),           without a horizon  U = Pi (m + gamma U(x')): LSTD

Pi is the ridge regression on the features. After a termination U is 0. One step is known for every decision,
so no user is lost because of how long they stayed. In a finite world E[R^_t | x_t, a_t] = E[R_t | x_t, a_t].

*A clock.* With timestamps, users who have been silent for three days differ from those seen an hour ago. So
closed windows are cut where open ones are: after the same time tau since the decision. What came after the
cut is regressed, in groups of similar tau, on what can be seen at the cut:

    phi(x_L) (1, silence),  silence^2,  what was shown so far,  a_L,  tau       L: the last decision seen

Closed windows are chosen by their time alone: both users who left and users who stayed are among them.
Terminated users need no prediction: their rest is 0. A return that was seen settles `ReturnWithin`.

A completed reward is a prediction in part. Learn from it; evaluate a policy on rewards that were seen.
`python -m benchmarks mature` has the figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from shpi.data._log.futures import first_after
from shpi.data.durations import in_time_unit
from shpi.data.logged import LoggedData
from shpi.data.rewards import (
    DiscountedSum,
    ReturnWithin,
    RewardDefinition,
    SessionsWithin,
    SumWithin,
    Timeline,
)
from shpi.errors import ConfigError, DataError
from shpi.features import FeatureMap, Recipe
from shpi.protocols import BoolArray, Float64Array, Int64Array
from shpi.values._lstd.choose import Choice
from shpi.values._lstd.moments import LstdSums, with_intercept
from shpi.values.lstd import LSTD

GROUPS = 12  # most groups of similar times since the decision
GROUP_ROWS = 200  # least number of open windows in a group
CUT_ROWS = 20_000  # most closed windows that a regression uses
FEW_ACTIONS = 50  # up to this many actions, the last action is an input
_BLOCK = 20_000  # rows whose features are held at once


@dataclass(frozen=True, kw_only=True)
class Complete:
    """Completes rewards whose windows are open: ``logs.with_rewards(definition, censored=Complete())``.

    Args:
        features: features of a context, a recipe or a fitted map; None chooses as `LSTD` does.
        ridge: ridge of the regressions, counted in decisions; None chooses as `LSTD` does.
        seed: random seed of that choice, and of the cuts of closed windows.
    """

    features: Recipe | FeatureMap | None = None
    ridge: float | None = None
    seed: int = 0

    def complete(
        self, timeline: Timeline, definition: RewardDefinition, rewards: Float64Array, open_: BoolArray
    ) -> Float64Array:
        """See `shpi.data.rewards.Completion`."""
        if not isinstance(definition, SumWithin | DiscountedSum | SessionsWithin | ReturnWithin):
            raise ConfigError(
                expected="one of shpi's own rewards, whose parts are known",
                found=type(definition).__name__,
                remedy="use censored='drop' or 'mark'",
            )
        if isinstance(definition, ReturnWithin) and definition.pays == "session":
            every = replace(definition, pays="decision")
            known = every.look_ahead(timeline)[0]
            return definition.paid(timeline.logs, self.complete(timeline, every, known, open_))
        rows = np.flatnonzero(open_)
        whole = rewards.copy()
        if timeline.counted:
            whole[rows] += self._rest_in_steps(timeline, definition, rows)
        else:
            whole[rows] += self._rest_on_clock(timeline, definition, rewards, rows)
        if isinstance(definition, ReturnWithin):
            whole = np.clip(whole, 0.0, 1.0)
        return whole

    def _choice(self, logs: LoggedData, gamma: float) -> Choice:
        return LSTD(features=self.features, ridge=self.ridge, lookahead=1).choose(
            logs, gamma=gamma, seed=self.seed
        )

    # ------------------------------------------------------------------ steps

    def _rest_in_steps(
        self, timeline: Timeline, definition: RewardDefinition, rows: Int64Array
    ) -> Float64Array:
        """gamma^(steps shown) U_(steps left) of the final context, [rows]."""
        metric, gamma, length, scale = _in_steps(timeline, definition)
        logs = replace(timeline.logs, rewards=timeline.metric(metric), reward_observed=None)
        horizon = 1 / (1 - gamma) if length is None else length
        choice = self._choice(logs, min(gamma, 1 - 1 / max(horizon, 2)))
        sums = LstdSums.of(logs, choice.features, gamma=gamma)
        shown = logs.offsets[1:][logs.trajectory_of_row[rows]] - rows
        left = np.zeros(len(rows), np.int64) if length is None else length - shown
        thetas = _thetas(sums, choice.ridge, None if length is None else int(left.max()))
        rest = np.empty(len(rows))
        for i in range(0, len(rows), _BLOCK):
            block = slice(i, i + _BLOCK)
            finals = logs.final_contexts[logs.trajectory_of_row[rows[block]]]
            rest[block] = (with_intercept(choice.features, finals) * thetas[left[block]]).sum(axis=1)
        return scale * gamma ** shown.astype(np.float64) * rest

    # ------------------------------------------------------------------ a clock

    def _rest_on_clock(
        self, timeline: Timeline, definition: RewardDefinition, shown: Float64Array, rows: Int64Array
    ) -> Float64Array:
        """The expected rest of the reward after the log's end, [rows]."""
        _, closed = definition.look_ahead(timeline)
        known = np.flatnonzero(closed)
        if not len(known):
            raise DataError(
                expected="at least one window that closed before the end of the log",
                found="none",
                remedy="choose a shorter horizon",
            )
        draws = np.random.default_rng(self.seed)
        logs = replace(timeline.logs, rewards=shown, reward_observed=closed)
        clock = _Clock.of(timeline, definition, self._choice(logs, 0.0))
        since = timeline.known_until - clock.starts  # tau
        rest, order = np.zeros(len(rows)), np.argsort(since[rows], kind="stable")
        groups = max(min(GROUPS, len(rows) // GROUP_ROWS), 1)
        for group in np.array_split(order, groups):
            train = known if len(known) <= CUT_ROWS else draws.choice(known, CUT_ROWS, replace=False)
            # One time for a whole session, since the windows of some rewards start at the session's end.
            taus = draws.choice(since[rows[group]], timeline.logs.n_sessions)[timeline.logs.session_of_row]
            early, _ = definition.look_ahead(replace(timeline, known_until=clock.starts + taus))
            at = clock.seen_at(train, clock.starts[train] + taus[train], early[train])
            theta = _ridge(at.inputs, shown[train] - early[train], at.open, clock.choice.ridge)
            for block in np.array_split(group, len(group) // _BLOCK + 1):
                now = clock.seen_at(rows[block], timeline.known_until[rows[block]], shown[rows[block]])
                rest[block] = np.where(now.open, now.inputs @ theta, 0.0)
        return rest


class _Seen(NamedTuple):
    """The observable state of some decisions at their cut."""

    inputs: Float64Array  # [b, p]
    open: BoolArray  # [b] False: the rest is known to be 0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Clock:
    """A log on a clock, and the inputs of the regression where a window is cut."""

    timeline: Timeline
    starts: Float64Array | Int64Array  # [n] where the time of a window starts
    length: float  # of a window, in the unit of the times
    once: bool  # the reward is complete once it is 1
    choice: Choice

    @classmethod
    def of(cls, timeline: Timeline, definition: RewardDefinition, choice: Choice) -> _Clock:
        by_session = isinstance(definition, SessionsWithin | ReturnWithin)
        starts = timeline.session_ends[timeline.logs.session_of_row] if by_session else timeline.times
        horizon = getattr(definition, "horizon", None)
        if horizon is None:
            assert isinstance(definition, DiscountedSum)
            length = math.log(definition.tail) / math.log(definition.gamma) * timeline.horizon(definition.per)
        else:
            length = float(timeline.horizon(horizon))
        return cls(
            timeline=timeline,
            starts=starts,
            length=length,
            once=isinstance(definition, ReturnWithin),
            choice=choice,
        )

    def seen_at(self, rows: Int64Array, cuts: Float64Array | Int64Array, shown: Float64Array) -> _Seen:
        """The inputs of the regression at the cuts [b]."""
        logs, times = self.timeline.logs, self.timeline.times
        ends = logs.offsets[1:][logs.trajectory_of_row[rows]]
        after = first_after(times, rows, ends, np.maximum(cuts, times[rows]), side="right")
        last = after - 1
        silence = (cuts - times[last]) / self.length
        phi = with_intercept(self.choice.features, logs.contexts[last])
        parts = [phi, phi * silence[:, None], (silence**2)[:, None], shown[:, None]]
        parts.append(((cuts - self.starts[rows]) / self.length)[:, None])
        if logs.n_actions <= FEW_ACTIONS:
            parts.append(np.eye(logs.n_actions)[logs.actions[last]])
        gone = (after == ends) & self.timeline.terminated[rows]
        return _Seen(np.hstack(parts), ~gone & ~(self.once & (shown >= 1)))


def _in_steps(timeline: Timeline, definition: RewardDefinition) -> tuple[str, float, int | None, float]:
    """The metric, the discount of a step, the length of the window in steps, and a factor."""
    if isinstance(definition, SumWithin):
        horizon = timeline.horizon(definition.horizon)
        scale = 1.0 if definition.per is None else timeline.horizon(definition.per) / horizon
        return definition.metric, 1.0, math.ceil(horizon), scale
    if isinstance(definition, DiscountedSum):
        unit = 1 if definition.per == "step" else timeline.horizon(definition.per)
        length = None if definition.horizon is None else math.ceil(in_time_unit(definition.horizon, "step"))
        return definition.metric, definition.gamma ** (1 / unit), length, 1.0
    raise ConfigError(
        expected="times, since visits within some time are to be completed",
        found="a log whose clock counts decisions",
        remedy="name the time column, or use censored='drop'",
    )


def _thetas(sums: LstdSums, ridge: float, steps: int | None) -> Float64Array:
    """The coefficients of U_0 .. U_steps, [steps + 1, p + 1]; of U alone without a horizon, [1, p + 1]."""
    if steps is None:
        return sums.solve(ridge)[None]
    thetas = np.zeros((steps + 1, len(sums.target)))
    system = sums.gram + np.diag(sums.penalty(ridge))
    step = np.linalg.lstsq(system, np.column_stack([sums.target, sums.cross]), rcond=None)[0]
    for j in range(1, steps + 1):
        thetas[j] = step[:, 0] + step[:, 1:] @ thetas[j - 1]
    return thetas


def _ridge(inputs: Float64Array, targets: Float64Array, used: BoolArray, ridge: float) -> Float64Array:
    """Ridge regression on standardised inputs, the first of which is the intercept; coefficients [p]."""
    x, y = inputs[used], targets[used]
    if not len(y):
        return np.zeros(inputs.shape[1])
    centre, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale < 1e-9 * (1 + np.abs(centre))] = np.inf  # constant inputs add nothing to the intercept
    z = (x - centre) / scale
    slopes = np.linalg.solve(z.T @ z + ridge * np.eye(z.shape[1]), z.T @ (y - y.mean())) / scale
    slopes[0] = y.mean() - centre @ slopes
    solution: Float64Array = slopes
    return solution
