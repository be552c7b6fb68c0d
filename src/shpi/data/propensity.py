"""Estimate mu(a|x), the probability with which the logging policy chose its action, from the log itself.

Two models compete: the *marginal* (action frequencies, restricted to the candidates) and a *softmax*
regression on the contexts. Both are cross-fitted by user: the probabilities of a user's decisions come from
models fitted on other users, so that no decision explains itself. The softmax is calibrated on these held-out
predictions, by a temperature and by mixing with the marginal,

    mu(a|x) = (1 - e) [ (1 - m) softmax(w.x / T) + m marginal ] + e / |candidates|,

and is preferred only if it beats the marginal by more than one standard error (clustered by user). The
last term, e = c A / (n + c A) with c = 1/2, is what half a pseudo-count per action would give: no action
that the log has ever chosen gets probability 0. An action that the log never chose gets exactly 0, because
nothing in the log supports it.

*Time.* If the logging policy changes within the log while rewards drift for another reason, time is a
confounder: actions that merely became frequent look good. So x includes the time and the step of the decision
(`shpi.data._log.clock`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from shpi.data._behaviour.calibration import Calibration, spread_rows
from shpi.data._behaviour.crossfit import CrossFit, Predictor, all_probabilities, predictions
from shpi.data._log.clock import Clock
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

NEAR_CERTAIN = 0.05  # a mean log-loss (nats) below this means less than about 1 % of exploration
DETERMINISTIC = (
    "the logging policy looks deterministic: almost every action is predictable, so the log has little "
    "support for the alternatives"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedPropensity:
    """The chosen model, its held-out log-loss and its calibration. Also a `Policy`."""

    chosen: Literal["marginal", "softmax"]
    log_loss: float  # held-out log-loss of the chosen model
    marginal_log_loss: float
    uniform_log_loss: float
    calibration: Calibration
    warnings: tuple[str, ...]
    whole: Predictor  # fitted on all rows, for other logs
    by_fold: tuple[Predictor, ...]  # each fitted without its fold
    fold_of_row: Int64Array  # [n]
    action_ids: tuple[int | str, ...]
    digest: str
    behaviour_cells: int
    clock: Clock | None = None  # how time enters x; None: it does not

    @property
    def temperature(self) -> float:
        """T of the module's equation."""
        return self.whole.temperature

    @property
    def mix(self) -> float:
        """The weight m of the marginal inside the softmax model."""
        return self.whole.mix

    @property
    def n_actions(self) -> int:
        """|A|."""
        return len(self.whole.seen)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """mu(a|x) [n, A] of the model fitted on all rows, for decisions after the end of its log."""
        if self.clock is not None:
            contexts = np.concatenate([contexts, self.clock.later(len(contexts))], axis=1)
        return np.array(self.whole.probabilities(contexts, candidates))

    @property
    def _width(self) -> int:
        """The width of a context, without the time."""
        return len(self.whole.centre) - (0 if self.clock is None else self.clock.width)

    def apply(self, logs: LoggedData) -> LoggedData:
        """The log with estimated propensities: cross-fitted on the log of `fit`, else of the whole model."""
        if logs.action_space.ids != self.action_ids or logs.schema.width != self._width:
            raise DataError(
                expected="a log with the actions and context columns of the one the model was fitted on",
                found=f"{logs.n_actions} actions and {logs.schema.width} context dimensions",
                remedy="read the log with schema= and action_space= of the first one",
            )
        same = _digest(logs) == self.digest
        predictors = self.by_fold if same else (self.whole,)
        folds = self.fold_of_row if same else np.zeros(len(logs), dtype=np.int64)
        keep = len(logs) * logs.n_actions <= self.behaviour_cells
        behaviour = np.empty((len(logs), logs.n_actions)) if keep else None
        taken = np.empty(len(logs))
        for rows, p in predictions(_with_time(logs, self.clock), predictors, folds):
            taken[rows] = p[np.arange(len(rows)), logs.actions[rows]]
            if behaviour is not None:
                behaviour[rows] = p
        if not (taken > 0).all():
            row = int(np.flatnonzero(~(taken > 0))[0])
            raise DataError(
                expected="actions that the log of the fit has chosen at least once",
                found=f"action {logs.action_space.ids[logs.actions[row]]!r}",
                where=f"row {row}",
                remedy="estimate the propensities from this log, or from both together",
            )
        ledger = replace(logs.ledger, notes=(*logs.ledger.notes, self.summary()))
        return replace(
            logs, propensities=taken, propensity_mode="estimated", behaviour=behaviour, ledger=ledger
        )

    def summary(self) -> str:
        """One sentence for the ledger and the audit."""
        return (
            f"propensities estimated by the {self.chosen} model, cross-fitted by user: held-out log-loss "
            f"{self.log_loss:.4f} (marginal {self.marginal_log_loss:.4f}, uniform "
            f"{self.uniform_log_loss:.4f}), calibration error {self.calibration.error:.2g}"
            + "".join(f"; {warning}" for warning in self.warnings)
        )


