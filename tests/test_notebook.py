"""The example notebook runs from top to bottom, and what it shows is what it says."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "first_hour.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of a last expression is shown."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec", dont_inherit=True), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_goes_from_a_csv_to_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "notebook"}
    shown = [run_cell("".join(c["source"]), names) for c in cells if c["cell_type"] == "code"]
    cards = [output._repr_html_() for output in shown if hasattr(output, "_repr_html_")]
    assert len(cards) >= 6
    first = names["comparison"]["first step"]
    assert first.verdict.ship
    assert first.short_term.lift_interval.upper < 0 < first.decisive.lift_interval.lower
    assert (tmp_path / "report.html").is_file()


def test_its_outputs_are_not_stored() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
