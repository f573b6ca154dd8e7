"""`tstreams top`: watch what a server does, in a terminal."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from typing import TYPE_CHECKING

from ..config import read_number
from ..discovery import cluster_resources as c
from ..discovery import resources as r
from ..errors import Unavailable
from . import output
from .keyboard import Keyboard
from .output import checked, say
from .rest import Door, add_door, door
from .tables import say_resource
from .top_lines import HEADING_INTERVAL, heading, line, plain_picture
from .top_picture import ORDERS, Seen, View

if TYPE_CHECKING:
    from rich.live import Live

HISTORY_MINUTES = 5
OPEN_SHOWN = 10
INTERVAL_S_MIN = 0.2


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams top",
        "Watch what a server does: throughput, latency, lag, open transactions, the busiest streams and the "
        "slowest consumers. Where there is no terminal that can be drawn on, it prints a line each time.\n\n"
        "keys:\n"
        "  q  quit\n"
        "  p  pause, and go on\n"
        "  s  sort the busiest streams by something else",
        """
        tstreams top
        tstreams top --interval 5s --url http://10.0.0.7:7080
        tstreams top --once
        tstreams top --json | jq .written.items
        """,
    )
    parser.add_argument(
        "--interval",
        type=checked(_interval),
        default="1s",
        metavar="TIME",
        help="how often to look [1s]",
    )
    parser.add_argument("--once", action="store_true", help="look once, print it, and end")
    parser.add_argument(
        "--sort",
        choices=tuple(ORDERS),
        default="bytes",
        help="what the busiest streams are [bytes]",
    )
    output.add_json(parser)
    add_door(parser)
    return parser


def _interval(text: str) -> float:
    seconds = read_number(text, "seconds")
    if seconds < INTERVAL_S_MIN:
        raise ValueError(f"it must be {INTERVAL_S_MIN} s at least")
    return seconds


def run(arguments: Namespace) -> int:
    """Do it."""
    watcher = Watcher(door(arguments))
    if arguments.json:
        return _as_json(watcher, arguments)
    if arguments.once:
        _print_once(watcher, arguments)
        return output.OK
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
        try:
            from rich.live import Live
        except ImportError:
            output.remark(
                "tstreams: with rich installed (tstreams[console]) this would be a picture"
            )
        else:
            with Keyboard() as keys, Live(screen=True, auto_refresh=False) as live:
                return _draw(watcher, arguments, keys, live)
    return _as_lines(watcher, arguments)


class Watcher:
    """Asks the front door for all that is shown, and remembers the last minutes."""

    def __init__(self, front: Door) -> None:
        self._front = front
        nodes = front.get(c.NodePage, "/v1/nodes").items
        past = front.get(r.History, "/v1/statistics/history", minutes=HISTORY_MINUTES).items
        self.seen = Seen(front.url, nodes[0], deque(past, maxlen=HISTORY_MINUTES * 60))

    def look(self) -> Seen:
        """Look again. While nobody answers what was seen last stays, and `problem` says why."""
        seen = self.seen
        try:
            seen.now = self._front.get(r.Statistics, "/v1/statistics")
            seen.open = self._front.get(r.OpenPage, "/v1/transactions/open", limit=OPEN_SHOWN).items
        except Unavailable as error:
            if seen.now is None:
                raise
            seen.problem = error.message
        else:
            seen.problem = ""
            seen.remember()
        return seen


def _as_json(watcher: Watcher, arguments: Namespace) -> int:
    while True:
        seen = watcher.look()
        if not seen.problem:
            say_resource(seen.now)
            sys.stdout.flush()
        else:
            output.report_error("unavailable", seen.problem, as_json=True)
        if arguments.once:
            return output.OK
        time.sleep(arguments.interval)


def _print_once(watcher: Watcher, arguments: Namespace) -> None:
    seen = watcher.look()
    try:
        from rich.console import Console
    except ImportError:
        plain_picture(seen)
        return
    console = Console(highlight=False)
    console.print(View(arguments.sort).picture(seen, console.width, None, _letters()))


def _as_lines(watcher: Watcher, arguments: Namespace) -> int:
    count = 0
    while True:
        seen = watcher.look()
        if count % HEADING_INTERVAL == 0:
            say(heading())
        say(line(seen))
        sys.stdout.flush()
        count += 1
        time.sleep(arguments.interval)


def _draw(watcher: Watcher, arguments: Namespace, keys: Keyboard, live: Live) -> int:
    view = View(arguments.sort, keys=True)
    due_at = time.monotonic()
    while True:
        if not view.paused and time.monotonic() >= due_at:
            watcher.look()
            due_at = time.monotonic() + arguments.interval
        size = live.console.size
        picture = view.picture(watcher.seen, size.width, size.height, _letters())
        live.update(picture, refresh=True)
        # A pause ends with a key; the picture is drawn anew meanwhile, because the window may change.
        for key in keys.wait(1.0 if view.paused else due_at - time.monotonic()):
            if key in "qQ":
                return output.OK
            view.struck(key)
            due_at = due_at if view.paused else min(due_at, time.monotonic() + arguments.interval)


def _letters() -> bool:
    """Whether the terminal knows more than ASCII."""
    return "utf" in (sys.stdout.encoding or "").lower()
