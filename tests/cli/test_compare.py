"""``shpi compare``: one table for all learners."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shpi.cli._compare.learn_job import main as do_job
from shpi.cli.main import main
from shpi.cli.verbs import compare
from shpi.learners import registry
from shpi.policies import load_policy
from shpi.testing.tastes import Tastes


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("compare") / "log.parquet"
    Tastes().log(60, seed=1).to_parquet(place)
    return place


def table(path: Path) -> dict[str, dict]:
    return {row["learner"]: row for row in json.loads(path.read_text())["rows"]}


def test_a_simulator_writes_the_log_and_tries_the_policies(tmp_path, capsys):
    out = tmp_path / "table.json"
    arguments = "compare storefront --epsilon 1 --users 300 --rollouts 100 --learners clone,online-bandit"
    assert main([*arguments.split(), "-o", "rounds=2", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "online on storefront" in shown
    assert "peak MB" in shown
    rows = table(out)
    assert list(rows) == ["(logging)", "clone", "online-bandit"]
    for name in ("clone", "online-bandit"):
        assert rows[name]["problem"] is None
        assert rows[name]["cpu_seconds"] > 0
        assert rows[name]["peak_bytes"] is None or rows[name]["peak_bytes"] > 10_000_000
        assert rows[name]["online_error"] > 0
    near = 4 * (rows["clone"]["online_error"] + rows["(logging)"]["online_error"])
    assert abs(rows["clone"]["online"] - rows["(logging)"]["online"]) < near
    assert rows["online-bandit"]["online"] > rows["(logging)"]["online"]


@pytest.mark.usefixtures("learners_in_process")
def test_one_learner_that_fails_or_is_absent_does_not_stop_the_others(log, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(registry._LEARNERS, "next", registry.Entry("tomorrow", "Best", "the best one"))
    monkeypatch.setattr(registry, "_PACKAGES", {"vw": "no_such_package", "neural": "torch", "gbdt": "numpy"})
    out = tmp_path / "table.json"
    names = "bandit,bandit-vw,next,clone,bandit-mtr"
    options = ["-o", "bandit.support=7", "-o", "bandit-mtr.oracle=gbdt"]
    assert main(["compare", str(log), "--learners", names, *options, "--json", str(out)]) == 0
    rows = table(out)
    assert "support in [0, 1] or None, found 7" in rows["bandit"]["problem"]
    assert rows["bandit-vw"]["problem"] == "skipped: needs the extra 'vw': pip install 'shpi[vw]'"
    assert rows["next"]["problem"] == "skipped: not in this version of shpi"
    assert rows["clone"]["problem"] is None
    assert rows["bandit-mtr"]["problem"] is None
    assert rows["clone"]["online"] is None  # no simulator
    shown = capsys.readouterr().out
    assert "shpi[vw]" in shown
    assert "online" not in shown


@pytest.mark.usefixtures("learners_in_process")
def test_when_all_fail_the_exit_code_says_so(log):
    assert main(["compare", str(log), "--learners", "bandit", "-o", "support=7"]) == 1


@pytest.mark.usefixtures("learners_in_process")
def test_a_log_is_tried_in_a_world_that_is_named(tmp_path, capsys):
    log = tmp_path / "log.parquet"
    world = "storefront"
    assert main(["simulate", world, "--users", "200", "--out", str(log)]) == 0
    out = tmp_path / "table.json"
    arguments = ["compare", str(log), "--env", world, "--learners", "clone", "--rollouts", "20"]
    assert main([*arguments, "--json", str(out)]) == 0
    rows = table(out)
    assert list(rows) == ["clone"]  # the logging policy is not known
    assert rows["clone"]["online"] is not None


@pytest.mark.usefixtures("learners_in_process")
def test_the_synthetic_task_also_shows_what_was_attained(tmp_path, capsys):
    out = tmp_path / "table.json"
    arguments = "compare synthetic --epsilon 1 --users 10 --rollouts 10 --param horizon=30 --learners clone"
    assert main([*arguments.split(), "--json", str(out)]) == 0
    assert "attained" in capsys.readouterr().out
    assert table(out)["clone"]["attained"] < 0.5
    assert json.loads(out.read_text())["world"] == {"name": "synthetic", "params": {"horizon": 30}}


def test_a_learner_that_takes_too_long_is_ended(log, tmp_path):
    out = tmp_path / "table.json"
    assert main(["compare", str(log), "--learners", "clone", "--timeout", "0.01", "--json", str(out)]) == 1
    assert table(out)["clone"]["problem"] == "ended after 0.01 seconds (--timeout)"


def test_a_process_that_dies_is_a_row(log, tmp_path, monkeypatch):
    class Ended:
        returncode, stderr = -9, ""

    monkeypatch.setattr(compare.subprocess, "run", lambda *arguments, **options: Ended())
    out = tmp_path / "table.json"
    assert main(["compare", str(log), "--learners", "clone", "--json", str(out)]) == 1
    assert "exit code -9: ended by the system" in table(out)["clone"]["problem"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{log}", "--learners", "finest"], "the name of a learner"),
        (["{log}", "--learners", ","], "at least one learner"),
        (["{log}", "--learners", "deep-sarsa"], "a simulator for 'deep-sarsa'"),
        (["{log}", "--learners", "clone", "-o", "k=3"], "an option of a learner in the table, found 'k=3'"),
        (["{log}", "--learners", "clone", "-o", "clone.k=3"], "an option of a learner in the table"),
        (["{log}", "--json", "{folder}"], "--json to be a file"),
        (["{log}", "--env", "mars"], "the name of a simulator"),
        (["{log}", "--rollouts", "0"], "--rollouts of at least 1"),
        (["nothing.parquet"], "shpi compare: "),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, log, tmp_path, capsys):
    places = {"log": log, "folder": tmp_path}
    assert main(["compare", *(text.format(**places) for text in arguments)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_options_reach_the_learners_that_have_them(log):
    pytest.importorskip("torch", reason="deep SARSA and the paper's V are networks")
    from shpi.data.logged import LoggedData

    logs = LoggedData.read(log)
    settings = compare.find_settings(
        ["gamma=0.9", "shpi.k=4", "bandit-dr.support=null"], ["shpi", "bandit-dr", "session-rl"], logs, 7
    )
    assert settings["shpi"] == {"seed": 7, "gamma": 0.9, "k": 4}
    assert settings["bandit-dr"] == {"seed": 7, "support": None}
    assert settings["session-rl"] == {"seed": 7, "gamma": 0.9}
    whole = compare.find_settings([], ["session-rl", "shpi-paper", "deep-sarsa"], one_session_each(logs), 0)
    assert whole["session-rl"]["k"] == compare.NO_SESSIONS_K
    assert "k" not in whole["shpi-paper"]  # it has a k of its own
    assert whole["deep-sarsa"]["episodes"] == logs.n_users


def one_session_each(logs):
    from dataclasses import replace

    return replace(logs, session_offsets=logs.offsets)


def test_a_job_reports_facts_or_an_error(log, tmp_path):
    job = {"learner": "bandit", "options": {"target": "mtr"}, "log": str(log), "world": None}
    job |= {"policy": str(tmp_path / "policy"), "facts": str(tmp_path / "facts.json")}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert do_job(str(tmp_path / "job.json")) == 0
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["cpu_seconds"] > 0
    if sys.platform == "linux":
        assert facts["peak_bytes"] > 10_000_000
    assert load_policy(tmp_path / "policy").n_actions == 4
    (tmp_path / "job.json").write_text(json.dumps(job | {"log": "nothing"}))
    assert do_job(str(tmp_path / "job.json")) == 0
    assert "error" in json.loads((tmp_path / "facts.json").read_text())
