"""A thousand clients whose requests all sleep 5 to 10 seconds, answered by one server process.

Each handler is a generator that sleeps in several steps: a sleeping request costs the server a
generator, not a thread. All are answered when the longest sleep is over.

    python examples/moebius/thousand.py --clients 200 --seconds 1 2
"""

import argparse
import asyncio
import contextlib
import resource
import statistics
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import moebius
from moebius import Request, Router, Server, aio

STEPS = 5
CONNECTING_AT_ONCE = 100

router = Router()


@router.command("nap")
def nap(request: Request) -> Generator[Any, Any, bytes]:
    """Sleep so long in all, in several steps, then answer."""
    for _ in range(STEPS):
        yield moebius.sleep(float(request.payload) / STEPS)
    return b"slept " + request.payload


@dataclass(frozen=True)
class Nap:
    """One client's request."""

    seconds: float
    answer: bytes
    latency_s: float

    @property
    def late_s(self) -> float:
        """How much longer than the sleep it took."""
        return self.latency_s - self.seconds


@dataclass(frozen=True)
class Story:
    """What happened."""

    naps: list[Nap]
    connecting_s: float
    napping_s: float


def run(clients: int = 1000, shortest_s: float = 5.0, longest_s: float = 10.0) -> Story:
    """Connect all clients, then let all of them nap at once."""
    allow_open_files(2 * clients + 100)
    with Server(router, "tcp://127.0.0.1:0").in_thread() as server:
        return asyncio.run(nap_together(server.addresses[0], clients, shortest_s, longest_s))


def allow_open_files(count: int) -> None:
    """Both ends of each connection are in this process, and the usual limit is 1024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def nap_together(url: str, clients: int, shortest_s: float, longest_s: float) -> Story:
    step_s = (longest_s - shortest_s) / max(1, clients - 1)
    async with contextlib.AsyncExitStack() as stack:
        begun = time.perf_counter()
        door = asyncio.Semaphore(CONNECTING_AT_ONCE)

        async def connect() -> aio.Client:
            async with door:
                return await stack.enter_async_context(aio.connect(url))

        connected = await asyncio.gather(*(connect() for _ in range(clients)))
        all_there = time.perf_counter()
        naps = await asyncio.gather(
            *(one_nap(client, shortest_s + step_s * i) for i, client in enumerate(connected))
        )
        return Story(naps, all_there - begun, time.perf_counter() - all_there)


async def one_nap(client: aio.Client, seconds: float) -> Nap:
    begun = time.perf_counter()
    answer = await client.call("nap", f"{seconds:.3f}".encode(), timeout=60)
    return Nap(seconds, answer, time.perf_counter() - begun)


def main() -> None:
    """Tell what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument(
        "--seconds", type=float, nargs=2, default=(5.0, 10.0), metavar=("SHORTEST", "LONGEST")
    )
    options = parser.parse_args()
    print(f"{options.clients} clients nap {options.seconds[0]:g} to {options.seconds[1]:g} s each")
    story = run(options.clients, *options.seconds)
    latencies = [nap.latency_s for nap in story.naps]
    late_ms = sorted(nap.late_s * 1000 for nap in story.naps)
    print(f"connected in {story.connecting_s:.2f} s, {CONNECTING_AT_ONCE} at a time")
    print(f"{len(story.naps)} answers in {story.napping_s:.2f} s; all naps together took", end=" ")
    print(f"{sum(latencies):,.0f} s")
    print(f"latency   {min(latencies):.2f} s to {max(latencies):.2f} s")
    print(
        f"later than its nap   median {statistics.median(late_ms):.1f} ms,"
        f" 99 % under {late_ms[int(len(late_ms) * 0.99)]:.1f} ms, most {late_ms[-1]:.1f} ms"
    )


if __name__ == "__main__":
    main()
