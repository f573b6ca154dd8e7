"""Plots as SVG, made here: no library, no script, nothing that has to be fetched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from .groups import Group
from .report import figure_text

Scale: TypeAlias = Callable[[float], float]
"""Where a value is."""

INK, FAINT, GRID = "#1f2933", "#52606d", "#e4e7eb"
OURS, THEIRS = "#0f766e", "#9aa5b1"
COLOURS = ("#0f766e", "#b45309", "#4338ca")

WIDTH = 920
_NAMES, _FIGURES = 300, 190
"""Room for names on the left, for figures on the right."""
_LINE, _HEAD = 20, 34
PANEL_WIDTH, PANEL_HEIGHT = 300, 230
_LEFT, _TOP, _BOTTOM, _RIGHT = 56, 30, 44, 22


def bars(title: str, groups: Sequence[Group]) -> str:
    """Bars with their spread. Those of one group share a scale that begins at 0; groups do not."""
    height = 14 + sum(_HEAD + _LINE * len(group.entries) for group in groups)
    parts = []
    y = 0
    for group in groups:
        y += _HEAD
        better = "less is better" if group.less_is_better else "more is better"
        heading = f"{group.workload}: {group.figure} ({better})"
        parts.append(text(12, y - 8, heading, "start", INK, 13, bold=True))
        room = WIDTH - _NAMES - _FIGURES
        top = max(max(entry.spread.rounds) for entry in group.entries) or 1.0
        for number, entry in enumerate(group.entries):
            low, high = min(entry.spread.rounds), max(entry.spread.rounds)
            median = entry.spread.median or 0.0
            colour = THEIRS if number and not entry.subject.startswith("tstreams") else OURS
            width = room * median / top
            parts.append(text(_NAMES - 10, y + 14, entry.subject, "end", INK))
            parts.append(
                f'<rect x="{_NAMES}" y="{y + 3}" width="{width:.1f}" height="{_LINE - 6}" '
                f'fill="{colour}"/>'
            )
            parts.append(_whisker(_NAMES + room * low / top, _NAMES + room * high / top, y + 10))
            spread = f"{figure_text(median)} ({short(low)} .. {short(high)})"
            parts.append(text(_NAMES + room + 8, y + 14, spread, "start", FAINT, 11))
            y += _LINE
    return svg(title, WIDTH, height, parts)


def _whisker(left: float, right: float, y: float) -> str:
    path = f"M{left:.1f} {y - 4}v8M{left:.1f} {y}H{right:.1f}M{right:.1f} {y - 4}v8"
    return f'<path d="{path}" stroke="{INK}" stroke-width="1.2" fill="none"/>'


@dataclass(frozen=True, slots=True)
class Line:
    """Points with the least and the greatest of their rounds: (x, median, least, greatest)."""

    name: str
    points: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one another, both axes in powers of ten."""

    title: str
    across: str
    lines: tuple[Line, ...]
    slope: float | None = None
    """Drawn as a dashed line from the first point of the last line: how it may grow at most."""


def panels(title: str, all_of: Sequence[Panel]) -> str:
    """Panels beside one another."""
    parts = [
        f'<g transform="translate({number * PANEL_WIDTH} 0)">{"".join(_panel(panel))}</g>'
        for number, panel in enumerate(all_of)
    ]
    return svg(title, PANEL_WIDTH * len(all_of), PANEL_HEIGHT, parts)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Whole powers of ten around all of these."""
    low = math.floor(math.log10(min(values)) + 1e-9)
    return low, max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))


def _panel(panel: Panel) -> list[str]:
    points = [point for line in panel.lines for point in line.points]
    x_low, x_high = math.log10(points[0][0]), math.log10(max(point[0] for point in points))
    y_low, y_high = _decades([value for point in points for value in point[2:]])
    room_x, room_y = PANEL_WIDTH - _LEFT - _RIGHT, PANEL_HEIGHT - _TOP - _BOTTOM

    def at_x(value: float) -> float:
        return _LEFT + room_x * (math.log10(value) - x_low) / (x_high - x_low or 1.0)

    def at_y(value: float) -> float:
        share = (math.log10(value) - y_low) / (y_high - y_low)
        return PANEL_HEIGHT - _BOTTOM - room_y * min(max(share, 0.0), 1.0)

    right, base = PANEL_WIDTH - _RIGHT, PANEL_HEIGHT - _BOTTOM
    parts = [text(_LEFT, 18, panel.title, "start", INK, 12, bold=True)]
    for power in range(y_low, y_high + 1):
        y = at_y(10.0**power)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="{GRID}"/>')
        parts.append(text(_LEFT - 6, y + 4, short(10.0**power), "end", INK, 11))
    for value, *_ in panel.lines[0].points:
        parts.append(text(at_x(value), base + 16, short(value), "middle", INK, 11))
    parts.append(f'<path d="M{_LEFT} {base}H{right}" stroke="{FAINT}"/>')
    parts.append(text((_LEFT + right) / 2, PANEL_HEIGHT - 8, panel.across, "middle", FAINT, 11))
    if panel.slope is not None:
        parts.append(_allowed(panel, at_x, at_y, 10.0**y_high))
    for line, colour in zip(panel.lines, COLOURS, strict=False):
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y, _, _ in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, low, high in line.points:
            parts.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>')
            parts.append(
                f'<path d="M{at_x(x):.1f} {at_y(low):.1f}V{at_y(high):.1f}" stroke="{colour}"/>'
            )
    return parts


def _allowed(panel: Panel, at_x: Scale, at_y: Scale, highest: float) -> str:
    first, *_, last = panel.lines[-1].points
    x, y = last[0], first[1] * (last[0] / first[0]) ** (panel.slope or 0.0)
    if y > highest:  # cut where it leaves the panel
        x, y = first[0] * (highest / first[1]) ** (1 / (panel.slope or 1.0)), highest
    return (
        f'<path d="M{at_x(first[0]):.1f} {at_y(first[1]):.1f}L{at_x(x):.1f} {at_y(y):.1f}" '
        f'stroke="{FAINT}" stroke-dasharray="4 4"/>'
    )


def short(value: float) -> str:
    """A number for an axis: 20k, 1.5M, 0.5."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    """The whole picture, on a white ground."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(title)}" font-family="system-ui, sans-serif">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(
    x: float, y: float, words: str, anchor: str, colour: str, size: int = 12, bold: bool = False
) -> str:
    """Some words at a place."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{colour}"{weight}>{escape(words)}</text>'
    )
