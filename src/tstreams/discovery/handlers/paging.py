"""Pages of what lies in many shards. A cursor says where a page ended."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ..problems import Refused

T = TypeVar("T")

LOOKS_MAX = 20
"""How often the server is asked for one page. Its own pages may be short, or empty."""


def encode_cursor(shard: int, position: bytes) -> str:
    """Where a page ended, as text without meaning to others."""
    raw = b"%d:%b" % (shard, position)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_cursor(text: str) -> tuple[int, bytes]:
    """`Refused` for what is no cursor of ours."""
    bad = Refused(422, "bad_request", "after: this is not the `next` of a page")
    try:
        raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        shard, colon, position = raw.partition(b":")
        if not colon or not shard.isdigit() or len(shard) > 9:
            raise bad
        return int(shard), position
    except (ValueError, binascii.Error):
        raise bad from None


def decode_number(position: bytes) -> int:
    """A cursor's position that is a number."""
    if not position:
        return 0
    if not position.isdigit() or len(position) > 19:
        raise Refused(422, "bad_request", "after: this is not the `next` of a page")
    return min(int(position), 2**63 - 1)


def decode_text(position: bytes) -> str:
    """A cursor's position that is a name."""
    try:
        return position.decode()
    except UnicodeDecodeError:
        raise Refused(422, "bad_request", "after: this is not the `next` of a page") from None


Fetch = Callable[[int, bytes, int], Awaitable[tuple[Sequence[T], bytes | None]]]
"""Some of a shard: from a position, at most so many; and where to go on, or None at the end."""


async def page(
    shards: Sequence[int], after: str | None, limit: int, fetch: Fetch[T]
) -> tuple[list[tuple[int, T]], str | None]:
    """All of one shard, then all of the next: up to `limit` entries, each with its shard, and the cursor of the next page."""
    first, position = (shards[0], b"") if after is None else decode_cursor(after)
    found: list[tuple[int, T]] = []
    looks = 0
    for shard in [it for it in shards if it >= first]:
        while True:
            entries, following = await fetch(shard, position, limit - len(found))
            found += [(shard, entry) for entry in entries]
            looks += 1
            if following is None:
                position = b""
                break
            position = following
            if len(found) >= limit or looks >= LOOKS_MAX:
                return found, encode_cursor(shard, position)
        later = [it for it in shards if it > shard]
        if later and len(found) >= limit:
            return found, encode_cursor(later[0], b"")
    return found, None


FetchNumbered = Callable[[int, int, int], Awaitable[tuple[Sequence[T], int | None]]]
"""Some of a shard, in the order of their numbers: after a number, at most so many; and the number that was
looked at last, or None at the end."""


async def page_in_order(
    shards: Sequence[int],
    after: str | None,
    limit: int,
    fetch: FetchNumbered[T],
    number_of: Callable[[T], int],
) -> tuple[list[tuple[int, T]], str | None]:
    """The same in the order of their numbers, whichever shards they are in. Of equal numbers the lower shard comes first."""
    last_shard, position = (-1, b"") if after is None else decode_cursor(after)
    last = decode_number(position)

    async def ask(shard: int) -> tuple[Sequence[T], int | None]:
        seen = last if after is None or shard <= last_shard else last - 1
        return await fetch(shard, max(seen, 0), limit)

    answers = await asyncio.gather(*map(ask, shards))
    # Behind the least place at which a shard stopped, that one may have something that comes earlier.
    horizon = min(
        ((at, shard) for shard, (_, at) in zip(shards, answers, strict=True) if at is not None),
        default=None,
    )
    found = sorted(
        (number_of(it), shard, place)
        for shard, (entries, _) in zip(shards, answers, strict=True)
        for place, it in enumerate(entries)
    )
    known = [it for it in found if horizon is None or it[:2] <= horizon]
    shown = known[:limit]
    rows = [(shard, answers[shards.index(shard)][0][place]) for _, shard, place in shown]
    if len(shown) < len(known):
        end = shown[-1][:2]
    elif horizon is not None:
        end = horizon
    else:
        return rows, None
    return rows, encode_cursor(end[1], str(end[0]).encode())
