"""Bookkeeping of rows: rows in = rows used + rows dropped by reason. Nothing disappears unreported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Rows that were left out for one reason."""

    reason: str
    rows: int
    column: str = ""
    example: int | None = None  # row number in the source, counted from 0
    remedy: str = ""
    asked: bool = False  # the metric or churn_after requires the drop: nothing is wrong with the rows

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "reason": self.reason,
            "rows": self.rows,
            "column": self.column,
            "example": self.example,
            "remedy": self.remedy,
            "asked": self.asked,
        }


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The account of the source's rows, with notes on what the reader decided."""

    rows_in: int
    rows_used: int
    drops: tuple[Drop, ...] = ()
    final_rows: int = 0  # rows without an action that only carry a trajectory's last context
    notes: tuple[str, ...] = field(default=())
    changing: tuple[str, ...] = ()  # context dimensions that differ between rows of the same decision

    @property
    def rows_dropped(self) -> int:
        """All rows that were left out."""
        return sum(drop.rows for drop in self.drops)

    def balanced(self) -> bool:
        """Whether every row of the source is accounted for."""
        return self.rows_in == self.rows_used + self.final_rows + self.rows_dropped

    def with_drop(self, drop: Drop) -> Ledger:
        """The ledger after dropping more of the rows that were used so far."""
        if drop.rows == 0:
            return self
        return Ledger(
            rows_in=self.rows_in,
            rows_used=self.rows_used - drop.rows,
            drops=(*self.drops, drop),
            final_rows=self.final_rows,
            notes=self.notes,
            changing=self.changing,
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "rows_in": self.rows_in,
            "rows_used": self.rows_used,
            "final_rows": self.final_rows,
            "drops": [drop.to_json() for drop in self.drops],
            "notes": list(self.notes),
            "changing": list(self.changing),
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Ledger:
        """The inverse of ``to_json``."""
        return cls(
            rows_in=row["rows_in"],
            rows_used=row["rows_used"],
            final_rows=row.get("final_rows", 0),
            drops=tuple(Drop(**drop) for drop in row.get("drops", ())),
            notes=tuple(row.get("notes", ())),
            changing=tuple(row.get("changing", ())),
        )

    @classmethod
    def sum(cls, ledgers: Iterable[Ledger]) -> Ledger:
        """The ledger of a concatenation: equal reasons are added up."""
        merged: dict[tuple[str, str], Drop] = {}
        rows_in = used = final = 0
        notes: dict[str, None] = {}
        changing: dict[str, None] = {}
        for ledger in ledgers:
            rows_in, used, final = (
                rows_in + ledger.rows_in,
                used + ledger.rows_used,
                final + ledger.final_rows,
            )
            notes.update(dict.fromkeys(ledger.notes))
            changing.update(dict.fromkeys(ledger.changing))
            for drop in ledger.drops:
                key = (drop.reason, drop.column)
                old = merged.get(key)
                merged[key] = (
                    drop
                    if old is None
                    else Drop(
                        reason=drop.reason,
                        rows=old.rows + drop.rows,
                        column=drop.column,
                        example=min((e for e in (old.example, drop.example) if e is not None), default=None),
                        remedy=old.remedy,
                        asked=old.asked,
                    )
                )
        return cls(
            rows_in=rows_in,
            rows_used=used,
            final_rows=final,
            drops=tuple(merged.values()),
            notes=tuple(notes),
            changing=tuple(changing),
        )
