"""Compares a mirror with its engine, and mends it: what differs is cut or fetched again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

from ..errors import Corrupt
from .engine import Engine, EngineUnavailable, Entry, Place
from .format import SECTOR_BYTES, Head
from .ledgers import Ledger, name_of
from .mirror import Mirror
from .port import LogBehind, Position, split_position

_PAUSE_S = 0.01
_STALE_S = 30.0
"""How long one that answers may lack what was confirmed elsewhere."""
_TRIES = 20
"""How often a ledger is asked for before it is believed to be gone: each time somebody else may answer."""


async def compare(engine: Engine, mirror: Mirror, applied: Position) -> Place:
    """Make the mirror what the engine has; the place up to which that is.

    Closed ledgers are compared by their sizes, which stand in the heads of the next ones; those from `applied` on also
    byte by byte, by their checksums. The rest is checked when it is read. The last ledger is cut behind the last group
    that is whole and that the engine has, and read on from there.
    """
    ids = await engine.ledgers()
    mirror.keep_only(ids)
    place = await _compare_last(engine, mirror, applied)
    last = mirror.ledgers.last
    for ledger_id, next_id in reversed(list(pairwise(ids))):
        if last is not None and ledger_id < last.id:
            await _compare_closed(engine, mirror, ledger_id, next_id, applied)
    place = await _read_to_end(engine, mirror, place)
    check_chain(mirror.ledgers.list, applied)
    return place


async def read_until(engine: Engine, after: Place, end: Place) -> AsyncIterator[Entry]:
    """The entries between two places. `EngineUnavailable` if some of them are not to be had for long."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    while after < end:
        entries = await engine.read(after)
        for entry in entries:
            yield entry
            after = entry.place
        if entries:
            since = loop.time()
        elif loop.time() - since > _STALE_S:
            raise EngineUnavailable(f"the engine does not give what lies between {after} and {end}")
        else:
            await asyncio.sleep(_PAUSE_S)  # who answered does not have it yet


def check_chain(ledgers: list[Ledger], applied: Position) -> None:
    """Raise unless everything behind this position is there. Nothing is asked of what lies before it, or of a log
    of which nothing was applied."""
    ledger_id, offset = split_position(applied)
    if not ledger_id:
        return
    behind = [ledger for ledger in ledgers if ledger.id >= ledger_id]
    if not behind or (behind[0].id == ledger_id and behind[0].size < offset):
        raise Corrupt(
            f"the index has taken the log up to ledger {ledger_id:x}, offset {offset}, but the engine "
            f"does not have that much: it has lost what it had confirmed, or is another one"
        )
    if behind[0].id != ledger_id:
        raise LogBehind(f"ledger {ledger_id:x} was deleted before it was read to its end here")
    for ledger, following in pairwise(behind):
        if following.head.previous_id != ledger.id:
            raise LogBehind(
                f"what lay between ledgers {ledger.id:x} and {following.id:x} was deleted"
            )


async def _compare_last(engine: Engine, mirror: Mirror, applied: Position) -> Place:
    while (last := mirror.ledgers.last) is not None:
        first, tail = await engine.find(last.id, 0), await engine.last(last.id)
        if first is None or tail is None:
            mirror.remove([last.id])  # it is being deleted
            continue
        if Head.decode(first.data, last.name) != last.head:
            if applied:
                raise Corrupt(
                    f"ledger {last.id:x} on this node is not the one that the engine has: "
                    f"one of them belongs to another cluster, or to another time"
                )
            mirror.keep_only([])
            return 0
        end = mirror.cut_last(tail.end)
        if end == tail.end:
            return tail.place
        if end > SECTOR_BYTES and (found := await engine.find(last.id, end)) is not None:
            return found.before
        mirror.cut_last(SECTOR_BYTES)
        return first.place
    return 0


async def _compare_closed(
    engine: Engine, mirror: Mirror, ledger_id: int, next_id: int, applied: Position
) -> None:
    size = mirror.size_by_next(ledger_id, next_id)
    if size is None:
        tail = await engine.last(ledger_id)
        size = SECTOR_BYTES if tail is None else tail.end
    check = ledger_id >= split_position(applied)[0]
    if not mirror.fit(ledger_id, size, check=check) and not await refetch(
        engine, mirror, ledger_id
    ):
        mirror.remove([ledger_id])  # it is being deleted


async def _read_to_end(engine: Engine, mirror: Mirror, place: Place) -> Place:
    async for entry in read_until(engine, place, await engine.end()):
        last = mirror.ledgers.last
        if entry.offset == 0:
            head = Head.decode(entry.data, name_of(entry.ledger_id))
            if last is not None and head.previous_id == last.id and head.previous_size != last.size:
                if await engine.find(last.id, 0) is not None:
                    raise Corrupt(
                        f"the engine has {last.size} bytes of ledger {last.id:x}, which was closed with "
                        f"{head.previous_size}: it has lost what it had confirmed"
                    )
                mirror.remove([last.id])  # it was deleted while it was read
            mirror.begin(head)
        elif last is not None and entry.ledger_id == last.id:
            mirror.add(entry)
        # else it is what is left of a ledger that is being deleted
        place = entry.place
    return place


async def refetch(engine: Engine, mirror: Mirror, ledger_id: int) -> bool:
    """Write all of a ledger again, as the engine has it; False if the engine does not have it from its beginning on."""
    tries = 0
    while (first := await engine.find(ledger_id, 0)) is None:
        tries += 1
        if tries == _TRIES:
            return False
        await asyncio.sleep(_PAUSE_S)  # who answered may not have it yet
    ledger = mirror.ledgers.find(ledger_id)
    size = None if ledger is None else ledger.size
    mirror.put(first)
    place, end = first.place, first.end
    while size is None or end < size:
        entries = await engine.read(place)
        for entry in entries:
            if entry.ledger_id != ledger_id or (size is not None and entry.end > size):
                return True
            if entry.offset != end:
                raise Corrupt(
                    f"the engine has no entry at offset {end} of ledger {ledger_id:x}, but one at {entry.offset}"
                )
            mirror.put(entry)
            place, end = entry.place, entry.end
        if not entries:
            if place >= await engine.end():
                return True
            await asyncio.sleep(_PAUSE_S)
    return True
