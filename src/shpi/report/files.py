"""Files that appear complete or not at all."""

from __future__ import annotations

from pathlib import Path

from shpi.errors import ConfigError


def write_whole(path: str | Path, text: str) -> Path:
    """Write to a temporary name beside the file, then rename."""
    place = Path(path)
    if not place.parent.is_dir():
        raise ConfigError(
            expected="a folder that exists", found=str(place.parent), where="the place to write"
        )
    if place.is_dir():
        raise ConfigError(expected="the name of a file", found=f"the folder {place}")
    draft = place.with_name(f".{place.name}.part")
    try:
        draft.write_text(text, encoding="utf-8", errors="replace")
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)
    return place
