from __future__ import annotations

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.features import RandomFourier
from shpi.testing.tabular import random_mdp
from shpi.testing.value import check_value
from shpi.values import (
    LSTD,
    BellmanResidual,
    Constant,
    FittedTD,
    Given,
    LinearValue,
    Pessimistic,
    load_value,
    save_value,
)

MODELS = [
    LSTD(),
    LSTD(features=RandomFourier(n_features=20), ridge=1.0),
    FittedTD(hidden=(8,), steps=30),
    FittedTD(hidden=(8, 8), steps=30, refit=False, refresh=1),
    BellmanResidual(hidden=(8,), steps=30),
    Constant(),
    Constant(-2.5),
    Pessimistic(base=LSTD(ridge=3.0)),
    Pessimistic(base=LSTD(features=RandomFourier(n_features=20), ridge=3.0), method="ensemble", members=3),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_the_suite_holds(model):
    check_value(model)


def test_a_function_conforms_but_is_not_saved():
    check_value(Given(lambda x: x.sum(axis=1)), saves=False)


class Forgetful:
    """Uses the final context whether or not it was observed."""

    def fit(self, logs, *, gamma, seed):
        level = float(logs.final_contexts[:, 0].mean())
        return Constant(level)


class Batchwise:
    def fit(self, logs, *, gamma, seed):
        return Given(lambda x: np.full(len(x), float(x.sum() + len(x))))


class Random:
    def fit(self, logs, *, gamma, seed):
        return Constant(float(np.random.default_rng().normal()))


@pytest.mark.parametrize(
    ("model", "message"),
    [(Forgetful(), "unobserved"), (Batchwise(), "alone"), (Random(), "same log and seed")],
)
def test_the_suite_catches_what_it_promises(model, message):
    with pytest.raises(AssertionError, match=message):
        check_value(model)


def _logs():
    mdp = random_mdp(5, 2, seed=0, gamma=0.9)
    return mdp.log(mdp.random_policy(1), 50, horizon=8, seed=0)


def test_a_users_function_that_returns_nan_is_an_error_that_names_the_row():
    broken = Given(lambda x: np.where(np.arange(len(x)) == 3, np.nan, 1.0)).fit(_logs(), gamma=0.9, seed=0)
    with pytest.raises(DataError, match="row 3"):
        broken(_logs().contexts)
    with pytest.raises(DataError, match="shape"):
        Given(lambda x: x)(_logs().contexts)


def test_a_users_function_cannot_change_the_log():
    def meddle(x):
        x[0] = 1.0
        return x[:, 0]

    with pytest.raises(ValueError, match="read-only"):
        Given(meddle)(_logs().contexts)


def test_files_round_trip_and_damage_is_noticed(tmp_path):
    logs = _logs()
    value = LSTD().fit(logs, gamma=0.9, seed=0)
    place = save_value(value, tmp_path / "deep" / "v.npz")
    np.testing.assert_array_equal(load_value(place)(logs.contexts), value(logs.contexts))
    assert [p.name for p in place.parent.iterdir()] == ["v.npz"]
    place.write_bytes(place.read_bytes()[:100])
    with pytest.raises(DataError, match="npz"):
        load_value(place)
    with pytest.raises(DataError, match="found none"):
        load_value(tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(DataError, match="saved value"):
        load_value(tmp_path / "other.npz")


def test_a_failed_save_leaves_nothing_behind(tmp_path):
    with pytest.raises(ConfigError):
        save_value(Given(lambda x: x[:, 0]), tmp_path / "v.npz")
    assert list(tmp_path.iterdir()) == []


def test_bad_settings():
    for make, message in (
        (lambda: Constant(float("nan")), "finite constant"),
        (lambda: FittedTD(hidden=()), "hidden layer"),
        (lambda: FittedTD(refresh=0), "refresh"),
        (lambda: BellmanResidual(steps=0), "steps"),
        (lambda: Pessimistic(z=-1.0), "z of at least 0"),
        (lambda: Pessimistic(members=1), "members"),
        (lambda: Pessimistic(base=Constant(), method="posterior"), "ensemble"),
        (
            lambda: LinearValue(features=RandomFourier().fit(np.zeros((2, 2))), theta=np.zeros(3)),
            "coefficients",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            make()
