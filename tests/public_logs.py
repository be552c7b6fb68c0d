"""Public logs by name, read once in a process: reading the larger ones takes seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from shpi.data.audit import AuditReport, audit
from shpi.data.datasets import load
from shpi.data.logged import LoggedData


@cache
def public_log(name: str, folder: Path) -> LoggedData:
    """What `shpi audit NAME --data FOLDER` reads; nobody may write into it."""
    return load(name, folder)


@cache
def public_audit(name: str, folder: Path) -> AuditReport:
    """The audit of a public log, made once in a process as well."""
    return audit(public_log(name, folder))
