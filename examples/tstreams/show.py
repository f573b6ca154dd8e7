"""A short show of what tstreams does, in the terminal: `make show` runs it.

A storage server runs in a process of its own, on a folder that is removed afterwards. Every claim on the
screen is checked, and the exit code is 0 only if all of them hold.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from process import ServerProcess, tstreams
from screen import DIM, YELLOW, Screen

from tstreams import Client, Offset, connect
from tstreams.model import time_of

T = TypeVar("T")

STREAMS = 10_000
THREADS = 96
NUMBERS = 20_000
KILL_AT = (4_000, 10_000, 15_000)


@dataclass
class Stage:
    """What every act gets."""

    screen: Screen
    server: ServerProcess
    client: Client
    numbers: list[int] = field(default_factory=list)
    """The ids of the transactions that were written while the server was killed."""


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """A function's result, and how many seconds it took."""
    begun = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begun


# The acts.


def the_command_line(stage: Stage) -> None:
    screen, url = stage.screen, stage.server.address
    screen.heading("A server, and three commands that talk to it")
    screen.say(
        f"$ tstreams serve --data {stage.server.data.name}      now process {stage.server.pid}"
    )
    made = tstreams("stream", "create", "words", "--ttl", "1h", "--url", url)
    screen.say("$ tstreams stream create words --ttl 1h")
    wrote = tstreams("produce", "words", "--url", url, given="one\ntwo\nthree\n")
    screen.say("$ printf 'one\\ntwo\\nthree\\n' | tstreams produce words")
    read = tstreams("consume", "words", "--url", url)
    screen.say("$ tstreams consume words")
    for line in read.stdout.splitlines():
        screen.say(line)
    codes = [made.returncode, wrote.returncode, read.returncode]
    came = read.stdout.splitlines()
    screen.claim(codes == [0, 0, 0] and came == ["one", "two", "three"], "what went in came out")


def a_producer_and_a_consumer(stage: Stage) -> None:
    screen, client = stage.screen, stage.client
    screen.heading("A producer and a consumer: transactions of 100 items of 100 bytes")
    client.create_stream("clicks", partitions=4, ttl="1h")
    batches = [[b"%099d\n" % (at * 100 + i) for i in range(100)] for at in range(2300)]
    with client.producer("clicks", name="web") as producer:
        few, many = batches[:300], batches[300:]
        _, slow_s = timed(lambda: [producer.instant(items, partition=0) for items in few])

        def window() -> list[int]:
            futures = [producer.instant(items, partition=0, wait=False) for items in many]
            return [future.result() for future in futures]

        ids, fast_s = timed(window)
    with client.consumer("clicks", name="billing") as consumer:

        def drain() -> list[list[bytes]]:
            found = (consumer.get(0, timeout=5) for _ in batches)
            return [list(txn.items) for txn in found if txn is not None]

        came, read_s = timed(drain)
        consumer.checkpoint()
    rates = [
        ("written, one at a time", len(few) / slow_s),
        ("written, many under way", len(many) / fast_s),
        ("read", len(came) / read_s),
    ]
    screen.bars([(name, rate, f"{rate * 100:,.0f} items/s") for name, rate in rates])
    screen.say("each write was on disk (fdatasync) before it was acknowledged", DIM)
    screen.claim(came == batches, f"all {len(batches) * 100:,} items came, in order")
    screen.claim(ids == sorted(set(ids)), "ids only rise")


def order_of_opening(stage: Stage) -> None:
    screen, client = stage.screen, stage.client
    screen.heading("Readers see the order of opening, whoever closes first")
    client.create_stream("orders", ttl="1h")
    with client.producer("orders") as producer, client.consumer("orders") as consumer:
        seen: list[str] = []
        told: list[list[str]] = []

        def look(event: str) -> None:
            new = [txn.items[0].decode() for txn in consumer.read(max_wait=0.05)]
            seen.extend(new)
            told.append(new)
            screen.say(f"{event:22} the reader gets {', '.join(new) or 'nothing'}")

        opened = {name: producer.open() for name in "ABC"}
        look("A, B and C are open:")
        for name in "CBA":
            opened[name].send(name.encode())
            opened[name].checkpoint()
            look(f"{name} is checkpointed:")
    screen.claim(seen == ["A", "B", "C"], "A, B, C: in the order of opening")
    screen.claim(told[:3] == [[], [], []], "and nothing before A was closed")


