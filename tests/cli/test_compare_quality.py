"""``shpi compare LOG``: what each learner's policy would bring, judged on users whom it has not seen."""

from __future__ import annotations

import json

import numpy as np
import pytest

from shpi.cli._compare.held_out import judge
from shpi.cli.main import main
from shpi.envs.storefront import Storefront
from shpi.policies import ConstantPolicy, TabularPolicy, UniformPolicy


@pytest.mark.usefixtures("learners_in_process")
def test_a_log_alone_gives_lifts_with_intervals_and_verdicts(tmp_path, capsys):
    shop = Storefront()
    shop.rollout(UniformPolicy(shop.n_actions), 1200, seed=0).to_parquet(tmp_path / "log.parquet")
    table = tmp_path / "table.json"
    call = ["compare", str(tmp_path / "log.parquet"), "--learners", "shpi,clone", "--json", str(table)]
    assert main(call) == 0
    shown = capsys.readouterr()
    for word in ("lift", "interval", "verdict", "shpi", "clone", "on users who were held out"):
        assert word in shown.out
    assert "…" not in shown.out.replace(" … ", "")  # no cell is cut where there is no terminal
    assert "600 users" in shown.err.split("judged on")[1]
    rows = {row["learner"]: row for row in json.loads(table.read_text())["rows"]}
    true = shop.exact_value(shop.optimal()) - shop.exact_value(np.full((len(shop.contexts), 5), 0.2))
    assert 0 < rows["shpi"]["lift_lower"] < rows["shpi"]["lift_upper"] < 2 * true
    assert rows["clone"]["lift_lower"] <= 0 <= rows["clone"]["lift_upper"]
    assert rows["clone"]["verdict"] != "ship"


@pytest.mark.usefixtures("learners_in_process")
def test_seconds_alone_can_still_be_had(tmp_path, capsys):
    shop = Storefront()
    shop.rollout(UniformPolicy(shop.n_actions), 60, seed=0).to_parquet(tmp_path / "log.parquet")
    call = ["compare", str(tmp_path / "log.parquet"), "--learners", "clone", "--held-out", "0"]
    assert main(call) == 0
    assert "lift" not in capsys.readouterr().out


def test_a_policy_that_cannot_be_judged_is_a_note_not_the_end():
    shop = Storefront()
    first = np.tile(np.eye(5)[0], (len(shop.contexts), 1))
    logs = shop.rollout(TabularPolicy(first), 100, seed=0)  # always action 0
    said = judge({"same": TabularPolicy(first), "other": ConstantPolicy(np.eye(5)[1])}, logs, 0)
    assert "cannot be judged" in said["other"]["problem"]
    assert said["same"]["lift"] == 0
