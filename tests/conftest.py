"""Fixtures that every room shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


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
