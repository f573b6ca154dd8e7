"""What `tstreams top` prints where nothing can be drawn: a line each time, or a few facts."""

from __future__ import annotations

from . import output
from .node import rates, state_of
from .output import say
from .tables import age, latency, short, show_facts
from .top_picture import Seen

HEADING_INTERVAL = 20
"""After so many lines the headings come again."""

_COLUMNS = (
    ("TIME", 8),
    ("TXN/S", 6),
    ("ITEMS/S", 7),
    ("BYTES/S", 9),
    ("READ/S", 6),
    ("COMMIT", 8),
    ("OPEN", 5),
    ("OLDEST", 8),
    ("LAG", 6),
    ("BEHIND", 8),
)
"""They fit into 80 columns. COMMIT is the 99th percentile."""


def heading() -> str:
    """The headings of the columns."""
    return " ".join(f"{name:>{width}}" for name, width in _COLUMNS)


def line(seen: Seen) -> str:
    """What was seen, as one line."""
    now = seen.now
    assert now is not None
    if seen.problem or not now.available:
        return f"{now.time:%H:%M:%S}  {seen.problem or 'the storage server does not answer'}"
    slowest = now.slowest[0] if now.slowest else None
    cells = (
        f"{now.time:%H:%M:%S}",
        short(now.written.transactions),
        short(now.written.items),
        output.size(now.written.bytes),
        short(now.read.items),
        latency(now.commit.p99),
        short(now.open_transactions),
        age(now.oldest_open_seconds) if now.open_transactions else "-",
        short(slowest.transactions) if slowest else "-",
        age(slowest.seconds) if slowest and slowest.transactions else "-",
    )
    return " ".join(f"{it:>{width}}" for it, (_, width) in zip(cells, _COLUMNS, strict=True))


def plain_picture(seen: Seen) -> None:
    """What was seen, as facts."""
    now = seen.now
    assert now is not None
    say(f"{seen.url}, node {seen.node.id}, {now.time:%Y-%m-%d %H:%M:%S} UTC")
    show_facts(
        {
            "state": state_of(now),
            "written": rates(now.written),
            "read": rates(now.read),
            "commit": f"p50 {latency(now.commit.p50)}, p99 {latency(now.commit.p99)}",
            "sync": f"p50 {latency(now.sync.p50)}, p99 {latency(now.sync.p99)}",
            "open": output.counted(now.open_transactions, "transaction"),
            "busiest": ", ".join(it.name for it in now.busiest[:5]),
            "slowest": ", ".join(f"{it.consumer} of {it.stream}" for it in now.slowest[:5]),
        }
    )
