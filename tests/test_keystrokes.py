"""What is typed by somebody who only reads README or start page: from a CSV to a report, in six commands."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest

from shpi.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
KEYSTROKES = """
shpi init events.csv --yes
shpi audit events.csv --columns map.toml
shpi split events.csv --columns map.toml
shpi fit train.parquet --out policies/today
shpi mix policies/today train.parquet --share 30% --out policies/first-step
shpi evaluate policies/first-step held-out.parquet --out report.html
""".strip().splitlines()
TEN_MINUTES = 600.0


def typed(document: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("document", ["README.md", "docs/start.md"])
def test_the_documents_say_what_is_typed_here(document):
    lines = [line for line in typed(ROOT / document) if line in KEYSTROKES]
    assert lines == KEYSTROKES


def test_six_commands_lead_from_a_csv_to_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    make = re.search(r"```python\n(.*?)```", start, re.DOTALL)
    columns = re.search(r"```toml\n(.*?)```", start, re.DOTALL)
    assert make
    assert columns
    exec(compile(make[1], "start.md", "exec", dont_inherit=True), {})
    began = time.monotonic()
    for line in KEYSTROKES:
        assert main(shlex.split(line)[1:]) == 0, line
        if line.startswith("shpi init"):  # the reader corrects the guess
            guess = Path("map.toml").read_text(encoding="utf-8")
            for word in ("user_id", "timestamp", "item", "propensity"):
                assert f'"{word}"' in guess
            Path("map.toml").write_text(columns[1], encoding="utf-8")
    assert time.monotonic() - began < TEN_MINUTES
    assert sum(len(line) for line in KEYSTROKES) < 400
    page = Path("report.html").read_text(encoding="utf-8")
    assert "first-step" in page
    assert "in the 30 days after the first decision" in page
    assert "VERDICT: SHIP" in capsys.readouterr().out
