r"""The estimand, and a log prepared for its estimation.

    J(pi) = E over users of  sum over the user's trajectories  sum_{t=0}^{H-1} gamma^t r_t

H is the logged horizon: the longest trajectory, or ``horizon``. How the three endings count:

*session end*  the trajectory continues, and so does the sum.
*terminated*   the user is gone for good and earns 0 at every later step. Terminated users stay in every
               denominator: a policy that drives users away must not look good because of those who stayed.
*truncated*    the log stops before H, so later rewards are unknown. Either such a user leaves the denominator
               of every later step ("censored": correct if the time of truncation is independent of the user).
               Or rewards after the end of the log count 0 ("complete"). The log says which
               (`LoggedData.endings`): if it does not say how users end, it counts as complete, so that
               J(mu) is the plain mean of the table and no user is extrapolated to the longest trajectory.

With censoring, early terminations would be over-represented among the remaining users: terminated users stay,
censored users who would still be active do not. So every user has the inverse of the probability of still
being observed as a weight (Kaplan and Meier's redistribution). With G_t the product over s < t of the share
that is not censored after step s, among those who decided at s and went on,

    b_it = 1/G_t for a decision at step t,  1/G_{T_i - 1} after a termination;   sum_i b_it = N at every t
    J(mu) = (trajectories per user) sum_t gamma^t (1/N) sum_i b_it r_it

Without censoring b = 1, and J(mu) is the plain mean of the users' discounted sums. Without terminations it
is, at every step, the mean over the remaining users. If something is unknown at single decisions (a reward,
or the next context), decisions before a termination and the others are reweighted separately: a termination
is always known, so dropping unknown decisions would overstate its frequency. ``per="decision"`` divides J by
the same sum with all rewards 1.

A log is processed in *blocks* of whole users, the same ones in memory and in shards
(`shpi.ope._log.blocks`). Estimators sum over blocks, so memory is that of one block and a few numbers per
user. Requests of several estimators share one pass (`shpi.ope._log.together`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from shpi.data._log.sample import LEAST_USERS, MOST_ROWS, draw
from shpi.data._log.slicing import join
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError, DataError
from shpi.ope._log.chunk import Chunk, Kept, Part, once
from shpi.ope._log.facts import (
    Facts,
    Known,
    check_source,
    cut_at,
    known_rows,
    metric_of,
    survival,
)
from shpi.ope._log.gather import ByUser, InList
from shpi.ope._log.visits import Visits
from shpi.ope.inference.intervals import interval_of
from shpi.ope.results import Interval
from shpi.ope.settings import IntervalMethod, Rewards, Settings, Truncated
from shpi.passes import Executor, TreeSum
from shpi.passes.over import below_share
from shpi.protocols import Float64Array, Int64Array, Policy
from shpi.values.transitions import goes_on, rewards_of

__all__ = ["Chunk", "IntervalMethod", "Known", "Part", "Problem", "Rewards", "Settings", "Truncated", "once"]

T = TypeVar("T")
View = Callable[[LoggedData], LoggedData]

# Most decisions, and most entries of pi(.|x), per call of the policy: small enough for the CPU cache.
_BLOCK, _CELLS = 50_000, 1 << 19
_LEAST_KNOWN = 0.05  # steps at which less is known are left out of model fits


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """One policy, one log, one metric: the input of an estimator."""

    policy: Policy
    source: LoggedData | ShardedLog
    settings: Settings
    gamma: float  # the discount
    horizon: int  # H
    users: int  # U
    trajectories: int  # N
    decisions: int
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
    visits: Visits  # who passes over the blocks; other processes have none
    token: int  # tells this problem from others about the same log
    policy_token: int  # tells its policy from others
    known_shares: Mapping[Known, Float64Array]  # [2, H] of decisions, by whether the user goes on, and step
    per_user: float  # trajectories per user
    discounts: Float64Array  # [H] gamma^t
    endings_told: bool = True  # by the log or by `Settings.truncated`
    values_only: bool = False  # nobody asks for errors: what the noise of fits adds to them is left out
    metric: Rewards | None = None  # None: the reward of the log
    base: Problem | None = None  # of which this is a view
    view: View | None = None
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    # What problems about the same log, policy and horizon share, whatever their rewards; see `share`.
    family: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        policy: Policy,
        logs: LoggedData | ShardedLog,
        settings: Settings | None = None,
        *,
        metric: Rewards | None = None,
        executor: Executor | None = None,
    ) -> Problem:
        """Make one pass over the log, and check that policy and log are compatible.

        Args:
            policy: the policy to evaluate.
            logs: the log, in memory or in shards.
            settings: settings of the evaluation; None takes the defaults.
            metric: a metric of the log, or a function of a log; None is the log's reward.
            executor: processes the blocks; None is the present executor, or this process.
        """
        chosen = settings or Settings()
        if not isinstance(policy, Policy):
            raise ConfigError(
                expected="a policy (n_actions and action_probs)",
                found=type(policy).__name__,
                remedy="load one with shpi.load_policy(folder)",
            )
        check_source(logs)
        visits = Visits.of(logs, executor)
        look = partial(Facts.of, policy=policy, metric=metric, settings=chosen)
        facts: Facts = visits.ask(None, look, TreeSum(visits.count))
        problem = cls.from_facts(
            facts, policy=policy, source=logs, settings=chosen, metric=metric, visits=visits
        )
        if problem.users < 2:
            raise DataError(
                expected="at least two users, for an error to be estimated",
                found=f"{problem.users}",
                remedy="evaluate on more users; decisions of one user say nothing about the next one",
            )
        if not np.isfinite(facts.least):
            raise DataError(
                expected="at least one decision whose reward was observed",
                found="none: every reward is censored",
                remedy="wait until the futures that define the reward have passed, or use a shorter one",
            )
        return problem

    @classmethod
    def from_facts(
        cls,
        facts: Facts,
        *,
        policy: Policy,
        source: LoggedData | ShardedLog,
        settings: Settings,
        metric: Rewards | None,
        visits: Visits,
        base: Problem | None = None,
        view: View | None = None,
    ) -> Problem:
        """The problem about a log with these facts; with ``view``, as another one sees it: ``base``."""
        unknown, asked = facts.endings == "unknown", settings.truncated is not None
        settings = settings if asked else replace(settings, truncated="complete" if unknown else "censored")
        by_length = facts.lengths.sum(axis=0)  # [L + 1]
        horizon, trajectories = settings.horizon or len(by_length) - 1, int(by_length.sum())
        complete = settings.truncated == "complete"
        alive, kept, ended = survival(facts, horizon, complete)
        return cls(
            policy=policy,
            source=source,
            settings=settings,
            gamma=settings.gamma,
            horizon=horizon,
            users=facts.users,
            trajectories=trajectories,
            decisions=int(by_length @ np.minimum(np.arange(len(by_length)), horizon)),
            reward_range=(facts.least, facts.most),
            any_terminated=complete or bool(facts.lengths[1].any()),
            alive=alive,
            kept=kept,
            ended=ended,
            censored=0 if complete else int(facts.lengths[0, :horizon].sum()),
            propensity_mode=facts.mode,
            times_taken=facts.taken,
            sessions=facts.sessions,
            times=facts.times,
            end=facts.end,
            visits=visits,
            token=next(visits.tokens),
            policy_token=visits.number_of(policy),
            known_shares=facts.known_shares(horizon),
            per_user=trajectories / facts.users,
            discounts=np.power(settings.gamma, np.arange(horizon, dtype=np.float64)),
            endings_told=asked or not unknown,
            metric=metric,
            base=base,
            view=view,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What other processes need: neither the log nor what was computed so far."""
        names = [
            each.name for each in fields(self) if each.name not in ("source", "visits", "_memo", "family")
        ]
        return {name: getattr(self, name) for name in names} | {
            "source": None,
            "visits": None,
            "_memo": {"elsewhere": self.visits.keeper},
            "family": {},
        }

    def with_metric(
        self, metric: Rewards | None, *, policy: Policy | None = None, settings: Settings | None = None
    ) -> Problem:
        """The same problem about another reward: a metric of the log, or a function of a log to [n].

        It shares what depends on the log alone or, for the same policy, on both.
        """
        other = type(self).of(
            self.policy if policy is None else policy, self.source, settings or self.settings, metric=metric
        )
        drawn = ("Problem.raw_sample",)  # by which `once` remembers it
        if drawn in self._memo:
            other._memo[drawn] = self._memo[drawn]
        if other.policy is self.policy and other.horizon == self.horizon:
            return replace(other, family=self.family)
        return other

    def with_policy(self, policy: Policy) -> Problem:
        """The same problem about another policy."""
        return self.with_metric(self.metric, policy=policy)

    # ------------------------------------------------------------------ passes

    def map(self, function: Callable[[Chunk], T]) -> list[T]:
        """The function's result for every block, in order. For processes it must be importable."""
        results: list[T] = self.visits.ask(self, function, InList(self.visits.count))
        return results

    def total(self, function: Callable[[Chunk], T], add: Callable[[T, T], T] = operator.add) -> T:
        """The sum of the function over all blocks, in a fixed tree: bit-identical for every executor."""
        result: T = self.visits.ask(self, function, TreeSum(self.visits.count, add))
        return result

    def by_user(self, function: Callable[[Chunk], Any], *, and_total: bool = False) -> Any:
        """Numbers by user, from a function of a block to [..., users of the block], or to several of them.

        The last axis of the result has all users, in the order of their ids. With ``and_total`` the function
        returns two things: numbers by user, and what to sum as in `total`.
        """
        totals = [TreeSum[Any](self.visits.count)] if and_total else []
        return self.visits.ask(self, function, ByUser(self.visits.blocks.places), *totals)

    def for_blocks(self, values: Any) -> dict[int, Any]:
        """Numbers by user [U], for each block those of its users."""
        return {number: values[places] for number, places in enumerate(self.visits.blocks.places)}

    def chunks(self) -> Iterator[Chunk]:
        """The blocks in order, in this process; see `map` for passes."""
        for number in range(self.visits.count):
            yield self.chunk_of(self.visits.blocks.open(number), number, {})

    parts = chunks  # its name in version 0.1

    def chunk_of(self, logs: LoggedData, number: int, shared: dict[Hashable, Any]) -> Chunk:
        """The chunk of a block; ``shared`` is for all problems that look at the block now."""
        place = ("chunk", id(self))
        if place not in shared:
            if self.base is not None and self.view is not None:
                shared[place] = self._seen(self.base.chunk_of(logs, number, shared), self.view)
            else:
                lasting = "elsewhere" not in self._memo and self.visits.lasting
                known = self._memo if lasting else shared
                if place not in known:
                    known[place] = self._chunk(logs, number, shared)
                shared[place] = known[place]
        chunk: Chunk = shared[place]
        return chunk

    def _seen(self, chunk: Chunk, view: View) -> Chunk:
        logs = chunk.memo(("view of logs", view), partial(view, chunk.logs))
        return chunk.memo(
            ("view", view),
            lambda: replace(
                chunk,
                logs=logs,
                steps=logs.steps,
                goes_on=goes_on(logs),
                horizon=self.horizon,
                kept=None,
                whole=chunk,
                known={},
                _memo={},
            ),
        )

    def _chunk(
        self, logs: LoggedData, number: int | None = None, shared: dict[Hashable, Any] | None = None
    ) -> Chunk:
        short = cut_at(logs, self.horizon)
        if self.settings.truncated == "complete":
            short = replace(short, terminated=np.ones(short.n_trajectories, dtype=bool))
        if self.metric is not None:
            short = replace(short, rewards=metric_of(short, self.metric), reward_observed=None)
        vars(short)["user_codes"] = (
            logs.user_codes if short.n_trajectories == logs.n_trajectories else (short.user_codes)
        )
        kept = None  # of a sample
        if number is not None:
            keeper, policy = (
                self._memo.get("elsewhere") or self.visits.keeper,
                (self.policy_token, self.horizon),
            )
            kept = Kept(keeper=keeper, number=number, problem=self.token, policy=policy)
        observed = short.reward_observed
        return Chunk(
            logs=short,
            steps=short.steps,
            users=short.user_of_row,
            rewards=rewards_of(short),
            observed=np.ones(len(short), dtype=bool) if observed is None else observed,
            goes_on=goes_on(short),
            policy=self.policy,
            horizon=self.horizon,
            folds=self.settings.folds,
            seed=self.settings.seed,
            block=max(1, min(_BLOCK, _CELLS // short.n_actions)),
            raw=logs,
            number=number or 0,
            kept=kept,
            shared={} if shared is None else shared,
        )

    # ------------------------------------------------------------------ some users

    @once
    def sample(self, most_rows: int = MOST_ROWS, *, least: int = LEAST_USERS) -> Chunk:
        """A sample of users with about this many decisions, the same ones for any number of shards.

        A log in memory that is no longer is its own sample.
        """
        if self.base is not None and self.view is not None:
            return self._seen(self.base.sample(most_rows, least=least), self.view)
        drawn = draw([self.raw_sample], most_rows, self.settings.seed, least)
        if drawn is self.source and self.visits.lasting:
            return next(self.chunks())
        return self._chunk(drawn)

    @property
    @once
    def raw_sample(self) -> LoggedData:
        """The largest sample, unchanged: not cut at the horizon, with the log's own rewards and endings."""
        seed = self.settings.seed
        if isinstance(self.source, LoggedData):
            return draw([self.source], MOST_ROWS, seed)
        share = 1.3 * MOST_ROWS / max(self.source.rows, 1)
        while True:
            # Only users with small hashes are looked at: a process need not send what the sum throws away.
            small = partial(_small_hashes, most_rows=MOST_ROWS, seed=seed, share=share)
            pieces = [piece for piece in self.map(small) if piece is not None]
            if pieces:
                drawn = draw([join(pieces)], MOST_ROWS, seed)
                if share >= 1 or (len(drawn) >= MOST_ROWS and drawn.n_users >= LEAST_USERS):
                    return drawn
            share *= 2

    @property
    def head(self) -> LoggedData:
        """Some users, for properties that all rows share: columns, names of contexts and actions."""
        return self.sample().logs

    # ------------------------------------------------------------------ what is computed once

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns, computed once for all estimators of this problem."""
        if key in self._memo:
            result: T = self._memo[key]
            return result
        return self.visits.scheduler.make_once(key, make, self._memo)

    def all_of(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of several computations, whose passes are made together; the first error is raised."""
        results = self.visits.scheduler.run(works)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def known_weights(self, chunk: Chunk, what: Known) -> Float64Array:
        """1 / (share known) among the decisions of the same step and kind of ending [n]; 0 where unknown."""
        if what in chunk.known:
            return chunk.known[what]
        shares = self.known_shares[what]  # [2, H]
        share = shares[chunk.goes_on.astype(np.int64), chunk.steps]
        known = known_rows(chunk.logs, chunk.observed, what)
        if what in ("return", "paired return"):  # rewards after the horizon do not count
            known = known | ((chunk.steps == chunk.horizon - 1) & chunk.observed)
        weights: Float64Array = np.where(known, 1.0, 0.0) / np.where(share > 0, share, 1.0)
        if what in ("next", "inside"):  # model fits: a step with too little to go by is left out
            weights[shares[1][chunk.steps] < _LEAST_KNOWN] = 0.0
        return chunk.known.setdefault(what, weights)

    # ------------------------------------------------------------------ intervals

    def interval(self, estimate: float, influence: Float64Array) -> Interval:
        """The interval of the settings around an estimate."""
        chosen = self.settings
        return interval_of(
            estimate, influence, level=chosen.confidence, method=chosen.interval, seed=chosen.seed
        )


# ---------------------------------------------------------------------- what is looked at first


def _small_hashes(chunk: Chunk, most_rows: int, seed: int, share: float) -> LoggedData | None:
    """The users of a block whose hash is below a share of all hashes; None if there are none."""
    return below_share(chunk.raw, most_rows=most_rows, seed=seed, least=LEAST_USERS, share=share)
