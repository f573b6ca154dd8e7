"""The server speaks first: a background task pings every client and sends news to half of them.

`server.clients` is everyone who is connected. `client.send` reaches one of them, `broadcast` all,
or those that `where` accepts. On the other side `on_push` gets what was sent.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import moebius
from moebius import Request, Router, Server, aio

CLIENTS = 6
ROUNDS = 3

router = Router()


@router.background
def ping_everyone(server: Server) -> Iterator[Any]:
    """Runs as long as the server does."""
    while True:
        server.clients.broadcast(b"news for the even", where=lambda client: client.id % 2 == 0)
        for client in server.clients:
            client.send(b"ping %d" % client.id)
        yield moebius.sleep(0.05)


@router.command("number")
def number(request: Request) -> bytes:
    """Tell a client its number."""
    return b"%d" % request.client.id


@dataclass(frozen=True)
class Listener:
    """A client, and what it heard."""

    number: int
    heard: list[bytes]

    def count(self, begins_with: bytes) -> int:
        return sum(message.startswith(begins_with) for message in self.heard)


def run() -> list[Listener]:
    """Listen to a few rounds."""
    return asyncio.run(listen_together())


async def listen_together() -> list[Listener]:
    async with Server(router, "tcp://127.0.0.1:0") as server:
        return await asyncio.gather(*(listen(server.addresses[0]) for _ in range(CLIENTS)))


async def listen(url: str) -> Listener:
    """Connect, and stay for a few pings."""
    inbox: asyncio.Queue[bytes] = asyncio.Queue()
    async with aio.connect(url, on_push=inbox.put_nowait) as client, asyncio.timeout(10):
        listener = Listener(int(await client.call("number")), [])
        while listener.count(b"ping") < ROUNDS:
            listener.heard.append(await inbox.get())
        return listener


def main() -> None:
    """Tell what happened."""
    for listener in sorted(run(), key=lambda listener: listener.number):
        pings, news = listener.count(b"ping"), listener.count(b"news")
        print(f"client {listener.number} heard {pings} pings for it and {news} times the news")


if __name__ == "__main__":
    main()
