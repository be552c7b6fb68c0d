"""Fixtures that every room shares."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before numpy is imported: some tests compare processes bit by bit, and threads add in another order.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# The same examples in every run: a failure is one of the change that shows it. `make fuzz` draws new ones.
settings.register_profile("shpi", derandomize=True, deadline=None)
settings.load_profile("shpi")

# A word in the reason of a skip -> how to cover what was skipped.
HOW_TO_COVER = {
    "Chromium": "apt-get install chromium, or name a browser in SHPI_CHROMIUM",
    "obp": "make peers",
    "d3rlpy": "make peers",
    "vowpalwabbit": "pip install 'shpi[vw]'",
    "extra vw": "pip install 'shpi[vw]'",
    "torch": "pip install 'shpi[neural]'",
    "extra neural": "pip install 'shpi[neural]'",
    "h5py": "pip install h5py",
    "needs ray": "pip install 'shpi[cluster]'",
    "needs moto": "pip install 'shpi[test,remote]'",
    "reference data": "name the folder of reference data in SHPI_SHARED",
    "release": "name the folder of reference data in SHPI_SHARED",
    "public log": "name the folder of reference data in SHPI_SHARED",
    "KuaiRand": "name the folder of reference data in SHPI_SHARED",
}


def pytest_collection_finish() -> None:
    """Leave what is there before the first test out of every collection of garbage: it stays to the end.

    It is most of 650,000 objects, and each full collection looked at all of them, for half a second.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in a few lines what the skips left uncovered, and how to cover it: a skip is not a pass."""
    missed: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        advice = next((how for word, how in HOW_TO_COVER.items() if word in reason), "")
        line = f"to cover them, {advice}" if advice else reason.removeprefix("Skipped: ")
        missed[line] = missed.get(line, 0) + 1
    if missed:
        terminalreporter.section("not covered")
        for line, count in sorted(missed.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{count} skipped: {line}")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder with golden files and public logs; tests that need it skip where it is absent."""
    place = Path(os.environ.get("SHPI_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (place / "golden").is_dir():
        pytest.skip(f"needs reference data: no folder {place / 'golden'} (set SHPI_SHARED)")
    return place


@pytest.fixture(scope="session")
def golden_dir(shared_dir: Path) -> Path:
    """Reference data of the original simulators."""
    return shared_dir / "golden"


@pytest.fixture(scope="session")
def data_dir(shared_dir: Path) -> Path:
    """Public logs."""
    if not (shared_dir / "data").is_dir():
        pytest.skip(f"needs public logs: no folder {shared_dir / 'data'} (set SHPI_SHARED)")
    return shared_dir / "data"


@pytest.fixture(autouse=True)
def _fixed_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are laid out for one width, whatever terminal the tests are started from."""
    monkeypatch.setenv("COLUMNS", "100")
