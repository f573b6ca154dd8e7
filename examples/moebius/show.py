"""A short show of what moebius does, in the terminal: `make show` runs it.

One server process listens on TCP, ZeroMQ and a unix socket; this process is all of its clients.
Every claim on the screen is checked, and the exit code is 0 only if all of them hold.
"""

import asyncio
import contextlib
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import uvloop
import zmq

import moebius
from moebius import Request, Router, Server, Strategy, WorkerRequest, aio

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
except ImportError:  # the show goes on without colours
    Console = None  # type: ignore[assignment,misc]

T = TypeVar("T")

# The server. It runs in a process of its own.

router = Router()
journal: Counter[str] = Counter()
"""What handlers noted down; the show asks for it to check its claims."""


@router.command("upper")
def upper(request: Request) -> bytes:
    return request.payload.upper()


@router.command("count")
def count(request: Request) -> Iterator[bytes]:
    for number in range(int(request.payload)):
        yield b"%d" % number


@router.command("note", one_way=True)
def note(request: Request) -> None:
    journal["notes"] += 1


@router.command("nap")
def nap(request: Request) -> Generator[Any, Any, bytes]:
    seconds = float(request.payload)
    for _ in range(4):
        yield moebius.sleep(seconds / 4)
    return b"slept"


@router.command("ticks")
def ticks(_: Request) -> Iterator[bytes]:
    try:
        for number in itertools.count():
            journal["ticks"] += 1
            yield b"%d" % number
    finally:
        journal["ticks stopped"] += 1


@router.command("primes", workers=2)
def primes(request: WorkerRequest) -> tuple[bytes, bytes]:
    below = int(request.payload)
    found = sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, below))
    return b"%d" % found, b"%d" % os.getpid()


@router.command("announce")
def announce(request: Request) -> bytes:
    clients = request.client.server.clients
    sent = clients.broadcast(request.payload, where=lambda client: client.name == "fan")
    return b"%d" % sent


@router.command("journal")
def tell_journal(_: Request) -> bytes:
    return json.dumps(journal).encode()


@router.command("statistics")
def server_statistics(request: Request) -> bytes:
    return msgspec.json.encode(request.client.server.statistics())


@router.background
def report_to_parent(server: Server) -> None:
    """Say where we listen, and stop when our standard input ends: the parent closed it, or died."""
    print(json.dumps(server.addresses), flush=True)

    def stop() -> None:
        server.loop.remove_reader(sys.stdin.fileno())
        server.request_stop()

    server.loop.add_reader(sys.stdin.fileno(), stop)


def serve(directory: str) -> None:
    """What the server process does."""
    addresses = ["tcp://127.0.0.1:0", "zmq+tcp://127.0.0.1:0", f"ipc://{directory}/show.sock"]
    Server(router, addresses).run()


