"""A saved model of trees is checked before LightGBM reads it: a wrong index there ends the process."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from shpi.errors import DataError
from shpi.oracles import Gbdt
from shpi.oracles.gbdt_text import checked_model
from shpi.testing.tastes import Tastes

lightgbm = pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def text() -> str:
    logs = Tastes().log(200, seed=0)
    targets = np.asarray(logs.rewards) + 3 * (logs.actions % 2)  # the action matters: categorical splits
    scorer = Gbdt(trees=6, leaves=8, min_rows=3).prepare(logs, seed=0).fit(targets)
    return str(scorer.model.tobytes().decode())


def test_the_checked_text_predicts_the_same(text: str) -> None:
    assert "cat_threshold" in text
    columns = np.random.default_rng(0).normal(size=(300, 3))
    columns[:, 2] = np.arange(300) % 5
    before, after = (
        lightgbm.Booster(model_str=model).predict(columns) for model in (text, checked_model(text, 3))
    )
    np.testing.assert_array_equal(before, after)


def changed(text: str, key: str, change: str) -> str:
    """The first value of the first line of a key, changed."""
    return re.sub(rf"^{key}=\S+", f"{key}={change}", text, count=1, flags=re.M)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("left_child", "2000000"),
        ("left_child", "0"),
        ("left_child", "-9999"),
        ("right_child", "1"),
        ("split_feature", "17"),
        ("split_feature", "-1"),
        ("num_leaves", "100000"),
        ("num_leaves", "-1"),
        ("num_cat", "9"),
        ("threshold", "nan"),
        ("leaf_value", "inf"),
        ("decision_type", "255"),
        ("cat_boundaries", "7"),
        ("cat_threshold", "99999999999"),
        ("max_feature_idx", "40000"),
        ("num_class", "1000000"),
        ("objective", "binary"),
    ],
)
def test_every_wrong_index_is_refused(text: str, key: str, change: str) -> None:
    with pytest.raises(DataError) as caught:
        checked_model(changed(text, key, change), 3)
    assert caught.value.remedy


def test_random_edits_never_end_the_process(text: str) -> None:
    """In a process of its own, because that is what is at stake."""
    code = """
import sys, random
import numpy as np, lightgbm
from shpi.errors import ShpiError
from shpi.oracles.gbdt_text import checked_model
text, chance, refused = sys.stdin.read(), random.Random(0), 0
body = text.index("end of trees")
for _ in range(1500):
    place = chance.randrange(body)
    edited = text[:place] + chance.choice("0123456789-=. \\nen") + text[place + chance.choice([0, 1, 1, 5]):]
    try:
        safe = checked_model(edited, 3)
    except ShpiError:
        refused += 1
        continue
    scores = lightgbm.Booster(model_str=safe).predict(np.ones((4, 3)), num_threads=1)
    assert np.isfinite(scores).all()
print(refused)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    assert int(done.stdout) > 100
