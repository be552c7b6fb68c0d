"""The value of the logging policy is what one counts by hand in the table, in every world and log we have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from shpi.data._read.read import read_log
from shpi.data.columns import Columns
from shpi.data.datasets import names
from shpi.data.logged import LoggedData
from shpi.envs import make
from shpi.envs import names as worlds
from shpi.envs.rollout import rollout
from shpi.errors import ShpiError
from shpi.ope.checks.table import about_table
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.estimators.importance import SNIPS, SNPDIS
from shpi.ope.evaluate import evaluate
from shpi.ope.inference.intervals import standard_error
from shpi.ope.problem import Problem, Settings
from shpi.policies import UniformPolicy
from shpi.testing.hard_worlds import WORLDS
from shpi.testing.tabular import random_mdp
from tests.public_logs import public_log

DAY = 86_400_000_000
COLUMNS = Columns(
    user="u", time="t", time_unit="us", action="a", reward="r", propensity="p", session_gap="1h"
)


def value_of_mu(logs: LoggedData, **settings: object) -> tuple[float, float]:
    """J(mu) and its standard error, as every report has them."""
    problem = Problem.of(UniformPolicy(logs.n_actions), logs, Settings(**settings))
    of_mu = on_policy(problem)
    return of_mu.value, standard_error(of_mu.influence)


def by_hand(logs: LoggedData) -> float:
    return float(np.sum(logs.rewards)) / len(set(logs.users.tolist()))


def shop(seed: int, users: int = 300, span: float = 60.0) -> pl.DataFrame:
    """Users who come on different days, return after some days, and leave for good at some point."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        day = rng.uniform(0, span)
        while True:
            action = int(rng.integers(3))
            rows.append((user, int(day * DAY), action, float(rng.random() < 0.2 + 0.2 * action), 1 / 3))
            if rng.random() < 0.25:
                break
            day += rng.exponential(3.0)
    return pl.DataFrame(rows, schema=["u", "t", "a", "r", "p"], orient="row")


# ---------------------------------------------------------------------- logs that hold everything


@pytest.mark.parametrize("name", sorted(set(worlds()) - {"kuairand"}))  # which is fitted in tests/envs
def test_in_every_simulator(name: str) -> None:
    world = make(name)
    logs = rollout(world, UniformPolicy(world.n_actions), 40, seed=1, horizon=min(12, world.horizon))
    value, _ = value_of_mu(logs)
    assert value == pytest.approx(by_hand(logs), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "name", [name for name in names() if name.count("-") < 2 or name == "open-bandit-men-random"]
)
def test_in_every_data_set(name: str, data_dir) -> None:
    try:
        logs = public_log(name, data_dir)
    except ShpiError as error:
        pytest.skip(f"{name}: {str(error)[:80]}")
    if logs.rewards is None:
        pytest.skip(f"{name} has no reward of its own")
    assert logs.reward_observed is None
    value, _ = value_of_mu(logs)
    assert value == pytest.approx(by_hand(logs), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "metric", [None, "reward in 20d", "sessions in 20d", "decisions", "returns within 5d"]
)
def test_in_a_table_with_users_who_leave(seed: int, metric: str | None) -> None:
    """Failed before: every user was extrapolated to the longest trajectory."""
    logs = read_log(shop(seed).filter(pl.col("t") < 60 * DAY), COLUMNS, metric=metric)
    value, _ = value_of_mu(logs)
    assert value == pytest.approx(by_hand(logs), rel=1e-9)
    old, _ = value_of_mu(replace(logs, terminated=np.zeros(logs.n_trajectories, bool)), truncated="censored")
    assert old > 1.5 * value  # what it was


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_in_every_hard_world(name: str) -> None:
    """Where nobody is censored before the end, exactly; elsewhere both numbers are shown."""
    logs = WORLDS[name].make(seed=0).logs
    problem = Problem.of(UniformPolicy(logs.n_actions), logs)
    value, diagnostic = on_policy(problem).value, about_table(problem)[0]
    if problem.censored == 0:
        assert value == pytest.approx(by_hand(logs), rel=1e-9, abs=1e-12)
        assert diagnostic.severity == "fine"
    else:
        assert f"the table holds {by_hand(logs):.5g}" in diagnostic.sentence


