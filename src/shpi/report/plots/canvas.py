"""A sheet to draw on: a handful of SVG elements, escaped, with a title for screen readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from html import escape

from shpi.errors import ConfigError
from shpi.report.plots.theme import FONT, style_sheet

SIZE = 13.0  # size of text in px
SMALL = 12.0  # size of ticks and notes in px
_LONGEST = 400  # most characters of a tooltip
_NARROW = frozenset("iljtfrI.,:;!|'()[]·` ")
_BROAD = frozenset("mwMWQO@%—…")
_STYLE = f"<style>{style_sheet()}</style>"  # the same in every chart


class Canvas:
    """Elements in the order in which they are drawn; `svg` wraps them up."""

    def __init__(self, width: float) -> None:
        if not 200 <= width <= 4000:
            raise ConfigError(expected="a width of 200 to 4000 px", found=f"{width:g}")
        self.width = float(width)
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        cls: str = "ink",
        size: float = SIZE,
        bold: bool = False,
        most: float | None = None,
    ) -> None:
        """Words with their baseline at y, cut to ``most`` px; a tooltip then shows the whole text."""
        if not words:
            return
        shown = words if most is None else shortened(words, most, size * (1.06 if bold else 1))
        tip = "" if shown == words else f"<title>{_clean(words[:_LONGEST])}</title>"
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text class="shpi-{cls}" fill="currentColor" x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}"'
            f' text-anchor="{anchor}"{weight}>{_clean(shown)}{tip}</text>'
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        cls: str = "axis",
        width: float = 1.0,
        dash: str = "",
    ) -> None:
        """A straight line."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line class="shpi-{cls}" stroke="currentColor" stroke-width="{_n(width)}" x1="{_n(x1)}"'
            f' y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"{dashed}/>'
        )

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        cls: str,
        opacity: float = 1.0,
        outline: bool = False,
        tip: str = "",
    ) -> None:
        """A box, filled or (also) outlined."""
        edge = ' stroke="currentColor" stroke-width="1.5"' if outline else ""
        faint = f' fill-opacity="{_n(opacity)}"' if opacity < 1 else ""
        title = f"<title>{_clean(tip)}</title>" if tip else ""
        self._parts.append(
            f'<rect class="shpi-{cls}" fill="currentColor"{faint}{edge} x="{_n(x)}" y="{_n(y)}"'
            f' width="{_n(max(width, 0))}" height="{_n(max(height, 0))}">{title}</rect>'
        )

    def path(
        self,
        points: Sequence[tuple[float, float]],
        *,
        cls: str,
        closed: bool = True,
        width: float = 0.0,
        fill: bool = False,
        opacity: float = 1.0,
        dash: str = "",
    ) -> None:
        """A path through the points: stroked if ``width`` is positive, filled if ``fill``."""
        steps = " L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        paint = 'fill="currentColor"' if fill else 'fill="none"'
        stroke = f' stroke="currentColor" stroke-width="{_n(width)}" stroke-linejoin="round"' if width else ""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        faint = f' opacity="{_n(opacity)}"' if opacity < 1 else ""
        self._parts.append(
            f'<path class="shpi-{cls}" {paint}{stroke}{dashed}{faint} d="M{steps}{" Z" * closed}"/>'
        )

    def dot(self, x: float, y: float, radius: float = 4.0, *, cls: str, hollow: bool = False) -> None:
        """A disc, or a ring if ``hollow``."""
        self._parts.append(
            f'<circle class="shpi-{cls}" stroke="currentColor" stroke-width="2" cx="{_n(x)}" cy="{_n(y)}"'
            f' r="{_n(radius)}" fill="{"none" if hollow else "currentColor"}"/>'
        )

    def diamond(self, x: float, y: float, radius: float = 6.0, *, cls: str, hollow: bool = False) -> None:
        """A square on its corner."""
        corners = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
        self.path(corners, cls=cls, width=1.8 if hollow else 0, fill=not hollow)

    def svg(self, height: float, title: str, description: str = "") -> str:
        """The finished chart, alone or inside a page."""
        key = sha256("".join([title, description, *self._parts]).encode()).hexdigest()[:10]
        about = f"<desc id='d{key}'>{_clean(description)}</desc>" if description else ""
        labels = f"t{key} d{key}" if description else f"t{key}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(self.width)} {_n(height)}"'
            f' width="{_n(self.width)}" height="{_n(height)}" role="img" aria-labelledby="{labels}"'
            f' class="shpi-plot" font-family="{FONT}">'
            f"<title id='t{key}'>{_clean(title)}</title>{about}{_STYLE}"
            f'<rect class="shpi-paper" fill="currentColor" width="{_n(self.width)}" height="{_n(height)}"/>'
            + "".join(self._parts)
            + "</svg>"
        )


def text_width(words: str, size: float = SIZE) -> float:
    """The approximate width of words in px, rather too wide than too narrow, since fonts differ."""
    ems = sum(_em(word) for word in words)
    return ems * size


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _BROAD or letter.isupper():
        return 0.95 if letter in _BROAD else 0.7
    return 1.0 if ord(letter) > 0x2E80 else 0.62


def shortened(words: str, most: float, size: float = SIZE) -> str:
    """Words cut so that they fit, with an ellipsis."""
    room, used = most / size, 0.0
    fits = 0  # characters that leave room for the ellipsis
    for index, letter in enumerate(words):
        used += _em(letter)
        if used > room:
            return words[:fits].rstrip() + "…"
        if used + _em("…") <= room:
            fits = index + 1
    return words


def _n(value: float) -> str:
    """A coordinate as text; callers must leave out what is not finite."""
    if not math.isfinite(value):
        raise ConfigError(expected="finite coordinates", found=str(value), where="a chart")
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != round(value) else str(int(value))


def _clean(words: str) -> str:
    """Escape words, and remove control characters that XML forbids."""
    plain = "".join(
        word if word >= " " and word not in "\ufffe\uffff" and not "\ud800" <= word <= "\udfff" else " "
        for word in words
    )
    return escape(plain, quote=True)
