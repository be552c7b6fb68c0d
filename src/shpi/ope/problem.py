r"""What is estimated, written down once, and one log prepared for it.

    J(pi) = E over users of  sum over the user's trajectories  sum_{t=0}^{H-1} gamma^t r_t

H is the logged horizon: the longest trajectory, or ``horizon``. How the three endings count:

*session end*  nothing ends; the sum goes on.
*terminated*   the user is gone for good and earns 0 at every later step. Ended users stay in every
               denominator: a policy that drives users away must not look good because of those who stayed.
*truncated*    the log stops before H, so nobody knows what came later. Such a user leaves the denominator of
               every later step ("censored", the default: right if when the log stops says nothing about
               the user). Or the log is the whole story, and what is not in it counts 0 ("complete").

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

A log is passed over in *parts* of whole users: one part for a `LoggedData`, one per file of a `ShardedLog`.
Estimators map over parts and add up, so memory is that of one part and a few numbers per user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import polars as pl

from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.data.slicing import cut
from shpi.errors import ConfigError, DataError, ShpiError
from shpi.ope.results import Interval
from shpi.protocols import BoolArray, Float64Array, Int64Array, Policy
from shpi.values.base import checked_gamma
from shpi.values.transitions import goes_on, rewards_of

T = TypeVar("T")
Truncated = Literal["censored", "complete"]
IntervalMethod = Literal["t", "heavy", "normal", "bootstrap", "bernstein"]
Errors = Literal["jackknife", "linearised"]
Rewards = str | Callable[[LoggedData], Float64Array]
View = Callable[[LoggedData], LoggedData]

# "reward": r_t.  "next": the next context.  "inside": the next context, and mu there.
# "return" and "paired return": the reward with what follows, as far as it counts before the horizon.
Known = Literal["reward", "next", "inside", "return", "paired return"]

_BLOCK = 50_000
_LEAST_KNOWN = 0.05  # steps at which less is known are left out of model fits
_CACHE = 1 << 30  # bytes of pi(.|x) that are kept


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the metric is defined and how sure an interval should be; the same for all estimators.

    Args:
        gamma: the discount, 1 included: the horizon is finite.
        horizon: H; None takes the longest trajectory.
        truncated: what a trajectory that stops early means; see the top of this file.
        confidence: the level of all intervals.
        interval: how they are made; see `shpi.ope.intervals`.
        errors: how far a user moves a self-normalised mean: exactly, by leaving the user out ("jackknife"),
            or to first order ("linearised"); see `shpi.ope.steps`.
        folds: nuisance models for a user are fitted without the user's fold.
        seed: of folds, features and bootstraps.
    """

    gamma: float = 1.0
    horizon: int | None = None
    truncated: Truncated = "censored"
    confidence: float = 0.95
    interval: IntervalMethod = "t"
    errors: Errors = "jackknife"
    folds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        checked_gamma(self.gamma, below_one=False)
        checks: tuple[tuple[bool, str, Any], ...] = (
            (self.horizon is None or self.horizon >= 1, "a horizon of at least 1", self.horizon),
            (self.truncated in get_args(Truncated), "truncated 'censored' or 'complete'", self.truncated),
            (0.5 <= self.confidence < 1, "confidence in [0.5, 1)", self.confidence),
            (self.interval in get_args(IntervalMethod), f"one of {get_args(IntervalMethod)}", self.interval),
            (self.errors in get_args(Errors), f"one of {get_args(Errors)}", self.errors),
            (self.folds >= 2, "at least 2 folds", self.folds),
        )
        for fine, expected, found in checks:
            if not fine:
                raise ConfigError(expected=expected, found=repr(found), where="evaluate")


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Whole users of a log, cut at the horizon. n decisions, N trajectories, U users in this part."""

    logs: LoggedData
    rewards: Float64Array  # [n] of the metric at hand
    policy: Policy
    first_user: int  # the place of this part's users among all
    first_trajectory: int
    horizon: int  # H
    folds: int
    seed: int
    whole: Part | None = None  # the same decisions before they were seen otherwise; see `Problem.seen_as`
    _memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def origin(self) -> Part:
        """The part of the problem itself, of which this is a view."""
        return self if self.whole is None else self.whole

    @cached_property
    def steps(self) -> Int64Array:
        """The step t of each decision [n]."""
        return self.logs.steps

    @cached_property
    def users(self) -> Int64Array:
        """For each decision [n], the number of its user within this part."""
        return self.logs.user_codes[self.logs.trajectory_of_row]

    @cached_property
    def observed(self) -> BoolArray:
        """Decisions whose reward is known [n]."""
        seen = self.logs.reward_observed
        return np.ones(len(self.logs), dtype=bool) if seen is None else seen

    @cached_property
    def goes_on(self) -> BoolArray:
        """Decisions after which the user is not gone for good [n]."""
        return goes_on(self.logs)

    def memo(self, key: str, make: Callable[[], T]) -> T:
        """What ``make`` returns, computed once as long as this part is kept."""
        if key not in self._memo:
            self._memo[key] = make()
        found: T = self._memo[key]
        return found

    def known(self, what: Known) -> BoolArray:
        """Decisions for which something is known [n]; see `Known`."""
        if what == "reward":
            return self.observed
        last = self.logs.offsets[1:] - 1
        follows = np.ones(len(self.logs), dtype=bool)
        seen = self.logs.final_observed if what in ("next", "return") else False
        follows[last] = self.logs.terminated | seen
        if what == "return" or what == "paired return":  # nothing counts after the last step
            follows |= self.steps == self.horizon - 1
            follows &= self.observed
        return follows

    @cached_property
    def by_step(self) -> tuple[Int64Array, Int64Array]:
        """The rows in order of their step [n], and where each step begins [longest + 1]."""
        order = np.argsort(self.steps, kind="stable")
        return order, np.append(0, np.cumsum(np.bincount(self.steps)))

    @cached_property
    def fold_of_user(self) -> Int64Array:
        """By a hash of the user id, so that neither the order of users nor the cut into parts matters."""
        ids, first = np.unique(self.logs.user_codes, return_index=True)
        assert len(ids) == self.logs.n_users
        names = pl.Series(self.logs.users[first])
        return (names.hash(seed=self.seed).to_numpy() % np.uint64(self.folds)).astype(np.int64)

    @cached_property
    def fold(self) -> Int64Array:
        """The fold of each decision [n]."""
        return self.fold_of_user[self.users]

    @property
    def taken(self) -> Float64Array:
        """pi(a_t|x_t) [n]."""
        return self.memo("taken", self._taken) if self.whole is None else self.whole.taken

    def _taken(self) -> Float64Array:
        taken = np.empty(len(self.logs))
        for rows, probs in self.probs():
            taken[rows] = probs[np.arange(len(probs)), self.logs.actions[rows]]
        return taken

    @cached_property
    def log_ratios(self) -> Float64Array:
        """The logarithm of pi(a_t|x_t) / mu(a_t|x_t) [n]; -inf where pi never takes the logged action."""
        if self.logs.propensities is None:
            raise DataError(
                expected="a log with propensities mu(a|x)",
                found="none",
                remedy="log the probability of each action, or estimate it with "
                "logs.with_estimated_propensities(), or use estimators that need none: DirectMethod, FQE",
            )
        with np.errstate(divide="ignore"):
            return np.log(self.taken / self.logs.propensities)

    def probs(self) -> Iterator[tuple[slice, Float64Array]]:
        """pi(.|x) of the decisions by blocks: (rows, [b, A])."""
        for start in range(0, len(self.logs), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(self.logs)))
            yield rows, self.probs_of(rows)

    def probs_of(self, rows: slice | Int64Array) -> Float64Array:
        """pi(.|x) of some decisions [b, A]; asked of the policy once, as long as the table is small."""
        logs = self.logs
        if 8 * len(logs) * logs.n_actions > _CACHE:
            return self._ask(rows)
        if "probs" not in self._memo:
            table = np.empty((len(logs), logs.n_actions))
            for start in range(0, len(logs), _BLOCK):
                part = slice(start, min(start + _BLOCK, len(logs)))
                table[part] = self._ask(part)
            self._memo["probs"] = table
        cached: Float64Array = self._memo["probs"]
        return cached[rows]

    def _ask(self, rows: slice | Int64Array) -> Float64Array:
        mask = None if self.logs.candidates is None else self.logs.candidates[rows]
        first = rows.start if isinstance(rows, slice) else 0
        return checked_probs(self.policy, self.logs.contexts[rows], mask, first)

    @cached_property
    def final_probs(self) -> Float64Array:
        """pi(.|x) of the final contexts [N, A]; 0 where nothing follows or was seen."""
        logs = self.logs
        table = np.zeros((logs.n_trajectories, logs.n_actions))
        wanted = np.flatnonzero(~logs.terminated & logs.final_observed)
        for start in range(0, len(wanted), _BLOCK):
            now = wanted[start : start + _BLOCK]
            mask = None if logs.final_candidates is None else logs.final_candidates[now]
            table[now] = checked_probs(self.policy, logs.final_contexts[now], mask)
        return table


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
    part_users: tuple[int, ...]  # in each part
    part_trajectories: tuple[int, ...]
    reward_range: tuple[float, float]
    any_terminated: bool
    alive: Float64Array  # [H] trajectories with a decision at step t
    kept: Float64Array  # [H] G_t, the chance not to be censored before step t
    ended: Float64Array  # [H] log of the sum of b over the trajectories that terminated before step t
    censored: int  # trajectories that are truncated before H
    propensity_mode: str
    metric: Rewards | None = None  # None: the reward of the log
    base: Problem | None = None  # of which this is a view
    view: View | None = None
    _memo: dict[str, Any] = field(default_factory=dict, repr=False)

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
        _check_policy(policy)
        facts = [_Facts.of(policy, part, metric) for part in _raw_parts(logs)]
        return cls._from_facts(facts, policy=policy, source=logs, settings=chosen, metric=metric)

    @classmethod
    def _from_facts(
        cls,
        facts: list[_Facts],
        *,
        policy: Policy,
        source: LoggedData | ShardedLog,
        settings: Settings,
        metric: Rewards | None,
        base: Problem | None = None,
        view: View | None = None,
    ) -> Problem:
        horizon = settings.horizon or max(one.longest for one in facts)
        complete = settings.truncated == "complete"
        alive, kept, ended = _survival(facts, horizon, complete)
        users = sum(one.users for one in facts)
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
            trajectories=sum(len(one.lengths) for one in facts),
            decisions=sum(int(np.minimum(one.lengths, horizon).sum()) for one in facts),
            part_users=tuple(one.users for one in facts),
            part_trajectories=tuple(len(one.lengths) for one in facts),
            reward_range=(min(one.least for one in facts), max(one.most for one in facts)),
            any_terminated=complete or any(one.terminated.any() for one in facts),
            alive=alive,
            kept=kept,
            ended=ended,
            censored=0
            if complete
            else sum(int(((one.lengths < horizon) & ~one.terminated).sum()) for one in facts),
            propensity_mode=facts[0].mode,
            metric=metric,
            base=base,
            view=view,
        )

    def seen_as(self, view: View) -> Problem:
        """The same decisions and users, with the trajectories of ``view(log)``."""
        facts = [_Facts.of(self.policy, view(part.logs), None) for part in self.parts()]
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
        if "part" in self._memo:  # the policy need not be asked again
            other._memo["part"] = other._part(next(_raw_parts(self.source)), 0, 0)
            for name in ("probs", "taken"):
                if name in self._memo["part"]._memo:
                    other._memo["part"]._memo[name] = self._memo["part"]._memo[name]
        return other

    def with_policy(self, policy: Policy) -> Problem:
        """The same problem about another policy."""
        return type(self).of(policy, self.source, self.settings, metric=self.metric)

    # ------------------------------------------------------------------ passes

    def parts(self) -> Iterator[Part]:
        """The parts in order; a log in memory is one part, and keeps what was computed on it."""
        if self.base is not None and self.view is not None:
            yield from (self._seen(part, self.view) for part in self.base.parts())
            return
        if isinstance(self.source, LoggedData):
            if "part" not in self._memo:
                self._memo["part"] = self._part(self.source, 0, 0)
            yield self._memo["part"]
            return
        user = trajectory = 0
        for number, logs in enumerate(self.source):
            yield self._part(logs, user, trajectory)
            user, trajectory = (
                user + self.part_users[number],
                trajectory + self.part_trajectories[number],
            )

    def map(self, function: Callable[[Part], T]) -> list[T]:
        """The function's result for every part, in order."""
        return [function(part) for part in self.parts()]

    def memo(self, key: str, make: Callable[[], T]) -> T:
        """What ``make`` returns, computed once for all estimators of this problem."""
        if key not in self._memo:
            self._memo[key] = make()
        found: T = self._memo[key]
        return found

    def number_of(self, thing: object) -> int:
        """A number for an object, for keys of memos: the same object, the same number. It is kept alive."""
        kept: list[object] = self._memo.setdefault("kept", [])
        for number, one in enumerate(kept):
            if one is thing:
                return number
        kept.append(thing)
        return len(kept) - 1

    def _seen(self, part: Part, view: View) -> Part:
        return part.memo(
            f"view {view!r}",
            lambda: replace(part, logs=view(part.logs), horizon=self.horizon, whole=part, _memo={}),
        )

    def _part(self, logs: LoggedData, first_user: int, first_trajectory: int) -> Part:
        short = _cut_at(logs, self.horizon)
        if self.settings.truncated == "complete":
            short = replace(short, terminated=np.ones(short.n_trajectories, dtype=bool))
        if self.metric is not None:
            short = replace(short, rewards=_metric_of(short, self.metric), reward_observed=None)
        return Part(
            logs=short,
            rewards=rewards_of(short),
            policy=self.policy,
            first_user=first_user,
            first_trajectory=first_trajectory,
            horizon=self.horizon,
            folds=self.settings.folds,
            seed=self.settings.seed,
        )

    def known_weights(self, part: Part, what: Known) -> Float64Array:
        """1 / (share known) among the decisions of the same step and kind of ending [n]; 0 where unknown."""
        shares = self.memo(f"known {what}", lambda: self._known_shares(what))  # [2, H]
        share = shares[part.goes_on.astype(np.int64), part.steps]
        weights: Float64Array = np.where(part.known(what), 1.0, 0.0) / np.where(share > 0, share, 1.0)
        if what in ("next", "inside"):  # model fits: a step with too little to go by is left out altogether
            weights[shares[1][part.steps] < _LEAST_KNOWN] = 0.0
        return weights

    def _known_shares(self, what: Known) -> Float64Array:
        """The share of known decisions, after which the user terminated [0] or went on [1], by step."""

        def count(part: Part) -> Float64Array:
            key = part.goes_on * np.int64(self.horizon) + part.steps
            counts = [
                np.bincount(key, weights=which.astype(np.float64), minlength=2 * self.horizon)
                for which in (part.known(what), np.ones(len(key), dtype=bool))
            ]
            return np.stack(counts)

        known, all_of_them = sum(self.map(count), np.zeros((2, 2 * self.horizon)))
        shares: Float64Array = known / np.where(all_of_them > 0, all_of_them, 1.0)
        return shares.reshape(2, self.horizon)

    # ------------------------------------------------------------------ intervals

    def interval(self, estimate: float, influence: Float64Array) -> Interval:
        """The interval of the settings around an estimate."""
        from shpi.ope.intervals import interval_of

        chosen = self.settings
        return interval_of(
            estimate, influence, level=chosen.confidence, method=chosen.interval, seed=chosen.seed
        )