def test_in_marked_worlds() -> None:
    for seed in range(5):
        mdp = random_mdp(5, 3, seed=seed, n_terminal=1, noise=0.3, gamma=0.9)
        logs = mdp.log(mdp.random_policy(1), 200, horizon=8, seed=seed)
        full = logs.select(logs.terminated | (np.diff(logs.offsets) == 8))
        value, _ = value_of_mu(full)
        assert value == pytest.approx(by_hand(full), rel=1e-9)


# ---------------------------------------------------------------------- censored logs


def simulated_truth(metric: Callable[[pl.DataFrame], pl.DataFrame]) -> float:
    whole = metric(shop(99, users=20_000, span=1.0))
    return float(whole["r"].sum()) / 20_000


def test_a_window_is_right_within_its_interval_where_users_come_late() -> None:
    first = pl.col("t").min().over("u")
    truth = simulated_truth(lambda table: table.filter(pl.col("t") < first + 20 * DAY))
    misses, shortfalls = 0, 0
    for seed in range(20):
        logs = read_log(shop(seed).filter(pl.col("t") < 40 * DAY), COLUMNS, metric="reward in 20d")
        assert logs.counted is not None
        assert logs.counted.observed_less > 0.3
        value, error = value_of_mu(logs)
        misses += abs(value - truth) > 1.96 * error
        plain = read_log(shop(seed).filter(pl.col("t") < 40 * DAY), COLUMNS)
        shortfalls += by_hand(plain) < truth - 1.96 * error
    assert misses <= 3
    assert shortfalls >= 5  # the plain mean counts late users too low: the test can fail


def test_churn_after_is_right_within_its_interval() -> None:
    """Users who are cut by the end of the log are worth what users are worth who are not."""
    truth = 4 * 0.4  # a user makes 4 decisions on average, of 0.4 each
    misses, extrapolated = 0, 0
    for seed in range(200, 220):
        table = shop(seed, users=600).filter(pl.col("t") < 60 * DAY)
        value, error = value_of_mu(read_log(table, COLUMNS, churn_after="15d"))
        misses += abs(value - truth) > 1.96 * error
        extrapolated += abs(value_of_mu(read_log(table, COLUMNS, churn_after="never"))[0] - truth) > 4 * error
    assert misses <= 3
    assert extrapolated == 20


# ---------------------------------------------------------------------- the diagnostic


def test_every_evaluation_checks_the_value_of_mu_against_the_table() -> None:
    logs = read_log(shop(0).filter(pl.col("t") < 60 * DAY), COLUMNS)
    evaluation = evaluate(UniformPolicy(3), logs, estimators=[SNPDIS(), SNIPS()], details=False)
    checked = [diagnostic for diagnostic in evaluation.diagnostics if diagnostic.name == "value of the log"]
    assert [diagnostic.severity for diagnostic in checked] == ["fine"]
    assert evaluation.decisive.baseline == pytest.approx(by_hand(logs))
    assert "as in the table" in checked[0].sentence
    assert "does not say how users end" in evaluation.question
    assert "does not say how users end" in str(evaluation).replace("\n  ", " ")


def test_the_diagnostic_warns_of_a_value_that_is_mostly_expected() -> None:
    logs = read_log(shop(0).filter(pl.col("t") < 60 * DAY), COLUMNS, churn_after="never")
    problem = Problem.of(UniformPolicy(3), logs)
    (diagnostic,) = about_table(problem)
    assert diagnostic.severity == "warning"
    assert f"the table holds {by_hand(logs):.5g}" in diagnostic.sentence


def test_the_diagnostic_catches_a_value_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = read_log(shop(0).filter(pl.col("t") < 60 * DAY), COLUMNS)
    problem = Problem.of(UniformPolicy(3), logs)
    wrong = replace(on_policy(problem), value=1.494)
    monkeypatch.setattr("shpi.ope.checks.table.on_policy", lambda problem: wrong)
    assert about_table(problem)[0].severity == "fatal"


def test_early_and_late_users_who_differ_are_noticed() -> None:
    table = shop(0, users=2_000).filter(pl.col("t") < 60 * DAY)
    late = (pl.col("t").min().over("u") > 40 * DAY).cast(pl.Float64)
    logs = read_log(table.with_columns(r=pl.col("r") + 2 * late), COLUMNS, metric="reward in 20d")
    diagnostics = about_table(Problem.of(UniformPolicy(3), logs))
    assert [diagnostic.severity for diagnostic in diagnostics] == ["fine", "warning"]
