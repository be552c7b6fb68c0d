"""Fits a world to a log: selects the rows for each outcome, and fits one set of tables to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shpi.data._log import ragged
from shpi.data.actions import ActionSpace
from shpi.data.durations import in_time_unit
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.envs.fitted.moves import Moves, Neighbours
from shpi.envs.fitted.outcome_models import Models
from shpi.envs.fitted.outcomes import Ends, Returns, observed_until, return_edges, session_outcomes
from shpi.envs.fitted.simulator import FittedWorld
from shpi.envs.fitted.tables import Bins, Codes, Penalty, Tables, bootstrap_weights, fit_tables, sigmoid
from shpi.envs.streams import checked_seed
from shpi.errors import ConfigError, DataError
from shpi.protocols import Float32Array, Float64Array, Int64Array, IntArray

if TYPE_CHECKING:
    from shpi.envs.fitted.model import WorldModel

LEAST_USERS = 20
LEAST_ROWS = 50  # an outcome that is known in fewer rows is not modelled
RIDGES = (1.0, 4.0, 16.0, 64.0, 256.0)  # ridge penalties to choose from
_TUNING_ROWS = 30_000
_ROWS_PER_NUMBER = 10  # decisions per parameter that default interactions need


def fit_world(
    config: WorldModel, logs: LoggedData, seed: int, action_log: LoggedData | None, moves: Moves | None
) -> FittedWorld:
    """Implements `WorldModel.fit`."""
    check_log(logs)
    if action_log is not None:
        check_same_layout(logs.schema, logs.action_space, action_log, "the action log")
    edges = return_edges(logs, config.return_bins)
    observed = observed_until(logs, config.observed, edges)
    ends, returns = session_outcomes(logs, edges, observed)
    fitter = _Fitter.of(config, logs, seed)
    reward, logged, state = fitter.reward(action_log)
    binary = reward.binary
    if moves is None:
        means = reward.mean(reward.eta(fitter.codes, logs.actions))
        moves = Neighbours.fit(logs, edges, means, binary=binary, k=config.neighbours)
    after = after_log(logs, moves)
    models = replace(
        fitter.outcomes(after, ends, returns, reward, moves), reward_state=state, reward_logged=logged
    )
    longest = int(ragged.lengths(logs.offsets).max())
    return FittedWorld(
        name=config.name,
        horizon=longest if config.horizon is None else config.horizon,
        models=models,
        moves=moves,
        starts=logs.contexts[logs.offsets[:-1]],
        schema=logs.schema,
        action_space=logs.action_space,
        edges=edges,
        observed=observed,
        window=None if config.window is None else float(in_time_unit(config.window, logs.time_unit)),
        link=config.link,
        assumed=config.assumed,
        assumed_on=config.assumed_on,
    )


def check_log(logs: LoggedData) -> None:
    """Raise an error that says what is missing if a world cannot be fitted to the log."""
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards",
            found="none",
            remedy="choose one with logs.with_rewards(...), for example the name of a metric",
        )
    if logs.n_users < LEAST_USERS:
        raise DataError(
            expected=f"at least {LEAST_USERS} users to fit a world to",
            found=str(logs.n_users),
            remedy="read a longer log",
        )
    taken = len(np.unique(logs.actions))
    if taken < 2:
        raise DataError(
            expected="at least two actions in the log",
            found=f"{taken}: nothing can be learned about what actions do",
            remedy="use a log whose policy chose between actions",
        )


def check_same_layout(schema: ContextSchema, actions: ActionSpace, other: LoggedData, what: str) -> None:
    """Raise an error unless the other log has these context columns and actions, and rewards."""
    if other.schema.dimensions != schema.dimensions or other.action_space.ids != actions.ids:
        raise DataError(
            expected=f"{what} to have the context columns and the actions of the log that was fitted",
            found="others",
            remedy="read both with the same schema and the same actions",
        )
    if other.rewards is None:
        raise DataError(expected=f"{what} to have rewards", found="none")


def after_log(logs: LoggedData, moves: Moves) -> Float32Array:
    """The columns after each decision of a log, [n, q]."""
    assert logs.rewards is not None
    absent = [name for name in moves.metrics if name not in logs.metrics]
    if absent:
        raise DataError(
            expected=f"a log with the metrics {list(moves.metrics)}", found=f"one without {absent}"
        )
    metrics = [logs.metrics[name] for name in moves.metrics]
    table = np.stack(metrics, axis=1) if metrics else np.zeros((len(logs), 0))
    return moves.after(logs.contexts, logs.rewards, table)


@dataclass(frozen=True, eq=False)
class _Fitter:
    """The log in bins, and the samples of users for the ensemble."""

    config: WorldModel
    logs: LoggedData
    users: Int64Array  # [n] user of each decision
    bins: Bins
    codes: Codes  # [n, d]
    weights: Float64Array  # [B, n]
    seed: int

    @classmethod
    def of(cls, config: WorldModel, logs: LoggedData, seed: int) -> _Fitter:
        users = logs.user_of_row
        rng = np.random.default_rng(np.random.SeedSequence(checked_seed(seed)))
        bins = Bins.fit(logs.contexts, config.bins)
        weights = bootstrap_weights(users, config.members, rng)
        for name in (*config.feedback, *(config.interactions or ())):
            if name not in logs.schema.dimensions:
                raise ConfigError(
                    expected=f"context columns among {logs.schema.dimensions}", found=repr(name)
                )
        return cls(config, logs, users, bins, bins.code(logs.contexts), weights, seed)

    # ------------------------------------------------------------------ the reward

    def reward(self, action_log: LoggedData | None) -> tuple[Tables, Tables | None, Tables]:
        """Reward models: the world's; with the logged action, if that differs; and without the action."""
        logs, acts = self.logs, "reward" in self.config.action_effects
        assert logs.rewards is not None
        binary = bool(np.isin(logs.rewards, (0.0, 1.0)).all())
        rows = np.arange(len(logs)) if logs.reward_observed is None else np.flatnonzero(logs.reward_observed)
        y = logs.rewards[rows]
        ensemble = not acts
        without = self._fit(self.bins.sizes, self.codes[rows], y, rows, binary, None, ensemble=ensemble)
        if not acts:
            return without, None, without
        crossed = self.crossed(self.bins.sizes)
        needed = action_log is None  # else the log's own association serves only for comparison
        full = self._fit(self.bins.sizes, self.codes[rows], y, rows, binary, crossed, ensemble=needed)
        if action_log is None:
            return full, None, without
        return self._with_action_log(action_log, rows, y, binary, crossed), full, without

    def _with_action_log(
        self, other: LoggedData, rows: Int64Array, y: Float64Array, binary: bool, crossed: Sequence[int]
    ) -> Tables:
        """Fit action effects to the other log, then the rest of eta to this one with these held fixed."""
        assert other.rewards is not None
        codes = self.bins.code(other.contexts)
        users = other.user_of_row
        rng = np.random.default_rng(np.random.SeedSequence((self.seed, 1)))
        effects = fit_tables(
            self.bins.sizes,
            codes,
            other.rewards,
            binary=binary,
            actions=other.actions,
            n_actions=other.n_actions,
            crossed=crossed,
            weights=bootstrap_weights(users, self.config.members, rng),
            penalty=self._penalty(self.config.ridge or 64.0),
        )
        known = [term for term in effects.terms if term.by_action]
        chosen, nothing = self.logs.actions[rows], np.zeros(len(rows))
        offsets = [
            effects.eta(self.codes[rows], chosen, row, known, nothing) for row in range(len(effects.numbers))
        ]
        state = self._fit(self.bins.sizes, self.codes[rows], y, rows, binary, None, np.stack(offsets))
        numbers = effects.numbers.copy()
        numbers[:, : state.numbers.shape[1]] = state.numbers  # the tables by action come last
        return replace(effects, numbers=numbers)

    # ------------------------------------------------------------------ session ends and returns

    def outcomes(
        self,
        after: Float32Array,
        ends: Ends,
        returns: Returns,
        reward: Tables,
        moves: Moves,
    ) -> Models:
        """All models of the world."""
        effects, bins = self.config.action_effects, Bins.fit(after, self.config.bins)
        codes, width = bins.code(after), self.bins.width
        on_end = self.crossed(bins.sizes) if "end" in effects else None
        on_return = self.crossed(bins.sizes) if "return" in effects else None
        end = self._binary(bins.sizes, codes[ends.rows], ends.ended, ends.rows, on_end)
        known, back = returns.within(1)
        rows = returns.rows[known]
        first = self._binary(bins.sizes, codes[rows], back, rows, on_return)
        began = returns.starts[known]
        first_state = self._binary(self.bins.sizes, self.codes[began], back, began, None, ensemble=False)
        later, last_bin = None, len(returns.edges)
        if first is not None and last_bin > 1:
            session, which, came = returns.at_risk()
            rows = returns.rows[session]
            wide = np.concatenate([codes[rows], (which - 2)[:, None].astype(np.int16)], axis=1)
            sizes = np.append(bins.sizes, last_bin - 1)
            later = self._binary(sizes, wide, came, rows, on_return)
        levels, centres = bins.levels(after, codes)
        dimensions = self.logs.schema.dimensions
        named = [dimensions.index(name) for name in self.config.feedback]
        return Models(
            bins=self.bins,
            after_bins=bins,
            moving=moves.moving,
            feedback=np.array([*named, *range(width, bins.width)], dtype=np.int64),
            reward=reward,
            reward_state=reward,
            end=None if end is None or not ends.ended.any() else end,
            first=None if later is None and last_bin > 1 else first,
            later=later,
            first_state=first_state,
            last_bin=last_bin,
            levels=levels,
            centres=centres,
        )

    def crossed(self, sizes: Int64Array) -> Sequence[int]:
        """The columns that interact with the action: those configured, or all if the log is large enough."""
        wanted, n_actions = self.config.interactions, self.logs.n_actions
        if wanted is not None:
            return [self.logs.schema.dimensions.index(name) for name in wanted]
        varied = [j for j in range(len(sizes)) if sizes[j] > 1]
        enough = len(self.logs) >= _ROWS_PER_NUMBER * n_actions * int(sizes[varied].sum())
        return varied if enough else []

    # ------------------------------------------------------------------ one outcome

    def _binary(
        self,
        sizes: Int64Array,
        codes: Codes,
        y: Float64Array,
        rows: Int64Array,
        crossed: Sequence[int] | None,
        *,
        ensemble: bool = True,
    ) -> Tables | None:
        if len(rows) < LEAST_ROWS:
            return None
        return self._fit(sizes, codes, y, rows, True, crossed, ensemble=ensemble)

    def _fit(
        self,
        sizes: Int64Array,
        codes: Codes,
        y: Float64Array,
        rows: Int64Array,
        binary: bool,
        crossed: Sequence[int] | None,
        offset: Float64Array | None = None,
        *,
        ensemble: bool = True,
    ) -> Tables:
        """Tables for the outcome ``y`` of some rows; ``crossed`` None leaves the action out."""
        actions = None if crossed is None else self.logs.actions[rows]
        n_actions = 0 if crossed is None else self.logs.n_actions
        ridge = self.config.ridge
        if ridge is None:
            ridge = self._choose(sizes, codes, y, rows, binary, actions, n_actions, crossed or ())
        return fit_tables(
            sizes,
            codes,
            y,
            binary=binary,
            actions=actions,
            n_actions=n_actions,
            crossed=crossed or (),
            weights=self.weights[:, rows] if ensemble else None,
            offset=offset,
            penalty=self._penalty(ridge),
        )

    def _penalty(self, ridge: float) -> Penalty:
        return Penalty(column=ridge, action=min(ridge, 8.0), crossed=3.0 * ridge)

    def _choose(
        self,
        sizes: Int64Array,
        codes: Codes,
        y: Float64Array,
        rows: Int64Array,
        binary: bool,
        actions: IntArray | None,
        n_actions: int,
        crossed: Sequence[int],
    ) -> float:
        """The ridge penalty with the least loss on 30 % of the users, on at most `_TUNING_ROWS` rows."""
        rng = np.random.default_rng(np.random.SeedSequence((self.seed, 2)))
        of_user = rng.random(int(self.users.max()) + 1)[self.users[rows]]
        share = min(1.0, _TUNING_ROWS / len(rows))
        train, test = of_user < 0.7 * share, (of_user >= 0.7 * share) & (of_user < share)
        if train.sum() < LEAST_ROWS or test.sum() < LEAST_ROWS:
            return RIDGES[len(RIDGES) // 2]
        losses = []
        for ridge in RIDGES:
            tables = fit_tables(
                sizes,
                codes[train],
                y[train],
                binary=binary,
                actions=None if actions is None else actions[train],
                n_actions=n_actions,
                crossed=crossed,
                penalty=self._penalty(ridge),
            )
            eta = tables.eta(codes[test], None if actions is None else actions[test])
            losses.append(mean_loss(y[test], eta, binary))
        return RIDGES[int(np.argmin(losses))]


def mean_loss(y: Float64Array, eta: Float64Array, binary: bool) -> float:
    """The mean negative log-likelihood, or half the mean squared error."""
    if not binary:
        return 0.5 * float(np.square(y - eta).mean())
    chance = np.clip(sigmoid(eta), 1e-12, 1 - 1e-12)
    return -float((y * np.log(chance) + (1 - y) * np.log1p(-chance)).mean())
