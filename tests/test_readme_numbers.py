"""The storefront's numbers in README and documents are those of the planners that they are said to be of."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from shpi.envs.storefront import Storefront

ROOT = Path(__file__).resolve().parents[1]


def exact() -> dict[str, float]:
    shop = Storefront()
    uniform = np.full((len(shop.contexts), shop.n_actions), 1 / shop.n_actions)
    tables = {
        "uniform": uniform,
        "bandit": shop.bandit(),
        "session RL": shop.session_rl(),
        "SHPI": shop.shpi(),
    }
    return {
        name: shop.exact_value(table)
        for name, table in (tables | {"SHPI": shop.shpi(), "optimum": shop.optimal()}).items()
    }


def test_the_table_of_the_readme_is_exact():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "exact values of planners that know the shop" in text
    printed = {
        name: float(match[1])
        for name in exact()
        if (match := re.search(rf"^\| \**{re.escape(name)}\b[^|]*\| \**([\d.]+)", text, re.MULTILINE))
    }
    assert printed == pytest.approx(exact(), abs=5e-4)


@pytest.mark.parametrize("number", ["2.063", "1.957"])
def test_other_numbers_for_shpi_in_the_storefront_say_whose_they_are(number):
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = document.read_text(encoding="utf-8")
        if number in text and "storefront" in text:
            assert "version 0.1" in text, document
