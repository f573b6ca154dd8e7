"""A storm: connections that come and go, hundreds of them, well and badly behaved.

python -m tests.torture.storm tcp://127.0.0.1:7070 --connections 300 --seed 1
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from argparse import ArgumentParser

import tstreams
from tests.torture.work import PASSING
from tstreams import aio

AT_ONCE = 60
TIMEOUT_S = 10.0


async def visit(url: str, rng: random.Random) -> None:
    """A client that comes, writes a little, and goes, with or without a word."""
    ts = await aio.connect(url, timeout=TIMEOUT_S)
    try:
        producer = await ts.producer(PASSING)
        await producer.instant([b"storm"])
        if rng.random() < 0.5:
            transaction = await producer.open()
            await transaction.send(b"never checkpointed")
    finally:
        await ts.close()


async def knock(url: str, rng: random.Random) -> None:
    """Somebody who connects, says nothing or nonsense, and leaves."""
    host, _, port = url.removeprefix("tcp://").partition(":")
    _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), TIMEOUT_S)
    if rng.random() < 0.7:
        writer.write(os.urandom(rng.randint(1, 2000)))
    await asyncio.sleep(rng.uniform(0, 0.5))
    if rng.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()


async def storm(url: str, connections: int, seed: int) -> int:
    """All of them. How many were served."""
    rng = random.Random(seed)
    room = asyncio.Semaphore(AT_ONCE)
    served = 0

    async def one(number: int) -> None:
        nonlocal served
        async with room:
            try:
                await (visit if number % 4 == 0 else knock)(url, rng)
                served += 1
            except (OSError, TimeoutError, tstreams.Unavailable, tstreams.InvalidState):
                await asyncio.sleep(0.01)  # the server may be gone at this moment

    await asyncio.gather(*map(one, range(connections)))
    return served


def main() -> int:
    """The command."""
    parser = ArgumentParser("python -m tests.torture.storm", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(asyncio.run(storm(given.url, given.connections, given.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
