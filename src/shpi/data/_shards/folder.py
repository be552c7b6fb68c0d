"""Create a folder of shards that appears only when it is complete, on this machine or at a URI."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shpi.data._shards.manifest import MANIFEST
from shpi.errors import ConfigError
from shpi.files.atomic import new_folder, writing
from shpi.files.remote import Place, Remote


def require_absent(place: Place) -> None:
    """Raise if the folder already exists, before hours of work."""
    taken = (place / MANIFEST).exists() if isinstance(place, Remote) else place.exists()
    if taken:
        raise ConfigError(
            expected="a folder that does not exist yet",
            found="one that does",
            where=str(place),
            remedy="open it with ShardedLog.open, or remove it",
        )


@contextmanager
def new_shards(place: Place) -> Iterator[Path]:
    """A local folder to fill with shards and finally a manifest; on exit it becomes ``place``.

    At a URI the manifest is copied last, and a folder without one does not count. After an error the files
    copied so far are removed.
    """
    require_absent(place)
    if not isinstance(place, Remote):
        with new_folder(place) as draft:
            yield draft
        return
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="shpi-shards-") as folder:
        draft = Path(folder)
        yield draft
        names = sorted(path.name for path in draft.iterdir() if path.name != MANIFEST)
        copied: list[Remote] = []
        try:
            for name in [*names, MANIFEST]:
                copied.append(place / name)
                copied[-1].put(draft / name)
                (draft / name).unlink()
        except BaseException:
            for file in copied[::-1]:
                file.remove()
            raise
