"""What was known when: the audit warns of context columns that may be filled after the decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from shpi.data._read.read import read_log
from shpi.data.audit import AuditReport
from shpi.data.columns import Columns

MAP = Columns(
    user="u", time="t", time_unit="step", action="a", reward="clicked", propensity="p", context=("x",)
)


def shop(users: int = 300, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    n = users * 5
    x, a = rng.normal(size=n), rng.integers(0, 3, n)
    clicked = rng.random(n) < 1 / (1 + np.exp(1.5 - x))
    return pl.DataFrame(
        {
            "u": np.repeat(np.arange(users), 5),
            "t": np.tile(np.arange(5), users),
            "a": a,
            "p": np.full(n, 1 / 3),
            "x": x,
            "clicked": clicked.astype(float),
            "purchased": (clicked & (rng.random(n) < 0.3)).astype(float),
            "dwell": np.where(clicked, rng.gamma(2, 30, n), rng.gamma(2, 1.5, n)),
            "price_paid": [float(v) if c else None for v, c in zip(rng.random(n), clicked, strict=True)],
        }
    )


def codes(report: AuditReport) -> dict[str, str]:
    wanted = ("only_with_reward", "predicts_reward", "changing_column", "leaking_column")
    return {finding.column: finding.code for finding in report.findings if finding.code in wanted}


def test_a_feature_that_was_known_is_no_suspect() -> None:
    assert codes(read_log(shop(), MAP).audit()) == {}


def test_an_outcome_in_the_context_is_a_suspect() -> None:
    """Failed before: the audit passed `purchased` beside the reward `clicked`."""
    report = read_log(shop(), replace(MAP, context=("x", "purchased", "dwell"))).audit()
    assert codes(report) == {"purchased": "only_with_reward", "dwell": "predicts_reward"}
    remedy = next(finding.remedy for finding in report.findings if finding.code == "only_with_reward")
    assert "move it from 'context' to 'metrics'" in remedy


def test_a_column_that_is_filled_only_where_a_reward_came() -> None:
    columns = replace(MAP, context=("x", "price_paid"), missing={"price_paid": "indicator"})
    assert "price_paid" in codes(read_log(shop(), columns).audit())


def test_a_column_that_is_updated_after_the_decision() -> None:
    """An upserted table: the same decision again, after the purchase."""
    first = shop().with_columns(state=pl.lit(0.0))
    again = first.head(40).with_columns(state=pl.lit(1.0))
    logs = read_log(pl.concat([first, again]), replace(MAP, context=("x", "state")))
    report = logs.audit()
    assert codes(report)["state"] == "changing_column"
    assert logs.ledger.changing == ("state",)
