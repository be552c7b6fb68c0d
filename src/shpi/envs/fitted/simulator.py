"""`FittedWorld`: a simulator fitted to a log; `shpi.envs.fitted.model` describes what it draws."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.envs.base import check_actions, check_reset, check_running, real_number, whole_number
from shpi.envs.fitted.moves import Moves
from shpi.envs.fitted.outcome_models import Models
from shpi.envs.fitted.outcomes import Observed
from shpi.envs.rollout import SESSION_END, rollout
from shpi.envs.streams import Streams
from shpi.errors import ConfigError
from shpi.protocols import (
    BoolArray,
    Float32Array,
    Float64Array,
    FloatArray,
    Int64Array,
    IntArray,
    Policy,
    Step,
)

if TYPE_CHECKING:
    from shpi.envs.fitted.report import WorldReport

Reward = Literal["proxy", "long_term"]
Member = int | Literal["mix"] | None
_START, _MEMBER, _REWARD, _END, _RETURN = 0, 1, 2, 4, 5  # labels of the random streams; moves use 3 and 6


@dataclass
class _Running:
    """The state of n users."""

    streams: Streams
    members: Int64Array | int  # [n] or one for all: the row of the tables
    contexts: Float32Array  # [n, d]
    fixed: tuple[Float64Array | None, ...]  # per model, the part of eta from constant columns, [n]
    step: int
    clock: Float64Array  # [n] time since the start
    until: Float64Array  # [n] time at which the observation stops
    score: Float64Array  # [n] long-term score, or the sum of rewards if the log has no returns
    ended: BoolArray  # [n]


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedWorld:
    """A fitted world for many users at once.

    ``info`` of a step has ``session_end``, ``gap`` (the time to the next decision), ``long_term`` (the score
    after the decision) and the further metrics of the log. A user has *ended* when gone, or when the window
    is over.
    """

    name: str
    horizon: int
    models: Models
    moves: Moves
    starts: Float32Array  # [N, d] first contexts
    schema: ContextSchema
    action_space: ActionSpace
    edges: Float64Array  # [B] upper ends of the return bins
    observed: Observed
    window: float | None = None
    link: float = 1.0
    assumed: float = 0.0
    assumed_on: str | None = None
    member: Member = None
    reward: Reward = "proxy"
    notes: tuple[str, ...] = ()  # remarks for readers of the report
    _run: list[_Running] = field(init=False, repr=False, default_factory=list)  # empty before a reset

    def __post_init__(self) -> None:
        if self.member is not None and self.member != "mix":
            number = whole_number("member", self.member, least=0)
            if number >= self.models.members:
                raise ConfigError(
                    expected=f"a member in 0..{self.models.members - 1}, 'mix' or None", found=str(number)
                )
        if self.member == "mix" and not self.models.members:
            raise ConfigError(expected="an ensemble to mix", found="none", remedy="fit with members=5 or so")
        if self.reward not in get_args(Reward):
            raise ConfigError(expected=f"reward among {', '.join(get_args(Reward))}", found=repr(self.reward))
        if self.reward == "long_term" and self.models.first is None:
            raise ConfigError(expected="a log with returns for a long-term reward", found="none in it")
        real_number("link", self.link, least=0.0)
        if real_number("assumed", self.assumed) != 0 and self.assumed_on not in self.context_names:
            raise ConfigError(
                expected=f"assumed_on among the context columns {self.context_names}",
                found=repr(self.assumed_on),
            )

    # ------------------------------------------------------------------ properties

    @property
    def n_actions(self) -> int:
        """|A|."""
        return len(self.action_space)

    @property
    def context_names(self) -> tuple[str, ...]:
        """One name per context dimension, those of the log."""
        return self.schema.dimensions

    @property
    def action_features(self) -> Float64Array | None:
        """The features of the log's actions, [A, m]."""
        return self.action_space.features

    @property
    def action_feature_names(self) -> tuple[str, ...]:
        """One name per action feature."""
        return self.action_space.feature_names

    def with_member(self, member: Member) -> FittedWorld:
        """The world of member 0 .. B-1, of a random member per user (``"mix"``), or of all users (None)."""
        return replace(self, member=member)

    def with_link(self, link: float) -> FittedWorld:
        """The same world with another factor on the effects of feedback on session ends and returns."""
        return replace(self, link=link)

    def with_assumed(self, assumed: float, on: str | None = None) -> FittedWorld:
        """The same world with an assumed effect of a column on returns; see `WorldModel`."""
        return replace(self, assumed=assumed, assumed_on=self.assumed_on if on is None else on)

    def with_reward(self, reward: Reward) -> FittedWorld:
        """The same world with the proxy reward, or with the long-term score after each decision."""
        return replace(self, reward=reward)

    @cached_property
    def _models(self) -> Models:
        linked = self.models.linked(self.link)
        if self.assumed == 0 or self.assumed_on is None:
            return linked
        return linked.assuming(self.context_names.index(self.assumed_on), self.assumed)

    # ------------------------------------------------------------------ the simulator

    def reset(self, n: int, seed: int, *, first: int = 0) -> Float32Array:
        """Start users first .. first+n-1 and return their contexts [n, d]."""
        streams = Streams(seed, check_reset(n, seed, first))
        which = (streams.uniform(_START, 0) * len(self.starts)).astype(np.int64)
        until = np.full(n, np.inf if self.window is None else self.window)
        return self.start(self.starts[which], until, streams)

    def start(self, contexts: FloatArray, until: Float64Array, streams: Streams) -> Float32Array:
        """Start users at given contexts [n, d], each observed until its own time ``until`` [n]."""
        x = np.array(contexts, dtype=np.float32)
        n, members = len(x), self.models.members
        row: Int64Array | int = 0  # the fit to all users
        if self.member == "mix":
            row = 1 + (streams.uniform(_MEMBER, 0) * members).astype(np.int64)
        elif self.member is not None:
            row = 1 + int(self.member)
        self._run[:] = [
            _Running(
                streams=streams,
                members=row,
                contexts=x,
                fixed=self._models.fixed_parts(x, row),
                step=0,
                clock=np.zeros(n),
                until=until,
                score=np.zeros(n),
                ended=np.zeros(n, dtype=bool),
            )
        ]
        return x.copy()

    def step(self, actions: IntArray) -> Step:
        """Let one decision [n] take effect for every user that has not ended."""
        run = self._running()
        check_running(run.ended, run.step, self.horizon)
        n = len(run.ended)
        chosen = check_actions(actions, n, self.n_actions, ended=run.ended)
        rows: Any = np.flatnonzero(~run.ended) if run.ended.any() else slice(None)
        outcome = self._advance(run, rows, chosen[rows])
        run.contexts[rows] = outcome.contexts
        run.clock[rows] += outcome.gap
        run.step += 1
        over = outcome.gone | (run.clock[rows] > run.until[rows])
        if self.models.first is None:
            run.score[rows] += outcome.rewards
        else:
            run.score[rows] = np.where(outcome.gone, -1.0, outcome.long_term)
        info = {SESSION_END: _spread(outcome.session_end, rows, n), "gap": _spread(outcome.gap, rows, n)}
        if self.models.first is not None:
            info["long_term"] = _spread(run.score[rows], rows, n)
        for name, values in zip(self.moves.metrics, outcome.metrics.T, strict=True):
            info[name] = _spread(values, rows, n)
        rewards = outcome.rewards
        if self.reward == "long_term":
            info["proxy"], rewards = _spread(rewards, rows, n), run.score[rows]
        ended = run.ended.copy()
        ended[rows] = over
        run.ended = ended
        return Step(run.contexts.copy(), _spread(rewards, rows, n), ended, info)

    def _advance(self, run: _Running, rows: Any, actions: Int64Array) -> _Outcome:
        """The five draws of one decision, for the users that have not ended."""
        whole = isinstance(rows, slice)
        streams, x, t = run.streams if whole else run.streams.take(rows), run.contexts[rows], run.step
        members = run.members if isinstance(run.members, int) else run.members[rows]
        fixed = tuple(None if array is None else array[rows] for array in run.fixed)
        models = self._models
        mean = models.reward_mean(x, actions, members, fixed)
        drawn = (streams.uniform(_REWARD, t) < mean).astype(np.float64) if models.reward.binary else mean
        rewards, metrics = self.moves.feedback(x, actions, drawn, streams, t)
        after = self.moves.after(x, rewards, metrics)
        codes = models.after_codes(after, live=True)
        end = streams.uniform(_END, t) < models.end_chance(codes, actions, members, fixed)
        hazards = models.hazards(codes, actions, members, fixed)  # [n, B]
        kind = _first_below(streams, t, hazards)  # 0: never
        gone = end & (kind == 0)
        moved, gap = self.moves.move(x, actions, rewards, after, np.where(end, kind, 0), streams, t)
        return _Outcome(
            contexts=np.where(gone[:, None], x, moved),
            gap=np.where(gone, 0.0, gap),
            rewards=rewards,
            metrics=metrics,
            session_end=end,
            gone=gone,
            long_term=1.0 - 2.0 * _survival(hazards),
        )

    def candidates(self) -> None:
        """None: every action is always allowed."""
        return

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``, with its propensities; more options in `shpi.envs.rollout`."""
        return rollout(self, policy, n, seed, first=first)

    def score(self) -> Float64Array:
        """The long-term score of each running user, [n]; the sum of rewards if the log has no returns."""
        return self._running().score.copy()

    def _running(self) -> _Running:
        if not self._run:
            check_running(None)
        return self._run[0]

    # ------------------------------------------------------------------ uncertainty, report, files

    def uncertainty(self, contexts: FloatArray, actions: IntArray) -> dict[str, Float64Array]:
        """The standard deviation over the members of the expected reward and of P(return), each [n].

        The return is that of a session which ends with this decision, at the expected reward.
        """
        x, chosen = np.asarray(contexts, dtype=np.float32), np.asarray(actions, dtype=np.int64)
        metrics = np.zeros((len(x), len(self.moves.metrics)))
        means, returns = [], []
        for member in range(1, self.models.members + 1):
            means.append(self._models.reward_mean(x, chosen, member))
            codes = self._models.after_codes(self.moves.after(x, means[-1], metrics))
            returns.append(1.0 - _survival(self._models.hazards(codes, chosen, member)))
        if len(means) < 2:
            raise ConfigError(expected="an ensemble of at least 2 members", found=str(len(means)))
        return {"reward": np.std(means, axis=0, ddof=1), "return": np.std(returns, axis=0, ddof=1)}

    def report(self, held_out: LoggedData, *, seed: int = 0) -> WorldReport:
        """Compare the world with held-out users; print the result to read it."""
        from shpi.envs.fitted.check import check_world

        return check_world(self, held_out, seed)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the world to the folder ``path``: a manifest and arrays, no pickle."""
        from shpi.envs.fitted.files import save_world

        return save_world(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> FittedWorld:
        """Open a folder that `save` wrote."""
        from shpi.envs.fitted.files import load_world

        return load_world(path)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Outcome:
    """The outcome of one decision for the users that had not ended, each [m]."""

    contexts: Float32Array  # [m, d]
    gap: Float64Array
    rewards: Float64Array
    metrics: Float64Array  # [m, q]
    session_end: BoolArray
    gone: BoolArray
    long_term: Float64Array


def _survival(hazards: Float64Array) -> Float64Array:
    """prod_b (1 - h_b), [n]."""
    alive = np.ones(len(hazards))
    for column in hazards.T:
        alive *= 1.0 - column
    return alive


def _first_below(streams: Streams, step: int, hazards: Float64Array) -> Int64Array:
    """The bin 1 .. B in which the user returns, 0 for none: the first b with P(return by b) > u."""
    u, alive = streams.uniform(_RETURN, step), np.ones(len(hazards))
    kind = np.zeros(len(hazards), dtype=np.int64)
    for b, column in enumerate(hazards.T, start=1):
        alive *= 1.0 - column
        kind[(kind == 0) & (u < 1.0 - alive)] = b
    return kind


def _spread(values: Any, rows: Any, n: int) -> Any:
    """The values of some users as an array of all [n]; 0 for the others."""
    whole = np.zeros(n, dtype=values.dtype)
    whole[rows] = values
    return whole
