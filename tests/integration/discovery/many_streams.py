"""How long the first views of very many streams take: lists, searches, and the pages behind them.

    python -m tests.integration.discovery.many_streams 1000000 [folder]

With a folder the streams stay there, and are not made again; if making them takes more than two minutes it
stops, and goes on when it is called again. Prints the median and the worst of each, in
milliseconds, over HTTP, connection included, while the server has nothing else to do.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import tstreams

from .doors import Door, door, wait_for

AT_ONCE = 2000
TIMES = 15
MAKE_S = 120


def name_of(number: int) -> str:
    """Names that have little in common at their beginnings."""
    return f"{number * 2654435761 % 2**32:08x}/orders-{number}"


async def _make(url: str, count: int) -> bool:
    """Whether all are there."""
    until = time.monotonic() + MAKE_S
    async with tstreams.aio.connect(url, timeout=120) as ts:
        first, last = 0, count
        while first < last:
            middle = (first + last) // 2
            try:
                await ts.stream(name_of(middle))
                first = middle + 1
            except tstreams.NotFound:
                last = middle
        for begin in range(first - first % AT_ONCE, count, AT_ONCE):
            if time.monotonic() > until:
                return False
            numbers = range(max(begin, first), min(begin + AT_ONCE, count))
            await asyncio.gather(*(ts.create_stream(name_of(number)) for number in numbers))
    return True


def _time(made: Door, label: str, path: str) -> None:
    took = []
    size = 0
    for _ in range(TIMES):
        begun = time.perf_counter()
        size = len(made.get(path).get("items", []))
        took.append((time.perf_counter() - begun) * 1000)
    print(f"{label:28} {statistics.median(took):8.1f} {max(took):8.1f} ms  {size} rows", flush=True)


def main() -> None:
    """Make the streams, and look at them."""
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[2] if len(sys.argv) > 2 else scratch)
        with door(folder / "data", "--fsync", "never") as made:
            begun = time.perf_counter()
            if not asyncio.run(_make(made.tcp, count)):
                print("not all streams are made yet: call me again")
                return
            print(f"{count} streams made in {time.perf_counter() - begun:.1f} s", flush=True)
        with door(folder / "data", "--fsync", "never") as made:
            made.get("/health/live")  # its process is there
            begun = time.perf_counter()
            _time(made, "first page, names unknown", "/v1/streams?limit=50")
            wait_for(lambda: made.get("/v1/streams?limit=1")["total"] == count)
            print(f"all names known after {time.perf_counter() - begun:.1f} s", flush=True)
            _time(made, "first page", "/v1/streams?limit=50")
            _time(made, "first page, no details", "/v1/streams?limit=50&details=false")
            _time(made, "prefix", "/v1/streams?prefix=a0")
            _time(made, "search, one hit", f"/v1/streams?search=orders-{count - 1}")
            _time(made, "search, many hits", "/v1/streams?search=orders-1")
            _time(made, "search, no hit", "/v1/streams?search=nowhere")
            _time(made, "overview", "/v1/statistics")
            memory = made.front.memory_info().rss / 2**20
            print(f"memory of the front door: {memory:.0f} MiB")


if __name__ == "__main__":
    main()
