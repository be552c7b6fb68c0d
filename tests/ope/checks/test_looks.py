"""A file that remembers how often a policy was looked at on a growing log."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shpi.cli.main import main
from shpi.errors import ConfigError, DataError
from shpi.ope import Evaluation, Gate, count_look
from shpi.policies import ConstantPolicy, save_policy
from tests.ope.checks.test_cautions import POLICY, bandit, judged

LOGS = bandit(0)


def looked(days: int, place: Path, gate: Gate | None = None, policy: ConstantPolicy = POLICY) -> Evaluation:
    logs = LOGS.select(np.arange(50 * days))
    return count_look(judged(logs, gate or Gate()), policy, logs, place, gate=gate)


def said(evaluation: Evaluation) -> tuple[str, str]:
    return next(
        (diagnostic.severity, diagnostic.sentence)
        for diagnostic in evaluation.diagnostics
        if diagnostic.name == "looks"
    )


def test_looks_at_a_growing_log_are_counted(tmp_path):
    place = tmp_path / "looks.json"
    assert said(looked(2, place))[0] == "fine"
    assert "once" in said(looked(2, place))[1]  # the same log is no new look
    for days in (4, 6, 8):
        severity, sentence = said(looked(days, place))
    assert severity == "warning"
    assert "evaluated 4 times" in sentence
    assert "up to 20%" in sentence
    other = ConstantPolicy((0.4, 0.6))
    assert "once" in said(looked(8, place, policy=other))[1]


def test_any_time_keeps_its_plan(tmp_path):
    place = tmp_path / "looks.json"
    for days in (2, 4, 6):
        assert said(looked(days, place, Gate(anytime=True)))[0] == "fine"
    with pytest.raises(ConfigError, match="the plan of the first look"):
        looked(8, place, Gate(anytime=True, planned_users=50))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "shpi-looks", "version": 1, "looks": 3}'])
def test_another_file_is_refused_and_kept(tmp_path, content):
    place = tmp_path / "looks.json"
    place.write_text(content)
    with pytest.raises(DataError):
        looked(2, place)
    assert place.read_text() == content


def test_the_command_line_counts_by_itself(tmp_path, capsys):
    folder = save_policy(POLICY, tmp_path / "policy", schema=LOGS.schema, actions=LOGS.action_space)
    options = ["--estimators", "snips"]
    for days in (10, 20, 30):
        LOGS.select(np.arange(50 * days)).to_parquet(tmp_path / f"{days}.parquet")
        main(["evaluate", str(folder), str(tmp_path / f"{days}.parquet"), *options])
    assert "evaluated 3 times on this log" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    kept = json.loads((tmp_path / ".policy.looks.json").read_text())
    assert [look["users"] for look in kept["looks"]] == [500, 1_000, 1_500]
    file = tmp_path / "mine.json"
    code = main(
        ["evaluate", str(folder), str(tmp_path / "10.parquet"), *options, "--anytime", "--looks", str(file)]
    )
    assert code in (0, 4)
    assert "However often the log is evaluated" in capsys.readouterr().out.replace("\n", " ")
    assert json.loads(file.read_text())["planned_users"] == 2_000
