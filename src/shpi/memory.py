"""The largest resident size of this process, to report what a piece of work needed."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path


def forget_peak() -> None:
    """Let the peak start again from here, where the system can do that (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int | None:
    """The peak in bytes; libraries and data are part of it. None where the system does not say."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    with suppress(ImportError):
        import resource

        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return size if sys.platform == "darwin" else 1024 * size
    return None
