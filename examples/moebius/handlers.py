"""The kinds of handlers: a plain function, a generator, `async def` and an async generator.

One request leads to one response (what the handler returns), to many (what it yields) or to none
(`one_way`). The caller cannot tell which kind of handler answered.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import moebius
from moebius import Request, Router, Server

router = Router()


@router.command("upper")
def upper(request: Request) -> bytes:
    """A plain function: 1 request, 1 response."""
    return request.payload.upper()


@router.command("words")
def words(request: Request) -> Iterator[bytes]:
    """A generator: 1 request, N responses."""
    yield from request.payload.split()


@router.command("nap")
def nap(request: Request) -> Generator[Any, Any, bytes]:
    """A generator that waits: nobody else has to wait with it. Its result is the response."""
    yield moebius.sleep(0.05)
    return b"slept, then " + request.payload


@router.command("lookup")
async def lookup(request: Request) -> bytes:
    """A coroutine: await whatever asyncio has."""
    await asyncio.sleep(0.01)
    return b"found " + request.payload


@router.command("countdown")
async def countdown(request: Request) -> AsyncIterator[bytes]:
    """An async generator: N responses, and awaits between them."""
    for number in range(int(request.payload), 0, -1):
        await asyncio.sleep(0.01)
        yield str(number).encode()


@router.command("note", one_way=True)
def note(request: Request) -> None:
    """1 request, 0 responses. `tags` is a place for what belongs to this client."""
    request.client.tags.setdefault("notes", []).append(request.payload)


@router.command("notes")
def notes(request: Request) -> Iterator[bytes]:
    """What this client noted so far."""
    yield from request.client.tags.get("notes", [])


def run() -> dict[str, Any]:
    """Call each of them once."""
    with (
        Server(router, "tcp://127.0.0.1:0").in_thread() as server,
        moebius.connect(server.addresses[0]) as client,
    ):
        answers: dict[str, Any] = {
            "upper": client.call("upper", b"hello"),
            "words": list(client.stream("words", b"one two three")),
            "nap": client.call("nap", b"awake"),
            "lookup": client.call("lookup", b"it"),
            "countdown": list(client.stream("countdown", b"3")),
        }
        client.send("note", b"buy milk")
        client.send("note", b"call home")
        # Requests of one client are taken in turn, so both notes are there by now.
        answers["notes"] = list(client.stream("notes"))
        return answers


def main() -> None:
    """Tell what happened."""
    answers = run()
    print("1 request, 1 response")
    print("  plain function    upper       ", answers["upper"])
    print("  generator         nap         ", answers["nap"])
    print("  async def         lookup      ", answers["lookup"])
    print("1 request, N responses")
    print("  generator         words       ", answers["words"])
    print("  async generator   countdown   ", answers["countdown"])
    print("1 request, 0 responses")
    print("  one_way           note (twice); the server has", answers["notes"])


if __name__ == "__main__":
    main()
