"""Write a file or a folder atomically: the target is either the complete old one or the complete new one.

Everything is written to a draft beside the target: ``.NAME.RANDOM.draft``, made exclusively (no other file of
that name is opened, no symbolic link is followed), flushed to the disk, and renamed. The writer holds a lock
on its draft for as long as it lives. So the next writer of the same target can tell which drafts were left by
a killed process, and removes them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from shpi.errors import ConfigError, FileError

fcntl: Any = None
with contextlib.suppress(ImportError):  # not on Windows, where drafts are removed when they are a day old
    fcntl = import_module("fcntl")

DRAFT = ".draft"  # ending of the name of a draft
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)


@contextmanager
def new_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes ``path`` when the block ends without an exception."""
    target = Path(path)
    with writing(target):
        # A rename would put a plain file in the place of a folder, a device or a pipe.
        if not target.parent.is_dir():
            raise ConfigError(
                expected="a folder that exists",
                found=f"no folder '{target.parent}'",
                where=f"the place to write '{target.name}'",
                remedy="make the folder, or choose another place",
            )
        if target.exists() and not target.is_file():
            raise ConfigError(
                expected="the name of a file",
                found="a folder of that name" if target.is_dir() else "a device or a pipe of that name",
                where=str(target),
                remedy="choose another name",
            )
        sweep(target)
        draft, number = _open_draft(target)
        try:
            with os.fdopen(number, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                draft.replace(target)
            flush_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file completely or not at all."""
    with new_file(path) as file:
        file.write(text.encode("utf-8", errors="replace"))
    return Path(path)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A draft folder that becomes ``path``, which must not exist, if the block ends without an exception."""
    target = Path(path)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target)
        draft, number = _open_draft(target, folder=True)
        try:
            yield draft
            for place in filter(Path.is_file, draft.iterdir()):
                _flush(place, _NO_LINKS)
            flush_folder(draft)
            try:
                draft.rename(target)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise already_there(target) from None
                raise
            flush_folder(target.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            os.close(number)


def already_there(target: Path) -> ConfigError:
    """The error for a target that exists and may not be replaced."""
    return ConfigError(
        expected="a path that does not exist yet",
        found=f"'{target}'",
        remedy="choose another path, or say that it may be replaced",
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for one writer at a time; the lock ends with the process."""
    number = os.open(folder, os.O_RDONLY | _FOLDER)
    try:
        if fcntl is not None:
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def sweep(target: Path) -> None:
    """Remove the drafts of a target whose writers are dead."""
    with contextlib.suppress(OSError):
        for place in target.parent.iterdir():
            if place.name.startswith(f".{target.name}.") and place.name.endswith(DRAFT):
                _remove_if_abandoned(place)


def sweep_folder(folder: Path) -> None:
    """Remove all drafts inside a folder whose writers are dead."""
    with contextlib.suppress(OSError):
        for place in folder.glob(f".*{DRAFT}"):
            _remove_if_abandoned(place)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn operating system errors while ``target`` is written into a `FileError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise write_error(error, target) from None


def write_error(error: OSError, target: str | Path) -> FileError:
    """A shpi error for an error of the operating system."""
    remedies = {
        errno.ENOSPC: "free some space, or write elsewhere; the old file is unchanged",
        errno.EDQUOT: "free some space, or write elsewhere; the old file is unchanged",
        errno.EROFS: "write elsewhere: this file system is read-only",
        errno.EACCES: "write elsewhere, or ask for the permission to write there",
        errno.EPERM: "write elsewhere, or ask for the permission to write there",
        errno.EMFILE: "raise the limit on open files (ulimit -n)",
        errno.ENAMETOOLONG: "choose a shorter name",
        errno.ENOTDIR: "choose a place below a folder: part of this path is a file",
    }
    return FileError(
        expected="a place that can be written",
        found=error.strerror or str(error) or type(error).__name__,
        where=str(target),
        remedy=remedies.get(error.errno or 0, "look at the place, or write elsewhere"),
    )


# ---------------------------------------------------------------------- drafts


def _open_draft(target: Path, *, folder: bool = False) -> tuple[Path, int]:
    """Create and lock a new draft: a file that is open for writing, or a folder."""
    flags = os.O_RDONLY | _FOLDER if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
    while True:
        draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}{DRAFT}")
        if folder:
            draft.mkdir()
        try:
            number = os.open(draft, flags | _NO_LINKS, 0o666)
        except FileNotFoundError:
            if folder:  # a sweeper removed it meanwhile
                continue
            raise
        if fcntl is None:
            return draft, number
        fcntl.flock(number, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if draft.lstat().st_ino == os.fstat(number).st_ino:
                return draft, number
        os.close(number)  # a sweeper removed it as abandoned before it was locked


def _remove_if_abandoned(place: Path) -> None:
    number = os.open(place, os.O_RDONLY | _NO_LINKS | getattr(os, "O_NONBLOCK", 0))
    try:
        if fcntl is not None:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused: its writer is alive
        elif not _a_day_old(number):
            return
        if stat.S_ISDIR(os.fstat(number).st_mode):
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)
    except OSError:
        return
    finally:
        os.close(number)


def _a_day_old(number: int) -> bool:
    import time

    return time.time() - os.fstat(number).st_mtime > 86_400


def _flush(place: Path, flags: int) -> None:
    number = os.open(place, os.O_RDONLY | flags)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def flush_folder(folder: Path) -> None:
    """Make a rename in a folder durable, on file systems that support it."""
    with contextlib.suppress(OSError):
        _flush(folder, _FOLDER)
