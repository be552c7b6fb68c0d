"""A hard world: from a seed it makes a log, a policy, and the policy's true lift."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from shpi.data.durations import MICROSECONDS
from shpi.data.logged import LoggedData
from shpi.data.question import leave_after
from shpi.policies import mask_probs
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array
from shpi.testing.hard_worlds.chain import Chain, Rollout

DAY = MICROSECONDS["d"]
START = 1_767_225_600_000_000  # microseconds since 1970: 1 January 2026, when every log begins


@dataclass(frozen=True, eq=False)
class GroupPolicy:
    """pi(a|x) by the group of a context; contexts begin with the one-hot code of the group [G]."""

    table: Float64Array  # [G, A]

    @property
    def n_actions(self) -> int:
        """The number of actions A."""
        return int(self.table.shape[1])

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The row of each context's group [n, A]."""
        groups = np.asarray(contexts[:, : len(self.table)], dtype=np.float64)
        return mask_probs(groups @ self.table, candidates)


@dataclass(frozen=True, kw_only=True, eq=False)
class Calendar:
    """When users enter and decide: once every ``gap`` days, starting on a random one of the first ``days``.

    Args:
        days: number of days over which users enter.
        gap: number of days between two decisions of a user.
        end: number of days after which the log stops; None: when the last user is done.
        entry_of_state: day of entry of each initial state [S]; None: a random day.
        shared_coins: whether one coin decides for all users of a day (arms switched by day).
        shocks: standard deviation of the shock that all rewards of a day share.
    """

    days: int = 30
    gap: int = 1
    end: int | None = None
    entry_of_state: Int64Array | None = None
    shared_coins: bool = False
    shocks: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """A world without its users, and before the gain for the wanted lift is chosen.

    Args:
        chain: behaviour of the users.
        mu: true probabilities of the actions, by state [S, A].
        pi: policy to evaluate, by group [G, A].
        group: group of each state, which is what contexts show of it [S].
        says: propensities that the log claims, by state [S, A]; None: the true ones.
        propensities: "logged", or "estimated" from the contexts.
        marked: whether the log says which users left for good.
        calendar: days of entry and of decisions.
        future: chain that the true lift is about, if it is not the one of the log.
        options: options for `shpi.evaluate` that an owner who knows this log would give.
        churn_after: silence after which an owner would count a user as gone, if the log does not say.
    """

    chain: Chain
    mu: Float64Array
    pi: Float64Array
    group: Int64Array
    says: Float64Array | None = None
    propensities: Literal["logged", "estimated"] = "logged"
    marked: bool = True
    calendar: Calendar = field(default_factory=Calendar)
    future: Chain | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    churn_after: str | None = None

    @property
    def pi_by_state(self) -> Float64Array:
        """The policy by state [S, A]."""
        return self.pi[self.group]


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A log, a policy, and its true lift."""

    logs: LoggedData
    policy: GroupPolicy
    lift: float  # the true lift of the policy per user, over the horizon
    baseline: float  # the true value of the logging policy per user, over the horizon
    metric_lifts: Mapping[str, float]  # the true lift of each metric of the log
    horizon: int
    entry: Int64Array  # [U] the day on which each user entered
    options: Mapping[str, Any]  # options for `shpi.evaluate`, see `Setting`
    setting: Setting
    gain: float

    @property
    def told_logs(self) -> LoggedData:
        """The log with its owner's knowledge of which users left; the log itself if it says so."""
        silence = self.setting.churn_after
        return self.logs if silence is None else leave_after(self.logs, silence)

    @property
    def recent_lift(self) -> float:
        """The true lift among users like those who entered in the last third of the log.

        If mu drifts, this is the lift over the present mu.
        """
        chain, when = self.setting.future or self.setting.chain, self.setting.calendar.entry_of_state
        if when is None:
            return self.lift
        late = np.where(when >= np.quantile(when, 2 / 3), chain.initial, 0.0)
        recent = replace(chain, initial=late / late.sum())
        of_pi, of_mu = (
            recent.value(policy, self.gain) for policy in (self.setting.pi_by_state, self.setting.mu)
        )
        return of_pi - of_mu

    def fresh(self, seed: int, users: int) -> Case:
        """Another log of the same world and policy, with new users."""
        rng = np.random.default_rng([seed, users])
        entry, logs = _log(self.setting, self.gain, users, rng, seed)
        return replace(self, entry=entry, logs=logs)

    def mixture_lift(self, share: float) -> float:
        """The true lift if ``share`` of the decisions are the policy's, and the others those of mu."""
        chain = self.setting.future or self.setting.chain
        mixed = (1 - share) * self.setting.mu + share * self.setting.pi_by_state
        return chain.value(mixed, self.gain) - self.baseline


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A kind of world that is hard for gates.

    Args:
        name: name of the world.
        words: description of the world.
        build: function that makes a setting from a random generator and a number of users.
        users: default number of users in a log.
        better: lift worth finding, as a share of the present value.
        impossible: reason why no gate can be right here; None: a gate can.
    """

    name: str
    words: str
    build: Callable[[np.random.Generator, int], Setting]
    users: int = 2_000
    better: float = 0.1
    impossible: str | None = None

    def make(self, seed: int, users: int | None = None, *, lift: float = 0.0) -> Case:
        """Make a log and a policy of this world.

        Args:
            seed: random seed of the setting, the users and the log.
            users: number of users in the log; None: the default of the world.
            lift: true lift of the policy, as a share of the logging policy's value: 0, negative, or positive
                to measure power, such as ``better``. It is exact for every seed.
        """
        count = self.users if users is None else users
        rng = np.random.default_rng([seed, *self.name.encode()])
        setting = self.build(rng, count)
        truth = setting.future or setting.chain
        gain = truth.gain_for(lift, setting.pi_by_state, setting.mu)
        policies = (setting.pi_by_state, setting.mu)
        value, baseline = (truth.value(policy, gain) for policy in policies)
        metrics = {
            name: truth.metric_value(name, policies[0]) - truth.metric_value(name, policies[1])
            for name in truth.metrics
        }
        entry, logs = _log(setting, gain, count, rng, seed)
        return Case(
            logs=logs,
            policy=GroupPolicy(setting.pi),
            lift=value - baseline,
            baseline=baseline,
            metric_lifts=metrics,
            horizon=truth.horizon,
            entry=entry,
            options={"horizon": truth.horizon, **setting.options},
            setting=setting,
            gain=gain,
        )


# ---------------------------------------------------------------------- from users to a log


def _log(
    setting: Setting, gain: float, users: int, rng: np.random.Generator, seed: int
) -> tuple[Int64Array, LoggedData]:
    chain, calendar = setting.chain, setting.calendar
    first = rng.choice(len(chain.initial), size=users, p=chain.initial)
    if calendar.entry_of_state is None:
        entry = rng.integers(calendar.days, size=users)
    else:
        entry = calendar.entry_of_state[first]
    day = entry[:, None] + calendar.gap * np.arange(chain.horizon)  # [n, H]
    coins = rng.random((users, chain.horizon))
    if calendar.shared_coins:
        coins = rng.random(int(day.max()) + 1)[day]
    done = chain.simulate(setting.mu, gain, first, rng, coins)
    rewards = done.rewards
    if calendar.shocks > 0:
        rewards = rewards + calendar.shocks * rng.standard_normal(int(day.max()) + 1)[day]
    stop = int(day.max()) + 1 if calendar.end is None else calendar.end
    counts = np.minimum(done.counts, (day < stop).sum(axis=1))
    logged = np.flatnonzero(counts > 0)
    logs = _arrays(setting, done, rewards, day, counts, logged, rng)
    if setting.propensities == "estimated":
        bare = replace(logs, propensities=None, behaviour=None, propensity_mode="absent")
        logs = bare.with_estimated_propensities(seed=seed)
    return entry[logged], logs


def _arrays(
    setting: Setting,
    done: Rollout,
    rewards: Float64Array,
    day: Int64Array,
    counts: Int64Array,
    logged: Int64Array,
    rng: np.random.Generator,
) -> LoggedData:
    """The log of the decisions made before users left or the log stopped."""
    horizon = setting.chain.horizon
    kept = (np.arange(horizon) < counts[:, None])[logged]  # [U, H]
    states, actions = done.states[logged], done.actions[logged]
    here, taken = states[:, :-1][kept], actions[kept]
    final = states[np.arange(len(logged)), counts[logged]]
    gone = setting.chain.gone[final]
    groups = np.eye(len(setting.pi))
    mood = rng.standard_normal((len(logged), horizon + 1))  # an uninformative context column
    says = setting.mu if setting.says is None else setting.says
    hour = rng.integers(DAY // 2, size=(len(logged), horizon))
    told: dict[str, Any] = {}  # a log that does not mark endings has no final contexts either
    if setting.marked:
        shown = np.column_stack([groups[setting.group[final]], mood[:, -1]])
        told = {"terminated": gone, "final_contexts": shown}
    return LoggedData.from_arrays(
        contexts=np.column_stack([groups[setting.group[here]], mood[:, :-1][kept]]),
        actions=taken,
        rewards=rewards[logged][kept],
        offsets=np.append(0, np.cumsum(counts[logged])),
        propensities=says[here, taken],
        behaviour=says[here],
        n_actions=setting.mu.shape[1],
        users=logged,
        times=(START + day[logged] * DAY + hour)[kept],
        time_unit="us",
        **told,
        metrics={name: values[logged][kept] for name, values in done.metrics.items()},
    )
