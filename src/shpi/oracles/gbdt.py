"""Boosted trees over (x, a) with LightGBM; the action is a categorical column, followed by its features.

Mind the cost: the policy on every logged row needs f(x_i, a) for all actions, n |A| predictions. With
300,000 rows and 112 actions that took about ten minutes per iteration; a ridge takes a quarter of a second.
Trees also extrapolate as constants, and in roll-outs a greedy policy on them diverged. They are meant for
small action sets and for comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shpi.errors import ConfigError, MissingExtraError
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.files.engines import engine_errors
from shpi.oracles.base import (
    WeightKind,
    action_table,
    blocks,
    combined_weights,
    score_blocks,
    standardise_targets,
    unseen_actions,
)
from shpi.oracles.gbdt_text import checked_model
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


@dataclass(frozen=True, kw_only=True)
class Gbdt:
    """Gradient-boosted trees.

    Args:
        trees: number of trees.
        leaves: leaves per tree.
        learning_rate: learning rate of the boosting.
        min_rows: smallest number of rows per leaf.
        action_features: whether to use the features of the actions, if the log has them.
        weights: ``none`` for the plain sum of Algorithm 2, ``mtr`` for 1 / (K mu(a|x)).
    """

    trees: int = 200
    leaves: int = 63
    learning_rate: float = 0.1
    min_rows: int = 20
    action_features: bool = True
    weights: WeightKind = "none"

    def __post_init__(self) -> None:
        if self.trees < 1 or self.leaves < 2 or self.min_rows < 1 or not self.learning_rate > 0:
            raise ConfigError(
                expected="at least 1 tree, 2 leaves, 1 row per leaf and a positive learning rate",
                found=f"{self.trees}, {self.leaves}, {self.min_rows} and {self.learning_rate}",
                where="Gbdt",
            )

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedGbdt:
        """Bin the columns once."""
        lightgbm = import_lightgbm()
        table = action_table(logs) if self.action_features else None
        columns = design(logs.contexts, logs.actions, table)
        data = lightgbm.Dataset(
            columns,
            label=np.zeros(len(logs)),
            categorical_feature=[logs.contexts.shape[1]],
            params=_parameters(self, seed),
            free_raw_data=False,
        ).construct()
        return PreparedGbdt(config=self, logs=logs, table=table, data=data, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedGbdt:
    """Boosted trees prepared on a log."""

    config: Gbdt
    logs: LoggedData
    table: Float64Array | None  # [A, m] standardised action features
    data: Any = field(repr=False)  # lightgbm.Dataset
    seed: int

    @property
    def unseen(self) -> Int64Array:
        """The actions that the log never took; every split treats them as "none of these"."""
        return unseen_actions(self.logs)

    def tune(self, targets: ArrayLike, *, valid: BoolArray | None = None) -> PreparedGbdt:
        """Return itself: there is nothing to choose."""
        return self

    def fit(
        self, targets: ArrayLike, weights: ArrayLike | None = None, valid: BoolArray | None = None
    ) -> GbdtScorer:
        """Grow the trees on standardised targets."""
        omega = combined_weights(self.logs, self.config.weights, weights)
        scaled = standardise_targets(targets, len(self.logs), weights=omega, valid=valid)
        data = self.data
        if scaled.weights is not None and not (scaled.weights > 0).all():
            data = data.subset(np.flatnonzero(scaled.weights > 0), params=_parameters(self.config, self.seed))
            data = data.construct()
            used = scaled.weights > 0
            data.set_label(scaled.values[used]).set_weight(scaled.weights[used])
        else:
            data.set_label(scaled.values).set_weight(scaled.weights)
        booster = import_lightgbm().train(
            _parameters(self.config, self.seed), data, num_boost_round=self.config.trees
        )
        text = booster.model_to_string().encode()
        return GbdtScorer(
            model=np.frombuffer(text, dtype=np.uint8),
            n_actions=self.logs.n_actions,
            width=self.logs.contexts.shape[1],
            centre=scaled.centre,
            scale=scaled.scale,
            table=np.zeros((self.logs.n_actions, 0)) if self.table is None else self.table,
        )

    def scores_on_log(self, scorer: Scorer) -> Iterator[tuple[slice, Float64Array]]:
        """Iterate over f(x_i, .) in blocks: n |A| predictions."""
        yield from score_blocks(scorer, self.logs.contexts)


@saveable("oracles/gbdt-scorer")
@dataclass(frozen=True, kw_only=True, eq=False)
class GbdtScorer:
    """Fitted trees, stored as the text that LightGBM writes."""

    model: NDArray[np.uint8]
    n_actions: int
    width: int
    centre: float
    scale: float
    table: Float64Array  # [A, m]

    def __post_init__(self) -> None:
        freeze(self, "model", ndim=1, dtype=np.uint8)
        freeze(self, "table", ndim=2)
        if self.table.shape[0] != self.n_actions:
            raise ConfigError(
                expected=f"features of {self.n_actions} actions", found=f"{self.table.shape[0]}"
            )
        _ = self.text  # refuse an unsafe text here, not at the first prediction

    @cached_property
    def text(self) -> str:
        """The trees as a text that is safe to load."""
        return checked_model(
            self.model.tobytes().decode(errors="replace"), self.width + 1 + self.table.shape[1]
        )

    @cached_property
    def booster(self) -> Any:
        """The trees, read from the text when they are first needed."""
        with engine_errors("the trees of a saved policy"):
            return import_lightgbm().Booster(model_str=self.text)

    def scores(self, contexts: FloatArray) -> Float64Array:
        """f(x, .) [n, A]: one prediction per context and action, in blocks."""
        x = as_matrix(contexts, self.width)
        scores = np.empty((len(x), self.n_actions))
        for rows in blocks(len(x), self.n_actions * (self.width + 1 + self.table.shape[1])):
            repeated = np.repeat(x[rows], self.n_actions, axis=0)
            actions = np.tile(np.arange(self.n_actions), rows.stop - rows.start)
            predicted = self.booster.predict(design(repeated, actions, self.table), num_threads=1)
            scores[rows] = predicted.reshape(-1, self.n_actions)
        scores *= self.scale
        scores += self.centre
        return scores


def design(contexts: FloatArray, actions: NDArray[Any], table: Float64Array | None) -> Float64Array:
    """The columns (x, a, features of a) [n, d + 1 + m]."""
    parts = [np.asarray(contexts, dtype=np.float64), actions[:, None].astype(np.float64)]
    if table is not None:
        parts.append(table[actions])
    return np.concatenate(parts, axis=1)


def import_lightgbm() -> Any:
    """The module lightgbm, or an error that says how to install it."""
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("lightgbm", "gbdt") from None
    return lightgbm


def _parameters(config: Gbdt, seed: int) -> dict[str, Any]:
    return {
        "objective": "regression",
        "num_leaves": config.leaves,
        "learning_rate": config.learning_rate,
        "min_data_in_leaf": config.min_rows,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
