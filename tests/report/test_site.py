"""What the documentation site is made of: figures that the library draws, and docstrings as markup."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_figure_is_there_and_is_shown_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    drawn = {*load("figures").FIGURES, "hiv-rewards", "hiv-outside"}  # the last two by benchmarks.hiv_trace
    assert {figure.stem for figure in (DOCS / "figures").glob("*.svg")} == drawn
    for name in drawn:
        ElementTree.fromstring((DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8"))
        assert f"figures/{name}.svg" in pages


@pytest.mark.parametrize("name", ["sessions", "bonus"])  # exact ones; the others take minutes
def test_exact_figures_are_up_to_date(name):
    made = load("figures").FIGURES[name]()
    assert (DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8") == made + "\n"


def test_docstrings_become_markup_that_says_the_same():
    lines = [
        "The lift of mu(a|x) * 2, see `Gate`.",
        "",
        "    J = sum_t gamma^t r_t",
        "",
        "value     what a user brings",
        "lift      the difference",
        "",
        "* one",
        "* two, which goes",
        "  on",
        "",
        "Args:",
        "    gamma: the *discount*",
    ]
    assert load("docstrings").converted(lines) == [
        r"The lift of mu(a\|x) \* 2, see ``Gate``.", "",
        "::", "", "        J = sum_t gamma^t r_t", "",
        "::", "", "    value     what a user brings", "    lift      the difference", "",
        "", "* one", "", "* two, which goes on", "",
        "Args:", r"    gamma: the \*discount\*", "",
    ]  # fmt: skip
