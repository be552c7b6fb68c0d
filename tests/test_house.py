"""The shape of the sources: small folders, and no way around the layers. import-linter holds the layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import shpi

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "shpi"
MOST_MODULES = 15  # per folder, `__init__.py` not counted
MOST_LINES = 600  # per file

# Modules that are imported by a name in a table. Each imports from its own room or from rooms below, but for
# `features/parts.py`: a file names the kinds of its parts, and their classes may live in any room.
BY_NAME = {
    "__init__.py",
    "_core/lazy.py",
    "_moved.py",
    "cli/main.py",
    "envs/__init__.py",
    "envs/registry.py",
    "experiments/_run/work.py",
    "experiments/catalogue.py",
    "features/parts.py",
    "files/atomic.py",
    "learners/_words.py",
    "learners/registry.py",
}


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in SOURCES.rglob("*.py")}), ids=lambda folder: folder.name
)
def test_folders_are_small(folder):
    modules = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES


def test_files_are_short():
    assert not {
        str(path.relative_to(SOURCES)): lines
        for path in SOURCES.rglob("*.py")
        if (lines := path.read_text().count("\n")) > MOST_LINES
    }


def test_nothing_climbs_the_layers_by_name():
    by_name = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "import_module" in path.read_text() or "__import__" in path.read_text()
    }
    assert by_name <= BY_NAME


def test_the_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert "version" in project["dynamic"]
    assert f"\nversion: {shpi.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## {re.escape(shpi.__version__)}", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_pages_name_every_room():
    rooms = {path.name for path in SOURCES.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    for page in (ROOT / "docs" / "house.md", ROOT / "CONTRIBUTING.md"):
        text = page.read_text()
        assert not [room for room in rooms if not re.search(rf"\b{room}\b", text)]


def test_the_house_names_modules_that_exist():
    page = (ROOT / "docs" / "house.md").read_text()
    for place in re.findall(r"`((?:\w+/)*\w+\.py)`", page):
        assert (SOURCES / place).exists() or (ROOT / place).exists(), place