@dataclass(frozen=True, kw_only=True)
class PropensityModel:
    """The settings for estimating mu(a|x); see the module docstring."""

    folds: int = 5
    priors: tuple[float, ...] = (300.0, 10.0, 1.0)  # strength of the normal prior, strongest first
    max_rows: int = 50_000  # random training rows of the regression; frequencies use all rows
    max_actions: int = 300  # with more actions only the marginal is fitted
    pseudo_count: float = 0.5
    time: bool = True  # whether the time and the step of a decision enter x
    behaviour_cells: int = 50_000_000  # keep mu(.|x) in full up to this many (row, action) pairs

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise ConfigError(expected="at least two folds", found=str(self.folds))
        if not self.priors or min(self.priors) <= 0 or self.pseudo_count <= 0:
            raise ConfigError(expected="positive priors and pseudo_count", found=repr(self))

    def fit(self, logs: LoggedData, *, seed: int = 0) -> FittedPropensity:
        """Fit, cross-fit and calibrate both models, and choose one."""
        clock = Clock.of(logs) if self.time else None
        digest, logs = _digest(logs), _with_time(logs, clock)
        crossfit = CrossFit(model=self, logs=logs, rng=np.random.default_rng(np.random.SeedSequence(seed)))
        folds = crossfit.folds()
        everyone = np.ones(len(logs), dtype=bool)
        by_fold = [crossfit.marginal(folds != fold) for fold in range(folds.max() + 1)]
        whole = crossfit.marginal(everyone)
        marginal_losses = _losses(logs, by_fold, folds)
        chosen: Literal["marginal", "softmax"] = "marginal"
        reason = crossfit.why_no_regression(folds)
        if not reason:
            full, regressions = crossfit.regressions(by_fold, whole, folds)
            temperature, mix, better = crossfit.calibrate(regressions, folds)
            if better:
                chosen = "softmax"
                by_fold = [
                    replace(regression, temperature=temperature, mix=mix) for regression in regressions
                ]
                whole = replace(full, temperature=temperature, mix=mix)
        losses = marginal_losses if chosen == "marginal" else _losses(logs, by_fold, folds)
        certain = crossfit.choice.any() and losses[crossfit.choice].mean() < NEAR_CERTAIN
        allowed = logs.n_actions if logs.candidates is None else logs.candidates.sum(axis=1)
        return FittedPropensity(
            chosen=chosen,
            log_loss=float(losses.mean()),
            marginal_log_loss=float(marginal_losses.mean()),
            uniform_log_loss=float(np.log(allowed).mean()),
            calibration=_calibration(logs, by_fold, folds),
            warnings=tuple(text for text in (reason, DETERMINISTIC if certain else "") if text),
            whole=whole,
            by_fold=tuple(by_fold),
            fold_of_row=folds,
            action_ids=logs.action_space.ids,
            digest=digest,
            behaviour_cells=self.behaviour_cells,
            clock=clock,
        )


def _with_time(logs: LoggedData, clock: Clock | None) -> LoggedData:
    """The same log with time features among its contexts."""
    if clock is None:
        return logs
    times = clock.features(logs)
    last = times[logs.offsets[1:] - 1]
    names = [*logs.schema.dimensions, *(f"time {column}" for column in range(clock.width))]
    return replace(
        logs,
        contexts=np.concatenate([logs.contexts, times], axis=1, dtype=np.float32),
        final_contexts=np.concatenate([logs.final_contexts, last], axis=1, dtype=np.float32),
        schema=ContextSchema.numeric(names),
    )


def _losses(logs: LoggedData, by_fold: list[Predictor], folds: Int64Array) -> Float64Array:
    """The held-out log-loss of each decision [n]."""
    losses = np.empty(len(logs))
    for rows, p in predictions(logs, by_fold, folds):
        losses[rows] = -np.log(p[np.arange(len(rows)), logs.actions[rows]])
    return losses


def _calibration(logs: LoggedData, by_fold: list[Predictor], folds: Int64Array) -> Calibration:
    sample = spread_rows(len(logs), logs.n_actions)
    table = np.empty((len(sample), logs.n_actions), dtype=np.float32)
    for fold, predictor in enumerate(by_fold):
        mine = folds[sample] == fold
        table[mine] = all_probabilities(predictor, logs, sample[mine])
    candidates = None if logs.candidates is None else logs.candidates[sample]
    return Calibration.of(table, logs.actions[sample], candidates)


def _digest(logs: LoggedData) -> str:
    """A digest of the decisions that a model was fitted on, without their rewards."""
    digest = hashlib.sha256()
    for array in (logs.contexts, logs.actions, logs.offsets):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
