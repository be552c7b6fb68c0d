"""`LoggedData`: the decisions of many users as flat arrays in time order, plus offsets.

    trajectory i   = rows offsets[i] .. offsets[i+1]-1, the decisions of one user in time order
    session s      = rows session_offsets[s] .. session_offsets[s+1]-1, a burst inside one trajectory
    contexts       = T rows per trajectory, and final_contexts[i] is its (T+1)-th

Three kinds of endings are kept apart. A *session end* is where the termination bonus is paid, at the next
context. *terminated* means that the user has left for good: the value from here is 0. Otherwise the
trajectory is *truncated*: the log stops, and a value may be bootstrapped from the last context if observed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shpi.data._log import ragged
from shpi.data._log.checks import LARGEST_REWARD
from shpi.data._log.ledger import Ledger
from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array, IntArray

if TYPE_CHECKING:  # imported when used, because these modules depend on this one
    import polars as pl

    from shpi.data._log.windows import Windows
    from shpi.data.audit import AuditReport
    from shpi.data.columns import Columns
    from shpi.data.propensity import PropensityModel
    from shpi.data.question import Counted, Endings, Metric
    from shpi.data.rewards import RewardDefinition

PropensityMode = Literal["logged", "estimated", "absent"]
TimeUnit = Literal["us", "step"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggedData:
    """Logged decisions, validated and ordered. n decisions, N trajectories, d dimensions, A actions."""

    contexts: Float32Array  # [n, d]
    actions: NDArray[np.int32]  # [n] positions in action_space
    rewards: Float64Array | None  # [n] None: the log has no reward (see backshift)
    offsets: Int64Array  # [N + 1]
    session_offsets: Int64Array  # [S + 1] contains every entry of offsets
    users: NDArray[Any]  # [N] user id of each trajectory; a user may have several
    times: NDArray[Any]  # [n] microseconds since 1970 UTC ("us"), or plain numbers ("step")
    terminated: BoolArray  # [N]
    final_contexts: Float32Array  # [N, d] the context after the last decision
    final_observed: BoolArray  # [N] False: not in the log, final_contexts repeats the last context
    schema: ContextSchema
    action_space: ActionSpace
    ledger: Ledger
    propensities: Float64Array | None = None  # [n] mu(a_t | x_t)
    propensity_mode: PropensityMode = "absent"
    behaviour: Float64Array | None = None  # [n, A] mu(. | x_t), where it was logged
    candidates: BoolArray | None = None  # [n, A] None: every action was always allowed
    final_candidates: BoolArray | None = None  # [N, A]
    reward_observed: BoolArray | None = None  # [n] False: the future that defines the reward is censored
    immediate: Float64Array | None = None  # [n] the outcome known at once, if the reward is known only later
    metrics: Mapping[str, Float64Array] = field(default_factory=dict)  # further columns by name, each [n]
    time_unit: TimeUnit = "step"
    # How the log tells how users end; if "unknown", what it does not show counts as 0 (`shpi.data.question`).
    endings: Endings = "marked"
    counted: Counted | None = None  # the metric that the rewards measure, if one was counted

    def __post_init__(self) -> None:
        n, d, total, actions = len(self.actions), self.schema.width, len(self.offsets) - 1, self.n_actions
        if self.offsets[0] != 0 or self.offsets[-1] != n or (np.diff(self.offsets) <= 0).any():
            raise DataError(
                expected=f"offsets that rise from 0 to {n}, at least one decision per trajectory",
                found=f"{self.offsets[:3]} … {self.offsets[-3:]}",
            )
        shapes: list[tuple[str, NDArray[Any] | None, tuple[int, ...]]] = [
            ("contexts", self.contexts, (n, d)),
            ("rewards", self.rewards, (n,)),
            ("times", self.times, (n,)),
            ("propensities", self.propensities, (n,)),
            ("behaviour", self.behaviour, (n, actions)),
            ("candidates", self.candidates, (n, actions)),
            ("reward_observed", self.reward_observed, (n,)),
            ("immediate", self.immediate, (n,)),
            ("users", self.users, (total,)),
            ("terminated", self.terminated, (total,)),
            ("final_contexts", self.final_contexts, (total, d)),
            ("final_observed", self.final_observed, (total,)),
            ("final_candidates", self.final_candidates, (total, actions)),
            *((f"metrics[{name!r}]", values, (n,)) for name, values in self.metrics.items()),
        ]
        for name, array, shape in shapes:
            if array is not None and array.shape != shape:
                raise DataError(expected=f"{name} of shape {shape}", found=f"shape {array.shape}")
        place = np.searchsorted(self.session_offsets, self.offsets)
        inside = place < len(self.session_offsets)
        if (
            not inside.all()
            or (self.session_offsets[place] != self.offsets).any()
            or (np.diff(self.session_offsets) <= 0).any()
        ):
            raise DataError(
                expected="rising session offsets, with a session boundary at every trajectory boundary",
                found="a session that spans two trajectories or is empty",
            )
        if (self.propensities is None) != (self.propensity_mode == "absent"):
            raise DataError(
                expected="propensities exactly when the mode is 'logged' or 'estimated'",
                found=f"mode '{self.propensity_mode}' and propensities "
                + ("absent" if self.propensities is None else "present"),
            )

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_arrays(
        cls,
        *,
        contexts: ArrayLike,
        actions: ArrayLike,
        offsets: ArrayLike,
        rewards: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        n_actions: int | None = None,
        action_space: ActionSpace | None = None,
        schema: ContextSchema | None = None,
        session_offsets: ArrayLike | None = None,
        users: ArrayLike | None = None,
        times: ArrayLike | None = None,
        time_unit: TimeUnit = "step",
        terminated: ArrayLike | None = None,
        final_contexts: ArrayLike | None = None,
        final_observed: ArrayLike | None = None,
        candidates: ArrayLike | None = None,
        final_candidates: ArrayLike | None = None,
        behaviour: ArrayLike | None = None,
        metrics: Mapping[str, ArrayLike] | None = None,
    ) -> LoggedData:
        """Build from arrays that are already in (user, time) order, and check every value.

        Defaults: users are numbered, time counts the decisions, each trajectory is one session and is
        truncated, and an unknown last context repeats the one before it.
        Without ``terminated`` and ``final_contexts`` the log does not say how users end (see `endings`).
        """
        from shpi.data._log.checks import check_arrays

        x = np.ascontiguousarray(contexts, dtype=np.float32)
        if x.ndim != 2:
            raise DataError(expected="contexts of shape [n, d]", found=f"shape {x.shape}")
        bounds = np.asarray(offsets, dtype=np.int64)
        chosen = np.asarray(actions)
        if chosen.size and chosen.dtype.kind not in "iu":
            raise DataError(expected="integer actions", found=f"dtype {chosen.dtype}")
        if action_space is None:
            count = n_actions if n_actions is not None else int(chosen.max(initial=-1)) + 1
            action_space = ActionSpace.numbered(count)
        total, last = len(bounds) - 1, np.maximum(bounds[1:] - 1, 0)
        known_final = final_contexts is not None
        optional: dict[str, Any] = {
            name: None if value is None else np.asarray(value, dtype=dtype)
            for name, value, dtype in (
                ("rewards", rewards, np.float64),
                ("propensities", propensities, np.float64),
                ("behaviour", behaviour, np.float64),
                ("candidates", candidates, np.bool_),
                ("final_candidates", final_candidates, np.bool_),
            )
        }
        logs = cls(
            contexts=x,
            actions=chosen.astype(np.int32),
            offsets=bounds,
            session_offsets=bounds if session_offsets is None else np.asarray(session_offsets, np.int64),
            users=np.arange(total) if users is None else np.asarray(users),
            times=ragged.position_in_group(bounds) if times is None else np.asarray(times),
            time_unit=time_unit,
            terminated=np.zeros(total, bool) if terminated is None else np.asarray(terminated, bool),
            final_contexts=np.asarray(final_contexts, np.float32) if known_final else x[last],
            final_observed=(
                np.full(total, known_final) if final_observed is None else np.asarray(final_observed, bool)
            ),
            schema=schema or ContextSchema.numeric([f"x{j}" for j in range(x.shape[1])]),
            action_space=action_space,
            ledger=Ledger(rows_in=len(chosen), rows_used=len(chosen)),
            propensity_mode="absent" if propensities is None else "logged",
            metrics={name: np.asarray(v, dtype=np.float64) for name, v in (metrics or {}).items()},
            endings="unknown" if terminated is None and not known_final else "marked",
            **optional,
        )
        check_arrays(logs)
        return logs

    @classmethod
    def read(
        cls, source: Any, columns: Columns | Mapping[str, Any] | str | Path | None = None, **options: Any
    ) -> LoggedData:
        """Read a table: see `shpi.data._read.read.read_log` for the sources and the options."""
        from shpi.data._read.read import read_log

        return read_log(source, columns, **options)

    # ------------------------------------------------------------------ sizes and structure

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def n_actions(self) -> int:
        """The number of actions |A|."""
        return len(self.action_space)

    @property
    def n_trajectories(self) -> int:
        """The number of trajectories N."""
        return len(self.offsets) - 1

    @property
    def n_sessions(self) -> int:
        """The number of sessions S."""
        return len(self.session_offsets) - 1

    @cached_property
    def user_codes(self) -> Int64Array:
        """For each trajectory [N], the number of its user; intervals are clustered by it."""
        _, codes = np.unique(self.users, return_inverse=True)
        return codes.astype(np.int64)

    @property
    def user_ids(self) -> NDArray[Any]:
        """The id of each user [users], in the order of their codes."""
        _, first = np.unique(self.user_codes, return_index=True)
        ids: NDArray[Any] = self.users[first]
        return ids

    @property
    def n_users(self) -> int:
        """The number of distinct users."""
        return int(self.user_codes.max()) + 1 if len(self.users) else 0

    @cached_property
    def trajectory_of_row(self) -> Int64Array:
        """For each decision [n], its trajectory."""
        return ragged.group_of_row(self.offsets)

    @property
    def user_of_row(self) -> Int64Array:
        """For each decision [n], the code of its user."""
        return self.user_codes[self.trajectory_of_row]

    @cached_property
    def session_of_row(self) -> Int64Array:
        """For each decision [n], its session."""
        return ragged.group_of_row(self.session_offsets)

    @property
    def trajectory_of_session(self) -> Int64Array:
        """For each session [S], its trajectory."""
        return np.searchsorted(self.offsets, self.session_offsets[:-1], side="right").astype(np.int64) - 1

    @property
    def steps(self) -> Int64Array:
        """For each decision [n], its position t = 0, 1, … in its trajectory."""
        return ragged.position_in_group(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        arrays = [value for value in vars(self).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in (*arrays, *self.metrics.values()))

    def next_contexts(self) -> Float32Array:
        """x_{t+1} for each decision, [n, d]: the next row, or the final context at a trajectory's end."""
        following = np.empty_like(self.contexts)
        following[:-1] = self.contexts[1:]
        following[self.offsets[1:] - 1] = self.final_contexts
        return following

    # ------------------------------------------------------------------ parts of a log

    def select(self, trajectories: IntArray | BoolArray | Sequence[int]) -> LoggedData:
        """The log of the chosen trajectories (positions, or a mask), in the given order."""
        from shpi.data._log.slicing import select

        return select(self, trajectories)

    def split_users(self, held_out: float, *, seed: int) -> tuple[LoggedData, LoggedData]:
        """Two logs with no user in common; the second has the share ``held_out`` of the users."""
        from shpi.data._log.slicing import split_users

        return split_users(self, held_out, seed=seed)

    def split_time(self, when: Any) -> tuple[LoggedData, LoggedData]:
        """The sessions that start before ``when``, and those that start at or after it."""
        from shpi.data._log.slicing import split_time

        return split_time(self, when)

    @classmethod
    def concat(cls, parts: Sequence[LoggedData]) -> LoggedData:
        """Merge logs into one, in (user, time) order; undoes `split_users` and `split_time`."""
        from shpi.data._log.slicing import concat

        return concat(parts)

    def windows(self, length: int, step: int) -> Windows:
        """The paper's sliding windows of ``length`` decisions every ``step`` (delta), as views."""
        from shpi.data._log.windows import Windows

        return Windows.of(self, length=length, step=step)

    # ------------------------------------------------------------------ other rewards and propensities

    def with_rewards(
        self, rewards: str | ArrayLike | RewardDefinition, *, delayed: bool = False, **options: Any
    ) -> LoggedData:
        """The same log with another reward.

        Args:
            rewards: a metric's name, an array [n], or a definition such as `shpi.SumWithin`.
            delayed: True if a metric or an array looks into the future of a decision, such as "bought
                within 30 days": it is then not treated as known at the user's next decision.
            options: options of a definition, see `shpi.data.rewards.derive`: ``censored``, ``log_end``.
        """
        from shpi.data.rewards import RewardDefinition, derive

        if isinstance(rewards, RewardDefinition):
            return derive(self, rewards, **options)
        if options:
            raise ConfigError(expected="options with a definition only", found=", ".join(options))
        immediate = np.zeros(len(self)) if delayed else None
        if isinstance(rewards, str):
            if rewards not in self.metrics:
                raise ConfigError(expected=f"one of the metrics {sorted(self.metrics)}", found=repr(rewards))
            values = self.metrics[rewards]
            return replace(self, rewards=values, reward_observed=None, immediate=immediate)
        values = np.asarray(rewards, dtype=np.float64)
        usable = np.abs(values) <= LARGEST_REWARD  # False for NaN
        if values.shape != (len(self),) or not usable.all():
            raise DataError(
                expected=f"{len(self)} finite rewards of at most {LARGEST_REWARD:g}",
                found=f"shape {values.shape}, {int((~usable).sum())} not finite or larger",
                remedy="give one reward per decision; drop or fill what is no reward",
            )
        return replace(self, rewards=values, reward_observed=None, immediate=immediate)

    def count(self, metric: Metric | str, *, log_end: int | float | None = None) -> LoggedData:
        """The same log with a metric as its reward, such as ``"purchases in 30d"``; see `shpi.Metric`."""
        from shpi.data.question import count

        return count(self, metric, log_end=log_end)

    @property
    def question(self) -> str:
        """The log's metric in words: what its reward counts, over which time, and how users end."""
        from shpi.data.question.words import question

        return question(self)

    def with_estimated_propensities(
        self, model: PropensityModel | None = None, *, seed: int = 0
    ) -> LoggedData:
        """The same log with mu(a|x) estimated from it (mode ``estimated``); see `shpi.data.propensity`."""
        from shpi.data.propensity import PropensityModel

        return (model or PropensityModel()).fit(self, seed=seed).apply(self)

    # ------------------------------------------------------------------ reports and files

    def audit(self) -> AuditReport:
        """Check whether the log is fit for learning, and what was dropped and why. Print the result."""
        from shpi.data.audit import audit

        return audit(self)

    def to_parquet(self, path: str | Path) -> Path:
        """Write the canonical file, which opens again without a column map, bit for bit the same."""
        from shpi.data.canonical import write_canonical

        return write_canonical(self, Path(path))

    def fingerprint(self) -> str:
        """A short hash of contexts, actions, rewards, trajectory bounds, propensities and action ids."""
        digest = hashlib.sha256()
        for array in (self.contexts, self.actions, self.rewards, self.offsets, self.propensities):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
        digest.update(repr(self.action_space.ids).encode())
        return digest.hexdigest()[:16]

    def _repr_html_(self) -> str:
        """The card that notebooks show."""
        from shpi.report.cards import log_card

        return log_card(self)

    def to_polars(self) -> pl.DataFrame:
        """One row per decision: user, time, session, item, reward, propensity, context, metrics."""
        from shpi.data._log.frames import log_frame

        return log_frame(self)

    def __repr__(self) -> str:
        return (
            f"LoggedData({len(self):,} decisions, {self.n_users:,} users, {self.n_sessions:,} sessions, "
            f"{self.n_actions} actions, {self.schema.width} context dimensions, "
            f"propensities {self.propensity_mode})"
        )
