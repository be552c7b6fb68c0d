"""What people hold in their hands: exports, short representations, words for parts, tables, item ids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import shpi
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.learners import registry
from shpi.policies import ConstantPolicy, LinearScorer, Mixture, Softmax, UniformPolicy

MAP = {"user": "uid", "action": "item", "reward": "bought", "propensity": "p", "context": ["age", "city"]}


def table(n: int = 300, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    item = rng.choice(["hat", "shoe", "sock"], n)
    return pl.DataFrame({
        "uid": np.repeat(np.arange(n // 3), 3), "item": item, "p": np.full(n, 1 / 3), "age": rng.random(n),
        "city": rng.choice(["Rome", "Oslo"], n), "bought": (item == "hat") + 0.1 * rng.random(n),
    })  # fmt: skip


def test_everything_that_is_promised_is_there():
    for name in shpi.__all__:
        assert getattr(shpi, name) is not None
    assert shpi.OfflineSHPI(seed=1).seed == 1
    assert shpi.OnlineSHPI().gamma == 0.99
    assert {"OfflineSHPI", "OnlineSHPI", "Mixture", "Guard", "compare"} <= set(dir(shpi))


def test_a_dict_is_a_column_map():
    logs = shpi.LoggedData.read(table(), MAP)
    assert len(logs) == 300
    with pytest.raises(ConfigError, match=r"unknown .*'usr'"):
        shpi.LoggedData.read(table(), {**MAP, "usr": "uid"})
    with pytest.raises(ConfigError, match="a column map"):
        shpi.LoggedData.read(table(), 7)


@pytest.mark.parametrize("name", [n for n in registry.names("offline") if registry.missing(n) is None])
@pytest.mark.parametrize("wrong", [table(9), table(9).to_pandas(), "events.parquet", np.zeros((3, 2))])
def test_what_is_no_log_is_a_clear_error(name, wrong):
    with pytest.raises(DataError, match=r"expected a log .*shpi\.LoggedData\.read"):
        registry.make(name).fit(wrong)


def test_parts_may_be_words():
    assert type(shpi.OfflineSHPI(value="lstd").value).__name__ == "LSTD"
    assert type(shpi.OfflineSHPI(oracle="ridge").oracle).__name__ == "Ridge"
    assert type(shpi.OnlineSHPI(value="zero").value).__name__ == "Constant"
    with pytest.raises(ConfigError, match="value among lstd"):
        shpi.OfflineSHPI(value="lsdt")


def test_representations_are_short():
    rng = np.random.default_rng(0)
    scorer = LinearScorer(rng.standard_normal((50, 21)), Identity().fit(rng.standard_normal((9, 20))))
    policies = [UniformPolicy(50), ConstantPolicy(np.full(50, 0.02)), Softmax(scorer, 1.0)]
    policies.append(Mixture(policies, (0.2, 0.3, 0.5)))
    logs = shpi.LoggedData.read(table(), MAP)
    policy = shpi.OfflineSHPI(seed=0).fit(logs)
    evaluation = shpi.evaluate(policy, logs, gate=shpi.Gate())
    comparison = shpi.compare({"a": policy}, logs, shpi.Gate())
    for thing in (*policies, logs, policy, logs.audit(), evaluation, evaluation.decisive, comparison):
        assert len(repr(thing)) < 300, repr(thing)[:400]
        assert "array(" not in repr(thing)
    assert repr(policies[2]) == "Softmax(50 actions, 20 context dimensions)"


def test_a_policy_acts_on_rows_and_gives_items(tmp_path):
    logs = shpi.LoggedData.read(table(), MAP)
    policy = shpi.OfflineSHPI(seed=0).fit(logs)
    rows = table(30, seed=1)
    items, chances = policy.act(rows, seed=7)
    assert set(items) <= {"hat", "shoe", "sock"}
    numbers, same = policy.act(logs.schema.encode(rows), seed=7)
    assert [logs.action_space.ids[i] for i in numbers] == items.tolist()
    np.testing.assert_array_equal(chances, same)
    for other in (rows.to_pandas(), rows.to_arrow(), rows.to_dicts(), rows.to_dict(as_series=False)):
        np.testing.assert_array_equal(policy.act(other, seed=7)[0], items)
    assert policy.act({"age": 0.4, "city": "Rome"}, seed=7)[0].shape == (1,)
    only = policy.act(rows, [["sock", "shoe"]] * 30, seed=7)[0]
    assert set(only) <= {"sock", "shoe"}


def test_a_policy_that_is_saved_and_loaded_keeps_its_items(tmp_path):
    logs = shpi.LoggedData.read(table(), MAP)
    policy = shpi.OfflineSHPI(seed=0).fit(logs)
    rows = table(30, seed=1)
    for number, served in enumerate((policy, Mixture((policy, UniformPolicy(3)), (0.3, 0.7)))):
        loaded = shpi.load_policy(served.save(tmp_path / f"p{number}"))
        np.testing.assert_array_equal(loaded.act(rows, seed=1)[0], served.act(rows, seed=1)[0])
        again = shpi.load_policy(loaded.save(tmp_path / f"again{number}"))
        np.testing.assert_array_equal(again.act(rows, seed=1)[0], served.act(rows, seed=1)[0])


def test_rows_for_a_policy_that_knows_no_columns_are_a_clear_error():
    with pytest.raises(ConfigError, match="knows its context columns"):
        UniformPolicy(3).act(pd.DataFrame({"age": [1.0]}), seed=0)
    logs = shpi.LoggedData.read(table(), MAP)
    policy = registry.make("bandit").fit(logs)
    with pytest.raises(DataError, match=r"without \['city'\]"):
        policy.act(table(3).drop("city"), seed=0)
