"""Standard output that outlives its reader: ``shpi evaluate … | true`` still exits with the verdict."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(eq=False)
class _Forgiving:
    """A stream that discards output once its pipe is broken; otherwise it acts like the wrapped stream."""

    _stream: TextIO

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
        """Redirect the descriptor to /dev/null, so that the flush at the interpreter's end succeeds, too."""
        with suppress(OSError, ValueError):  # a stream without a descriptor has no pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def forgiving_output() -> Iterator[None]:
    """Within the block, a reader of standard output that exits (`head`, `true`, a pager) causes no error."""
    before = sys.stdout
    forgiving: Any = _Forgiving(before)
    sys.stdout = forgiving
    try:
        yield
    finally:
        try:
            forgiving.flush()
        except OSError:  # must not fail again at the interpreter's end
            forgiving._forget()
        sys.stdout = before
