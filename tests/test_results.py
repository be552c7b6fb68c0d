"""The committed results: the page follows from the rows, and the README says what they say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from shpi.experiments._run.experiment import Results
from shpi.experiments._run.run import draw
from shpi.experiments._run.settings import Settings
from shpi.experiments._run.store import Store
from shpi.experiments.catalogue import find, names

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
COLUMNS = ("logging", "SHPI, defaults", "SHPI, repaired()", "BCQ", "CB")
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="no committed results in this copy")


def test_the_page_follows_from_the_rows(tmp_path: Path) -> None:
    for file in (*RESULTS.glob("*.jsonl"), RESULTS / "run.json"):
        shutil.copy(file, tmp_path)
    draw([find(name) for name in names()], Store(tmp_path), Settings(seeds=tuple(range(10)), data=True))
    assert (tmp_path / "README.md").read_text("utf-8") == (RESULTS / "README.md").read_text("utf-8")
    drawn, kept = (sorted(figure.name for figure in (at / "figures").iterdir()) for at in (tmp_path, RESULTS))
    assert drawn == kept


def test_nothing_failed_and_one_commit_made_all_rows() -> None:
    rows = [row for path in RESULTS.glob("*.jsonl") for row in Store(RESULTS).read(path.stem)]
    assert len({row.cell for row in rows}) > 900
    assert not Results(rows).failures()
    (commit,) = {row.commit for row in rows}
    assert not commit.endswith("+")
    assert max(row.peak_mb or 0.0 for row in rows) < 8_000


def test_the_readme_s_table_is_that_of_the_rows() -> None:
    rows = Results(tuple(Store(RESULTS).read("defaults")))
    table = re.findall(
        r"^\| `([a-z, -]+), ([\d.]+)` \|(.+)\|$", (ROOT / "README.md").read_text("utf-8"), re.M
    )
    assert len(table) >= 8
    for world, epsilon, cells in table:
        for name, cell in zip(COLUMNS, cells.split("|"), strict=False):  # the last column is P(best)
            trials = rows.trials(method=name, world=world, epsilon=float(epsilon))
            if not trials:
                assert cell.strip() == "–", (world, name)
                continue
            said = float(cell.replace("*", "").replace(",", "").replace("−", "-"))
            assert said == pytest.approx(float(np.mean(list(trials.values()))), rel=1e-2), (world, name)
