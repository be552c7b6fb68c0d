"""The page of a run within the documentation, where there is one and where there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def results_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_page", DOCS / "results_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_mark_is_on_the_page(results_page: ModuleType) -> None:
    assert (DOCS / "results.md").read_text().count(results_page.MARK) == 1


def test_no_run_is_said(results_page: ModuleType, tmp_path: Path) -> None:
    assert results_page.text(tmp_path) == results_page.NOTHING


def test_figures_are_found_beside_the_rows(results_page: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "README.md").write_text("# Title\n\n- a fact\n\n![A](figures/a.svg)\n")
    assert results_page.text(folder) == "- a fact\n\n![A](../results/figures/a.svg)"
