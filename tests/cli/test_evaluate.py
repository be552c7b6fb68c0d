"""``shpi evaluate``: a policy folder and a log to a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shpi.cli.main import main
from shpi.cli.verbs import evaluate as verb
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.policies import ConstantPolicy, UniformPolicy, save_policy

FAST = ["--estimators", "snips"]


def bandit(seed: int, users: int, effect: float) -> LoggedData:
    """One decision per user; the second action earns more, and costs half of the clicks."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=users)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((users, 1)), actions=actions,
        rewards=effect * actions + rng.standard_normal(users),
        propensities=np.full(users, 0.5), behaviour=np.full((users, 2), 0.5),
        offsets=np.arange(users + 1), n_actions=2,
        metrics={"click": (rng.random(users) < np.where(actions == 1, 0.2, 0.4)).astype(float)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    logs = bandit(0, 800, 1.0)
    logs.to_parquet(folder / "log.parquet")
    bandit(1, 150, 0.15).to_parquet(folder / "small.parquet")
    for name, probs in (("good", (0.2, 0.8)), ("bad", (0.8, 0.2)), ("best", (0.05, 0.95))):
        save_policy(
            ConstantPolicy(probs), folder / name, schema=logs.schema, actions=logs.action_space,
            notes={"log": "another"},
        )  # fmt: skip
    return folder


def run(place: Path, policy: str, log: str = "log.parquet", *options: str) -> int:
    return main(["evaluate", str(place / policy), str(place / log), *FAST, *options])


# ---------------------------------------------------------------------- verdicts and exit codes


def test_ship_comes_first_and_exits_with_0(place, capsys):
    assert run(place, "good") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("VERDICT: SHIP\n  - Proven: the lift.")
    assert shown.index("VERDICT") < shown.index("good: reward per user") < shown.index("SNIPS *")


def test_hold_exits_with_3(place, capsys):
    assert run(place, "bad") == 3
    assert "VERDICT: HOLD" in capsys.readouterr().out


def test_need_more_data_exits_with_4_and_says_how_much(place, capsys):
    assert run(place, "good", "small.parquet") == 4
    shown = capsys.readouterr().out
    assert "VERDICT: NEED MORE DATA" in shown
    assert "users in all would be needed" in shown


def test_exit_codes_are_documented(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "0 ship, 3 hold, 4 need more data" in shown
    assert "5 first step" in shown
    assert "complaints:+0" in shown
    assert verb.EXITS == {"ship": 0, "hold": 3, "need more data": 4, "first step": 5}


def test_a_larger_least_lift_is_harder(place):
    assert run(place, "good", "log.parquet", "--min-lift", "0.1") == 0
    assert run(place, "good", "log.parquet", "--min-lift", "5") == 3
    assert run(place, "good", "log.parquet", "--min-lift", "10%") == 0
    assert run(place, "good", "log.parquet", "--min-lift", "900%") == 3


def test_guards_hold_a_lift(place, capsys):
    assert run(place, "good", "log.parquet", "--guard", "click:-2%") == 3
    assert "guard 'click' per user (must not fall by more than 2 %)" in capsys.readouterr().out
    assert run(place, "good", "log.parquet", "--guard", "click:-60%") == 0
    assert run(place, "good", "log.parquet", "--guard", "click:-0.5") == 0


def test_a_guard_may_be_about_a_rise_and_about_a_rate(place, capsys):
    """The policy that is good for the reward costs clicks; the bad one brings more of them."""
    assert run(place, "good", "log.parquet", "--guard", "click:+0") == 0
    assert "must not rise" in capsys.readouterr().out
    assert run(place, "bad", "log.parquet", "--metric", "click", "--guard", "click:+5%") == 3
    capsys.readouterr()
    assert run(place, "good", "log.parquet", "--guard", "click/decision:-2%") == 3
    assert "'click' per decision (must not fall by more than 2 %)" in capsys.readouterr().out


def test_other_metrics_and_settings(place, capsys):
    assert run(place, "bad", "log.parquet", "--metric", "click", "--per", "decision") == 0
    assert "click per decision" in capsys.readouterr().out
    assert (
        run(place, "good", "log.parquet", "--gamma", "0.9", "--truncated", "complete", "--horizon", "1") == 0
    )


# ---------------------------------------------------------------------- files


def test_json_and_report_are_written(place, tmp_path, capsys):
    target, page = tmp_path / "e.json", tmp_path / "report.html"
    pytest.importorskip("shpi.report.html")
    assert run(place, "good", "log.parquet", "--json", str(target), "--out", str(page)) == 0
    written = json.loads(target.read_text())
    assert written["verdict"]["decision"] == "ship"
    assert written["users"] == 800
    assert "against" not in written
    assert page.read_text().lstrip().lower().startswith("<!doctype html")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["e.json", "report.html"]
    assert "wrote" in capsys.readouterr().err


def test_a_bad_target_is_refused_before_the_work(place, tmp_path, capsys):
    for option in ("--json", "--out"):
        assert run(place, "good", "log.parquet", option, str(tmp_path / "no" / "file")) == 2
        assert "a folder that exists" in capsys.readouterr().err


def test_candidates_are_compared(place, tmp_path, capsys):
    target = tmp_path / "all.json"
    others = [str(place / "best"), str(place / "bad")]
    assert run(place, "good", "log.parquet", "--json", str(target), "--against", *others) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("SHIP            good: lift")
    assert "best to ship: best" in shown
    assert "One of 3 candidates" in shown
    written = json.loads(target.read_text())
    assert [candidate["verdict"]["decision"] for candidate in written["against"]] == ["ship", "hold"]
    assert run(place, "bad", "log.parquet", "--against", others[0]) == 3  # the code is that of POLICY


def test_a_table_is_read_like_the_log_that_was_learned_from(tmp_path, capsys):
    rng = np.random.default_rng(0)
    likes = rng.integers(2, size=600)
    rows = {
        "uid": np.arange(600), "ts": np.zeros(600, dtype=int), "item": np.where(likes == 1, "b", "a"),
        "p": np.full(600, 0.5), "r": likes + 0.1 * rng.random(600), "age": rng.random(600),
    }  # fmt: skip
    pl.DataFrame(rows).write_csv(tmp_path / "a.csv")
    columns = tmp_path / "map.toml"
    columns.write_text('user="uid"\ntime="ts"\naction="item"\npropensity="p"\nreward="r"\ncontext=["age"]\n')
    log, policy = str(tmp_path / "a.csv"), str(tmp_path / "p")
    fit = ["fit", log, "--columns", str(columns), "--learner", "bandit", "--out", policy]
    assert main(fit) == 0
    capsys.readouterr()
    assert main(["evaluate", policy, log, "--columns", str(columns), *FAST]) == 3
    assert "100.0% of the users of this log are users that the policy was learned" in capsys.readouterr().out
    pl.DataFrame(rows)[1:].write_csv(tmp_path / "less.csv")  # with one user removed it is still found
    less = str(tmp_path / "less.csv")
    assert main(["evaluate", policy, less, "--columns", str(columns), *FAST]) == 3
    assert "that the policy was learned from" in capsys.readouterr().out.replace("\n", " ")
    assert main(["evaluate", policy, log, *FAST]) == 2  # a guess of the column map is printed
    assert "needs a column map" in capsys.readouterr().err


# ---------------------------------------------------------------------- bad input


def test_what_is_no_policy_is_refused(place, capsys):
    assert run(place, "nowhere") == 2
    assert "a policy folder with a manifest.json" in capsys.readouterr().err


def test_other_actions_and_columns_are_refused(place, tmp_path, capsys):
    save_policy(UniformPolicy(3), tmp_path / "three")
    assert main(["evaluate", str(tmp_path / "three"), str(place / "log.parquet")]) == 2
    assert "a policy over the 2 actions of the log" in capsys.readouterr().err
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema

    save_policy(UniformPolicy(2), tmp_path / "ids", actions=ActionSpace(ids=("x", "y")))
    assert main(["evaluate", str(tmp_path / "ids"), str(place / "log.parquet")]) == 2
    assert "actions that the log does not know, such as ['x', 'y']" in capsys.readouterr().err
    save_policy(UniformPolicy(2), tmp_path / "columns", schema=ContextSchema.numeric(["age", "sex"]))
    assert main(["evaluate", str(tmp_path / "columns"), str(place / "log.parquet")]) == 2
    assert "dimensions that the log does not have" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--guard", "click"], "--guard METRIC:-DROP"),
        (["--guard", "click:2%"], "--guard METRIC:-DROP"),
        (["--guard", "click:-x"], "a number or a percentage"),
        (["--guard", "clock:-2%"], "one of the metrics"),
        (["--min-lift", "much"], "--min-lift to be a number or a percentage"),
        (["--metric", "clock"], "a metric of click, reward, decisions"),
        (["--estimators", "abc"], "estimators among"),
        (["--estimators", "wdr:3"], "estimators among"),
        (["--k", "0"], "k to be a number of at least 1"),
        (["--confidence", "2"], "confidence in"),
        (["--horizon", "9"], "a horizon of at most 1"),
        (["--main", "XYZ"], "a main estimator among"),
    ],
)
def test_bad_options_are_one_sentence(place, options, message, capsys):
    assert run(place, "good", "log.parquet", *options) == 2
    assert message in capsys.readouterr().err


