"""Cross-fitting of mu(a|x): the predictor of a user's decisions was fitted without that user.

`CrossFit` holds the steps that `shpi.data.propensity` combines; `Predictor` is one fitted model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shpi._core.softmax import fit_softmax, log_softmax
from shpi.data._behaviour.calibration import spread_rows
from shpi.data._log.users import folds_of_users, time_blocks
from shpi.protocols import BoolArray, Float32Array, Float64Array, FloatArray, Int64Array, IntArray

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData
    from shpi.data.propensity import PropensityModel

CLIP = 10.0  # standardised contexts are clipped to ±CLIP, so that an outlier cannot dominate the fit
TEMPERATURES = (0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)  # divisors of the logits
MIXES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.9)  # weights of the marginal
FEW_ROWS = 50  # with fewer decisions a regression is mostly noise


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """One fitted mu(.|x), ready for contexts of any log with the same schema and actions."""

    centre: Float64Array  # [d]
    scale: Float64Array  # [d]
    log_marginal: Float64Array  # [A]
    weights: Float64Array | None  # [1 + d, A] None: the marginal alone
    seen: BoolArray  # [A] chosen at least once in the log
    floor: float
    temperature: float = 1.0
    mix: float = 0.0

    def features(self, contexts: FloatArray) -> Float32Array:
        """Standardised and clipped contexts with a 1 in front, [n, 1 + d]."""
        scaled = np.clip((contexts - self.centre) / self.scale, -CLIP, CLIP)
        return np.concatenate([np.ones((len(scaled), 1)), scaled], axis=1).astype(np.float32)

    def mask(self, candidates: BoolArray | None) -> BoolArray | None:
        """The actions that may have a positive probability: candidates that the log chose at least once."""
        if candidates is None:
            return None if self.seen.all() else self.seen[None, :]
        known = candidates & self.seen
        # If the log never chose any of the candidates, treat all of them alike.
        return np.where(known.any(axis=1, keepdims=True), known, candidates)

    def probabilities(self, contexts: FloatArray, candidates: BoolArray | None) -> Float64Array:
        """mu(.|x) [n, A]."""
        mask = self.mask(candidates)
        count = len(self.seen) if mask is None else mask.sum(axis=1, keepdims=True)
        uniform = 1.0 / count if mask is None else mask / count
        marginal = self.marginal(mask)
        if self.weights is None:
            mixture = marginal
        else:
            softmax = np.exp(self.log_softmax(contexts, mask)).astype(np.float64)
            softmax /= softmax.sum(axis=1, keepdims=True)  # float32 sums to one only roughly
            mixture = (1 - self.mix) * softmax + self.mix * marginal
        result = (1 - self.floor) * mixture + self.floor * uniform
        return np.broadcast_to(result, (len(contexts), len(self.seen)))

    def marginal(self, mask: BoolArray | None) -> Float64Array:
        """The marginal, restricted to the mask and renormalised: [n, A], or [1, A] if all rows agree."""
        p = np.exp(self.log_marginal)[None, :]
        if mask is None:
            return p
        masked = np.where(mask, p, 0.0)
        return np.asarray(masked / masked.sum(axis=1, keepdims=True))

    def log_softmax(self, contexts: FloatArray, mask: BoolArray | None) -> Float32Array:
        """The regression's log-probabilities at the chosen temperature."""
        if self.weights is None:
            raise ValueError("this predictor has no regression")
        logits = self.features(contexts) @ (self.weights / self.temperature).astype(np.float32)
        full = None if mask is None else np.broadcast_to(mask, logits.shape)
        return log_softmax(logits, full)


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossFit:
    """The steps of `PropensityModel.fit`, which share a log and a random generator."""

    model: PropensityModel
    logs: LoggedData
    rng: np.random.Generator

    def folds(self) -> Int64Array:
        """The fold of each row. Users are assigned at random; a single user is cut into blocks of time."""
        logs, folds = self.logs, self.model.folds
        if logs.n_users >= 2:
            return folds_of_users(logs.n_users, min(folds, logs.n_users), self.rng)[logs.user_of_row]
        return time_blocks(len(logs), folds)

    def why_no_regression(self, folds: Int64Array) -> str:
        """The reason to use the marginal alone; empty if a regression can be fitted."""
        logs = self.logs
        if len(np.unique(logs.actions)) < 2:
            return "only one action was ever chosen"
        if logs.n_actions > self.model.max_actions:
            return f"no regression on the contexts, because of more than {self.model.max_actions} actions"
        if logs.schema.width == 0:
            return "no regression on the contexts, because there are none"
        choices = np.bincount(folds[self.choice])
        if choices.sum() - choices.max(initial=0) < FEW_ROWS:
            return f"no regression on the contexts, because of fewer than {FEW_ROWS} decisions to learn from"
        return ""

    @cached_property
    def choice(self) -> BoolArray:
        """For each row, whether there was more than one candidate."""
        if self.logs.candidates is None:
            return np.full(len(self.logs), self.logs.n_actions > 1)
        several: BoolArray = self.logs.candidates.sum(axis=1) > 1
        return several

    def marginal(self, train: BoolArray) -> Predictor:
        """Action frequencies; with candidate sets, the intercepts of a softmax over the candidates.

        Plain frequencies would be wrong there: an action may be frequent only because nothing else was
        allowed.
        """
        logs, width = self.logs, self.logs.n_actions
        counts = np.bincount(logs.actions[train], minlength=width).astype(np.float64)
        tried = np.bincount(logs.actions, minlength=width) > 0
        smooth = np.where(tried, counts + self.model.pseudo_count, 0.0)
        log_marginal = np.log(np.maximum(smooth, 1e-300) / max(smooth.sum(), 1e-300))
        if logs.candidates is not None:
            rows = self._training_rows(train)
            if len(rows):
                ones = np.ones((len(rows), 1), dtype=np.float32)
                fitted = fit_softmax(
                    ones,
                    logs.actions[rows],
                    logs.candidates[rows] & tried,
                    n_actions=width,
                    prior=1.0,
                )[0]
                log_marginal = np.where(tried, fitted, -700.0)
                log_marginal -= np.log(np.exp(log_marginal).sum())
        centre, scale = self._centre_and_scale
        pseudo = self.model.pseudo_count * width
        return Predictor(
            centre=centre,
            scale=scale,
            log_marginal=log_marginal,
            weights=None,
            seen=tried,
            floor=pseudo / (float(counts.sum()) + pseudo),
        )

    def regressions(
        self, plain: list[Predictor], whole: Predictor, folds: Int64Array
    ) -> tuple[Predictor, list[Predictor]]:
        """Fit one regression on all rows and one without each fold; the first fold selects the prior."""
        prior, first = self._choose_prior(plain[0], folds)
        models = [replace(plain[0], weights=first)]
        for fold in range(1, len(plain)):
            rows = self._training_rows(folds != fold)
            models.append(replace(plain[fold], weights=self._regression(plain[fold], rows, prior, first)))
        rows = self._training_rows(np.ones(len(folds), dtype=bool))
        return replace(whole, weights=self._regression(whole, rows, prior, first)), models

    def _choose_prior(self, plain: Predictor, folds: Int64Array) -> tuple[float, Float64Array]:
        """Weaken the prior as long as the held-out log-loss on the first fold falls."""
        held_out = np.flatnonzero(folds == 0)
        held_out = held_out[spread_rows(len(held_out), self.logs.n_actions, 1_000_000)]
        rows = self._training_rows(folds != 0)
        best, least, weights = self.model.priors[0], np.inf, None
        for prior in self.model.priors:
            fitted = self._regression(plain, rows, prior, weights)
            candidate = replace(plain, weights=fitted)
            loss = -float(np.log(taken_probabilities(candidate, self.logs, held_out)).mean())
            if weights is not None and loss >= least:
                break
            best, least, weights = prior, loss, fitted
        return best, np.asarray(weights)

    def calibrate(self, models: list[Predictor], folds: Int64Array) -> tuple[float, float, bool]:
        """Temperature and mix with the least held-out log-loss, and whether that beats the marginal."""
        logs = self.logs
        rows = self._training_rows(np.ones(len(logs), dtype=bool), cells=2_000_000)
        marginal, floor = np.empty(len(rows)), np.empty(len(rows))
        heated = np.empty((len(TEMPERATURES), len(rows)))
        for fold, model in enumerate(models):
            mine = np.flatnonzero(folds[rows] == fold)
            fold_rows = rows[mine]
            plain = replace(model, weights=None)
            marginal[mine], floor[mine] = taken_probabilities(plain, logs, fold_rows), model.floor
            for index, temperature in enumerate(TEMPERATURES):
                hot = replace(model, temperature=temperature)
                heated[index, mine] = taken_probabilities(hot, logs, fold_rows)
        losses = np.array([[-np.log((1 - mix) * p + mix * marginal).mean() for mix in MIXES] for p in heated])
        best_t, best_m = np.unravel_index(int(losses.argmin()), losses.shape)
        temperature, mix = TEMPERATURES[int(best_t)], MIXES[int(best_m)]
        gain = np.log((1 - mix) * heated[best_t] + mix * marginal) - np.log(marginal)
        by_user = np.bincount(logs.user_of_row[rows], weights=gain, minlength=logs.n_users)
        error = np.sqrt((by_user**2).sum()) if logs.n_users > 1 else np.sqrt((gain**2).sum())
        return temperature, mix, bool(gain.sum() > error)

    def _regression(
        self, model: Predictor, rows: IntArray, prior: float, start: Float64Array | None
    ) -> Float64Array:
        logs = self.logs
        mask = model.mask(None if logs.candidates is None else logs.candidates[rows])
        shape = (len(rows), logs.n_actions)
        return fit_softmax(
            model.features(logs.contexts[rows]),
            logs.actions[rows],
            None if mask is None else np.broadcast_to(mask, shape),
            n_actions=logs.n_actions,
            prior=prior,
            start=start,
        )

    def _training_rows(self, train: BoolArray, cells: int | None = None) -> Int64Array:
        """Training rows with more than one candidate; a random sample where there are too many."""
        rows = np.flatnonzero(train & self.choice)
        limit = self.model.max_rows if cells is None else max(1_000, cells // self.logs.n_actions)
        if len(rows) > limit:
            rows = np.sort(self.rng.choice(rows, limit, replace=False))
        return rows.astype(np.int64)

    @cached_property
    def _centre_and_scale(self) -> tuple[Float64Array, Float64Array]:
        sample = self.logs.contexts[spread_rows(len(self.logs), max(self.logs.schema.width, 1))]
        spread = sample.std(axis=0, dtype=np.float64)
        return sample.mean(axis=0, dtype=np.float64), np.where(spread > 0, spread, 1.0)


def predictions(
    logs: LoggedData, predictors: Sequence[Predictor], folds: Int64Array
) -> Iterator[tuple[Int64Array, Float64Array]]:
    """Blocks of rows with their mu(.|x), each row from its own fold's predictor."""
    block = max(1, 2_000_000 // logs.n_actions)
    for fold, predictor in enumerate(predictors):
        mine = np.flatnonzero(folds == fold)
        for start in range(0, len(mine), block):
            rows = mine[start : start + block]
            yield rows, all_probabilities(predictor, logs, rows)


def all_probabilities(predictor: Predictor, logs: LoggedData, rows: IntArray) -> Float64Array:
    """mu(.|x) [m, A] of some rows."""
    return predictor.probabilities(
        logs.contexts[rows], None if logs.candidates is None else logs.candidates[rows]
    )


def taken_probabilities(predictor: Predictor, logs: LoggedData, rows: IntArray) -> Float64Array:
    """mu(a|x) of the chosen actions of some rows."""
    p: Float64Array = all_probabilities(predictor, logs, rows)[np.arange(len(rows)), logs.actions[rows]]
    return p
