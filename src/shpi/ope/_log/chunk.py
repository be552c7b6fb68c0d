"""A chunk of a log: whole users, with the quantities that estimators need, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from shpi._core.hashing import hash_users
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError, ShpiError
from shpi.ope._log.facts import Known as Known  # version 0.1 had it here
from shpi.ope._log.scratch import Keeper
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array, Policy

T = TypeVar("T")
P = ParamSpec("P")

_CACHE = 1 << 30  # most bytes of pi(.|x) to keep for one block
_SAMPLE = 1 << 26  # the same for a sample, where later only pi of the taken actions is needed


def once(function: Callable[P, T]) -> Callable[P, T]:
    """Cache a function in its first argument, a problem or a chunk, by the other arguments.

    Strings, numbers and None are compared by value, other arguments by identity.
    """

    @wraps(function)
    def remembered(*arguments: P.args, **options: P.kwargs) -> T:
        given: tuple[Any, ...] = (*tuple(arguments), *options.values())
        owner, *others = given
        plain = (str, int, float, type(None))
        told = [
            each if isinstance(each, plain) else ("object", owner.visits.number_of(each)) for each in others
        ]
        result: T = owner.memo((function.__qualname__, *told), partial(function, *arguments, **options))
        return result

    return remembered


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Where results for one block are kept from pass to pass, and the keys that tell them apart."""

    keeper: Keeper
    number: int  # of the block
    problem: int  # key of fitted quantities, which differ from problem to problem
    policy: tuple[int, int]  # (policy, horizon): key of what all problems about this policy share


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Whole users of a log, cut at the horizon. n decisions, N trajectories, U users in this chunk."""

    logs: LoggedData
    steps: Int64Array  # [n] the step t of each decision
    users: Int64Array  # [n] the index of each decision's user within this chunk
    rewards: Float64Array  # [n] of the metric at hand
    observed: BoolArray  # [n] decisions whose reward is known
    goes_on: BoolArray  # [n] decisions after which the user is not gone for good
    policy: Policy
    horizon: int  # H
    folds: int
    seed: int
    block: int  # decisions per call of the policy: fewer if there are many actions
    raw: LoggedData  # the same users as logged: not cut at the horizon, with the log's rewards and endings
    number: int = 0  # of the block
    kept: Kept | None = None  # None: a sample, whose results are kept in this object only
    shared: dict[Hashable, Any] = field(default_factory=dict, repr=False)  # between chunks of all problems
    whole: Chunk | None = None  # the chunk that this one is a view of, if any: by sessions
    known: dict[Known, Float64Array] = field(default_factory=dict, repr=False)  # `Problem.known_weights`
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of ``make``, computed once while this chunk is open."""
        if key not in self._memo:
            self._memo[key] = make()
        result: T = self._memo[key]
        return result

    def keep(
        self, key: Hashable, make: Callable[[], T], kind: type[T] | None = None, *, for_all: bool = False
    ) -> T:
        """The result of ``make``, kept for later passes: an array, or a record of arrays of type ``kind``.

        With ``for_all``, all problems about the same policy share it, whatever their rewards.
        """
        kept = self.kept
        if kept is None:
            return self.memo(key, make)
        owner = ("asked", kept.policy) if for_all else kept.problem
        return self.memo(key, lambda: kept.keeper.keep(kept.number, (owner, key), make, kind))

    @cached_property
    def by_step(self) -> tuple[Int64Array, Int64Array]:
        """The rows in order of their step [n], and where each step begins [longest + 1]."""
        order = np.argsort(self.steps, kind="stable")
        return order, np.append(0, np.cumsum(np.bincount(self.steps)))

    @cached_property
    def fold_of_user(self) -> Int64Array:
        """The fold of each user, by a hash of the user id: independent of user order and of the chunks."""
        ids, seed, folds = self.logs.user_ids, self.seed, np.uint64(self.folds)
        return self.keep(
            ("fold of user", self.folds, seed),
            lambda: (hash_users(ids, "fold", seed) % folds).astype(np.int64),
            for_all=True,
        )

    @cached_property
    def fold(self) -> Int64Array:
        """The fold of each decision [n]."""
        return self.fold_of_user[self.users]

    @property
    def taken(self) -> Float64Array:
        """pi(a_t|x_t) [n]."""
        if self.whole is not None:
            return self.whole.taken
        actions = self.logs.actions
        return self.keep(
            "taken",
            lambda: np.concatenate([p[np.arange(len(p)), actions[rows]] for rows, p in self.probs()]),
            for_all=True,
        )

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
        """Iterate over pi(.|x) in blocks of decisions: (rows, [b, A])."""
        for start in range(0, len(self.logs), self.block):
            rows = slice(start, min(start + self.block, len(self.logs)))
            yield rows, self.probs_of(rows)

    def probs_of(self, rows: slice | Int64Array) -> Float64Array:
        """pi(.|x) of some decisions [b, A]; the policy is called once per decision if the table is small."""
        if self.whole is not None:
            return self.whole.probs_of(rows)
        logs = self.logs
        if "probs" not in self._memo:
            size = 8 * len(logs) * logs.n_actions
            most = _CACHE if self.kept is not None else min(_CACHE, _SAMPLE)
            if size > most or (self.kept is not None and not self.kept.keeper.has_room(size)):
                mask = None if logs.candidates is None else logs.candidates[rows]
                first = rows.start if isinstance(rows, slice) else 0
                return checked_probs(self.policy, logs.contexts[rows], mask, first)
        table = self.keep("probs", lambda: self._table(logs.contexts, logs.candidates), for_all=True)
        return table[rows]

    @cached_property
    def final_probs(self) -> Float64Array:
        """pi(.|x) of the final contexts [N, A]; 0 after a termination or where none was observed."""
        logs = self.logs
        wanted = np.flatnonzero(~logs.terminated & logs.final_observed)
        return self.keep(
            "final probs",
            lambda: self._table(logs.final_contexts, logs.final_candidates, wanted),
            for_all=True,
        )

    def _table(
        self, contexts: FloatArray, candidates: BoolArray | None, wanted: Int64Array | None = None
    ) -> Float64Array:
        """pi(.|x) of the wanted rows (None: all), 0 elsewhere [n, A]; the policy is called in blocks."""
        table = np.zeros((len(contexts), self.logs.n_actions))
        for start in range(0, len(contexts) if wanted is None else len(wanted), self.block):
            some = slice(start, start + self.block)
            rows = some if wanted is None else wanted[some]
            mask = None if candidates is None else candidates[rows]
            first = start if wanted is None else int(wanted[start])
            table[rows] = checked_probs(self.policy, contexts[rows], mask, first)
        return table


Part = Chunk  # its name in version 0.1


def checked_probs(
    policy: Policy, contexts: Any, candidates: BoolArray | None, first_row: int = 0
) -> Float64Array:
    """pi(.|x) [n, A], checked: shape, finite, nonnegative, rows sum to 1, 0 outside the mask."""
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