@contextlib.contextmanager
def server_process() -> Iterator[list[str]]:
    """Start it, and tell its addresses."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "serve", directory]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                sys.exit("the server process did not start")
            try:
                yield json.loads(line)
            finally:
                process.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()  # does nothing to a process that has ended
        if process.returncode != 0:
            sys.exit(f"the server process ended with {process.returncode}")


# The screen.


class Screen:
    """Headings, lines, tables and checks: in colour with rich, as plain text without."""

    def __init__(self) -> None:
        self._console = None if Console is None else Console(highlight=False)
        self._headings = itertools.count(1)
        self.checks = 0
        self.failed: list[str] = []

    def heading(self, text: str) -> None:
        self._print(f"\n{next(self._headings):2}  {text}", "bold cyan")

    def title(self, text: str) -> None:
        self._print(f"\n    {text}", "bold")

    def say(self, text: str, style: str = "") -> None:
        self._print(f"    {text}", style)

    def check(self, holds: bool, text: str) -> None:
        self.checks += 1
        if holds:
            self.say(f"ok  {text}", "green")
        else:
            self.failed.append(text)
            self.say(f"NOT SO:  {text}", "bold red")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns of figures are set to the right, others to the left."""
        right = [all(cell[:1].isdigit() for cell in column) for column in zip(*rows, strict=True)]
        if self._console is None:
            self._plain_table(head, rows, right)
            return
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
        table.show_header = any(head)
        for name, is_right in zip(head, right, strict=True):
            table.add_column(name, justify="right" if is_right else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(Padding(table, (0, 0, 0, 4), expand=False))

    def _plain_table(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], right: list[bool]
    ) -> None:
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        for row in (head, *rows) if any(head) else rows:
            cells = zip(row, widths, right, strict=True)
            self.say("   ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in cells))

    def _print(self, text: str, style: str) -> None:
        if self._console is None:
            print(text)
        else:
            self._console.print(text, style=style, markup=False, soft_wrap=True)


class Stage:
    """What every act gets: the screen, the server's addresses, and a loop for asyncio."""

    def __init__(self, screen: Screen, addresses: list[str], runner: asyncio.Runner) -> None:
        self.screen = screen
        self.urls = dict(zip(("tcp", "zmq", "ipc"), addresses, strict=True))
        self.run: Callable[[Coroutine[Any, Any, Any]], Any] = runner.run

    @property
    def url(self) -> str:
        return self.urls["tcp"]


def read_journal(client: moebius.Client) -> Counter[str]:
    """What the handlers noted. Asked last, it is complete: requests of a client are taken in turn."""
    return Counter(json.loads(client.call("journal")))


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """A function's result, and how many seconds it took."""
    begun = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begun


# The acts.


def one_request_one_response(stage: Stage) -> None:
    stage.screen.heading("One request, one response, on three addresses of one server")
    rows, answers = [], []
    for transport, url in stage.urls.items():
        with moebius.connect(url) as client:
            trips = [timed(lambda: client.call("upper", b"hello")) for _ in range(300)]
        answers += [answer for answer, _ in trips]
        median_ms = statistics.median(seconds for _, seconds in trips) * 1000
        where = "unix socket" if transport == "ipc" else url
        rows.append((transport, where, str(trips[0][0]), f"{median_ms:.3f} ms"))
    stage.screen.table(("", "address", "'hello' becomes", "median of 300"), rows)
    stage.screen.check(set(answers) == {b"HELLO"}, f"{len(answers)} answers, all as they should be")


def a_stream(stage: Stage) -> None:
    stage.screen.heading("One request, 20,000 responses: a generator on the server")
    with moebius.connect(stage.url) as client:
        items, seconds = timed(lambda: list(client.stream("count", b"20000")))
    stage.screen.say(f"{len(items) / seconds:,.0f} responses per second")
    stage.screen.check(items == [b"%d" % i for i in range(20_000)], "all came, in order")


def one_way(stage: Stage) -> None:
    stage.screen.heading("One request, no response: 2,000 notes")
    with moebius.connect(stage.url) as client:
        begun = time.perf_counter()
        for _ in range(2000):
            client.send("note", b"remember")
        seconds = time.perf_counter() - begun
        notes = read_journal(client)["notes"]
    stage.screen.say(f"sent in {seconds * 1000:.0f} ms")
    stage.screen.check(notes == 2000, "the server has all of them")


def a_sleeping_generator(stage: Stage) -> None:
    stage.screen.heading("A handler sleeps for half a second; the others do not notice")

    async def act() -> tuple[bytes, list[float]]:
        async with aio.connect(stage.url) as sleeper, aio.connect(stage.url) as other:
            napping = sleeper.submit("nap", b"0.5")
            waits = []
            while not napping.done():
                begun = time.perf_counter()
                await other.call("upper", b"anyone?")
                waits.append(time.perf_counter() - begun)
            return b"".join(await napping), waits

    answer, waits = stage.run(act())
    stage.screen.say(f"meanwhile another client got {len(waits):,} answers,")
    stage.screen.say(f"half of them within {statistics.median(waits) * 1000:.3f} ms")
    stage.screen.check(answer == b"slept", "the sleeper was answered")
    stage.screen.check(len(waits) > 10, "the other client was served all the while")


def strategies(stage: Stage) -> None:
    stage.screen.heading("Three requests of one client at once: four strategies")

    async def outcomes(strategy: Strategy) -> tuple[list[str], float]:
        async with aio.connect(stage.url) as client:
            begun = time.perf_counter()
            futures = [client.submit("nap", b"0.2", strategy=strategy) for _ in range(3)]
            results = await asyncio.gather(*futures, return_exceptions=True)
            names = [
                type(result).__name__ if isinstance(result, BaseException) else "answered"
                for result in results
            ]
            return names, time.perf_counter() - begun

    told = {strategy: stage.run(outcomes(strategy)) for strategy in Strategy}
    rows = [(s.name, *names, f"{seconds:.2f} s") for s, (names, seconds) in told.items()]
    stage.screen.table(("", "first", "second", "third", "took"), rows)
    expected = {
        Strategy.QUEUE: ["answered", "answered", "answered"],
        Strategy.REPLACE: ["Replaced", "Replaced", "answered"],
        Strategy.IGNORE: ["answered", "Busy", "Busy"],
        Strategy.PARALLEL: ["answered", "answered", "answered"],
    }
    holds = {strategy: names for strategy, (names, _) in told.items()} == expected
    stage.screen.check(holds, "each strategy did what it promises")


def two_hundred_sleepers(stage: Stage) -> None:
    stage.screen.heading("200 clients, each asleep for one second, in one server process")

    async def act() -> tuple[list[bytes], float]:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(aio.connect(stage.url)) for _ in range(200)]
            begun = time.perf_counter()
            answers = await asyncio.gather(*(client.call("nap", b"1") for client in clients))
            return answers, time.perf_counter() - begun

    answers, seconds = stage.run(act())
    stage.screen.say(f"200 seconds of sleep took {seconds:.2f} s")
    stage.screen.check(answers == [b"slept"] * 200, "all were answered")
    stage.screen.check(seconds < 20, "they slept side by side")


