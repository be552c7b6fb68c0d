"""The paper's oracle: Vowpal Wabbit with ``--coin --cb_type mtr --cb_explore_adf`` (needs vowpalwabbit).

What is from the paper, and what is our interpretation:

- The paper's options contain no ``-q``. Without it the score is b + w'x + b_a, and the best action is the
  same for every context. We add ``-q sa``: products of context and action.
- ``mtr`` trains on the logged action alone, with importance 1 / (K mu(a|x)); Algorithm 2 prints an
  unweighted sum. Both are offered: ``weights="mtr"`` and ``weights="none"``.
- The multi-line form of ``--cb_explore_adf`` equals, to float32 rounding, plain ``--coin -q sa`` with one
  line per decision and that importance (a test checks this). The plain form is about 60 times faster and is
  used here. The predictions of the multi-line form are epsilon-greedy with epsilon 0.05; use `EpsilonGreedy`
  for that.
- Coin betting depends on the scale and the order of the rows, and one pass is far from the minimum. So
  contexts and targets are standardised, the rows are shuffled once, and there are 5 passes. With more passes
  it approaches `Ridge.exact`.

The fitted score is linear in x for each action. Its coefficients come from VW's predictions at 0 and along
each axis, and make a `LinearScorer`, which needs no VW to act, to save or to load.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from shpi.errors import ConfigError, MissingExtraError
from shpi.features.base import FeatureMap, Recipe, fit_features
from shpi.features.chain import ChainMap
from shpi.features.scale import IdentityMap, Standardise
from shpi.oracles.base import (
    Targets,
    WeightKind,
    action_table,
    combined_weights,
    score_blocks,
    standardise_targets,
    unseen_actions,
)
from shpi.policies.scorers import LinearScorer, Scorer
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


@dataclass(frozen=True, kw_only=True)
class VowpalWabbit:
    """Coin betting on products of context and action.

    Args:
        passes: number of passes over the shuffled rows.
        weights: ``mtr`` for 1 / (K mu(a|x)), as in the paper's options; ``none`` as in its Algorithm 2.
        features: features of the contexts, standardised by default; VW adds the constant.
        action_features: whether to use the features of the actions, if the log has them.
        bits: VW has 2^bits weights; None: enough that less than one percent of them collide.
    """

    passes: int = 5
    weights: WeightKind = "mtr"
    features: Recipe | FeatureMap = field(default_factory=Standardise)
    action_features: bool = False
    bits: int | None = None

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ConfigError(expected="at least one pass", found=str(self.passes), where="VowpalWabbit")

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedVowpalWabbit:
        """Write the text of every row once, without the label."""
        import_vw()
        features = fit_features(self.features, logs.contexts)
        inputs = features.transform(logs.contexts).astype(np.float32)
        table = action_table(logs) if self.action_features else None
        names = [_action_text(a, table) for a in range(logs.n_actions)]
        order = np.random.default_rng(seed).permutation(len(logs))
        reach = np.zeros((logs.n_actions, inputs.shape[1]), dtype=np.float32)
        np.maximum.at(reach, logs.actions, np.abs(inputs))
        overall = np.abs(inputs).max(axis=0, initial=0.0)
        return PreparedVowpalWabbit(
            config=self,
            logs=logs,
            features=features,
            lines=_row_texts(inputs[order], logs.actions[order], names),
            action_texts=tuple(names),
            order=order,
            reach=np.where(reach > 0, reach, np.where(overall > 0, overall, 1.0)).astype(np.float64),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedVowpalWabbit:
    """VW prepared on a log."""

    config: VowpalWabbit
    logs: LoggedData
    features: FeatureMap
    lines: pl.Series  # [n] "|s 0:0.1 … |a 3", shuffled
    action_texts: tuple[str, ...]  # [A] "|a 3"
    order: Int64Array  # [n] the shuffled order of the rows
    reach: Float64Array  # [A, p] largest absolute value of each input: VW is exactly linear up to it

    @property
    def unseen(self) -> Int64Array:
        """The actions that the log never took; they get the shared part of the score alone."""
        return unseen_actions(self.logs)

    @property
    def options(self) -> list[str]:
        """The options that VW runs with."""
        size = self.logs.n_actions * (self.features.width + 1)
        bits = self.config.bits or int(np.clip(np.ceil(np.log2(256 * size)), 18, 24))
        return ["--coin", "-q", "sa", "-b", str(bits), "--quiet"]

    def tune(self, targets: ArrayLike, *, valid: BoolArray | None = None) -> PreparedVowpalWabbit:
        """Return itself: coin betting has no learning rate to choose."""
        return self

    def fit(
        self, targets: ArrayLike, weights: ArrayLike | None = None, valid: BoolArray | None = None
    ) -> LinearScorer:
        """Run VW on the rows with these labels, and extract its coefficients."""
        omega = combined_weights(self.logs, self.config.weights, weights)
        scaled = standardise_targets(targets, len(self.logs), weights=omega, valid=valid)
        with tempfile.TemporaryDirectory() as folder:
            model = self._train(Path(folder) / "rows.txt", scaled)
            beta = scaled.scale * self._read_off(model)
            model.finish()
        beta[:, 0] += scaled.centre
        with_one = ChainMap(steps=(self.features, IdentityMap(width_in=self.features.width)))
        return LinearScorer(weights=beta, features=with_one)

    def scores_on_log(self, scorer: Scorer) -> Iterator[tuple[slice, Float64Array]]:
        """Iterate over f(x_i, .) in blocks."""
        yield from score_blocks(scorer, self.logs.contexts, max(self.logs.n_actions, self.features.width))

    def _train(self, place: Path, scaled: Targets) -> Any:
        """Run VW's own driver on a file: the text is read once, further passes use VW's cache."""
        omega = np.ones(len(self.order)) if scaled.weights is None else scaled.weights[self.order]
        table = pl.DataFrame(
            {
                "label": scaled.values[self.order].astype(np.float32),
                "importance": omega.astype(np.float32),
                "row": self.lines,
            }
        ).filter(pl.col("importance") > 0)
        text = table.select(pl.concat_str(pl.all(), separator=" "))
        text.write_csv(place, include_header=False, quote_style="never")
        passes = ["--passes", str(self.config.passes), "-c", "-k", "--holdout_off"]
        return import_vw().Workspace(arg_list=[*self.options, "-d", str(place), *passes])

    def _read_off(self, model: Any) -> Float64Array:
        """The coefficients of f(x, a) = beta_a0 + sum_j beta_aj x_j [A, 1 + p]."""
        count, width = self.reach.shape
        beta = np.zeros((count, 1 + width))
        for action, name in enumerate(self.action_texts):
            beta[action, 0] = _predict(model, f"|s {name}")
            for j in range(width):
                at = _predict(model, f"|s {j}:{float(self.reach[action, j])!r} {name}")
                beta[action, 1 + j] = (at - beta[action, 0]) / self.reach[action, j]
        return beta


def import_vw() -> Any:
    """The module vowpalwabbit, or an error that says how to install it."""
    try:
        import vowpalwabbit
    except ImportError:
        raise MissingExtraError("vowpalwabbit", "vw") from None
    return vowpalwabbit


def _predict(model: Any, text: str) -> float:
    """The prediction before it is clipped to the range of the labels."""
    example = model.parse(text)
    model.predict(example)
    value = float(example.get_partial_prediction())
    model.finish_example(example)
    return value


def _action_text(action: int, table: Float64Array | None) -> str:
    own = f"|a {action}"
    if table is None:
        return own
    return " ".join([own, *(f"f{k}:{float(value):.7g}" for k, value in enumerate(table[action]) if value)])


def _row_texts(inputs: Float32Array, actions: np.ndarray, names: list[str]) -> pl.Series:
    """One text ``|s 0:x0 1:x1 … |a 3`` per row; polars formats numbers far faster than Python."""
    columns = {str(j): inputs[:, j] for j in range(inputs.shape[1])}
    pairs = [pl.concat_str(pl.lit(f"{name}:"), pl.col(name)) for name in columns]
    action = pl.Series("action", names)[actions.astype(np.int64)]
    table = pl.DataFrame({**columns, "action": action})
    return table.select(pl.concat_str(pl.lit("|s"), *pairs, pl.col("action"), separator=" ")).to_series()
