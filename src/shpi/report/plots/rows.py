"""Layout of charts with one row per label: where labels, marks and texts go on wide and narrow sheets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shpi.errors import ConfigError
from shpi.report.plots.canvas import SIZE, Canvas, text_width

NARROW = 480.0  # px; below this a label stands above its row, so that the marks have the whole width


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Positions of the rows of a chart."""

    labels: tuple[str, ...]
    texts: tuple[str, ...]  # at the right end; empty strings for none
    left: float  # left end of the plotting area, in px
    right: float
    top: float
    bottom: float  # where the last row ends
    step: float  # px from row to row
    mark: float  # px from the top of a row to the middle of its marks
    narrow: bool

    @classmethod
    def on(
        cls, canvas: Canvas, labels: Sequence[str], texts: Sequence[str] | None, top: float, height: float
    ) -> Rows:
        """Rows whose marks are ``height`` px high."""
        shown = tuple(str(label) for label in labels)
        notes = tuple(texts) if texts is not None else ("",) * len(shown)
        if len(notes) != len(shown):
            raise ConfigError(expected=f"{len(shown)} texts, one per label", found=str(len(notes)))
        narrow = canvas.width < NARROW
        if narrow:
            left, right = 8.0, canvas.width - 8
            step, mark = height + 26, 20 + height / 2
        else:
            most = canvas.width * 0.34
            left = 12 + min(most, max((text_width(text[:200]) * 1.06 for text in shown), default=0))
            note = max((text_width(text) * 1.08 for text in notes), default=0)
            right = canvas.width - (note + 18 if note else 10)
            step = height + 12
            mark = step / 2
        return cls(labels=shown, texts=notes, left=left, right=right, top=top, step=step, mark=mark,
                   bottom=top + step * len(shown) + 4, narrow=narrow)  # fmt: skip

    def middle(self, index: int) -> float:
        """The y of a row's marks."""
        return self.top + self.step * index + self.mark

    def write(self, canvas: Canvas, index: int, *, bold: bool = False) -> None:
        """Write the label and the text of a row."""
        label, note = self.labels[index], self.texts[index]
        if self.narrow:
            y = self.top + self.step * index + 14
            canvas.rect(0, y - 17, canvas.width, 22, cls="paper")  # keeps grid lines off the label
            space = canvas.width - 4 - (text_width(note) * 1.08 + 10 if note else 0)
            canvas.text(2, y, label, bold=bold, most=max(space, canvas.width / 3))
            canvas.text(canvas.width - 2, y, note, anchor="end", bold=bold)
        else:
            y = self.middle(index) + SIZE * 0.35
            canvas.text(2, y, label, bold=bold, most=self.left - 10)
            canvas.text(canvas.width - 2, y, note, anchor="end", bold=bold)


def same_length(*, labels: Sequence[str], **columns: Sequence[object] | None) -> None:
    """Raise an error unless every column has one entry per label."""
    if not len(labels):
        raise ConfigError(expected="at least one row", found="none", where="a chart")
    for name, column in columns.items():
        if column is not None and len(column) != len(labels):
            raise ConfigError(
                expected=f"{len(labels)} entries, one per label", found=str(len(column)), where=name
            )
