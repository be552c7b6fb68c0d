"""J per decision and per session: closed forms, users who came late included."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from shpi.cli.verbs.evaluate import parse_guard
from shpi.data.logged import LoggedData
from shpi.envs.storefront import Storefront
from shpi.errors import ConfigError
from shpi.ope import WDR, Gate, Guard, KStepSHPI
from shpi.ope.estimators.importance import SNIPS, SNPDIS
from shpi.ope.evaluate import evaluate
from shpi.policies import ConstantPolicy, UniformPolicy

DAY = 86_400_000_000


def ageing(users: int = 60, window: int = 4) -> LoggedData:
    """A user comes every day, and brings as much as the days since entry; a new one enters every day."""
    rows = [
        (user, day * DAY, (user + day) % 2, float(day - user), 0.5)
        for user in range(users)
        for day in range(user, min(user + 2 * window, users))
    ]
    table = pl.DataFrame(rows, schema=["u", "t", "a", "r", "p"], orient="row")
    columns = {"user": "u", "time": "t", "time_unit": "us", "action": "a", "reward": "r", "propensity": "p"}
    return LoggedData.read(table, columns | {"session_gap": "1h"}, metric=f"reward in {window}d")


@pytest.mark.parametrize("per", ["decision", "session"])
def test_users_who_came_late_count_alike_above_and_below(per: str) -> None:
    """Failed before: the rewards were weighted for late users, the decisions were not."""
    evaluation = evaluate(UniformPolicy(2), ageing(), estimators=[SNIPS(), WDR()], per=per, details=False)
    for estimate in evaluation.estimates:
        assert estimate.baseline == pytest.approx(1.5, rel=0.02)  # ages 0, 1, 2, 3
        assert estimate.per == per
    assert f"per {per}" in evaluation.metric


def test_the_factors_belong_to_the_window() -> None:
    """Failed before: 30 sessions in the window were divided by the months of the whole log."""
    evaluation = evaluate(UniformPolicy(2), ageing(), estimators=[SNIPS()])
    reward, recommendations, sessions = (factor.baseline for factor in evaluation.decomposition)
    assert reward == pytest.approx(1.5, rel=0.02)
    assert recommendations == pytest.approx(1.0)
    assert sessions == pytest.approx(30.0, rel=0.02)  # 4 in 4 days
    assert evaluation.decisive.baseline == pytest.approx(reward * recommendations * sessions * 4 / 30)


def test_per_session_divides_by_sessions() -> None:
    shop = Storefront()
    mu = UniformPolicy(shop.n_actions)
    logs = shop.rollout(mu, 300, seed=0)
    evaluation = evaluate(mu, logs, estimators=[SNPDIS()], per="session", truncated="complete")
    for estimate in evaluation.estimates:
        assert estimate.value == pytest.approx(logs.rewards.sum() / logs.n_sessions)
        assert estimate.lift == pytest.approx(0, abs=1e-12)


def returning(users: int = 400) -> LoggedData:
    """Action 1 brings a second session; each session brings 1. Sequences of actions are balanced."""
    first = np.arange(users) % 2
    lengths = 1 + first
    actions = np.zeros(lengths.sum(), dtype=np.int64)
    offsets = np.append(0, np.cumsum(lengths))
    actions[offsets[:-1]] = first
    actions[offsets[1:][first == 1] - 1] = np.arange(first.sum()) % 2
    return LoggedData.from_arrays(
        contexts=np.zeros((len(actions), 1)), actions=actions, n_actions=2, offsets=offsets,
        session_offsets=np.arange(len(actions) + 1), rewards=np.ones(len(actions)),
        propensities=np.full(len(actions), 0.5), terminated=np.ones(users, dtype=bool),
        metrics={"visit": np.ones(len(actions))},
    )  # fmt: skip


@pytest.mark.parametrize("estimator", [SNIPS(), SNPDIS(), WDR(), KStepSHPI(k=2)])
def test_more_sessions_of_equal_worth_are_no_lift_per_session(estimator: SNIPS) -> None:
    policy = ConstantPolicy((0.2, 0.8))
    per_user = evaluate(policy, returning(), estimators=[estimator], details=False).decisive
    per_session = evaluate(policy, returning(), estimators=[estimator], per="session", details=False).decisive
    assert per_user.lift == pytest.approx(0.3, abs=0.01)
    assert per_session.value == pytest.approx(1.0)
    assert per_session.lift == pytest.approx(0.0, abs=1e-9)


def test_guards_per_session() -> None:
    gate = Gate(guards=(Guard(metric="visit", max_drop=0.01, per="session"),))
    evaluation = evaluate(
        ConstantPolicy((0.2, 0.8)), returning(), estimators=[SNPDIS()], gate=gate, details=False
    )
    assert evaluation.verdict.ship
    assert "'visit' per session" in evaluation.verdict.guards[0].sentence
    assert parse_guard("click/session:-2%").per == "session"
    assert parse_guard("click/other:-2%").metric == "click/other"
    with pytest.raises(ConfigError, match="'user', 'decision' or 'session'"):
        Guard(metric="visit", per="week")
    with pytest.raises(ConfigError, match="'user', 'decision' or 'session'"):
        evaluate(UniformPolicy(2), returning(10), per="week")
