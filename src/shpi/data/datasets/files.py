"""Where the files of a public dataset are: a folder that the user names, or the one in SHPI_DATA.

Nothing is ever downloaded. A file may be packed (``.csv.gz``) or not (``.csv``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from shpi.data._log.ledger import Drop
from shpi.data._read.sources import open_table
from shpi.data.columns import missing_column
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError

ENVIRONMENT = "SHPI_DATA"  # variable that holds the default folder


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset's name, and where to find its files."""

    name: str
    origin: str  # project and paper
    subfolders: tuple[str, ...] = ("",)  # where its own archive keeps the files

    def folder(self, folder: str | Path | None) -> Path:
        """The folder that holds the dataset."""
        place = folder if folder is not None else os.environ.get(ENVIRONMENT)
        if place is None:
            raise ConfigError(
                expected=f"the folder with {self.name}",
                found="none",
                remedy=f"pass folder=..., or set the environment variable {ENVIRONMENT}; {self._get()}",
            )
        if not Path(place).is_dir():
            raise ConfigError(expected=f"the folder with {self.name}", found=f"'{place}', which is no folder")
        return Path(place)

    def find(self, folder: Path, names: Sequence[str]) -> Path | None:
        """The first of the files (names without ending) that exists."""
        for name in names:
            for inner in self.subfolders:
                for ending in (".csv", ".csv.gz"):
                    path = folder / inner / f"{name}{ending}"
                    if path.is_file():
                        return path
        return None

    def need(self, folder: Path, names: Sequence[str]) -> Path:
        """Like ``find``, but raise an error that says where to get a missing file."""
        path = self.find(folder, names)
        if path is None:
            raise DataError(
                expected=" or ".join(f"{name}.csv(.gz)" for name in names),
                found="no such file",
                where=f"{self.name}, folder '{folder}'",
                remedy=self._get(),
            )
        return path

    def _get(self) -> str:
        return f"get {self.name} from {self.origin} and put its files there"


def read_table(path: Path | Sequence[Path], columns: Sequence[str]) -> pl.DataFrame:
    """The named columns of a CSV file, or of several files one after the other."""
    table = open_table(path if isinstance(path, Path) else list(path))
    for name in columns:
        if name not in table.columns:
            raise missing_column(table.label, name, table.columns)
    return table.frame.select(columns).collect()


def with_account(logs: LoggedData, *, drops: Sequence[Drop] = (), notes: Sequence[str] = ()) -> LoggedData:
    """Record in the ledger what a loader left out before it built the log."""
    ledger = logs.ledger
    removed = tuple(drop for drop in drops if drop.rows)
    return replace(
        logs,
        ledger=replace(
            ledger,
            rows_in=ledger.rows_in + sum(drop.rows for drop in removed),
            drops=(*removed, *ledger.drops),
            notes=(*notes, *ledger.notes),
        ),
    )
