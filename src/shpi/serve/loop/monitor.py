"""Tracks the reward per user of each arm as records arrive.

A user *enters* a comparison with the first decision in it. The user counts once, with the summed rewards of
the decisions in a window after entering, once that window and ``rewards.wait`` are over. The control group is
the users whom no stage of a canary ever reaches, so no user changes arms during a comparison.

    canary      users of the canary's share       against the control group, since the canary began
    hold-back   the control group, on the champion, against the hold-back, since the champion began

A monitor gets all records, when they are stored and again when a server restarts. It reads no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shpi.data.durations import parse_duration
from shpi.serve.decide import Arms
from shpi.serve.loop.compare import Difference, Sums, difference
from shpi.serve.loop.control import Control
from shpi.serve.settings import Aggregate, Settings
from shpi.serve.store.records import MAIN, Decision, Record, Reward

Look = tuple[int, Difference]
_MOST_LOOKS = 500  # latest looks kept for the page
_HOURS_KEPT = 24 * 14  # hours kept for the page: two weeks
_HOUR = 3_600_000_000  # microseconds of an hour
_NOTHING = (-1, 0.0)  # (time, value) of an event without a reward


@dataclass(slots=True)
class _Entered:
    """A user whose window is open."""

    first: bool  # whether the user is in the first of the two arms
    stage: int
    until: int  # the end of the window
    known_from: int  # when all rewards are known
    rewards: dict[str, tuple[int, float]]  # by event: (time, value)


@dataclass(eq=False)
class Comparison:
    """One arm against another, from a given time on."""

    since: int
    first: Callable[[str], bool | None]  # whether a user is in the first arm; None: in neither
    stages: tuple[int, ...]  # times at which strata begin
    window: int
    wait: int
    aggregate: Aggregate
    strata: list[tuple[Sums, Sums]] = field(default_factory=list)
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=_MOST_LOOKS))
    _open: dict[str, _Entered] = field(default_factory=dict)
    _user_of: dict[str, str] = field(default_factory=dict)  # by event in an open window
    _done: set[str] = field(default_factory=set)

    def decided(self, decision: Decision) -> None:
        """Take in a stored decision."""
        user, time = decision.user, decision.time
        if time < self.since or user in self._done:
            return
        entered = self._open.get(user)
        if entered is None:
            first = self.first(user)
            if first is None:
                return
            until = time + self.window
            stage = sum(time >= moment for moment in self.stages[1:])
            entered = self._open[user] = _Entered(first, stage, until, until + self.wait, {})
        if time <= entered.until:
            event_id = decision.event_id
            self._user_of[event_id] = user
            entered.rewards[event_id] = _NOTHING

    def rewarded(self, reward: Reward) -> None:
        """Take in a stored reward."""
        user = self._user_of.get(reward.event_id)
        entered = None if user is None else self._open.get(user)
        if entered is None or reward.name != MAIN:
            return
        moment, value = entered.rewards[reward.event_id]
        entered.rewards[reward.event_id] = _joined(self.aggregate, moment, value, reward)

    def mature(self, now: int) -> None:
        """Count the users whose rewards are known by now."""
        over = [user for user, entered in self._open.items() if entered.known_from <= now]
        for user in over:
            entered = self._open.pop(user)
            self._done.add(user)
            for event in entered.rewards:
                self._user_of.pop(event, None)
            while len(self.strata) <= entered.stage:
                self.strata.append((Sums(), Sums()))
            arm = self.strata[entered.stage][0 if entered.first else 1]
            arm.add(sum(value for _, value in entered.rewards.values()))

    def look(self, now: int, *, alpha: float, planned: int) -> Difference | None:
        """The difference of the arms, over the users whose rewards are known by now."""
        self.mature(now)
        measured = difference(self.strata, alpha=alpha, planned=planned)
        if measured is not None:
            self.looks.append((now, measured))
        return measured

    def users_in(self, stage: int) -> tuple[int, int]:
        """The number of counted users of each arm who entered in a stage."""
        if stage >= len(self.strata):
            return 0, 0
        first, second = self.strata[stage]
        return first.n, second.n

    @property
    def waiting(self) -> int:
        """The number of users whose rewards are not known yet."""
        return len(self._open)


def _joined(how: Aggregate, moment: int, value: float, reward: Reward) -> tuple[int, float]:
    """The value of an event after one more reward."""
    if moment < 0 or how == "sum":
        return max(moment, reward.time), value + reward.value if moment >= 0 else reward.value
    if how == "max":
        return moment, max(value, reward.value)
    later = reward.time >= moment
    if (how == "last") == later:
        return reward.time, reward.value
    return moment, value


@dataclass(slots=True)
class Hour:
    """Counts of an hour, and its summed rewards."""

    decisions: int = 0
    rewards: int = 0
    value: float = 0.0


class Monitor:
    """Compares arms and counts events from the records of a service."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.canary: Comparison | None = None
        self.last_canary: Comparison | None = None  # the latest one that has ended, for the page
        self.hold_back: Comparison | None = None
        self.weights = Sums()  # champion's / canary's probability, on the canary's decisions: mean 1
        self.hours: dict[int, Hour] = {}
        self.by_policy: dict[tuple[str, str], int] = {}
        self.last_time = 0
        self._users: set[str] = set()
        self._shown: tuple[object, ...] = ()

    @property
    def users(self) -> int:
        """The number of distinct users so far."""
        return len(self._users)

    def follow(self, control: Control) -> None:
        """Start and end comparisons after a change of the control file."""
        settings, canary = self.settings, control.canary
        window, wait = settings.canary_window, parse_duration(settings.rewards.wait)
        reach = settings.decide.hold_back + settings.canary.stages[-1]
        arms, before = (
            Arms(salt=bytes.fromhex(control.salt), hold_back=settings.decide.hold_back),
            self._shown,
        )
        state = (control.champion, control.champion_since, canary and (canary.policy, canary.since))

        def compared(since: int, low: float, high: float, stages: tuple[int, ...], swap: bool) -> Comparison:
            def first(user: str) -> bool | None:
                place = arms.place(user)
                if low <= place < high:
                    return not swap
                return swap if place >= reach else None

            aggregate = settings.rewards.aggregate
            return Comparison(since, first, stages, window, wait, aggregate)

        if before[:2] != state[:2]:
            self.hold_back = None
            if control.champion != control.start and settings.decide.hold_back > 0:
                self.hold_back = compared(
                    control.champion_since, 0.0, settings.decide.hold_back, (control.champion_since,), True
                )
        if canary is None:
            self.last_canary, self.canary = self.canary or self.last_canary, None
        else:
            share = settings.canary.stages[min(canary.stage, len(settings.canary.stages) - 1)]
            low = settings.decide.hold_back
            if before[2:] != state[2:]:
                self.canary = compared(canary.since, low, low + share, canary.stage_since, False)
                self.weights = Sums()
            elif self.canary is not None and self.canary.stages != canary.stage_since:
                wider = compared(canary.since, low, low + share, canary.stage_since, False)
                self.canary.first, self.canary.stages = wider.first, wider.stages
        self._shown = state

    def observe(self, records: Iterable[Record]) -> None:
        """Take in records that were stored."""
        compared = [comparison for comparison in (self.canary, self.hold_back) if comparison is not None]
        for record in records:
            if type(record) is Decision:
                self._decided(record, compared)
            elif type(record) is Reward:
                hour = self._hour(record.time)
                hour.rewards += 1
                if record.name == MAIN:
                    hour.value += record.value
                for comparison in compared:
                    comparison.rewarded(record)

    def _decided(self, decision: Decision, compared: list[Comparison]) -> None:
        if decision.time > self.last_time:
            self.last_time = decision.time
        self._users.add(decision.user)
        self._hour(decision.time).decisions += 1
        who = (decision.policy, decision.arm)
        self.by_policy[who] = self.by_policy.get(who, 0) + 1
        for comparison in compared:
            comparison.decided(decision)
        if decision.arm == "canary" and decision.shadow is not None and self.canary is not None:
            self.weights.add(decision.shadow[1] / decision.propensity)

    def _hour(self, moment: int) -> Hour:
        number = moment // _HOUR
        hour = self.hours.get(number)
        if hour is None:
            hour = self.hours[number] = Hour()
            while len(self.hours) > _HOURS_KEPT:
                del self.hours[min(self.hours)]
        return hour

    def matured_share(self, now: int) -> float:
        """The share of decisions that are older than ``rewards.wait``."""
        wait = parse_duration(self.settings.rewards.wait)
        total = sum(hour.decisions for hour in self.hours.values())
        old = sum(hour.decisions for number, hour in self.hours.items() if (number + 1) * _HOUR + wait <= now)
        return old / total if total else 0.0
