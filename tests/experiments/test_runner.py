"""Rows on disk, and a run that is ended, fails in part, and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shpi.errors import ConfigError, DataError
from shpi.experiments._run import processes, work, worker
from shpi.experiments._run.cells import FAILURE, Cell, Log, Outcome
from shpi.experiments._run.runner import by_log, execute
from shpi.experiments._run.store import Store, succeeded

STORY = Log(world="storefront", epsilon=1.0, users=0, seed=0)


def exact(policy: str, method: str | None = None) -> Cell:
    return Cell(method=method or policy, log=STORY, work="exact", options={"policy": policy})


BROKEN = Cell(method="broken", log=replace(STORY, users=5), work="learn", learner="no-such-learner")


def test_key_is_that_of_the_configuration() -> None:
    cell = exact("bandit")
    assert Cell.from_json(cell.to_json()) == cell
    assert exact("bandit", "another name").key == cell.key
    assert exact("optimum").key != cell.key
    named = Log(world="storefront", epsilon=1.0, users=0, seed=0, variant="the shop")
    assert named.key == STORY.key
    assert named.label == "storefront, the shop"


def test_cells_of_one_log_stay_together() -> None:
    other = Log(world="storefront", epsilon=1.0, users=0, seed=1)
    cells = [exact("bandit"), Cell(method="x", log=other), exact("optimum")]
    assert [[c.method for c in group] for group in by_log(cells)] == [["bandit", "optimum"], ["x"]]


def test_rows_come_back_and_a_broken_end_is_passed_over(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = exact("bandit"), exact("optimum")
    store.append("e", Outcome(values={"score": 1.0, "sessions": 2.0}, seconds=0.5).rows("e", first, "c"))
    whole = store.read("e")
    assert [(row.metric, row.value, row.method, row.of) for row in whole] == [
        ("score", 1.0, "bandit", 2),
        ("sessions", 2.0, "bandit", 2),
    ]
    rows = Outcome(values={"score": 3.0, "sessions": 4.0}).rows("e", second, "c")
    store.append("e", rows)
    text = store.path("e").read_text()
    for cut in (10, len(json.dumps(vars(rows[1]))) + 5):  # within the last row, and within the one before
        store.path("e").write_text(text[:-cut])
        assert store.read("e") == whole
        store.append("e", rows)
        assert set(succeeded(store.read("e"))) == {first.key, second.key}


def test_a_success_replaces_a_failure(tmp_path: Path) -> None:
    store, cell = Store(tmp_path), exact("bandit")
    store.append("e", Outcome(message="no").rows("e", cell, ""))
    assert [row.metric for row in store.read("e")] == [FAILURE]
    assert not succeeded(store.read("e"))
    store.append("e", Outcome(values={"score": 1.0, "sessions": 1.0}).rows("e", cell, ""))
    assert [row.metric for row in store.read("e")] == ["score", "sessions"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"rows of shpi reproduce.*line 1"):
        Store(tmp_path).read("e")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="a folder that can be made"):
        Store(tmp_path / "file" / "below")


def test_a_run_records_failures_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reported: list[str] = []
    plan = {"one": [exact("bandit"), BROKEN], "two": [exact("bandit", "greedy"), exact("optimum")]}
    tally = execute(plan, store, jobs=2, commit="abc", report=lambda cell, *_: reported.append(cell.method))
    assert (tally.run, tally.reused, len(tally.failed)) == (3, 0, 1)
    assert "no-such-learner" in tally.failed[0][1]
    assert sorted(reported) == ["bandit", "broken", "optimum"]
    assert tally.peak_mb > 10
    assert {row.method for row in store.read("two")} == {"greedy", "optimum"}  # the shared cell, by its name
    [failure] = [row for row in store.read("one") if row.metric == FAILURE]
    assert failure.value is None
    assert "no-such-learner" in failure.message

    again = {"one": plan["one"][:1], "three": [exact("optimum"), exact("session RL")]}
    tally = execute(again, store, jobs=1, commit="abc")
    assert (tally.run, tally.reused, tally.failed) == (1, 2, [])
    scores = {row.method: row.value for row in store.read("three") if row.metric == "score"}
    assert scores["optimum"] > scores["session RL"] > 2.0


def test_a_process_that_dies_is_a_failure_of_its_cell_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = processes._Worker._start

    def first_dies(self: processes._Worker) -> subprocess.Popen[str]:
        started.append(1)
        if len(started) > 1:
            return start(self)
        return subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.exit('out of luck')"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    monkeypatch.setattr(processes._Worker, "_start", first_dies)
    groups = [[exact("bandit"), exact("optimum")]]
    outcomes = {cell.method: outcome for cell, outcome in processes.outcomes(groups, 1)}
    assert "out of luck" in outcomes["bandit"].message
    assert outcomes["optimum"].values["score"] > 2.0


def test_what_is_not_finite_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "run", lambda cell: Outcome(values={"score": float("nan"), "attained": 1.0}))
    assert worker.attempt(exact("bandit")).message == "not a finite number: score"


def test_at_least_one_process(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--jobs of at least 1"):
        execute({}, Store(tmp_path), jobs=0, commit="")
