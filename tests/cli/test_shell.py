"""What a shell sees: exit codes that outlive a closed pipe, advice that can be typed, ``python -m shpi``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shpi.cli._shell.spelling import spelled
from shpi.cli.main import main
from shpi.data.logged import LoggedData
from shpi.policies import ConstantPolicy, save_policy


def bandit(users: int = 400) -> LoggedData:
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=users)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((users, 1)), actions=actions,
        rewards=actions + rng.standard_normal(users), propensities=np.full(users, 0.5),
        offsets=np.arange(users + 1), n_actions=2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    logs = bandit()
    logs.to_parquet(folder / "log.parquet")
    save_policy(ConstantPolicy((0.8, 0.2)), folder / "bad", schema=logs.schema, actions=logs.action_space)
    return folder


def shell(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_closed_pipe_does_not_change_the_exit_code(place):
    verb = f"{sys.executable} -m shpi evaluate {place / 'bad'} {place / 'log.parquet'} --estimators snips"
    ended = shell("bash", "-c", f"{verb} | true; echo ${{PIPESTATUS[0]}}")
    assert ended.stdout.split()[-1] == "3", ended
    assert "Traceback" not in ended.stderr
    assert "BrokenPipe" not in ended.stderr


def test_a_pipe_that_closes_in_the_middle_does_not_either(place):
    """More than a pipe holds, so that the verb itself meets the closed pipe."""
    code = (
        "import sys, shpi.cli.verbs.audit as audit\n"
        "from shpi.cli import main\n"
        "def run(options):\n"
        "    for _ in range(100000): print('word ' * 20)\n"
        "    return 3\n"
        "audit.run = run\n"
        "sys.exit(main(['audit', 'nowhere']))\n"
    )
    ended = shell("bash", "-c", f'{sys.executable} -c "$0" | head -1; echo ${{PIPESTATUS[0]}}', code)
    assert ended.stdout.split()[-1] == "3", ended
    assert "Error" not in ended.stderr


def test_the_module_runs_like_the_command():
    ended = shell(sys.executable, "-m", "shpi", "--version")
    assert ended.returncode == 0
    assert ended.stdout.startswith("shpi ")


def test_advice_is_what_one_can_type(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = {
        "uid": np.arange(50),
        "item": rng.choice(["a", "b"], 50),
        "r": rng.random(50),
        "x": rng.random(50),
    }
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    (tmp_path / "map.toml").write_text('user="uid"\naction="item"\nreward="r"\ncontext=["x"]\n')
    fit = ["fit", str(tmp_path / "log.csv"), "--columns", str(tmp_path / "map.toml")]
    assert main([*fit, "--out", str(tmp_path / "p")]) == 2
    said = capsys.readouterr().err
    assert "--estimate-propensities" in said
    assert "with_estimated_propensities" not in said
    assert (
        spelled("or truncated='complete' if the log is whole")
        == "or --truncated complete if the log is whole"
    )
    assert spelled("set horizon=3, or KStepSHPI(k=4)") == "set --horizon 3, or --estimators shpi:4"


def test_shpi_as_the_only_estimator_works_where_there_are_no_sessions(tmp_path, capsys):
    """One session per user of 30 decisions: the product over all of them has no user left."""
    rng = np.random.default_rng(0)
    users, steps = 60, 30
    n = users * steps
    actions = rng.integers(4, size=n)
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 1)), actions=actions, rewards=(actions == 1) + rng.random(n),
        propensities=np.full(n, 0.25), offsets=np.arange(0, n + 1, steps), n_actions=4,
    )  # fmt: skip
    logs.to_parquet(tmp_path / "log.parquet")
    save_policy(ConstantPolicy((0.0, 0.5, 0.5, 0.0)), tmp_path / "p", actions=logs.action_space)
    code = main(["evaluate", str(tmp_path / "p"), str(tmp_path / "log.parquet"), "--estimators", "shpi"])
    shown = capsys.readouterr()
    assert code in (0, 3, 4, 5), shown.err
    assert "SHPI(k=4)" in shown.out


def test_no_color_is_obeyed(place, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["audit", str(place / "log.parquet")])
    coloured = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["audit", str(place / "log.parquet")])
    plain = capsys.readouterr().out
    assert "\x1b[3" in coloured or "\x1b[1;3" in coloured
    assert "\x1b[3" not in plain.replace("\x1b[3m", "")  # italics are no colour
