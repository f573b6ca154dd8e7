"""The picture that `tstreams top` draws: what was seen, and how it is laid out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..discovery import cluster_resources as c
from ..discovery import resources as r
from . import output
from .consumer import LATE_S, live
from .node import state_of, uptime
from .tables import (
    BAD,
    DIM,
    WARN,
    Cell,
    Column,
    Row,
    age,
    bytes_rate,
    latency,
    left,
    number,
    rate,
    rich_table,
    right,
    short,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*%#"
FIGURES_WIDTH = 46
"""What is to the left of the lines of the last minutes."""
FIRST_WIDTH = 32
"""Of the first columns of all tables, so that they look like one."""
ROWS_WITHOUT_HEIGHT = 8

ORDERS: dict[str, Callable[[r.BusyStream], float]] = {
    "bytes": lambda it: it.written.bytes + it.read.bytes,
    "items": lambda it: it.written.items,
    "transactions": lambda it: it.written.transactions,
    "read": lambda it: it.read.items,
}
"""What the busiest streams can be sorted by."""


@dataclass
class Seen:
    """What was seen: now, and in the last minutes."""

    url: str
    node: c.Node
    past: deque[r.Sample]
    now: r.Statistics | None = None
    open: list[r.OpenTransaction] = field(default_factory=list)
    problem: str = ""
    """Why nobody answers; empty: somebody does."""

    def remember(self) -> None:
        """What is now is past soon."""
        now = self.now
        assert now is not None
        if self.past and self.past[-1].time >= now.time:
            return
        slowest = now.slowest[0] if now.slowest else None
        self.past.append(
            r.Sample(
                time=now.time,
                written=now.written,
                read=now.read,
                requests=now.requests,
                commit_p50=now.commit.p50,
                commit_p99=now.commit.p99,
                sync_p99=now.sync.p99,
                open_transactions=now.open_transactions,
                oldest_open_seconds=now.oldest_open_seconds,
                lag_transactions=slowest.transactions if slowest else 0,
                lag_seconds=max((it.seconds for it in now.slowest), default=0.0),
            )
        )


def spark(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """The last values as a row of blocks, as high as they are beside the greatest of them."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    if top <= 0:
        return blocks[0] * len(shown)
    last = len(blocks) - 1
    return "".join(blocks[min(last, round(value / top * last))] for value in shown)


