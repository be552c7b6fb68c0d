import json

import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.ope import Diagnostic, Estimate, Evaluation, Interval, Verdict, Weights, interval_of


def an_estimate(name: str = "SNPDIS", *, lift: float = 1.0, error: float = 0.5, users: int = 50) -> Estimate:
    rng = np.random.default_rng(sum(name.encode()))
    raw = rng.standard_normal(users)
    influence = error * np.sqrt(users) * (raw - raw.mean()) / raw.std(ddof=1)
    return Estimate(
        name=name,
        value=10 + lift,
        baseline=10.0,
        lift=lift,
        value_error=error,
        lift_error=error,
        value_interval=interval_of(10 + lift, influence),
        lift_interval=interval_of(lift, influence),
        effective_users=20.0,
        influence_value=influence,
        influence_lift=influence,
        weights=Weights(mean=1.0, max=3.0, ess=20.0, top_share=0.1),
    )


def an_evaluation(**changes) -> Evaluation:
    settings = {
        "policy_name": "greedy",
        "metric": "reward per user",
        "estimates": (an_estimate(), an_estimate("WDR", lift=0.8)),
        "main": "WDR",
        "users": 50,
        "decisions": 500,
    }
    return Evaluation(**(settings | changes))


def test_the_table_says_who_decides_and_what_speaks_against_it():
    text = str(
        an_evaluation(
            verdict=Verdict(decision="need more data", reasons=("too few users",), users_needed=1_200),
            diagnostics=(
                Diagnostic(name="ess", severity="warning", sentence="Only 20 effective users."),
                Diagnostic(name="mean", severity="fine", sentence="Mean weight 1.00."),
            ),
        )
    )
    assert "VERDICT: NEED MORE DATA" in text
    assert "1,200 users" in text
    assert "WDR *" in text
    assert "Only 20 effective users" in text
    assert "Mean weight" not in text


def test_json_has_no_nan_and_no_numbers_per_user():
    odd = an_estimate()
    wide = Interval(level=0.95, lower=-np.inf, upper=np.inf, lower_bound=-np.inf, method="t")
    evaluation = an_evaluation(estimates=(Estimate(**(vars(odd) | {"lift_interval": wide})),), main="SNPDIS")
    described = evaluation.to_json()
    text = json.dumps(described, allow_nan=False)
    assert described["estimates"][0]["lift_interval"]["lower"] is None
    assert "influence_value" not in text
    assert len(evaluation.to_json(influences=True)["estimates"][0]["influence_lift"]) == 50


def test_json_is_written_whole(tmp_path):
    path = an_evaluation().write_json(tmp_path / "evaluation.json")
    assert json.loads(path.read_text())["main"] == "WDR"
    assert [file.name for file in tmp_path.iterdir()] == ["evaluation.json"]


def test_estimates_are_found_by_name():
    evaluation = an_evaluation()
    assert evaluation["SNPDIS"].lift == 1.0
    assert evaluation.decisive.name == "WDR"
    with pytest.raises(ConfigError, match="one of the estimators"):
        evaluation["DR"]


def test_the_main_estimator_must_be_there_and_names_distinct():
    with pytest.raises(ConfigError, match="a main estimator among distinct names"):
        an_evaluation(main="DR")
    with pytest.raises(ConfigError, match="distinct names"):
        an_evaluation(estimates=(an_estimate(), an_estimate()), main="SNPDIS")


def test_a_verdict_ships_or_not():
    assert Verdict(decision="ship").ship
    assert not Verdict(decision="hold").ship