# ---------------------------------------------------------------------- checks and facts


def checked_probs(
    policy: Policy, contexts: Any, candidates: BoolArray | None, first_row: int = 0
) -> Float64Array:
    """pi(.|x) [n, A], checked: right shape, finite, not negative, sums of 1, nothing outside the mask."""
    try:
        table = np.asarray(policy.action_probs(contexts, candidates), dtype=np.float64)
    except ShpiError:
        raise
    except (ValueError, IndexError, TypeError) as error:
        raise ConfigError(
            expected=f"a policy for contexts of {contexts.shape[1]} dimensions",
            found=f"{type(error).__name__}: {error}",
            where=f"{type(policy).__name__}.action_probs",
            remedy="evaluate with the columns that the policy was learned from",
        ) from error
    wanted = (len(contexts), policy.n_actions)
    if table.shape != wanted:
        raise ConfigError(
            expected=f"action probabilities of shape {wanted}",
            found=f"shape {table.shape}",
            where="the policy",
        )
    bad = ~((table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1) <= 1e-6))
    if candidates is not None:
        bad |= np.where(candidates, 0.0, table).any(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            expected="probabilities that sum to 1 over the allowed actions",
            found=f"{np.array2string(table[row, :8], precision=4)}",
            where=f"row {first_row + row}",
            remedy="check the policy with shpi.testing.check_policy",
        )
    return table


