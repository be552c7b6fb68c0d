"""Standard output that outlives its reader: ``shpi evaluate … | true`` still exits with the verdict."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class _Forgiving:
    """A stream that forgets what nobody reads any more; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._forget()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._forget()

    def _forget(self) -> None:
        """From here on the descriptor leads nowhere, also for the flush at the interpreter's end."""
        with suppress(OSError, ValueError):  # a stream without a descriptor has no pipe either
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def forgiving_output() -> Iterator[None]:
    """While it lasts, a reader that goes away (`head`, `true`, a pager) changes nothing else."""
    before = sys.stdout
    forgiving: Any = _Forgiving(before)
    sys.stdout = forgiving
    try:
        yield
    finally:
        try:
            forgiving.flush()
        except OSError:  # what cannot be written must not fail again at the interpreter's end
            forgiving._forget()
        sys.stdout = before
