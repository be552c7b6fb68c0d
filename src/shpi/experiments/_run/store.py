"""Results on disk: one file of JSON lines per experiment, appended to cell by cell.

All rows of a cell are one write, so a killed run leaves at most one incomplete cell at the end of a file. It
is skipped when the file is read, and the cell is run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from shpi.errors import ConfigError, DataError
from shpi.experiments._run.cells import FAILURE, Cell, Row
from shpi.report.files import write_whole

_FIELDS = {item.name for item in fields(Row)}


class Store:
    """The results files of a folder."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(expected="a folder that can be made", found=str(error), where="--out") from None
        self.folder = folder

    def path(self, name: str) -> Path:
        """The file of one experiment."""
        return self.folder / f"{name}.jsonl"

    def names(self) -> tuple[str, ...]:
        """The experiments that have a file."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.jsonl")))

    def read(self, name: str) -> list[Row]:
        """The rows of all complete cells, failed ones included. A cell that was run twice counts once."""
        path = self.path(name)
        if not path.is_file():
            return []
        cells: dict[str, dict[str, Row]] = {}  # by key and metric; later rows replace earlier ones
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            row = _parse(line, path, number)
            if row is None:
                continue
            rows = cells.setdefault(row.cell, {})
            if (row.metric == FAILURE) != (FAILURE in rows):  # a cell either failed or succeeded
                rows.clear()
            rows[row.metric] = row
        return [row for rows in cells.values() if len(rows) == row_count(rows) for row in rows.values()]

    def append(self, name: str, rows: Sequence[Row]) -> None:
        """Append all rows of one cell in one write, on a new line even if the last one is incomplete."""
        if not rows:
            return
        path = self.path(name)
        text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
        if path.is_file() and path.stat().st_size and not _ends_with_newline(path):
            text = "\n" + text
        place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(place, text.encode())
        finally:
            os.close(place)

    def forget(self, name: str, cells: Collection[str]) -> None:
        """Remove the rows of these cells, so that they run again; rows of others stay."""
        remaining = [row for row in self.read(name) if row.cell not in cells]
        if remaining:
            write_whole(self.path(name), "".join(json.dumps(asdict(row)) + "\n" for row in remaining))
        else:
            self.path(name).unlink(missing_ok=True)


def row_count(rows: dict[str, Row]) -> int:
    """The number of rows of a complete cell."""
    return next(iter(rows.values())).of


def succeeded(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of every cell that did not fail, by the key of the cell."""
    by_cell: dict[str, list[Row]] = {}
    for row in rows:
        if row.metric != FAILURE:
            by_cell.setdefault(row.cell, []).append(row)
    return by_cell


def renamed(rows: Iterable[Row], name: str, cell: Cell) -> list[Row]:
    """The rows under another experiment's names."""
    return [replace(row, name=name, method=cell.method, world=cell.log.label) for row in rows]


def _parse(line: str, path: Path, number: int) -> Row | None:
    """The row in a line; None for an empty or incomplete one, which a killed run may leave."""
    if not line.strip():
        return None
    try:
        content = json.loads(line)
    except json.JSONDecodeError:
        return None
    if not isinstance(content, dict) or set(content) != _FIELDS:
        raise DataError(
            expected="rows of shpi reproduce",
            found=f"other fields in line {number}",
            where=str(path),
            remedy="choose another folder with --out, or start over with --fresh",
        )
    return Row(**content)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
