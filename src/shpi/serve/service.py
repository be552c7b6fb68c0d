"""`Service`: runs the folder of a service; requests in, durable records and answers out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from shpi.errors import ActionError, ConfigError, ShpiError
from shpi.files.atomic import write_text
from shpi.serve import settings as settings_file
from shpi.serve.decide import Arm, Arms, Choice
from shpi.serve.decide.arms import draws
from shpi.serve.decide.choice import Item, allowed, first_choice, mixed, uniform_choice
from shpi.serve.loop.canary import Health, Ruling
from shpi.serve.loop.control import FILE as CONTROL
from shpi.serve.loop.control import Control
from shpi.serve.loop.monitor import Monitor
from shpi.serve.policies import Policies
from shpi.serve.serving import Ids, Serving
from shpi.serve.settings import Settings, secret
from shpi.serve.store import Clock, Decision, FileStore, Reward, Store
from shpi.serve.store.records import digest_of
from shpi.serve.web.requests import Rank, RewardBody, context_of, moment

EVENTS = "events"
T = TypeVar("T")
_LOG = logging.getLogger("shpi.serve")


def prepare(folder: Path) -> Settings:
    """Read the settings of a folder; a new folder gets a documented serve.toml and a first state."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings.read(folder)
    if not (folder / settings_file.FILE).exists():
        write_text(folder / settings_file.FILE, settings.to_toml())
    if not (folder / CONTROL).exists():
        Control.new(settings.decide.start).write(folder)
    return settings


def open_store(folder: Path, settings: Settings) -> Store:
    """The store that the settings name."""
    if settings.store.kind == "postgres":
        from shpi.serve.store.postgres import PostgresStore

        return PostgresStore(secret(settings.store.url), timeout=settings.server.timeout)
    return FileStore(folder / EVENTS, segment_bytes=settings.store.segment_mb * 2**20)


class Asked(msgspec.Struct, gc=False):
    """A request for a decision."""

    request: Rank
    body: bytes
    event_id: str
    now: int


class _Draft(msgspec.Struct, gc=False):
    """A decision before an item is chosen."""

    asked: Asked
    user: str
    arm: Arm
    policy: str
    uniform: float
    plain: bool = False  # one unmixed policy chooses among all its items

    @property
    def context(self) -> dict[str, Any]:
        """The context of the request."""
        return context_of(self.asked.request.context)


