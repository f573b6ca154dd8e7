"""Lists for operators: what the index holds, in the order of its keys, a bounded piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from ..core.facts import READER
from ..errors import BadRequest
from ..sharding import SHARD_BITS
from . import keys
from .facts import decode_agent, decode_job, decoder
from .store import Store

_READER = READER[:1].encode()


class _StoredName(msgspec.Struct, array_like=True, frozen=True):
    """The first field of the value of an M key."""

    name: str


decode_name = decoder(_StoredName)


@dataclass(slots=True)
class ListedReader:
    """A reader, and some of its positions."""

    stream: int
    name: str
    positions: list[tuple[int, int]]
    positions_more: bool = False


class Looks:
    """How many keys may still be looked at for an answer."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int = 1) -> bool:
        """Take so many; whether there were some left."""
        self.left -= count
        return self.left >= 0


class Listing:
    """Walks through the index in the order of its keys. Each walk ends when its user stops it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def streams(self, after: int, shard: int = 0) -> Iterator[tuple[int, str]]:
        """Streams in the order of their numbers: those whose home this shard is."""
        first, end = shard << SHARD_BITS, (shard + 1) << SHARD_BITS
        for key, value in self._store.scan(b"M", keys.stream_key(max(after + 1, first))):
            number = keys.number_of(key)
            if number >= end:
                return
            yield number, decode_name(value).name

    def open_ids(self, after: int) -> Iterator[int]:
        """Open transactions."""
        return map(keys.number_of, self._store.scan_keys(b"O", keys.open_key(after + 1)))

    def sessions(self, after: int) -> Iterator[int]:
        """Sessions."""
        return map(keys.number_of, self._store.scan_keys(b"S", keys.session_key(after + 1)))

    def agents(self, after: int) -> Iterator[tuple[int, str, int, str, int]]:
        """Agents that hold their names: number, kind, stream, name, session."""
        for key, value in self._store.scan(b"G", keys.agent_key(after + 1)):
            it = decode_agent(value)
            yield keys.number_of(key), it.kind, it.stream, it.name, it.session

    def jobs(self, after: str) -> Iterator[tuple[str, int, int]]:
        """Jobs in the order of their names: name, last step, when that was committed."""
        first = keys.job_key(after)
        for key, value in self._store.scan(b"J", first):
            if after and key == first:
                continue
            stored = decode_job(value)
            yield key[1:].decode(), stored.last_step, stored.used_ms

    # Readers. A place in their list is the first key that was not looked at.

    def readers(
        self, stream: int, after: bytes, looks: Looks, positions_max: int
    ) -> Iterator[tuple[ListedReader | None, bytes]]:
        """Readers of a stream, or of all if that is 0; with each, the place behind it. First those that have
        positions, then those that only hold their names. Stops when there are no looks left; the last place
        may have no reader then."""
        if after[:1] not in (b"", b"C", b"A"):
            raise _no_place()
        for letter, walk in ((b"C", self._with_positions), (b"A", self._without)):
            prefix = letter if not stream else keys.numbered(letter, stream)
            if after[:1] == b"A" and letter == b"C":
                continue
            start = after if after[:1] == letter else prefix
            if not start.startswith(prefix):
                raise _no_place()
            yield from walk(prefix, start, looks, positions_max)
            if looks.left <= 0:
                return

    def reader(self, stream: int, name: str, positions_max: int) -> ListedReader | None:
        """A reader by its name; None if it has no positions. Whether it holds its name does not count."""
        prefix = keys.reader_prefix(stream, name)
        walk = self._with_positions(prefix, prefix, Looks(positions_max), positions_max)
        return next((it for it, _ in walk), None)

    def _with_positions(
        self, prefix: bytes, start: bytes, looks: Looks, positions_max: int
    ) -> Iterator[tuple[ListedReader | None, bytes]]:
        iterator = self._store.iterator()
        iterator.seek(start)
        while looks.left > 0 and iterator.valid() and iterator.key().startswith(prefix):
            stream, name, _ = keys.split_position_key(iterator.key())
            mine = keys.reader_prefix(stream, name)
            it = ListedReader(stream, name, [])
            while iterator.valid() and iterator.key().startswith(mine):
                if len(it.positions) == positions_max:
                    it.positions_more = True
                    break
                looks.take()
                partition = int.from_bytes(iterator.key()[-2:], "big")
                it.positions.append((partition, int.from_bytes(iterator.value(), "big")))
                iterator.next()
            behind = keys.after_prefix(mine)
            if it.positions_more:
                iterator.seek(behind)
            yield it, behind
        self._store.check(iterator)

    def _without(
        self, prefix: bytes, start: bytes, looks: Looks, positions_max: int
    ) -> Iterator[tuple[ListedReader | None, bytes]]:
        iterator = self._store.iterator()
        iterator.seek(start)
        while iterator.valid() and iterator.key().startswith(prefix):
            if not looks.take():
                yield None, iterator.key()
                return
            stream, kind, name = keys.split_holder(iterator.key())
            if kind < _READER:  # producers come first, and there may be many
                iterator.seek(keys.numbered(b"A", stream) + _READER)
                continue
            if not self._has_positions(stream, name):
                yield ListedReader(stream, name, []), iterator.key() + b"\0"
            iterator.next()
        self._store.check(iterator)

    def _has_positions(self, stream: int, name: str) -> bool:
        prefix = keys.reader_prefix(stream, name)
        return next(self._store.scan_keys(prefix, prefix), None) is not None


def _no_place() -> BadRequest:
    return BadRequest("this is no place in a list of readers: begin anew, with none")
