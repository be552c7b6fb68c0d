"""The page at ``/``: is it learning?"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def page_of(app: Any) -> str:
    """TODO."""
    return ""


def report_of(folder: Path) -> str:
    """TODO."""
    return ""