def a_raw_dealer(stage: Stage) -> None:
    stage.screen.heading("No library needed: a plain ZeroMQ DEALER that speaks JSON")
    sent = [b'[2, 1, "upper"]', b"hello from anywhere"]
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 10_000
        dealer.connect(stage.urls["zmq"].removeprefix("zmq+"))
        dealer.send_multipart(sent)
        received = dealer.recv_multipart()
    stage.screen.say(f"sent      {sent}")
    stage.screen.say(f"received  {received}")
    stage.screen.check(received == [b"[18,1]", b"HELLO FROM ANYWHERE"], "answered in JSON as well")


def cancelling(stage: Stage) -> None:
    stage.screen.heading("Leaving an endless stream half way")
    with moebius.connect(stage.url) as client:
        with client.stream("ticks", window_bytes=10_000) as stream:
            taken = list(itertools.islice(stream, 50))
        after = read_journal(client)
    stage.screen.say(f"taken {len(taken)}; the server made {after['ticks']}, and then it stopped")
    stage.screen.check(after["ticks stopped"] == 1, "the handler's finally block ran")
    stage.screen.check(after["ticks"] < 1000, "it never ran far ahead of its reader")


def a_worker_pool(stage: Stage) -> None:
    stage.screen.heading("Heavy work in worker processes, while the server stays awake")

    async def act() -> tuple[list[tuple[int, int]], int, float]:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(aio.connect(stage.url)) for _ in range(5)]
            begun = time.perf_counter()
            jobs = [client.submit("primes", b"50000") for client in clients[:4]]
            hellos = 0
            while not all(job.done() for job in jobs):
                await clients[4].call("upper", b"hello")
                hellos += 1
            answers = [await job for job in jobs]
            seconds = time.perf_counter() - begun
            return [(int(found), int(pid)) for found, pid in answers], hellos, seconds

    answers, hellos, seconds = stage.run(act())
    stage.screen.say(f"4 counts of the primes below 50,000 in {seconds:.2f} s, by 2 workers;")
    stage.screen.say(f"meanwhile the server answered {hellos:,} other calls")
    stage.screen.check({found for found, _ in answers} == {5133}, "the counts are right: 5133")
    stage.screen.check(len({pid for _, pid in answers}) == 2, "both workers took part")
    stage.screen.check(hellos > 10, "the server had time for others")