def test_missing_propensities_are_a_verdict(tmp_path, place, capsys):
    logs = bandit(3, 200, 1.0)
    bare = LoggedData.from_arrays(
        contexts=logs.contexts, actions=logs.actions, rewards=logs.rewards, offsets=logs.offsets, n_actions=2
    )
    bare.to_parquet(tmp_path / "bare.parquet")
    assert main(["evaluate", str(place / "good"), str(tmp_path / "bare.parquet")]) == 3
    assert "no propensities" in capsys.readouterr().out
    estimated = ["evaluate", str(place / "good"), str(tmp_path / "bare.parquet"), "--estimate-propensities"]
    assert main([*estimated, *FAST]) in (0, 4)


def test_one_user_and_no_overlap_are_refused(tmp_path, place, capsys):
    bandit(4, 1, 1.0).to_parquet(tmp_path / "one.parquet")
    assert main(["evaluate", str(place / "good"), str(tmp_path / "one.parquet")]) == 2
    assert "at least two users" in capsys.readouterr().err
    logs = bandit(5, 100, 1.0)
    only = logs.select(np.flatnonzero(logs.actions == 0))
    only.to_parquet(tmp_path / "first.parquet")
    save_policy(ConstantPolicy((0.0, 1.0)), tmp_path / "second")
    assert main(["evaluate", str(tmp_path / "second"), str(tmp_path / "first.parquet"), *FAST]) == 2
    assert "every importance weight is 0" in capsys.readouterr().err


def test_policies_must_differ(place):
    with pytest.raises(ConfigError, match="different policies to compare"):
        verb.distinct([place / "good", place / "good"])
    assert verb.distinct([Path("a/x"), Path("b/x")]) == ["a/x", "b/x"]
    assert verb.distinct([Path("a/x"), Path("b/y")]) == ["x", "y"]


def test_estimators_by_name():
    names = [estimator.name for estimator in verb.estimators_of("wdr, SHPI:5, slope,dm", None)]
    assert names[:2] == ["WDR", "SHPI(k=5)"]
    assert names[3] == "DM"
    assert [estimator.name for estimator in verb.estimators_of("shpi", "session")] == ["SHPI(k=session)"]
    assert verb.estimators_of(None, None) is None
