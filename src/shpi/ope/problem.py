r"""What is estimated, written down once, and one log prepared for it.

    J(pi) = E over users of  sum over the user's trajectories  sum_{t=0}^{H-1} gamma^t r_t

H is the logged horizon: the longest trajectory, or ``horizon``. How the three endings count:

*session end*  nothing ends; the sum goes on.
*terminated*   the user is gone for good and earns 0 at every later step. Ended users stay in every
               denominator: a policy that drives users away must not look good because of those who stayed.
*truncated*    the log stops before H, so nobody knows what came later. Such a user leaves the denominator of
               every later step ("censored": right if when the log stops says nothing about the user). Or the
               log is the whole story, and what is not in it counts 0 ("complete"). The log says which
               (`LoggedData.endings`): one that does not tell how users end is taken as complete, so that
               J(mu) is what one counts in the table and nobody is extrapolated to the longest trajectory.

When some are censored, those who terminated early would be too many among the remaining: they stay, and users
who are as long under way as they would be have left. So everybody counts with the inverse of the chance to be
still observed (Kaplan and Meier's redistribution). With G_t the product over s < t of the share that is not
censored after step s, among those who decided at s and went on,

    b_it = 1/G_t for a decision at step t,  1/G_{T_i - 1} after a termination;   sum_i b_it = N at every t
    J(mu) = (trajectories per user) sum_t gamma^t (1/N) sum_i b_it r_it

When nobody is censored b = 1, and J(mu) is the plain mean of the users' discounted sums. When nobody
terminates it is, at every step, the mean over those who are left. Where something is unknown at
single decisions (a reward, or what follows a decision), those after which the user terminated and those after
which the user went on are reweighted apart: a termination is always known, so leaving out what is unknown
would make it look frequent. ``per="decision"`` divides J by the same sum with all rewards 1.

A log is passed over in *chunks* of whole users: one chunk for a `LoggedData`, one per file of a `ShardedLog`.
Estimators map over chunks and add up, so memory is that of one chunk and a few numbers per user.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from shpi.data._log.sample import LEAST_USERS, MOST_ROWS, draw
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import DataError
from shpi.ope._log.chunk import Chunk, Known, Part
from shpi.ope._log.facts import Facts, check_policy, cut_at, metric_of, raw_chunks, survival
from shpi.ope._log.spill import Kept, Same, Spill
from shpi.ope.inference.intervals import interval_of
from shpi.ope.results import Interval
from shpi.ope.settings import IntervalMethod, Rewards, Settings, Truncated
from shpi.protocols import Float64Array, Int64Array, Policy
from shpi.values.transitions import rewards_of

__all__ = ["Chunk", "IntervalMethod", "Known", "Part", "Problem", "Rewards", "Settings", "Truncated"]

T = TypeVar("T")
View = Callable[[LoggedData], LoggedData]

_LEAST_KNOWN = 0.05  # steps at which less is known are left out of model fits


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """One policy, one log, one metric: what an estimator gets."""

    policy: Policy
    source: LoggedData | ShardedLog
    settings: Settings
    horizon: int  # H
    users: int  # U
    trajectories: int  # N
    decisions: int
    chunk_users: tuple[int, ...]  # in each chunk
    chunk_trajectories: tuple[int, ...]
    reward_range: tuple[float, float]
    any_terminated: bool
    alive: Float64Array  # [H] trajectories with a decision at step t
    kept: Float64Array  # [H] G_t, the chance not to be censored before step t
    ended: Float64Array  # [H] log of the sum of b over the trajectories that terminated before step t
    censored: int  # trajectories that are truncated before H
    propensity_mode: str
    times_taken: Int64Array  # [A] how often the log took each action
    sessions: int
    times: tuple[int, int]  # the first and the last within the horizon
    end: int  # the last time of the log, whatever the horizon
    endings_told: bool = True  # by the log or by `Settings.truncated`
    metric: Rewards | None = None  # None: the reward of the log
    base: Problem | None = None  # of which this is a view
    view: View | None = None
    spill: Spill | None = None  # the arrays of a log in shards
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        policy: Policy,
        logs: LoggedData | ShardedLog,
        settings: Settings | None = None,
        *,
        metric: Rewards | None = None,
    ) -> Problem:
        """Look at the log once, and check that policy and log belong together."""
        chosen = settings or Settings()
        check_policy(policy)
        spill = Spill.of(logs) if isinstance(logs, ShardedLog) else None
        passed = raw_chunks(logs) if spill is None else spill
        facts = [Facts.of(policy, chunk, metric, chosen.horizon) for chunk in passed]
        return cls._from_facts(facts, policy=policy, source=logs, settings=chosen, metric=metric, spill=spill)

    @classmethod
    def _from_facts(
        cls,
        facts: list[Facts],
        *,
        policy: Policy,
        source: LoggedData | ShardedLog,
        settings: Settings,
        metric: Rewards | None,
        base: Problem | None = None,
        view: View | None = None,
        spill: Spill | None = None,
    ) -> Problem:
        unknown = any(fact.endings == "unknown" for fact in facts)
        endings_told = settings.truncated is not None or not unknown
        if settings.truncated is None:
            settings = replace(settings, truncated="complete" if unknown else "censored")
        horizon = settings.horizon or max(fact.longest for fact in facts)
        complete = settings.truncated == "complete"
        alive, uncensored, ended = survival(facts, horizon, complete)
        users = sum(fact.users for fact in facts)
        if users < 2:
            raise DataError(
                expected="at least two users, for an error to be estimated",
                found=f"{users}",
                remedy="evaluate on more users; decisions of one user say nothing about the next one",
            )
        return cls(
            policy=policy,
            source=source,
            settings=settings,
            horizon=horizon,
            users=users,
            trajectories=sum(len(fact.lengths) for fact in facts),
            decisions=sum(int(np.minimum(fact.lengths, horizon).sum()) for fact in facts),
            chunk_users=tuple(fact.users for fact in facts),
            chunk_trajectories=tuple(len(fact.lengths) for fact in facts),
            reward_range=(min(fact.least for fact in facts), max(fact.most for fact in facts)),
            any_terminated=complete or any(fact.terminated.any() for fact in facts),
            alive=alive,
            kept=uncensored,
            ended=ended,
            censored=0
            if complete
            else sum(int(((fact.lengths < horizon) & ~fact.terminated).sum()) for fact in facts),
            propensity_mode=facts[0].mode,
            times_taken=np.sum([fact.taken for fact in facts], axis=0, dtype=np.int64),
            sessions=sum(fact.sessions for fact in facts),
            times=(min(fact.times[0] for fact in facts), max(fact.times[1] for fact in facts)),
            end=max(fact.end for fact in facts),
            endings_told=endings_told,
            metric=metric,
            base=base,
            view=view,
            spill=spill,
        )

    def seen_as(self, view: View) -> Problem:
        """The same decisions and users, with the trajectories of ``view(log)``."""
        facts = [Facts.of(self.policy, view(chunk.logs), None) for chunk in self.chunks()]
        return self._from_facts(
            facts,
            policy=self.policy,
            source=self.source,
            settings=replace(self.settings, horizon=None, truncated="censored"),
            metric=None,
            base=self,
            view=view,
        )

    @property
    def gamma(self) -> float:
        """The discount."""
        return self.settings.gamma

    @property
    def per_user(self) -> float:
        """Trajectories per user."""
        return self.trajectories / self.users

    @cached_property
    def discounts(self) -> Float64Array:
        """gamma^t, [H]."""
        powers: Float64Array = np.power(self.gamma, np.arange(self.horizon, dtype=np.float64))
        return powers

    def with_metric(self, metric: Rewards) -> Problem:
        """The same problem about another reward: a metric of the log, or a function of a log to [n]."""
        other = type(self).of(self.policy, self.source, self.settings, metric=metric)
        if "chunk" in self._memo:  # the policy need not be asked again
            other._memo["chunk"] = other._chunk(next(raw_chunks(self.source)), 0, 0)
            for name in ("probs", "taken"):
                if name in self._memo["chunk"]._memo:
                    other._memo["chunk"]._memo[name] = self._memo["chunk"]._memo[name]
        return self._share(other)

    def with_policy(self, policy: Policy) -> Problem:
        """The same problem about another policy."""
        return self._share(type(self).of(policy, self.source, self.settings, metric=self.metric))

    def _share(self, other: Problem) -> Problem:
        """Spare the other one what depends on the log alone."""
        if "largest sample" in self._memo:
            other._memo["largest sample"] = self._memo["largest sample"]
        return other

    def rewards_in(self, logs: LoggedData) -> Float64Array:
        """The rewards [n] of a raw chunk, of the metric at hand; what was not observed is 0."""
        return metric_of(logs, self.metric)

    # ------------------------------------------------------------------ passes

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order; a log in memory is one chunk, and keeps what was computed on it."""
        if self.base is not None and self.view is not None:
            yield from (self._seen(chunk, self.view) for chunk in self.base.chunks())
            return
        if isinstance(self.source, LoggedData):
            if "chunk" not in self._memo:
                self._memo["chunk"] = self._chunk(self.source, 0, 0)
            yield self._memo["chunk"]
            return
        user = trajectory = 0
        for number, logs in enumerate(self.raw_chunks()):
            yield self._chunk(logs, user, trajectory, number)
            user, trajectory = (
                user + self.chunk_users[number],
                trajectory + self.chunk_trajectories[number],
            )

    parts = chunks  # its name in version 0.1

    def raw_chunks(self) -> Iterator[LoggedData]:
        """The chunks as the log has them: not cut at the horizon, its own rewards and endings."""
        return raw_chunks(self.source) if self.spill is None else iter(self.spill)

    def sample(self, most_rows: int = MOST_ROWS, *, least: int = LEAST_USERS) -> Chunk:
        """Users with about so many decisions, the same ones whatever the chunks: for what needs no more.

        A log in memory that is no longer is its own sample.
        """
        if self.base is not None and self.view is not None:
            return self._seen(self.base.sample(most_rows, least=least), self.view)
        return self.memo(("sample", most_rows, least), lambda: self._sample(most_rows, least))

    def _sample(self, most_rows: int, least: int) -> Chunk:
        drawn = draw([self.raw_sample], most_rows, self.settings.seed, least)
        if drawn is self.source:
            return next(self.chunks())
        return self._chunk(drawn, 0, 0)

    @property
    def raw_sample(self) -> LoggedData:
        """The largest sample, as the log has it: not cut at the horizon, its own rewards and endings."""
        return self.memo("largest sample", lambda: draw(self.raw_chunks(), MOST_ROWS, self.settings.seed))

    @property
    def head(self) -> LoggedData:
        """Some users, for what all rows share: names of contexts and actions, which columns there are."""
        return self.sample().logs

    def map(self, function: Callable[[Chunk], T]) -> list[T]:
        """The function's result for every chunk, in order."""
        return [function(chunk) for chunk in self.chunks()]

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns, computed once for all estimators of this problem."""
        if key not in self._memo:
            self._memo[key] = make()
        result: T = self._memo[key]
        return result

    def number_of(self, thing: object) -> int:
        """A number for an object, for keys of memos: the same object, the same number. It is kept alive."""
        numbered: list[object] = self._memo.setdefault("kept", [])
        for number, known in enumerate(numbered):
            if known is thing:
                return number
        numbered.append(thing)
        return len(numbered) - 1

    def _seen(self, chunk: Chunk, view: View) -> Chunk:
        return chunk.memo(
            ("view", view),
            lambda: replace(
                chunk, logs=view(chunk.logs), horizon=self.horizon, kept=None, whole=chunk, _memo={}
            ),
        )

    def _chunk(
        self, logs: LoggedData, first_user: int, first_trajectory: int, number: int | None = None
    ) -> Chunk:
        short = cut_at(logs, self.horizon)
        if self.settings.truncated == "complete":
            short = replace(short, terminated=np.ones(short.n_trajectories, dtype=bool))
        if self.metric is not None:
            short = replace(short, rewards=metric_of(short, self.metric), reward_observed=None)
        return Chunk(
            logs=short,
            rewards=rewards_of(short),
            policy=self.policy,
            first_user=first_user,
            first_trajectory=first_trajectory,
            horizon=self.horizon,
            folds=self.settings.folds,
            seed=self.settings.seed,
            kept=None if self.spill is None or number is None else self._kept(self.spill, number),
        )

    def _kept(self, spill: Spill, number: int) -> Kept:
        return Kept(
            spill=spill,
            number=number,
            problem=self.memo("token", object),
            policy=(Same(self.policy), self.horizon),
        )

    def known_weights(self, chunk: Chunk, what: Known) -> Float64Array:
        """1 / (share known) among the decisions of the same step and kind of ending [n]; 0 where unknown."""
        shares = self.memo(("known", what), lambda: self._known_shares(what))  # [2, H]
        share = shares[chunk.goes_on.astype(np.int64), chunk.steps]
        weights: Float64Array = np.where(chunk.known(what), 1.0, 0.0) / np.where(share > 0, share, 1.0)
        if what in ("next", "inside"):  # model fits: a step with too little to go by is left out altogether
            weights[shares[1][chunk.steps] < _LEAST_KNOWN] = 0.0
        return weights

    def _known_shares(self, what: Known) -> Float64Array:
        """The share of known decisions, after which the user terminated [0] or went on [1], by step."""

        def count(chunk: Chunk) -> Float64Array:
            key = chunk.goes_on * np.int64(self.horizon) + chunk.steps
            counts = [
                np.bincount(key, weights=which.astype(np.float64), minlength=2 * self.horizon)
                for which in (chunk.known(what), np.ones(len(key), dtype=bool))
            ]
            return np.stack(counts)

        known, everyone = sum(self.map(count), np.zeros((2, 2 * self.horizon))).reshape(2, 2, self.horizon)
        shares: Float64Array = known / np.where(everyone > 0, everyone, 1.0)
        if what not in ("next", "inside"):
            # Of one kind nothing at all is known at some step: the other kind stands for both there.
            alone = ((everyone > 0) & (known == 0)).any(axis=0)
            both = known.sum(axis=0) / np.maximum(everyone.sum(axis=0), 1.0)
            shares = np.where(alone, both, shares)
        return shares

    # ------------------------------------------------------------------ intervals

    def interval(self, estimate: float, influence: Float64Array) -> Interval:
        """The interval of the settings around an estimate."""
        chosen = self.settings
        return interval_of(
            estimate, influence, level=chosen.confidence, method=chosen.interval, seed=chosen.seed
        )
