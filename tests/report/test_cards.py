"""What a notebook shows: well-formed, inert, short; and tables of the same things."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.ope.candidates import Comparison
from shpi.policies import Mixture, UniformPolicy
from tests.report.evaluations import CASES, EVIL, hostile, ordinary
from tests.report.test_html import read, text
from tests.test_surface import MAP, table

ACTS = {"script", "iframe", "object", "link", "img", "form", "style"}


@pytest.fixture(scope="module")
def things() -> dict[str, object]:
    logs = shpi.LoggedData.read(table(), MAP)
    policy = shpi.OfflineSHPI(seed=0).fit(logs)
    evaluation = shpi.evaluate(policy, logs, gate=shpi.Gate(), policy_name="today")
    return {
        "log": logs,
        "audit": logs.audit(),
        "policy": policy,
        "mixture": Mixture((policy, UniformPolicy(3)), (0.3, 0.7)),
        "bare policy": UniformPolicy(3),
        "evaluation": evaluation,
        "comparison": Comparison(evaluations=(evaluation, ordinary()), best=None),
    }


@pytest.mark.parametrize(
    "name", ["log", "audit", "policy", "mixture", "bare policy", "evaluation", "comparison"]
)
def test_a_card_is_small_and_inert(things, name):
    page = things[name]._repr_html_()
    reader = read(page)
    assert len(page) < 30_000
    assert not ACTS & {tag for tag, _ in reader.tags}
    assert "nan" not in text(page).lower().split()


def test_cards_say_what_matters(things):
    assert "300 of 100 users" in text(things["log"]._repr_html_())
    assert "hat, shoe, sock" in text(things["log"]._repr_html_())
    assert "for learning" in text(things["audit"]._repr_html_())
    shown = text(things["policy"]._repr_html_())
    assert "age, city" in shown
    assert ("proven better" in shown) == things["policy"].proven
    shown = text(things["evaluation"]._repr_html_())
    assert things["evaluation"].verdict.decision in shown
    assert "decides" in shown
    assert "autumn model" in text(things["comparison"]._repr_html_())


@pytest.mark.parametrize("case", CASES)
def test_any_evaluation_has_a_card(case):
    page = CASES[case]()._repr_html_()
    read(page)
    assert len(page) < 60_000


def test_words_of_users_are_shown_not_obeyed():
    page = hostile()._repr_html_() + Comparison(evaluations=(hostile(),), best=EVIL)._repr_html_()
    assert "<script" not in page
    logs = shpi.LoggedData.read(
        table().with_columns(item=pl.col("item") + EVIL).rename({"age": EVIL}), {**MAP, "context": [EVIL]}
    )
    page = logs._repr_html_() + logs.audit()._repr_html_()
    assert "<script" not in page


def test_everything_is_a_table_too(things):
    frame = things["log"].to_polars()
    assert frame.columns[:6] == ["user", "time", "session", "item", "reward", "propensity"]
    assert frame.height == 300
    assert set(frame["item"]) == {"hat", "shoe", "sock"}
    np.testing.assert_allclose(frame["age"], table()["age"].cast(pl.Float32))
    again = shpi.LoggedData.read(
        frame, {"user": "user", "time": "time", "action": "item", "reward": "reward"}
    )
    assert again.rewards.sum() == pytest.approx(things["log"].rewards.sum())
    rows = things["evaluation"].to_polars()
    assert rows.filter(pl.col("mark") == "decides").height == 1
    judged = things["evaluation"]
    ordered = [] if judged.mixture is None else [judged.mixture.estimate]
    assert rows["lift"].to_list() == [estimate.lift for estimate in (*ordered, *judged.estimates)]
    assert {"severity", "code", "message"} <= set(things["audit"].to_polars().columns)
    assert things["comparison"].to_polars()["policy"].to_list() == ["today", "autumn model"]


def test_dates_are_dates_and_names_that_clash_are_told_apart():
    rows = table().with_columns(time=pl.datetime(2026, 1, 1) + pl.duration(days=pl.int_range(pl.len())))
    logs = shpi.LoggedData.read(rows.rename({"age": "reward"}), {
        "user": "uid", "time": "time", "action": "item", "reward": "bought", "context": ["reward"],
    })  # fmt: skip
    frame = logs.to_polars()
    assert frame["time"].dtype == pl.Datetime("us")
    assert "context.reward" in frame.columns