def _check_policy(policy: Any) -> None:
    if not isinstance(policy, Policy):
        raise ConfigError(
            expected="a policy (n_actions and action_probs)",
            found=type(policy).__name__,
            remedy="load one with shpi.load_policy(folder)",
        )


def _check_match(policy: Policy, logs: LoggedData) -> None:
    if policy.n_actions != logs.n_actions:
        raise ConfigError(
            expected=f"a policy over the {logs.n_actions} actions of the log",
            found=f"one over {policy.n_actions}",
            remedy="read the log with the action_space= of the log that the policy was learned from",
        )
    width: int | None = getattr(policy, "width", None)
    if width is not None and width != logs.schema.width:
        raise ConfigError(
            expected=f"a policy for contexts of {logs.schema.width} dimensions, as in the log",
            found=f"one for {width}",
            remedy="read the log with the schema= of the log that the policy was learned from",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Facts:
    """What must be known of all parts before the first pass."""

    users: int
    lengths: Int64Array  # [N]
    terminated: BoolArray  # [N]
    least: float
    most: float
    mode: str

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    @classmethod
    def of(cls, policy: Policy, logs: LoggedData, metric: Rewards | None) -> _Facts:
        _check_match(policy, logs)
        rewards = _metric_of(logs, metric)
        known = None if metric is not None else logs.reward_observed
        seen = rewards if known is None else rewards[known]
        if not len(seen):
            raise DataError(
                expected="at least one decision whose reward was observed",
                found="none: every reward is censored",
                remedy="wait until the futures that define the reward have passed, or use a shorter one",
            )
        return cls(
            users=logs.n_users,
            lengths=np.diff(logs.offsets),
            terminated=logs.terminated,
            least=float(seen.min()),
            most=float(seen.max()),
            mode=logs.propensity_mode,
        )


def _survival(
    facts: list[_Facts], horizon: int, complete: bool
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """How many decide at each step; the chance G_t not to be censored before it; log sum b of the ended."""
    lengths = np.concatenate([one.lengths for one in facts])
    ended = np.concatenate([one.terminated for one in facts]) | complete
    stops = np.bincount(np.minimum(lengths, horizon), minlength=horizon + 1)  # after so many decisions
    alive = len(lengths) - np.cumsum(stops)[:horizon]  # [H] who decide at step t
    if (alive == 0).any():
        raise ConfigError(
            expected=f"a horizon of at most {int(np.flatnonzero(alive == 0)[0])}, the longest trajectory",
            found=str(horizon),
        )
    gone = np.bincount(np.minimum(lengths[ended], horizon), minlength=horizon + 1)[1:horizon]
    going = alive[:-1] - gone  # those who decided at t and did not terminate after it
    share = np.where(going > 0, alive[1:] / np.maximum(going, 1), 1.0)
    kept = np.append(1.0, np.cumprod(share))
    with np.errstate(divide="ignore"):
        before = np.log(np.append(0.0, np.cumsum(gone / kept[:-1])))
    return alive.astype(np.float64), kept, before


def _raw_parts(source: Any) -> Iterator[LoggedData]:
    if isinstance(source, LoggedData):
        if not len(source):
            raise DataError(expected="a log with decisions", found="an empty one")
        yield source
    elif isinstance(source, ShardedLog):
        yield from source
    else:
        raise ConfigError(
            expected="a LoggedData or a ShardedLog",
            found=type(source).__name__,
            remedy="read the table first: shpi.LoggedData.read(source, columns)",
        )


def _metric_of(logs: LoggedData, metric: Rewards | None) -> Float64Array:
    if metric is None:
        return rewards_of(logs)
    if isinstance(metric, str):
        if metric not in logs.metrics:
            raise ConfigError(expected=f"one of the metrics {sorted(logs.metrics)}", found=repr(metric))
        return logs.metrics[metric]
    values = np.asarray(metric(logs), dtype=np.float64)
    if values.shape != (len(logs),) or not np.isfinite(values).all():
        raise DataError(expected=f"{len(logs)} finite rewards", found=f"shape {values.shape}", where="metric")
    return values


def _cut_at(logs: LoggedData, horizon: int) -> LoggedData:
    if int(np.diff(logs.offsets).max()) <= horizon:
        return logs
    return cut(logs, logs.steps < horizon)
