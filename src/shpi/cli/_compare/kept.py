"""Keeps learned policies in the folder of ``shpi compare --resume`` until the table is finished."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shpi._core.versions import versions
from shpi.files.atomic import writing

FACTS = "facts.json"  # written last, after the policy
PREFIX = "learned-"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Folders for the policies that learners learn from one log.

    Args:
        folder: folder of ``--resume``; None: nothing is kept.
        log: fingerprint of the log.
    """

    folder: Path | None
    log: str

    @contextmanager
    def place(self, learner: str, settings: Mapping[str, Any], world: Any) -> Iterator[Path]:
        """A folder for a policy and its facts; leftovers of a killed learner are removed."""
        if self.folder is None:
            with tempfile.TemporaryDirectory() as folder:
                yield Path(folder)
            return
        from shpi.passes.resume import content_digest

        where = None if world is None else (world.name, sorted(world.params.items()))
        key = (self.log, learner, sorted(settings.items()), where, sorted(versions().items()))
        place = self.folder / f"{PREFIX}{content_digest(key).hex()}"
        if not (place / FACTS).is_file():
            shutil.rmtree(place, ignore_errors=True)
        with writing(place):
            place.mkdir(parents=True, exist_ok=True)
        yield place


def read_facts(folder: Path) -> dict[str, Any] | None:
    """The facts that a learner reported; None if it has not finished."""
    if not (folder / FACTS).is_file():
        return None
    facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return facts


def forget_learned(folder: Path | None) -> None:
    """Remove what was kept, once the table is finished."""
    if folder is not None:
        for place in folder.glob(f"{PREFIX}*"):
            shutil.rmtree(place, ignore_errors=True)
