"""The conformance suite for regression oracles; it raises ``AssertionError`` with a clear message."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.oracles.base import Oracle, PreparedOracle
from shpi.policies.files import load_policy, save_policy
from shpi.policies.heads import Softmax
from shpi.policies.scorers import Scorer
from shpi.protocols import Float64Array
from shpi.testing._require import require

_ROUNDING = 1e-9  # tolerance of scores, relative to the largest one


def check_oracle(oracle: Oracle, *, accuracy: float = 0.9, rows: int = 3000, saves: bool = True) -> None:
    """Check that an oracle meets the requirements of the learners.

    Args:
        oracle: any object with ``prepare``; it need not come from shpi.
        accuracy: smallest R squared on new contexts, for a function linear in x with slopes per action.
        rows: number of rows in the log that the suite generates.
        saves: whether a fitted scorer can be saved.

    Raises:
        AssertionError: if something does not hold; the message says what.
    """
    logs, truth = example_log(rows)
    before = _copies(logs)
    prepared = oracle.prepare(logs, seed=7)
    require(
        isinstance(prepared, PreparedOracle),
        "a prepared oracle needs `unseen`, `tune`, `fit` and `scores_on_log`",
    )
    targets = truth(logs.contexts)[np.arange(rows), logs.actions]
    targets = targets + 0.1 * np.random.default_rng(5).standard_normal(rows)
    kept = targets.copy()
    scorer = prepared.fit(targets)
    require(before == _copies(logs), "the oracle changed the log that it was given")
    _check_scorer(scorer, logs)
    _check_accuracy(scorer, truth, accuracy)
    _check_unseen(prepared, scorer, logs)
    _check_repetition(oracle, prepared, scorer, logs, targets)
    _check_scores_on_log(prepared, scorer, logs)
    _check_tuning(prepared, targets, truth, accuracy)
    _check_scales(prepared, scorer, logs, targets)
    _check_rows(prepared, logs, targets)
    _check_errors(prepared, targets)
    if saves:
        _check_files(scorer, logs)
    require(np.array_equal(targets, kept), "the oracle changed the targets that it was given")
    require(before == _copies(logs), "the oracle changed the log that it was given")


def example_log(
    rows: int, *, width: int = 3, seed: int = 0
) -> tuple[LoggedData, Callable[..., Float64Array]]:
    """A log of 5 actions, the last of which is never taken, and a function f(x, .) [n, 5] linear in x."""
    rng = np.random.default_rng(seed)
    slopes, levels = rng.standard_normal((5, width)), rng.standard_normal(5)
    contexts = (3.0 + 2.0 * rng.standard_normal((rows, width))).astype(np.float32)
    candidates = rng.random((rows, 5)) < 0.8
    candidates[:, 0] = True
    behaviour = np.where(candidates, rng.random((rows, 5)) + 0.3, 0.0)
    behaviour[:, 4] = 0.0
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    cumulated = behaviour.cumsum(axis=1)
    actions = (cumulated < cumulated[:, -1:] * rng.random((rows, 1))).sum(axis=1)
    starts = np.unique(np.append(0, rng.integers(1, rows, size=rows // 10)))
    logs = LoggedData.from_arrays(
        contexts=contexts,
        actions=actions,
        offsets=np.append(starts, rows),
        rewards=rng.standard_normal(rows),
        propensities=behaviour[np.arange(rows), actions],
        behaviour=behaviour,
        candidates=candidates,
        action_space=ActionSpace.numbered(5),
    )

    def truth(x: Float64Array) -> Float64Array:
        values: Float64Array = levels + (np.asarray(x, dtype=np.float64) - 3.0) @ slopes.T
        return values

    return logs, truth


def _check_scorer(scorer: Scorer, logs: LoggedData) -> None:
    require(isinstance(scorer, Scorer), "`fit` must return a scorer: `n_actions`, `width` and `scores`")
    require(scorer.n_actions == logs.n_actions, f"the scorer knows {scorer.n_actions} actions, the log 5")
    scores = scorer.scores(logs.contexts[:7])
    require(scores.shape == (7, logs.n_actions), f"scores have shape {scores.shape}, not [n, A]")
    require(scores.dtype == np.float64, f"scores are {scores.dtype}, not float64")
    alone = scorer.scores(logs.contexts[3:4])
    _close(alone, scores[3:4], "a context alone is scored differently from the same one in a batch")
    require(scorer.scores(logs.contexts[:0]).shape == (0, logs.n_actions), "no contexts must give no scores")


def _check_accuracy(scorer: Scorer, truth: Callable[..., Float64Array], accuracy: float) -> None:
    fresh = (3.0 + 2.0 * np.random.default_rng(99).standard_normal((500, 3))).astype(np.float32)
    wanted, scores = truth(fresh)[:, :4], scorer.scores(fresh)[:, :4]
    explained = 1.0 - float(((scores - wanted) ** 2).mean() / wanted.var())
    require(explained >= accuracy, f"R squared {explained:.3f} on a linear function, below {accuracy}")


def _check_unseen(prepared: PreparedOracle, scorer: Scorer, logs: LoggedData) -> None:
    require(list(prepared.unseen) == [4], f"`unseen` must be [4], the action never taken: {prepared.unseen}")
    scores = scorer.scores(logs.contexts)
    require(bool(np.isfinite(scores).all()), "a score is not finite")
    known, new = np.abs(scores[:, :4]).max(), np.abs(scores[:, 4]).max()
    require(new <= 10 * known, f"an action without data scores up to {new:.3g}, the others up to {known:.3g}")


def _check_repetition(
    oracle: Oracle, prepared: PreparedOracle, scorer: Scorer, logs: LoggedData, targets: Float64Array
) -> None:
    x, other = logs.contexts[:200], np.sin(targets) + logs.contexts[:, 0]
    again = oracle.prepare(logs, seed=7)
    _same(again.fit(targets).scores(x), scorer.scores(x), "the same seed gave other scores")
    second = prepared.fit(other).scores(x)
    _same(oracle.prepare(logs, seed=7).fit(other).scores(x), second, "a second fit remembers the first one")
    _same(prepared.fit(targets).scores(x), scorer.scores(x), "fitting other targets changed the oracle")


def _check_scores_on_log(prepared: PreparedOracle, scorer: Scorer, logs: LoggedData) -> None:
    direct, at = scorer.scores(logs.contexts), 0
    for rows, scores in prepared.scores_on_log(scorer):
        require(rows.start == at, "the blocks of `scores_on_log` must follow each other")
        _close(scores, direct[rows], "`scores_on_log` differs from the scorer")
        at = rows.stop
    require(at == len(logs), f"`scores_on_log` stopped at row {at} of {len(logs)}")


def _check_tuning(
    prepared: PreparedOracle, targets: Float64Array, truth: Callable[..., Float64Array], accuracy: float
) -> None:
    tuned = prepared.tune(targets)
    require(isinstance(tuned, PreparedOracle), "`tune` must return a prepared oracle")
    _check_accuracy(tuned.fit(targets), truth, accuracy)


def _check_scales(prepared: PreparedOracle, scorer: Scorer, logs: LoggedData, targets: Float64Array) -> None:
    x, huge = logs.contexts[:200], 2.0**40  # about 1e12, and exact in floating point
    _close(prepared.fit(huge * targets).scores(x) / huge, scorer.scores(x), "targets of 1e12 change the fit")
    for constant in (0.0, -3.5, 1e12):
        scores = prepared.fit(np.full(len(logs), constant)).scores(x)
        worst = float(np.abs(scores - constant).max())
        require(
            worst <= 1e-6 * max(1.0, abs(constant)), f"targets of {constant:g} gave scores off by {worst:.3g}"
        )


def _check_rows(prepared: PreparedOracle, logs: LoggedData, targets: Float64Array) -> None:
    x, valid = logs.contexts[:200], np.arange(len(logs)) % 3 > 0
    masked = prepared.fit(np.where(valid, targets, np.nan), valid=valid).scores(x)
    require(bool(np.isfinite(masked).all()), "targets of invalid rows must not be looked at")
    weighted = prepared.fit(np.where(valid, targets, 1e6), weights=valid.astype(float)).scores(x)
    _close(weighted, masked, "rows of weight 0 and invalid rows must be the same")


def _check_errors(prepared: PreparedOracle, targets: Float64Array) -> None:
    broken = targets.copy()
    broken[17] = np.nan
    for bad, label in (
        (broken, "a NaN among the targets"),
        (targets[:-1], "a target too few"),
        (np.where(np.arange(len(targets)) == 3, np.inf, targets), "an infinite target"),
    ):
        try:
            prepared.fit(bad)
        except DataError:
            continue
        raise AssertionError(f"{label} must raise a DataError")


def _check_files(scorer: Scorer, logs: LoggedData) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_policy(Softmax(scorer), Path(folder) / "policy")
        loaded = load_policy(Path(folder) / "policy")
    require(isinstance(loaded, Softmax), "a softmax was loaded as something else")
    if isinstance(loaded, Softmax):
        x = logs.contexts[:200]
        _same(loaded.scorer.scores(x), scorer.scores(x), "a loaded scorer differs from the saved one")


def _copies(logs: LoggedData) -> dict[str, bytes]:
    arrays = {item.name: getattr(logs, item.name) for item in fields(replace(logs))}
    return {name: value.tobytes() for name, value in arrays.items() if isinstance(value, np.ndarray)}


def _same(scores: Float64Array, wanted: Float64Array, message: str) -> None:
    require(np.array_equal(scores, wanted), f"{message}, by up to {np.abs(scores - wanted).max():.3g}")


def _close(scores: Float64Array, wanted: Float64Array, message: str) -> None:
    worst = float(np.abs(scores - wanted).max(initial=0.0))
    spread = float(np.abs(wanted).max(initial=0.0)) or 1.0
    require(worst <= _ROUNDING * spread, f"{message}, by up to {worst:.3g}")
