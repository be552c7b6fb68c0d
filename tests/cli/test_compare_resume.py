"""``shpi compare --resume``: what learners have learned is kept until the table is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shpi.cli._compare.kept import FACTS, Kept, forget_learned, read_facts
from shpi.cli.main import main
from shpi.cli.verbs import compare
from shpi.data.shards import deal
from shpi.envs.storefront import Storefront
from shpi.policies import UniformPolicy


@pytest.mark.usefixtures("learners_in_process")
def test_an_interrupted_comparison_learns_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Storefront().rollout(UniformPolicy(Storefront().n_actions), 60, seed=1)
    deal(logs, tmp_path / "shards", 2)
    kept, table = tmp_path / "kept", tmp_path / "table.json"
    call = ["compare", str(tmp_path / "shards"), "--learners", "clone", "--json", str(table)]
    learned: list[str] = []
    learn, judge = compare.learn, compare.judge

    def noted(name: str, *arguments: Any) -> Any:
        learned.append(name)
        return learn(name, *arguments)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        judge(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "learn", noted)
    with monkeypatch.context() as broken:
        broken.setattr(compare, "judge", interrupted)
        assert main([*call, "--resume", str(kept)]) == 130
    assert len(list(kept.glob("pass-*"))) > 3  # of the evaluation; the first are those of the sample
    assert learned == ["clone"]
    assert main([*call, "--resume", str(kept)]) == 0
    assert learned == ["clone"]
    assert not kept.exists()
    (row,) = json.loads(table.read_text())["rows"]
    assert row["lift"] is not None
    capsys.readouterr()


def test_what_is_kept_belongs_to_one_log_learner_and_setting(tmp_path: Path) -> None:
    first = Kept(folder=tmp_path, log="a")
    with first.place("clone", {"seed": 1}, None) as place:
        (place / "rest of a killed learner").touch()
    with first.place("clone", {"seed": 1}, None) as again:
        assert list(again.iterdir()) == []  # without facts nothing counts
        (again / FACTS).write_text('{"cpu_seconds": 1}')
    with first.place("clone", {"seed": 1}, None) as once_more:
        assert read_facts(once_more) == {"cpu_seconds": 1}
    others = [(first, "bandit", {"seed": 1}), (first, "clone", {"seed": 2})]
    for kept, learner, settings in [*others, (Kept(folder=tmp_path, log="b"), "clone", {"seed": 1})]:
        with kept.place(learner, settings, None) as place:
            assert read_facts(place) is None
    (tmp_path / "mine").touch()
    forget_learned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
