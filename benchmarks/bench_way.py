"""How much code runs for a row: the functions of shpi that `fit` and `evaluate` call, and their files.

The table is that of version 0.1's README: 5,000 decisions of 400 users, three items, two context columns. A
function counts once, however often it is called. Lambdas, comprehensions and functions called only during
imports do not count. ``python -m benchmarks.bench_way [SRC]`` prints the number of functions of every file;
SRC is the `src` folder of another version.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import polars as pl

from benchmarks.report import Row

ROOT = Path(__file__).resolve().parents[1]
BEFORE = {"fit": (338, 68), "evaluate": (593, 105)}  # functions and files of version 0.1, by this count
MAP = """user = "uid"
time = "ts"
action = "item"
propensity = "p"
reward = "bought"
context = ["tenure", "hist_*"]
session_gap = "30m"
"""


def run() -> list[Row]:
    """The functions and files of both verbs."""
    return list(_rows(measured(ROOT / "src")))


def _rows(counts: dict[str, dict[str, int]]) -> Iterator[Row]:
    for verb, by_file in counts.items():
        functions, files = BEFORE[verb]
        yield Row(f"{verb}: functions", float(sum(by_file.values())), "", f"0.1: {functions}")
        yield Row(f"{verb}: files", float(len(by_file)), "", f"0.1: {files}")


def measured(source: Path) -> dict[str, dict[str, int]]:
    """The number of functions called, by verb and file, counted in a separate interpreter."""
    command = [sys.executable, "-m", "benchmarks.bench_way", "--count", str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    counts: dict[str, dict[str, int]] = json.loads(done.stdout)
    return counts


def count(source: Path) -> dict[str, dict[str, int]]:
    """Run the verbs of the version in ``source`` and count the functions that they call."""
    sys.path.insert(0, str(source))
    from shpi.cli.main import main

    with tempfile.TemporaryDirectory() as name:
        files = ("events.parquet", "map.toml", "report.html")
        table, columns, report = (str(Path(name) / file) for file in files)
        events().write_parquet(table)
        Path(columns).write_text(MAP, encoding="utf-8")

        def fit(policy: str) -> list[str]:
            return ["fit", table, "--columns", columns, "--out", str(Path(name) / policy)]

        evaluate = ["evaluate", str(Path(name) / "policy"), table, "--columns", columns, "--out", report]
        # Run both verbs once first, so that everything is imported when counting begins.
        for words in (fit("policy"), evaluate):
            _called(main, words, source)
        return {"fit": _called(main, fit("again"), source), "evaluate": _called(main, evaluate, source)}


def events() -> pl.DataFrame:
    """The table of version 0.1's README."""
    rng, n = np.random.default_rng(0), 5000
    chances = {"shoes": 0.5, "socks": 0.3, "hats": 0.2}
    return pl.DataFrame(
        {
            "uid": rng.integers(0, 400, n),
            "ts": np.sort(rng.integers(1_700_000_000, 1_702_000_000, n)),
            "item": rng.choice(list(chances), n, p=list(chances.values())),
            "tenure": rng.exponential(100, n),
            "hist_views": rng.poisson(3, n),
            "bought": rng.random(n) < 0.1,
        }
    ).with_columns(p=pl.col("item").replace_strict(chances, return_dtype=pl.Float64), ts=pl.from_epoch("ts"))


def _called(main: Any, words: list[str], source: Path) -> dict[str, int]:
    """The functions that are called while a verb runs, by file."""
    package, called = str(source / "shpi") + "/", set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and not code.co_name.startswith("<"):
            called.add((code.co_filename.removeprefix(package), code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code in (1, 2):
        raise RuntimeError(f"shpi {' '.join(words)} exits {code}")
    return dict(sorted(Counter(file for file, _ in called).items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        print(json.dumps(count(Path(sys.argv[2]))))
    else:
        by_verb = measured(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "src")
        for verb, by_file in by_verb.items():
            print(f"{verb}: {sum(by_file.values())} functions in {len(by_file)} files")
            for file, functions in by_file.items():
                print(f"  {functions:4d} {file}")