def a_broadcast(stage: Stage) -> None:
    stage.screen.heading("The server speaks first: news for the fans among eight clients")
    heard: list[list[bytes]] = [[] for _ in range(8)]
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(
                moebius.connect(stage.url, name=("fan", "stranger")[i % 2], on_push=inbox.append)
            )
            for i, inbox in enumerate(heard)
        ]
        sent = int(clients[1].call("announce", b"we play tonight"))
        for client in clients:
            client.call("upper")  # its answer comes after anything that was sent before
    stage.screen.say(f"sent to {sent} clients: 'we play tonight'")
    expected = [[b"we play tonight"], []] * 4
    stage.screen.check(heard == expected, "every fan heard it once, nobody else did")


def requests_per_second(stage: Stage) -> None:
    stage.screen.heading("Requests per second, through the Python client on one connection")

    def one_at_a_time(url: str) -> tuple[int, float]:
        calls, ends_at = 0, time.perf_counter() + 0.5
        with moebius.connect(url) as client:
            begun = time.perf_counter()
            while time.perf_counter() < ends_at:
                calls += client.call("upper", b"x") == b"X"
            return calls, time.perf_counter() - begun

    async def many_at_once(url: str) -> tuple[int, float]:
        async with aio.connect(url) as client:
            begun = time.perf_counter()
            counts = await asyncio.gather(*(keep_calling(client, begun + 0.5) for _ in range(64)))
            return sum(counts), time.perf_counter() - begun

    async def keep_calling(client: aio.Client, ends_at: float) -> int:
        calls = 0
        while time.perf_counter() < ends_at:
            calls += await client.call("upper", b"x") == b"X"
        return calls

    before = counted_requests(stage)
    rows, calls_made = [], 0
    for transport, url in stage.urls.items():
        measured = [one_at_a_time(url), stage.run(many_at_once(url))]
        calls_made += sum(calls for calls, _ in measured)
        rows.append((transport, *(f"{calls / seconds:,.0f}" for calls, seconds in measured)))
    stage.screen.table(("", "one at a time", "64 under way"), rows)
    stage.screen.say(f"Python {platform.python_version()}; client and server share", "dim")
    stage.screen.say(f"the {os.cpu_count()} cores of this machine with all else on it", "dim")
    served = counted_requests(stage) - before - 1  # the question itself is a request
    stage.screen.check(served == calls_made, f"the server counted the same {served:,} requests")


def counted_requests(stage: Stage) -> int:
    with moebius.connect(stage.url) as client:
        return int(json.loads(client.call("statistics"))["counts"]["requests"])


def the_statistics(stage: Stage) -> None:
    stage.screen.heading("And what the server says about itself: statistics()")
    with moebius.connect(stage.url) as client:
        figures = json.loads(client.call("statistics"))
    counts = figures["counts"]
    left = ("requests", "replies", "items", "failures", "cancelled")
    right = ("pushes", "clients_seen", "errors")
    rows = [(name, f"{counts[name]:,}") for name in left + right]
    rows += [(name, f"{figures[name]:,}") for name in ("clients", "workers", "inflight")]
    rows.append(("uptime_s", f"{figures['uptime_s']:.1f}"))
    half = len(rows) // 2
    pairs = [(*a, b[0], b[1]) for a, b in zip(rows[:half], rows[half:], strict=True)]
    stage.screen.table(("", "", "", ""), pairs)
    stage.screen.check(counts["errors"] == 0, "no handler failed")
    stage.screen.check(figures["inflight"] == 0, "nothing is left running")
    stage.screen.check(
        counts["failures"] == 5, "5 failures, all on purpose: 2 replaced, 2 busy, 1 cancelled"
    )


ACTS = (
    one_request_one_response,
    a_stream,
    one_way,
    a_sleeping_generator,
    strategies,
    two_hundred_sleepers,
    a_raw_dealer,
    cancelling,
    a_worker_pool,
    a_broadcast,
    requests_per_second,
    the_statistics,
)


def main() -> int:
    """The whole show; 0 if every claim held."""
    screen = Screen()
    begun = time.perf_counter()
    screen.title("moebius: plain functions and generators answer messages")
    with (
        server_process() as addresses,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        stage = Stage(screen, addresses, runner)
        for act in ACTS:
            act(stage)
    seconds = time.perf_counter() - begun
    held = screen.checks - len(screen.failed)
    screen.title(f"{held} of {screen.checks} claims held; {seconds:.0f} seconds")
    return 1 if screen.failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        sys.exit(main())
