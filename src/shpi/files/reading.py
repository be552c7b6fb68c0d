"""Read shpi's own files defensively: regular files of limited size, with strict JSON."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import IO, Any

from shpi.errors import DataError, FileError

LARGEST_JSON = 256 * 2**20  # bytes; may hold the action features of a large catalogue
DEEPEST = 100  # levels of nested lists and objects


def open_regular(place: Path) -> IO[bytes]:
    """Open for reading; anything but a regular file (a folder, a pipe, a device) is an error, not a wait."""
    try:
        number = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise read_error(error, place) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise DataError(
            expected="a regular file",
            found="a folder, a pipe or a device",
            where=str(place),
            remedy="copy the folder again from where it was saved",
        )
    return os.fdopen(number, "rb")


def read_error(error: OSError, place: str | Path) -> FileError:
    """A shpi error for an error of the operating system."""
    remedies = {
        errno.EACCES: "ask for the permission to read it",
        errno.EPERM: "ask for the permission to read it",
        errno.EMFILE: "raise the limit on open files (ulimit -n)",
        errno.ELOOP: "repair the symbolic link",
        errno.ENAMETOOLONG: "give a shorter path",
    }
    return FileError(
        expected="a file that can be read",
        found=error.strerror or str(error) or type(error).__name__,
        where=str(place),
        remedy=remedies.get(error.errno or 0, "look at the file, or copy it again"),
    )


def read_json(place: Path) -> Any:
    """The content of a JSON file. A missing file is a FileNotFoundError for the caller to explain."""
    with open_regular(place) as file:
        data = file.read(LARGEST_JSON + 1)
    return parse_json(data, str(place))


def parse_json(data: bytes | str, where: str, *, finite: bool = True) -> Any:
    """Strict JSON in UTF-8: no excessive nesting, no text after the end, NaN only with ``finite=False``."""
    if len(data) > LARGEST_JSON:
        raise DataError(
            expected=f"a manifest of at most {LARGEST_JSON // 2**20} MB",
            found="a larger one",
            where=where,
            remedy="copy the file again from where it was saved",
        )
    try:
        content = json.loads(data, parse_constant=_refuse if finite else float)
        # Refuse what shpi could not have written: lone surrogates, numbers that overflow.
        json.dumps(content, ensure_ascii=False, allow_nan=not finite).encode()
    except (UnicodeError, ValueError, RecursionError) as error:
        raise DataError(
            expected="a manifest in JSON",
            found=str(error)[:200],
            where=where,
            remedy="the file is damaged: copy it again from where it was saved",
        ) from None
    return content


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
