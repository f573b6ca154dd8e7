"""A flame graph as SVG, made here: no script, nothing that has to be fetched.

The width of a frame is its share of the samples in which a thread did not wait. The outermost frame is at
the bottom. Frames narrower than `SHARE_MIN` are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

from .plots import FAINT, INK, svg, text
from .profile_stacks import Profile, bare_name, is_ours, is_python

SHARE_MIN: Final = 0.005
WIDTH: Final = 1200
_ROW, _MARGIN, _HEAD = 17, 10, 48
_LETTER = 6.1
_LETTERS_MIN = 3
_COLOURS: Final = {
    "ours": ("#99d5cf", "tstreams and moebius"),
    "python": ("#cbd5e1", "other Python"),
    "native": ("#f6cf9b", "C, Rust and the system"),
}


@dataclass(slots=True)
class Node:
    """A frame, how often it was seen below the same callers, and what it called."""

    name: str
    count: int = 0
    children: dict[str, Node] = field(default_factory=dict)


def flame(title: str, profile: Profile) -> str:
    """The picture."""
    root = _shorten(_grow(profile))
    shown = list(_place(root, float(_MARGIN), 0, root.count, WIDTH - 2 * _MARGIN))
    depth = 1 + max((row for _, _, _, row in shown), default=0)
    height = _HEAD + depth * _ROW + _MARGIN
    parts = [text(_MARGIN, 20, title, "start", INK, 13, bold=True), *_legend()]
    for node, left, width, row in shown:
        parts.append(_box(node, left, width, height - _MARGIN - (row + 1) * _ROW, root.count))
    return svg(title, WIDTH, height, parts)


def _grow(profile: Profile) -> Node:
    root = Node("all", profile.working)
    for stack, count in profile.stacks.items():
        node = root
        for frame in stack:
            node = node.children.setdefault(frame, Node(frame))
            node.count += count
    return root


def _shorten(root: Node) -> Node:
    """Without what every thread goes through before it comes to its work."""
    merged = Node(root.name, root.count)
    for child in root.children.values():
        node = child
        while (only := _only_child(node)) is not None:
            node = only
        beside = merged.children.get(node.name)
        if beside is None:
            merged.children[node.name] = node
        else:
            _add(beside, node)
    return merged


def _only_child(node: Node) -> Node | None:
    """What a frame calls always and does nothing else; None if it branches, or ends there."""
    if len(node.children) != 1:
        return None
    [child] = node.children.values()
    return child if child.count == node.count else None


def _add(into: Node, other: Node) -> None:
    into.count += other.count
    for name, child in other.children.items():
        if name in into.children:
            _add(into.children[name], child)
        else:
            into.children[name] = child


def _place(
    node: Node, left: float, row: int, every: int, room: float
) -> Iterator[tuple[Node, float, float, int]]:
    """Each frame that is wide enough: where it begins, how wide it is, in which row."""
    yield node, left, room * node.count / max(1, every), row
    for child in sorted(node.children.values(), key=lambda it: it.name):
        if child.count >= SHARE_MIN * every:
            yield from _place(child, left, row + 1, every, room)
            left += room * child.count / every


def _box(node: Node, left: float, width: float, top: float, every: int) -> str:
    share = f"{100 * node.count / max(1, every):.1f} %"
    tip = f"<title>{escape(node.name)}: {share}</title>"
    box = (
        f'<rect x="{left:.1f}" y="{top}" width="{max(0.5, width - 0.6):.1f}" height="{_ROW - 1}" '
        f'fill="{_colour(node.name)}"/>'
    )
    letters = int((width - 4) / _LETTER)
    label = bare_name(node.name)
    if len(label) + len(share) + 1 <= letters:
        label = f"{label} {share}"
    label = label if len(label) <= letters else label[: max(0, letters - 1)] + "…"
    shown = text(left + 3, top + 12, label, "start", INK, 10) if letters >= _LETTERS_MIN else ""
    return f"<g>{tip}{box}{shown}</g>"


def _colour(frame: str) -> str:
    kind = "ours" if is_ours(frame) else "python" if is_python(frame) else "native"
    return "#e4e7eb" if frame == "all" else _COLOURS[kind][0]


def _legend() -> Iterator[str]:
    left = _MARGIN
    for colour, what in _COLOURS.values():
        yield f'<rect x="{left}" y="28" width="11" height="11" fill="{colour}"/>'
        yield text(left + 16, 38, what, "start", FAINT, 11)
        left += 40 + round(_LETTER * len(what))