CHILD = """
import sys, time, tstreams
with tstreams.connect(sys.argv[1]) as client:
    producer = client.producer("orders", name="careless", transaction_ttl=1.0)
    producer.open().send(b"nobody will ever see this")
    print("open", flush=True)
    time.sleep(60)
"""


def a_producer_that_vanishes(stage: Stage) -> None:
    screen, client = stage.screen, stage.client
    screen.heading("A producer dies with a transaction open: readers wait for its lease")
    command = [sys.executable, "-c", CHILD, stage.server.address]
    with (
        client.producer("orders") as producer,
        client.consumer("orders", start=Offset.newest()) as consumer,
        subprocess.Popen(command, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        producer.instant([b"behind it"])
        held = consumer.get(0, timeout=1.5)
        child.kill()
        came, seconds = timed(lambda: consumer.get(0, timeout=20))
    screen.say("its lease is 1 s, and it is kept while the producer lives")
    screen.say(f"killed; {seconds:.1f} s later the reader got {came and list(came.items)}")
    screen.claim(held is None, "while it lived, readers were held back")
    right = came is not None and list(came.items) == [b"behind it"]
    screen.claim(right, "when its time was over they went on, without it")


class Window:
    """Writes under way, and a thread that kills and restarts the server meanwhile."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._over = threading.Event()
        self._killer = threading.Thread(target=self._kill_and_restart)
        self.futures: list[Future[int]] = []
        self.acknowledged = 0
        self.killed_at: list[int] = []
        self.under_way: list[int] = []

    def add(self, future: Future[int]) -> None:
        self.futures.append(future)
        future.add_done_callback(self._count)

    def _count(self, _: Future[int]) -> None:
        self.acknowledged += 1

    def _kill_and_restart(self) -> None:
        for limit in KILL_AT:
            while self.acknowledged < limit and not self._over.wait(0.001):
                pass
            if self.acknowledged < limit:
                return
            self._server.kill()
            self.killed_at.append(self.acknowledged)
            self.under_way.append(len(self.futures) - self.acknowledged)
            self._server.start()

    def __enter__(self) -> "Window":
        self._killer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._killer.join()


def killed_in_the_middle(stage: Stage) -> None:
    screen, client = stage.screen, stage.client
    times = len(KILL_AT)
    screen.heading(
        f"SIGKILL for the server, {times} times, while {NUMBERS:,} writes are on their way"
    )
    client.create_stream("numbers", ttl="1h")
    with client.producer("numbers", name="counter") as producer, Window(stage.server) as window:
        begun = time.perf_counter()
        for number in range(NUMBERS):
            window.add(producer.instant([b"%d" % number], wait=False))
            if number % 250 == 0:
                screen.progress(window.acknowledged, NUMBERS, "acknowledged", window.killed_at)
        stage.numbers = [future.result() for future in window.futures]
        seconds = time.perf_counter() - begun
    screen.finish(NUMBERS, NUMBERS, f"acknowledged in {seconds:.1f} s", window.killed_at)
    screen.say(f"under way at the kills: {', '.join(f'{n:,}' for n in window.under_way)} writes;")
    screen.say("the client sent those again, and the server knew which it had done")
    with client.consumer("numbers", name="check") as consumer:
        found = [int(txn.items[0]) for txn in consumer.read(max_wait=0.5)]
    twice = sum(count - 1 for count in Counter(found).values())
    screen.claim(
        len(window.under_way) == times and min(window.under_way) > 0,
        "each kill hit a window of writes under way",
    )
    screen.claim(set(found) == set(range(NUMBERS)), "nothing was lost")
    screen.claim(twice == 0, "nothing was doubled")
    screen.claim(found == sorted(found), "the order is that of the calls")


def a_point_in_time(stage: Stage) -> None:
    screen, client, ids = stage.screen, stage.client, stage.numbers
    screen.heading("Reading from a point in time: an id is a time")
    begin, end = time_of(ids[0]), time_of(ids[-1])
    slot = (end - begin) / 12
    slots = Counter(min(11, int((time_of(it) - begin) / slot)) for it in ids)
    moment = begin + slot * 6
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    rows = []
    for number in range(12):
        arrow = "  <- start here" if number == 6 else ""
        rows.append(
            (
                f"{begin + slot * number:%H:%M:%S.%f}"[:-3],
                slots[number],
                f"{slots[number]:,}{arrow}",
            )
        )
    screen.bars(rows)
    screen.say("transactions by time; where there are none, the server was dead", DIM)
    with client.consumer("numbers", start=Offset.at(moment)) as consumer:
        came = [txn.id for txn in consumer.read(max_wait=0.2)]
    screen.say(f"consumer(start=Offset.at({moment:%H:%M:%S.%f})) reads {len(came):,}")
    wanted = [it for it in ids if time_of(it) >= moment]
    screen.claim(came == wanted, f"the {len(came):,} opened since then, and no other")


def ten_thousand_streams(stage: Stage) -> None:
    screen, client, server = stage.screen, stage.client, stage.server
    screen.heading(f"{STREAMS:,} streams at once: a stream is a key, not a file")
    names = [f"user-{number:05}" for number in range(STREAMS)]
    written = 0

    def write(name: str) -> None:
        nonlocal written
        client.create_stream(name, ttl="1h")
        with client.producer(name) as producer:
            producer.instant([name.encode()])
        written += 1

    def write_all() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            waiting = [pool.submit(write, name) for name in names]
            while written < STREAMS and not any(it.done() and it.exception() for it in waiting):
                screen.progress(written, STREAMS, "streams")
                time.sleep(0.1)
        for future in waiting:
            future.result()

    _, seconds = timed(write_all)
    screen.finish(STREAMS, STREAMS, f"streams in {seconds:.1f} s")

    def read(name: str) -> bool:
        with client.consumer(name) as consumer:
            txn = consumer.get(0)
            return txn is not None and list(txn.items) == [name.encode()]

    with ThreadPoolExecutor(THREADS) as pool:
        right = list(pool.map(read, names[::50]))
    files = sum(len(names) for _, _, names in os.walk(server.data))
    screen.say(f"{files} files in the server's folder{_of_process(server.pid)}")
    listed = [stream.name for stream in client.streams("user-")]
    screen.claim(listed == names, "the listing has them all, in order")
    screen.claim(all(right), f"each of {len(right)} of them holds what was written to it")
    screen.claim(files < 200, "they are not files")


def _of_process(pid: int) -> str:
    """What a process uses, where the system tells."""
    try:
        open_files = len(os.listdir(f"/proc/{pid}/fd"))
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return ""
    return f", {open_files} open; {pages * os.sysconf('SC_PAGESIZE') >> 20} MiB of memory"


def stop_and_verify(stage: Stage) -> None:
    screen, server = stage.screen, stage.server
    screen.heading("Stop the server, and check every byte that it has written")
    stage.client.close()
    code = server.stop()
    whole = tstreams("verify", server.data)
    screen.say(f"SIGTERM: the server ended with {code}")
    screen.say("$ tstreams verify")
    screen.say(whole.stdout.strip().replace(str(server.data), server.data.name))
    screen.claim(code == 0 and whole.returncode == 0, "all that was written is whole")
    ledger = max((server.data / "shard-0" / "ledgers").iterdir(), key=lambda it: it.stat().st_size)
    flip_a_bit(ledger)
    damaged = tstreams("verify", server.data)
    screen.say(f"now one bit of {ledger.name} is flipped, and verify says:")
    screen.say(damaged.stdout.splitlines()[0], YELLOW)
    screen.claim(damaged.returncode == 3, "the damage was found, with its place")


def flip_a_bit(path: Path) -> None:
    """Damage a file in its middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0b1000
    path.write_bytes(data)


ACTS = (
    the_command_line,
    a_producer_and_a_consumer,
    order_of_opening,
    a_producer_that_vanishes,
    killed_in_the_middle,
    a_point_in_time,
    ten_thousand_streams,
    stop_and_verify,
)


def main() -> int:
    """The whole show; 0 if every claim held."""
    screen = Screen()
    begun = time.perf_counter()
    screen.title("tstreams: transactional, durable streams")
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder) / "data") as server,
        connect(server.address) as client,
    ):
        stage = Stage(screen, server, client)
        for act in ACTS:
            act(stage)
    seconds = time.perf_counter() - begun
    held = screen.claims - len(screen.broken)
    screen.title(f"{held} of {screen.claims} claims held; {seconds:.0f} seconds")
    return 1 if screen.broken else 0


if __name__ == "__main__":
    sys.exit(main())