class View:
    """How it is shown: in which order, and whether it stands still."""

    def __init__(self, order: str = "bytes", keys: bool = False) -> None:
        self.order = order
        self.paused = False
        self._keys = keys

    def struck(self, key: str) -> None:
        """A key was struck. One that means nothing does nothing."""
        if key in "pP ":
            self.paused = not self.paused
        elif key in "sS":
            names = list(ORDERS)
            self.order = names[(names.index(self.order) + 1) % len(names)]

    def picture(self, seen: Seen, width: int, height: int | None, letters: bool = True) -> Group:
        """The whole of it. Without a height it is as high as it likes."""
        from rich.console import Group
        from rich.text import Text

        now = seen.now
        assert now is not None
        blocks = BLOCKS if letters else ASCII_BLOCKS
        parts: list[Text | Table] = [self._header(seen, now), Text("")]
        parts += _figures(seen, now, max(0, width - FIGURES_WIDTH), blocks)
        parts.append(_counts(now))
        used = len(parts)
        rows = ROWS_WITHOUT_HEIGHT
        if height is not None:
            # Three tables with a line before, a title and headings each, and the keys below.
            rows = max(1, (height - used - 3 * 3 - 2) // 3)
        for table in (
            self._busiest(now, rows),
            _slowest(now, rows),
            _open(seen, rows),
        ):
            parts += [Text(""), table]
        if self._keys:
            parts += [Text(""), self._footer()]
        for part in parts:
            if isinstance(part, Text):
                part.no_wrap, part.overflow = True, "ellipsis"
        return Group(*parts)

    def _header(self, seen: Seen, now: r.Statistics) -> Text:
        from rich.text import Text

        state = Cell(seen.problem, BAD) if seen.problem else state_of(now)
        if self.paused:
            state = Cell("paused", WARN)
        node = seen.node
        return Text.assemble(
            ("tstreams top", "bold"),
            f"  {now.time:%H:%M:%S} UTC  ",
            (state.text, state.style),
            (f"  {seen.url}  node {node.id}, {node.version}, up {uptime(node)}", DIM),
        )

    def _footer(self) -> Text:
        from rich.text import Text

        return Text.assemble(
            ("q", "bold"),
            " quit   ",
            ("p", "bold"),
            " go on   " if self.paused else " pause   ",
            ("s", "bold"),
            f" sort: {self.order}",
        )

    def _busiest(self, now: r.Statistics, rows: int) -> Table:
        columns = (
            left("BUSIEST STREAMS"),
            right("TXN/S"),
            right("ITEMS/S"),
            right("WRITTEN"),
            right("READ ITEMS/S"),
            right("READ"),
        )
        found = sorted(now.busiest, key=ORDERS[self.order], reverse=True)[:rows]
        cells: list[Row] = [
            (
                it.name,
                short(it.written.transactions),
                short(it.written.items),
                bytes_rate(it.written.bytes),
                short(it.read.items),
                bytes_rate(it.read.bytes),
            )
            for it in found
        ]
        return _table(columns, cells)


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    nothing: Row = (Cell("none", DIM), *("" for _ in columns[1:]))
    table = rich_table(columns, rows or [nothing])
    assert table is not None  # whoever draws has rich
    table.columns[0].min_width = FIRST_WIDTH
    return table


def _figures(seen: Seen, now: r.Statistics, room: int, blocks: str) -> list[Text | Table]:
    """Throughput, latency and lag, each with its last minutes."""
    from rich.text import Text

    past = seen.past
    slowest = now.slowest[0] if now.slowest else None
    behind = max((it.seconds for it in now.slowest), default=0.0)
    lines: list[tuple[str, str, str, list[float]]] = [
        ("written", _rates(now.written), "cyan", [it.written.items for it in past]),
        ("read", _rates(now.read), "blue", [it.read.items for it in past]),
        (
            "commit",
            f"p50 {latency(now.commit.p50)}, p99 {latency(now.commit.p99)}",
            "magenta",
            [it.commit_p99 for it in past],
        ),
        (
            "sync",
            f"p50 {latency(now.sync.p50)}, p99 {latency(now.sync.p99)}",
            "magenta",
            [it.sync_p99 for it in past],
        ),
        (
            "lag",
            f"{number(slowest.transactions)} transactions, {age(behind)}"
            if slowest and slowest.transactions
            else "none",
            WARN,
            [float(it.lag_transactions) for it in past],
        ),
    ]
    return [
        Text.assemble(
            (f"{name:8}", "bold"),
            f"{text:{FIGURES_WIDTH - 9}.{FIGURES_WIDTH - 9}} ",
            (spark(values, room, blocks), style),
        )
        for name, text, style, values in lines
    ]


def _rates(it: r.Rates) -> str:
    return f"{rate(it.items)} items, {rate(it.transactions)} txn, {bytes_rate(it.bytes)}"


def _counts(now: r.Statistics) -> Text:
    from rich.text import Text

    oldest = f" (oldest {age(now.oldest_open_seconds)})" if now.open_transactions else ""
    counts = (
        f"{short(now.requests)} requests/s",
        output.counted(now.streams, "stream"),
        f"{number(now.open_transactions)} open{oldest}",
        f"{number(now.readers_waiting)} waiting",
        output.counted(now.connections, "connection"),
        f"{output.size(now.disk_free_bytes)} free",
    )
    return Text.assemble((f"{'node':8}", "bold"), ", ".join(counts))


def _slowest(now: r.Statistics, rows: int) -> Table:
    columns = (
        left("SLOWEST CONSUMERS"),
        left("STREAM"),
        left("LIVE"),
        right("LAG"),
        right("BEHIND"),
    )
    cells: list[Row] = [
        (
            it.consumer,
            it.stream,
            live(it.live),
            number(it.transactions),
            Cell(age(it.seconds) if it.transactions else "-", WARN if it.seconds > LATE_S else ""),
        )
        for it in now.slowest[:rows]
    ]
    return _table(columns, cells)


def _open(seen: Seen, rows: int) -> Table:
    columns = (
        left("OLDEST OPEN TRANSACTIONS"),
        left("ID", keep=True),
        left("OWNER"),
        left("HOLDS BACK"),
        right("AGE"),
    )
    cells: list[Row] = [
        (
            f"{it.stream}, partition {it.partition}",
            it.id,
            it.owner.name or it.owner.kind,
            Cell(", ".join(it.held_back), WARN),
            age(it.age_seconds),
        )
        for it in seen.open[:rows]
    ]
    return _table(columns, cells)
