"""Every code block of the README and of the documents runs, in order, in an empty folder.

Python blocks share one namespace per document. In shell blocks the lines that start with ``shpi`` are run; a
trailing comment ``# exit 1`` says which code is expected. A ``toml`` block that begins with ``# map.toml`` is
written to that file first.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from shpi.cli import main

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUNS = ("python", "sh", "toml")


def blocks(document: Path) -> list[tuple[str, str, str]]:
    fenced = BLOCK.findall(document.read_text(encoding="utf-8"))
    return [(kind, mark.strip(), text) for kind, mark, text in fenced if kind in RUNS]


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d)], ids=lambda path: path.name)
def test_blocks_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "document"}
    for kind, mark, text in blocks(document):
        if mark.startswith("needs-data"):  # a public data set that the reader has to fetch first
            compile(text, str(document), "exec") if kind == "python" else None
        elif kind == "python":
            exec(compile(text, str(document), "exec", dont_inherit=True), names)
        elif kind == "toml":
            match = re.match(r"# (\S+\.toml)\n", text)
            if match:
                (tmp_path / match[1]).write_text(text, encoding="utf-8")
        else:
            run_shell(text)


def run_shell(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        command, _, comment = line.partition("#")
        if command.strip().startswith("shpi "):
            expected = int(match[1]) if (match := re.search(r"exit (\d)", comment)) else 0
            try:
                code = main(shlex.split(command)[1:])
            except SystemExit as stop:  # --help leaves this way
                code = int(stop.code or 0)
            assert code == expected, line


def test_there_is_something_to_run() -> None:
    assert any(kind == "python" for kind, _, _ in blocks(ROOT / "README.md"))
