"""Memory: the peak of this process, and whether there is enough for the next piece of work."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from shpi.errors import MemoryLimitError


def forget_peak() -> None:
    """Reset the recorded peak, where the system allows it (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int | None:
    """The peak memory of this process in bytes, libraries included; None where the system does not say."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    with suppress(ImportError):
        import resource

        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return size if sys.platform == "darwin" else 1024 * size
    return None


def available_memory() -> int | None:
    """Bytes that this process can still allocate within the machine, its control group and its own limit."""
    limits: list[int] = []
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="ascii"))  # "max" without a limit
        limits.append(limit - int((group / "memory.current").read_text(encoding="ascii")))
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            limits.append(soft - pages * resource.getpagesize())
    return min(limits) if limits else None


def require_memory(size: int, what: str, remedy: str) -> None:
    """Raise if work needs more memory than is available, before it begins.

    Args:
        size: bytes needed at the peak.
        what: description of the work, for the message.
        remedy: a way that needs less memory.
    """
    there = available_memory()
    if there is not None and size > there:
        raise MemoryLimitError(
            expected=f"{size / 2**30:.1f} GiB of memory for {what}",
            found=f"{max(there, 0) / 2**30:.1f} GiB",
            remedy=remedy,
        )
