"""``shpi reproduce --only`` and ``--without``: the rivals first, the rest later."""

from __future__ import annotations

from pathlib import Path

import pytest

from shpi.cli.main import main
from shpi.errors import ConfigError
from shpi.experiments import catalogue
from shpi.experiments._run import worlds
from shpi.experiments._run.selection import Selection, uses
from shpi.experiments._run.settings import Settings
from shpi.experiments._run.store import Store

CELLS = [c for name in catalogue.names() for c in catalogue.find(name).cells(Settings(data=True))]


def test_without_and_only_make_a_whole() -> None:
    for names in (("shpi",), ("bcq", "cql"), ("online-shpi",), ("logging", "shpi-paper"), ("exact",)):
        rest, chosen = Selection(without=names).of(CELLS), Selection(only=names).of(CELLS)
        assert chosen
        assert {c.key for c in rest} | {c.key for c in chosen} == {c.key for c in CELLS}
        assert not {c.key for c in rest} & {c.key for c in chosen}
    assert Selection().of(CELLS) == CELLS


def test_a_cell_that_starts_from_a_log_counts_for_both_its_learners() -> None:
    hybrid = [cell for cell in CELLS if cell.method.startswith("hybrid")]
    assert hybrid
    assert all(uses(cell) == {"shpi", "online-shpi"} for cell in hybrid)
    assert not Selection(only=("online-shpi",), without=("shpi",)).of(hybrid)


def test_a_method_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"methods among logging, exact, shpi, .*'all'"):
        Selection(only=("bcq", "all"))


def scores(folder: Path) -> dict[str, float | None]:
    return {row.method: row.value for row in Store(folder).read("example") if row.metric == "score"}


@pytest.mark.usefixtures("cells_in_process")
def test_the_command_runs_a_part_then_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "example", "--quick", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    assert main([*command, "--without", "shpi", "session-rl"]) == 0
    assert "5 cells run, 0 were there already" in capsys.readouterr().err
    assert "3 cells not run yet" in (tmp_path / "README.md").read_text()
    assert "--without shpi session-rl" in (tmp_path / "README.md").read_text()
    assert main([*command, "--only", "session-rl"]) == 0
    assert "1 cells run" in capsys.readouterr().err
    assert main(command) == 0
    assert "2 cells run, 6 were there already" in capsys.readouterr().err
    before = scores(tmp_path)
    worlds._cache.clear()  # the log and what was learned from it: the cell has to learn again
    assert main([*command, "--only", "session-rl", "--fresh"]) == 0  # the rows of the others stay
    assert "1 cells run" in capsys.readouterr().err
    assert scores(tmp_path) == before
    assert main([*command, "--only", "nothing"]) == 2
    assert "methods among" in capsys.readouterr().err
