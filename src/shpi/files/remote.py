"""Files at a URI, such as s3://bucket/shards: a place that is not on this machine.

Uses fsspec: it is small, has one interface for all stores, and an in-memory store for tests. pyarrow.fs would
bring pyarrow (170 MB), which shpi does not need otherwise. Credentials come from the store's own environment
variables (for S3: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …); none of them passes through shpi.

Stores cannot rename a folder. So a folder is defined by its manifest, and the manifest is written last.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from shpi.errors import ConfigError, DataError, FileError, MissingExtraError

_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_STEP = 2**22  # bytes read at a time


@dataclass(frozen=True)
class Remote:
    """A file or a folder at a URI.

    Args:
        uri: the address, such as s3://bucket/folder/file.
        sha256: expected digest of the contents, if known.
    """

    uri: str
    sha256: str | None = None

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.uri.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(self.uri.rstrip("/")).name

    def exists(self) -> bool:
        """Whether there is such a file, or a folder with files."""
        with _errors(self.uri):
            system, path = _system(self.uri)
            return bool(system.exists(path))

    def sizes(self) -> dict[str, int]:
        """The files directly in a folder, with their sizes in bytes."""
        with _errors(self.uri):
            system, path = _system(self.uri)
            system.invalidate_cache()
            entries = system.ls(path, detail=True)
        return {
            PurePosixPath(entry["name"]).name: int(entry["size"])
            for entry in entries
            if entry["type"] == "file"
        }

    def read(self, most: int) -> bytes:
        """The contents, up to ``most`` bytes; a missing file is a FileNotFoundError."""
        with _errors(self.uri):
            system, path = _system(self.uri)
            with system.open(path, "rb") as file:
                content: bytes = file.read(most)
                return content

    @contextmanager
    def fetched(self) -> Iterator[Path]:
        """A copy on this machine, for as long as the block lasts."""
        with tempfile.TemporaryDirectory(prefix="shpi-fetched-") as folder:
            copy = Path(folder) / self.name
            self.fetch(copy)
            yield copy

    def fetch(self, target: Path) -> None:
        """Copy the file to this machine, and check its digest if one is known."""
        digest = sha256()
        with _errors(self.uri):
            system, path = _system(self.uri)
            with system.open(path, "rb") as file, target.open("wb") as copy:
                while block := file.read(_STEP):
                    digest.update(block)
                    copy.write(block)
        if self.sha256 is not None and digest.hexdigest() != self.sha256:
            raise DataError(
                expected="the file that the manifest lists",
                found="another one: it was changed, cut short or belongs to another log",
                where=self.uri,
                remedy="copy the folder again, or prepare the shards again",
            )

    def put(self, source: Path) -> None:
        """Copy a local file to this place."""
        with _errors(self.uri):
            system, path = _system(self.uri)
            system.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
            system.put_file(str(source), path)

    def remove(self) -> None:
        """Remove the file; failures are ignored."""
        with suppress(OSError, FileError):
            system, path = _system(self.uri)
            system.rm_file(path)


Place = Path | Remote


def is_remote(place: object) -> bool:
    """Whether a place is a URI and not a path."""
    return isinstance(place, Remote) or (isinstance(place, str) and _URI.match(place) is not None)


def place_of(place: str | Path | Remote) -> Place:
    """A path on this machine, or a `Remote` for a URI."""
    if isinstance(place, Remote):
        return place
    return Remote(str(place).rstrip("/")) if is_remote(place) else Path(place)


@contextmanager
def local(place: Place) -> Iterator[Path]:
    """The file on this machine: itself, or a copy that exists while the block lasts."""
    if isinstance(place, Remote):
        with place.fetched() as copy:
            yield copy
    else:
        yield place


def fetch_tables(uri: str, folder: Path) -> Path:
    """Copy the files that a URI, a glob or a folder names; return the local path to read them from.

    Below ``folder`` they keep their names and their partition folders.
    """
    with _errors(uri):
        system, path = _system(uri)
        paths = sorted(system.glob(path)) if any(sign in path for sign in "*?[") else [path]
        folders = [place for place in paths if system.isdir(place)]
        files = [place for place in paths if place not in folders]
        for place in folders:
            files += sorted(system.find(place))
        root = str(PurePosixPath(_fixed_part(path)))
        if len(files) == 1 and files[0] == path:
            root = str(PurePosixPath(path).parent)
        for place in files:
            target = folder / PurePosixPath(place).relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(place, str(target))
    if not files:
        raise DataError(expected="files", found="nothing that matches", where=uri)
    return folder if len(files) > 1 or folders else folder / PurePosixPath(files[0]).relative_to(root)


def _fixed_part(path: str) -> str:
    """The folder that a glob begins with."""
    parts = PurePosixPath(path).parts
    fixed = next((i for i, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
    return str(PurePosixPath(*parts[:fixed]))


def _system(uri: str) -> tuple[Any, str]:
    """The store of a URI, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError("fsspec", "remote") from None
    try:
        system, path = fsspec.core.url_to_fs(uri)
    except ImportError as error:  # fsspec knows the scheme, but the package of that store is missing
        raise MissingExtraError(str(error)[:80], "remote") from None
    except ValueError as error:
        raise ConfigError(
            expected="a URI of a store that fsspec knows", found=str(error)[:160], where=uri
        ) from None
    return system, str(path)


@contextmanager
def _errors(uri: str) -> Iterator[None]:
    """Turn a store's errors into errors of shpi; a missing file stays a FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, FileError):
        raise
    except OSError as error:
        raise _refused(uri, error) from None
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("botocore", "aiobotocore", "aiohttp", "fsspec"):
            raise
        raise _refused(uri, error) from None


def _refused(uri: str, error: Exception) -> FileError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return FileError(
        expected="a store that answers and permits this",
        found=(lines[0] if lines else type(error).__name__)[:200],
        where=uri,
        remedy="look at the address, at the keys in the environment, and at the network",
    )
