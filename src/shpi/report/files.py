"""Files that appear complete or not at all."""

from __future__ import annotations

from shpi.files.atomic import write_text as write_whole

__all__ = ["write_whole"]
