"""How long somebody waits for the first view of very many streams: in a browser, and over HTTP.

Makes the streams, and starts the server again. Then a browser that has never been there opens pages of the
console, once while the front door still learns the names and then again and again, each time as a stranger; and
plain HTTP clients ask for the same. The server has nothing else to do meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

from tstreams import aio

from .interface import BadOptions, BenchmarkFailed, Progress, Report
from .report import grouped
from .scratch import add_dir_argument, scratch_folder
from .servers import ServerProcess, tstreams_server
from .views_page import views_of
from .views_report import Found, Plan, make_report

SUMMARY = "How long the first view of a million streams takes, in a browser and over HTTP."
FULL = Plan(count=1_000_000, times=10)
QUICK = Plan(count=1_000, times=1)
_IN_FLIGHT = 2_000
_START_WITHIN_S = 300.0
_KNOWN_WITHIN_S = 300.0
_opener = build_opener(ProxyHandler({}))


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, text in (("count", "streams"), ("times", "how often each view is opened")):
        default = f"(default {getattr(FULL, name)}; with --quick {getattr(QUICK, name)})"
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{text} {default}")
    parser.add_argument(
        "--without-browser", action="store_true", help="only over HTTP: the views are not measured"
    )
    add_dir_argument(parser)


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    base = QUICK if arguments.quick else FULL
    plan = Plan(
        count=base.count if arguments.count is None else arguments.count,
        times=base.times if arguments.times is None else arguments.times,
    )
    if plan.count < 100 or plan.times < 1:
        raise BadOptions("there have to be at least 100 streams, and each view is opened once")
    return plan


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    found = Found()
    with scratch_folder(arguments.dir, "views") as folder:
        with tstreams_server(folder, fsync=False) as server:
            asyncio.run(_make(f"tcp://127.0.0.1:{server.port}", plan.count, progress))
        with tstreams_server(folder, _START_WITHIN_S, http=True) as server:
            _look(plan, server, found, folder, not arguments.without_browser, progress)
    return make_report(plan, found, time.monotonic() - begun)


def name_of(number: int) -> str:
    """Names that have little in common at their beginnings."""
    return f"{number * 2654435761 % 2**32:08x}/orders-{number}"


async def _make(url: str, count: int, progress: Progress) -> None:
    async with aio.connect(url, timeout=120) as ts:
        for first in range(0, count, _IN_FLIGHT):
            numbers = range(first, min(first + _IN_FLIGHT, count))
            await asyncio.gather(*(ts.create_stream(name_of(number)) for number in numbers))
            if first % 100_000 == 0:
                progress(f"made {grouped(numbers[-1] + 1)} of {grouped(count)} streams")


def _look(
    plan: Plan,
    server: ServerProcess,
    found: Found,
    folder: Path,
    browser: bool,
    progress: Progress,
) -> None:
    words = {"one": f"orders-{plan.count - 1}", "many": "orders-1", "none": "nowhere"}
    with views_of(server.url, folder) if browser else views_of("", folder) as views:
        found.missing = views.missing
        if not views.missing:
            found.views["streams, right after the start"] = [views.streams()]
        begun = time.monotonic()
        while _get(server, "/v1/streams?limit=1")["total"] != plan.count:
            if time.monotonic() - begun > _KNOWN_WITHIN_S:
                raise BenchmarkFailed("the front door does not learn the names of all streams")
            time.sleep(0.1)
        progress(f"all names are known {time.monotonic() - begun:.1f} s later")
        for number in range(plan.times):
            if not views.missing:
                found.see("streams", views.streams())
                found.see("search, one hit", views.search(words["one"], name_of(plan.count - 1)))
                found.see("overview", views.overview())
            for label, path in (
                ("first page", "/v1/streams?limit=50"),
                ("first page, no details", "/v1/streams?limit=50&details=false"),
                ("prefix", "/v1/streams?prefix=a0"),
                *((f"search, {how}", f"/v1/streams?search={word}") for how, word in words.items()),
                ("overview", "/v1/statistics"),
            ):
                asked = time.perf_counter()
                _get(server, path)
                found.hear(label, time.perf_counter() - asked)
            server.check()
            progress(f"looked {number + 1} of {plan.times} times")


def _get(server: ServerProcess, path: str) -> dict[str, object]:
    """One request, on a connection of its own."""
    with _opener.open(f"{server.url}{path}", timeout=60) as answer:
        got: dict[str, object] = json.loads(answer.read())
    return got
