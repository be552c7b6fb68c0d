"""The conformance suite for value models; it raises ``AssertionError`` with a clear message.

from shpi.testing.value import check_value

def test_my_value() -> None:
    check_value(MyValue(...))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError, ShpiError
from shpi.protocols import Float64Array
from shpi.testing._require import require
from shpi.testing.tabular import random_mdp
from shpi.values.base import FittedValue, StateValues, ValueModel
from shpi.values.files import value_from_arrays, value_to_arrays

_ROW = 1e-9  # tolerance of a row alone against the same row in a batch, relative to 1 + the largest value


def check_value(
    model: ValueModel, logs: LoggedData | None = None, *, gamma: float = 0.9, saves: bool = True
) -> None:
    """Check that a value model meets the requirements of the rest of shpi.

    Args:
        model: any object with ``fit(logs, *, gamma, seed)``; it need not come from shpi.
        logs: log to fit; None: a small one with trajectories of many lengths and every kind of ending.
        gamma: discount factor.
        saves: whether the fitted value can be saved; if not, saving must fail with a clear error.

    Raises:
        AssertionError: if something does not hold; the message says what.
    """
    data = _small_log() if logs is None else logs
    before = data.fingerprint()
    value = model.fit(data, gamma=gamma, seed=3)
    require(data.fingerprint() == before, "fit changed the log")
    values = _check_shapes(value, data)
    again = model.fit(data, gamma=gamma, seed=3)(data.contexts)
    require(np.array_equal(values, again), "the same log and seed gave another value")
    _check_rows(value, data, values)
    _check_unknown_ends(model, data, gamma, values)
    _check_errors(value, data)
    _check_files(value, data, values, saves=saves)


def _check_shapes(value: FittedValue, logs: LoggedData) -> Float64Array:
    contexts = logs.contexts.copy()
    values = value(contexts)
    require(np.array_equal(contexts, logs.contexts), "the value changed the contexts that it was given")
    require(
        isinstance(values, np.ndarray) and values.shape == (len(logs),) and values.dtype == np.float64,
        "values must be a float64 array [n]",
    )
    require(bool(np.isfinite(values).all()), "values must be finite")
    states = StateValues.of(value, logs)
    require(np.allclose(states.rows, values, rtol=0, atol=_tolerance(values)), "StateValues.of differs")
    require(value(contexts[:0]).shape == (0,), "no contexts must give no values")
    return values


def _check_rows(value: FittedValue, logs: LoggedData, values: Float64Array) -> None:
    for row in (0, len(logs) // 2, len(logs) - 1):
        error = abs(float(value(logs.contexts[row : row + 1])[0] - values[row]))
        require(error <= _tolerance(values), f"row {row} alone differs from the batch by {error:.2e}")
    turned = value(np.ascontiguousarray(logs.contexts[::-1]))[::-1]
    require(np.allclose(turned, values, rtol=0, atol=_tolerance(values)), "the order of contexts matters")


def _check_unknown_ends(model: ValueModel, logs: LoggedData, gamma: float, values: Float64Array) -> None:
    """The placeholder for an unobserved final context must not affect the fit."""
    hidden = ~(logs.final_observed | logs.terminated)
    if not hidden.any():
        return
    finals = logs.final_contexts.copy()
    finals[hidden] = logs.contexts[0]
    other = model.fit(replace(logs, final_contexts=finals), gamma=gamma, seed=3)(logs.contexts)
    require(
        np.allclose(other, values, rtol=0, atol=_tolerance(values)),
        "an unobserved final context was used as if it had been observed",
    )


def _check_errors(value: FittedValue, logs: LoggedData) -> None:
    broken = logs.contexts[:2].copy()
    broken[1, 0] = np.nan
    for contexts, label in ((broken, "a NaN in a context"), (logs.contexts[0], "a context without rows")):
        try:
            value(contexts)
        except ShpiError:
            continue
        raise AssertionError(f"{label} must raise one of shpi's errors")


def _check_files(value: FittedValue, logs: LoggedData, values: Float64Array, *, saves: bool) -> None:
    if not saves:
        try:
            value_to_arrays(value)
        except ConfigError:
            return
        raise AssertionError("saving was expected to fail with a ConfigError")
    arrays = value_to_arrays(value)
    require(all(a.dtype.kind != "O" for a in arrays.values()), "an array of objects would need pickle")
    loaded = value_from_arrays(arrays)
    require(np.array_equal(loaded(logs.contexts), values), "the loaded value differs from the saved one")
    try:
        value_from_arrays({name: a for name, a in arrays.items() if name != "manifest"})
    except DataError:
        return
    raise AssertionError("arrays without a manifest must raise a DataError")


def _small_log() -> LoggedData:
    mdp = random_mdp(6, 2, seed=0, gamma=0.9, n_terminal=1, noise=0.1)
    return mdp.log(mdp.random_policy(1), 60, horizon=12, seed=2)


def _tolerance(values: Float64Array) -> float:
    return _ROW * (1.0 + float(np.abs(values).max(initial=0.0)))
