"""CPU-heavy handlers in worker processes: the server's loop stays free, and a crash costs one call.

`workers=5` runs a command in five processes of its own. Such a handler must be importable (a
function at the top level of a module) and gets a `WorkerRequest`.
"""

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field

import moebius
from moebius import Request, Router, Server, WorkerRequest, aio

WORKERS = 5
CLIENTS = 10
BELOW = 50_000

router = Router()


@router.command("primes", workers=WORKERS)
def count_primes(request: WorkerRequest) -> tuple[bytes, bytes]:
    """How many primes there are below a number, the slow way; and which process counted."""
    count = sum(is_prime(number) for number in range(2, int(request.payload)))
    return b"%d" % count, b"%d" % os.getpid()


def is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


@router.command("fragile", workers=1)
def fragile(request: WorkerRequest) -> bytes:
    """Dies when told to, as a bug in a C library would."""
    if request.payload == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    return b"%d" % os.getpid()


@router.command("hello")
def hello(_: Request) -> bytes:
    """Answered by the server process itself."""
    return b"hello from %d" % os.getpid()


@dataclass
class Story:
    """What happened."""

    counts: dict[int, int] = field(default_factory=dict)
    """How many primes are below each number, as the workers say."""
    worker_pids: set[int] = field(default_factory=set)
    working_s: float = 0.0
    hello_s: list[float] = field(default_factory=list)
    """How long a plain command took, again and again while the workers were busy."""
    death: moebius.Error | None = None
    """What the caller got whose worker died."""
    pid_before: int = 0
    pid_after: int = 0


def run() -> Story:
    """Count primes with all clients at once, then kill a worker."""
    return asyncio.run(tell())


async def tell() -> Story:
    story = Story()
    async with Server(router, "tcp://127.0.0.1:0") as server:
        url = server.addresses[0]
        begun = time.perf_counter()
        counting = asyncio.gather(*(count(url, BELOW + 1000 * i, story) for i in range(CLIENTS)))
        await say_hello_until(counting, url, story)
        story.working_s = time.perf_counter() - begun
        await lose_a_worker(url, story)
    return story


async def count(url: str, below: int, story: Story) -> None:
    async with aio.connect(url) as client:
        primes, pid = await client.call_parts("primes", b"%d" % below)
    story.counts[below] = int(primes)
    story.worker_pids.add(int(pid))


async def say_hello_until(counting: asyncio.Future[list[None]], url: str, story: Story) -> None:
    """While the workers count, the server answers others."""
    async with aio.connect(url) as client:
        while not counting.done():
            begun = time.perf_counter()
            await client.call("hello")
            story.hello_s.append(time.perf_counter() - begun)
            await asyncio.sleep(0.01)
    await counting


async def lose_a_worker(url: str, story: Story) -> None:
    async with aio.connect(url) as client:
        story.pid_before = int(await client.call("fragile"))
        try:
            await client.call("fragile", b"die")
        except moebius.WorkerDied as death:
            story.death = death
        story.pid_after = int(await client.call("fragile"))


def main() -> None:
    """Tell what happened."""
    story = run()
    print(f"{CLIENTS} clients had primes counted by {WORKERS} worker processes:")
    for below, primes in sorted(story.counts.items()):
        print(f"  {primes} primes below {below}")
    print(f"that took {story.working_s:.1f} s; processes that answered: {len(story.worker_pids)}")
    worst_ms = max(story.hello_s) * 1000
    print(f"meanwhile {len(story.hello_s)} hellos were answered, the slowest in {worst_ms:.1f} ms")
    print(f"a worker was killed; its caller got {story.death!r}")
    print(f"the next call was answered by a new one: {story.pid_before} -> {story.pid_after}")


if __name__ == "__main__":
    main()
