"""Plots as SVG, made here: no library, no script, nothing that has to be fetched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 920, 270
LEFT, RIGHT, TOP, BOTTOM = 74, 16, 34, 46
INK, FAINT, GRID = "#1f2933", "#52606d", "#e4e7eb"

Points = Sequence[tuple[float, float]]


def nice_ticks(top: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to something not below `top`, about so many."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(it * power for it in (1, 2, 2.5, 5, 10) if it * power >= rough * 0.999)
    return [index * step for index in range(math.ceil(top / step - 1e-9) + 1)]


def short(value: float) -> str:
    """A number for an axis: 20k, 1.5M, 0.5."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@dataclass(slots=True)
class Plot:
    """Something over time. `title` says what, with its unit; times are seconds from 0 to `seconds`."""

    title: str
    seconds: float
    top: float
    _marks: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str]] = field(default_factory=list)
    _ticks: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ticks = nice_ticks(self.top)

    def x(self, at: float) -> float:
        """Where a time is."""
        return LEFT + (WIDTH - LEFT - RIGHT) * max(0.0, at) / (self.seconds or 1.0)

    def y(self, value: float) -> float:
        """Where a value is."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self._ticks[-1]

    # What is drawn.

    def span(self, begin: float, end: float, *texts: str) -> None:
        """A stretch of time that is set apart, with the first of the texts that has room."""
        left, width = self.x(begin), self.x(end) - self.x(begin)
        self._marks.append(
            f'<rect x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}" '
            f'fill="#f1f3f5"/>'
        )
        for text in texts:
            if width > 6.2 * len(text):
                self._marks.append(_text(left + width / 2, TOP + 14, text, "middle", FAINT, 11))
                return

    def line(self, points: Points, name: str, colour: str, fill: bool = False) -> None:
        """A line through points; `fill`ed down to the axis if you like."""
        path = " ".join(f"{self.x(at):.1f},{self.y(value):.1f}" for at, value in points)
        if fill and points:
            base = self.y(0)
            first, last = self.x(points[0][0]), self.x(points[-1][0])
            self._marks.append(
                f'<polygon points="{first:.1f},{base:.1f} {path} {last:.1f},{base:.1f}" '
                f'fill="{colour}" fill-opacity="0.18"/>'
            )
        self._marks.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            'stroke-linejoin="round"/>'
        )
        self._legend.append((name, colour))

    def bars(self, bars: Iterable[tuple[float, float, float, str]], name: str, colour: str) -> None:
        """Bars, each from one time to another, of a height, with what to say of it."""
        for begin, end, value, text in bars:
            left = self.x(begin)
            width = max(1.5, self.x(end) - left - 1)
            top = self.y(value)
            self._marks.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{max(0.0, self.y(0) - top):.1f}" fill="{colour}" fill-opacity="0.75">'
                f"<title>{escape(text)}</title></rect>"
            )
        self._legend.append((name, colour))

    def mark(self, at: float, text: str, colour: str) -> None:
        """A moment: a line from top to bottom with a word."""
        x = self.x(at)
        self._marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{HEIGHT - BOTTOM}" '
            f'stroke="{colour}" stroke-width="1.5" stroke-dasharray="5 3"/>'
        )
        self._marks.append(_text(x, TOP - 9, text, "middle", colour, 12, bold=True))

    # The whole.

    def svg(self) -> str:
        """The picture."""
        label = escape(self.title)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{label}" font-family="system-ui, sans-serif">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *self._axes(),
            *self._marks,
            *self._names(),
            "</svg>",
        ]
        return "\n".join(parts)

    def _axes(self) -> list[str]:
        right, base = WIDTH - RIGHT, HEIGHT - BOTTOM
        found = []
        for value in self._ticks:
            y = self.y(value)
            found.append(
                f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
            )
            found.append(_text(LEFT - 8, y + 4, short(value), "end", INK))
        for at in nice_ticks(self.seconds, 10):
            if at <= self.seconds:
                found.append(_text(self.x(at), base + 18, short(at), "middle", INK))
                found.append(
                    f'<line x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{base}" y2="{base + 5}" '
                    f'stroke="{FAINT}"/>'
                )
        found.append(f'<line x1="{LEFT}" x2="{right}" y1="{base}" y2="{base}" stroke="{FAINT}"/>')
        found.append(_text(LEFT, HEIGHT - 10, "seconds", "start", FAINT))
        middle = (TOP + base) / 2
        found.append(
            f'<text transform="translate(16 {middle:.0f}) rotate(-90)" text-anchor="middle" '
            f'font-size="12" fill="{FAINT}">{escape(self.title)}</text>'
        )
        return found

    def _names(self) -> list[str]:
        """What the colours mean, below the axis on the right."""
        found = []
        at = float(WIDTH - RIGHT)
        for name, colour in reversed(self._legend):
            at -= 7.0 * len(name)
            found.append(_text(at, HEIGHT - 10, name, "start", INK))
            at -= 16
            found.append(
                f'<rect x="{at:.1f}" y="{HEIGHT - 20}" width="11" height="11" rx="2" fill="{colour}"/>'
            )
            at -= 14
        return found


def _text(
    x: float, y: float, text: str, anchor: str, colour: str, size: int = 12, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{colour}"{weight}>{escape(text)}</text>'
    )