class Service:
    """Makes decisions, prepares rewards for the store, and follows the control file."""

    def __init__(self, folder: Path, settings: Settings | None = None, store: Store | None = None) -> None:
        self.folder = folder
        self.settings = prepare(folder) if settings is None else settings
        self.store = open_store(folder, self.settings) if store is None else store
        self.clock = Clock()
        self.clock.seen(getattr(self.store, "last_time", 0))
        self.policies = Policies(folder, self.settings.decide.floor)
        self.alarms: dict[str, str] = {}
        self.monitor = Monitor(self.settings)
        self.ruling = Ruling(move="wait", why="no policy is on trial")
        if self.settings.decide.start == "apprentice" and self.settings.decide.floor == 0:
            self.alarms["apprentice"] = (
                "the apprentice does not explore: its log is unfit for evaluation; raise decide.floor"
            )
        self._ids = Ids()
        self._canary_stats: dict[str, tuple[int, int, float]] = {}  # by policy: decisions, failures, seconds
        self._stamp = 0
        self._now_serving: Serving | None = None
        self.follow()
        self.monitor.follow(self.control)
        if not hasattr(self.store, "since"):  # else a background task follows all workers
            self.monitor.observe(self.store.scan())
            self.store.listener = self.monitor.observe

    # ------------------------------------------------------------------ the state in force

    @property
    def control(self) -> Control:
        """The state that is in force."""
        return self._serving.control

    @property
    def _serving(self) -> Serving:
        assert self._now_serving is not None
        return self._now_serving

    @property
    def canary_share(self) -> float:
        """The share of users who get the policy on trial."""
        return self._serving.arms.canary

    def follow(self) -> bool:
        """Apply a change of the control file; a policy that cannot be loaded only raises an alarm."""
        stamp = (self.folder / CONTROL).stat().st_mtime_ns
        if stamp == self._stamp:
            return False
        control = Control.read(self.folder)
        broken = self.policies.follow(control, self.settings.decide.shadow)
        self._stamp = stamp
        for name, why in broken.items():
            self.alarms["policy"] = f"the policy '{name}' cannot be loaded: {why}"
            _LOG.error("the policy %s cannot be loaded: %s", name, why)
        if broken.keys() & {control.start, control.champion}:
            if self._now_serving is None:
                raise ConfigError(
                    expected="a champion and a start that can be loaded",
                    found=next(iter(broken.values())),
                    where=str(self.folder / CONTROL),
                    remedy="restore the policy's folder, or run shpi serve rollback",
                )
            return False  # the current champion keeps serving
        on_trial = control.canary is not None and control.canary.policy not in broken
        share = 0.0
        if on_trial and control.canary is not None:
            stages = self.settings.canary.stages
            share = stages[min(control.canary.stage, len(stages) - 1)]
        if not broken:
            self.alarms.pop("policy", None)
        salt = bytes.fromhex(control.salt)
        arms = Arms(salt=salt, hold_back=self.settings.decide.hold_back, canary=share)
        self._now_serving = Serving(control, arms, draws(salt))
        return True

    def _who(self, user: str) -> tuple[Arm, str]:
        """The arm and the policy of a user."""
        return self._serving.who(user)

    # ------------------------------------------------------------------ decisions

    def decide(self, request: Rank, body: bytes, *, event_id: str, now: int) -> Decision:
        """Make a decision. The caller must store it before answering."""
        (draft,) = self._drafts([Asked(request, body, event_id, now)])
        if isinstance(draft, Exception):
            raise draft
        return self._decided(draft)

    def decide_each(self, requests: Sequence[Asked]) -> list[Decision | Exception]:
        """Decide requests that arrived together; plain requests to one policy share one matrix product."""
        drafts = self._drafts(requests)
        plain: dict[str, list[int]] = {}
        for place, draft in enumerate(drafts):
            if type(draft) is _Draft and draft.plain:
                plain.setdefault(draft.policy, []).append(place)
        decided: list[Decision | Exception | None] = [None] * len(drafts)
        for name, places in plain.items():
            together = _result_or_error(self._together, name, [drafts[place] for place in places])
            if isinstance(together, list):  # else they are decided one by one, each with its own error
                for place, decision in zip(places, together, strict=True):
                    decided[place] = decision
        for place, draft in enumerate(drafts):
            if decided[place] is None:
                decided[place] = (
                    draft if isinstance(draft, Exception) else _result_or_error(self._decided, draft)
                )
        return decided  # type: ignore[return-value]  # none is left open

    def _drafts(self, requests: Sequence[Asked]) -> list[_Draft | Exception]:
        serving = self._serving
        drafts: list[_Draft | Exception] = []
        who, uniform, alone = serving.who, serving.uniform, self._alone()
        for asked in requests:
            request = asked.request
            user = request.user
            try:
                if type(user) is not str:
                    user = str(user)
                arm, name = who(user)
                plain = (
                    name in alone and arm != "canary" and request.candidates is None and not request.exclude
                )
                drafts.append(_Draft(asked, user, arm, name, uniform(asked.event_id), plain))
            except Exception as error:
                drafts.append(error)
        return drafts

    def _alone(self) -> set[str]:
        """The policies that are neither mixed with another nor compared with a shadow policy."""
        return set() if self.settings.decide.shadow else self.policies.alone

    def _together(self, name: str, drafts: Sequence[_Draft]) -> list[Decision] | None:
        """The decisions of plain drafts for one policy; None if they must be decided one by one."""
        loaded = self.policies.get(name)
        if loaded is None or len(drafts) < 2:
            return None
        contexts = [draft.asked.request.context for draft in drafts]
        chosen = loaded.chooser.choose_each(contexts, [draft.uniform for draft in drafts])
        if chosen is None:
            return None
        probs, places = chosen
        items, width, stored = loaded.chooser.ids, probs.itemsize * probs.shape[1], probs.tobytes()
        return [
            self._record(draft, name, items, stored[start : start + width], place)
            for draft, place, start in zip(drafts, places, range(0, len(stored), width), strict=True)
        ]

    def _decided(self, draft: _Draft) -> Decision:
        """The decision of a draft."""
        name, context, items = draft.policy, draft.context, self._candidates(draft.asked.request)
        if draft.arm == "canary":
            choice, name = self._choose_canary(name, context, items, draft.uniform)
        else:
            choice = self._choose(name, context, items, draft.uniform)
        shadow = self._shadow(draft, items, choice)
        return self._record(draft, name, choice.items, choice.probs.tobytes(), choice.place, shadow)

    def _record(
        self,
        draft: _Draft,
        policy: str,
        items: Sequence[Item],
        probs: bytes,
        place: int,
        shadow: tuple[str, float] | None = None,
    ) -> Decision:
        asked = draft.asked
        request = asked.request
        return Decision(  # positional arguments, in the order of the fields: faster
            asked.event_id,
            digest_of(asked.body),
            draft.user,
            request.session,
            request.previous,
            asked.now,
            self.store.next_seq(),
            bytes(request.context),
            items,  # type: ignore[arg-type]  # a list that is never written to
            probs,
            place,
            policy,
            draft.arm,
            draft.uniform,
            request.defer,
            request.features() if request.candidates else None,
            shadow,
        )

    def _candidates(self, request: Rank) -> list[Item] | None:
        items = request.items()
        if items is not None and len(items) > self.settings.server.candidates:
            raise ActionError(
                expected=f"at most {self.settings.server.candidates} candidates",
                found=str(len(items)),
                where="candidates",
                remedy="send fewer, or raise server.candidates",
            )
        if items is not None and len(set(map(str, items))) != len(items):
            raise ActionError(expected="every candidate once", found="one twice", where="candidates")
        if items is None and request.exclude:
            champion = self.policies.get(self.control.champion)
            items = None if champion is None else list(champion.chooser.ids)
        if items is None:
            return None
        return allowed(items, request.exclude)

    def _choose(self, name: str, context: Any, items: list[Item] | None, uniform: float) -> Choice:
        loaded = self.policies.get(name)
        if loaded is not None:
            own, mix = loaded.chooser.choose(context, items, uniform), loaded.mix
            if mix is None:
                return own
            same = None if mix.over == "apprentice" and items is None else list(own.items)
            return mixed(own, self._choose(mix.over, context, same, uniform), mix.share, uniform)
        if items is None:
            champion = self.policies.get(self.control.champion)  # the hold-back arm uses its items
            if champion is None or name == "apprentice":
                raise ActionError(
                    expected="candidates, as long as nothing has been learned",
                    found="none",
                    where="candidates",
                    remedy="send the items that may be shown, your own first choice first",
                )
            items = champion.chooser.ids
        if name == "apprentice":
            return first_choice(items, uniform, self.settings.decide.floor)
        return uniform_choice(items, uniform)

    def _choose_canary(
        self, name: str, context: Any, items: list[Item] | None, uniform: float
    ) -> tuple[Choice, str]:
        """A choice by the policy on trial; if that fails, count the failure and let the champion choose."""
        decisions, failed, seconds = self._canary_stats.get(name, (0, 0, 0.0))
        began, chosen = perf_counter(), name
        try:
            choice = self._choose(name, context, items, uniform)
        except Exception as error:  # the user must not notice a failing canary
            failed, chosen = failed + 1, self.control.champion
            if not isinstance(error, ShpiError):
                _LOG.exception("the policy on trial failed")
            self._canary_stats[name] = (decisions + 1, failed, seconds + perf_counter() - began)
            return self._choose(chosen, context, items, uniform), chosen
        self._canary_stats[name] = (decisions + 1, failed, seconds + perf_counter() - began)
        return choice, chosen

    def health(self) -> Health:
        """Decisions, failures and seconds of the policy on trial."""
        canary = self.control.canary
        decisions, failed, seconds = self._canary_stats.get(canary.policy if canary else "", (0, 0, 0.0))
        return Health(decisions=decisions, failed=failed, seconds=seconds)

    def _shadow(self, draft: _Draft, items: list[Item] | None, choice: Choice) -> tuple[str, float] | None:
        """The shadow policy's probability of the chosen item; for canary users, the champion's."""
        name = self.control.champion if draft.arm == "canary" else self.settings.decide.shadow
        if not name or self.policies.get(name) is None:
            return None
        other = self._choose(name, draft.context, items if items is not None else list(choice.items), 0.0)
        return name, float(other.probs[choice.place])

    def rewarded(self, event_id: str, body: RewardBody, raw: bytes) -> Reward:
        """The record of a reward. Without a reward_id, value and time are the id: equals count once."""
        at = moment(body.at, "at")
        digest = digest_of(raw)
        return Reward(
            event_id=event_id,
            name=body.name,
            reward_id=body.reward_id if body.reward_id is not None else f"={body.value!r}@{body.at}",
            value=body.value,
            time=self.now() if at is None else at,
            digest=digest,
        )

    # ------------------------------------------------------------------ time

    def now(self, moment: int | None = None) -> int:
        """The time of a request: the caller's, or else the clock's."""
        if moment is not None:
            if self.settings.server.clock == "events":
                self.clock.seen(moment)
            return moment
        if self.settings.server.clock == "events":
            return self.clock.last + 1
        return self.clock.now()

    def new_id(self) -> str:
        """An id for a decision whose caller gave none."""
        return self._ids.new()


def _result_or_error(work: Callable[..., T], *args: Any) -> T | Exception:
    """The result of a function, or the error that it raises."""
    try:
        return work(*args)
    except Exception as error:
        return error
