"""How the index lies in RocksDB: one letter says what a key is about, numbers are big-endian and sort.

N name                            -> stream number
K name                            -> the same for a stream of another shard, of which this has a copy
M stream                          -> a stream's description (`StreamState`)
T stream, partition, transaction  -> a checkpointed transaction: its items, where its batches lie
O transaction                     -> an open transaction
D transaction, number             -> one of its batches
A kind, stream, name              -> the agent that holds a name
G agent                           -> an agent
R session, agent                  -> this session opened this agent
C stream, reader, partition       -> a reader's checkpointed position
J job                             -> the step of a job that was committed last, and when
S session                         -> a session's numbers and the answers it may ask for again
B shard, session, number          -> a group that is prepared, and decided by that shard
V session, number                 -> a group that was decided here, and which shards do not know it yet
W stream                          -> which shards have to be told how a stream is now
Y stream                          -> when a stream of another shard was deleted
E slot, stream, partition         -> something of this partition dies in this slot of time
X stream                          -> a deleted stream whose transactions are still to be removed
L ledger                          -> bytes in it that are alive
Z                                 -> the last whole snapshot in a log that several nodes read
P                                 -> the log position that all this is as new as
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import Corrupt

SLOT_MS = 5_000
"""Expiry is looked for in slots of this length: data is gone from the index so much after its end, and a
partition that is written to costs one small key per slot."""

POSITION = b"P"
SNAPSHOT = b"Z"
STREAM_IDS = b"N"
COPY_IDS = b"K"

_number = struct.Struct(">cQ").pack
_transaction = struct.Struct(">cQHQ")
_partition = struct.Struct(">cQH").pack
_batch = struct.Struct(">cQI").pack
_pair = struct.Struct(">cQQ").pack
_slot = struct.Struct(">cQQH")
_group = struct.Struct(">cIQQ").pack

ONE_BATCH = struct.Struct("<QIQI")
"""A transaction with one batch: items, batches (1), position, size. Most are like this."""
_SOME = struct.Struct("<QI")
_PLACE = struct.Struct("<QI")
PLACE_AND_COUNT = struct.Struct("<QII")
LIVE = struct.Struct("<QQ")
HEAD = struct.Struct("<QQQ")
"""The log position, the greatest transaction id, the greatest number."""

SNAPSHOT_PLACE = struct.Struct("<QQQ")
"""The log position that a snapshot is of, the one where it ends, its bytes."""

transaction_key = _transaction.pack
"""Called as `transaction_key(b"T", stream, partition, transaction)`."""


def name_key(name: str) -> bytes:
    """N."""
    return b"N" + name.encode()


def copy_name_key(name: str) -> bytes:
    """K."""
    return b"K" + name.encode()


def stream_key(stream: int) -> bytes:
    """M."""
    return _number(b"M", stream)


def partition_prefix(stream: int, partition: int) -> bytes:
    """T: what all transactions of a partition begin with."""
    return _partition(b"T", stream, partition)


def stream_prefix(stream: int) -> bytes:
    """T: what all transactions of a stream begin with."""
    return _number(b"T", stream)


def split_transaction(key: bytes) -> tuple[int, int, int]:
    """T: stream, partition, transaction."""
    if len(key) != _transaction.size:
        raise _damaged(key, "the key of a transaction")
    _, stream, partition, transaction = _transaction.unpack(key)
    return stream, partition, transaction


def open_key(transaction: int) -> bytes:
    """O."""
    return _number(b"O", transaction)


def batch_key(transaction: int, number: int) -> bytes:
    """D."""
    return _batch(b"D", transaction, number)


def holder_key(kind: str, stream: int, name: str) -> bytes:
    """A."""
    return _number(b"A", stream) + kind[:1].encode() + name.encode()


def agent_key(agent: int) -> bytes:
    """G."""
    return _number(b"G", agent)


def session_agent_key(session: int, agent: int) -> bytes:
    """R."""
    return _pair(b"R", session, agent)


def reader_prefix(stream: int, reader: str) -> bytes:
    """C: what all positions of a reader begin with."""
    name = reader.encode()
    return _number(b"C", stream) + bytes((len(name),)) + name


def position_key(stream: int, reader: str, partition: int) -> bytes:
    """C."""
    return reader_prefix(stream, reader) + partition.to_bytes(2, "big")


def split_position_key(key: bytes) -> tuple[int, str, int]:
    """C: stream, reader, partition."""
    name = key[10:-2]
    if len(key) < 12 or len(name) != key[9]:
        raise _damaged(key, "the key of a position")
    return number_of(key), _text(key, name), int.from_bytes(key[-2:], "big")


def split_holder(key: bytes) -> tuple[int, bytes, str]:
    """A: stream, the first letter of the kind, name."""
    if len(key) < 10:
        raise _damaged(key, "the key of a name")
    return number_of(key), key[9:10], _text(key, key[10:])


def _text(key: bytes, name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise _damaged(key, "the key of a name") from None


def numbered(letter: bytes, number: int) -> bytes:
    """What all keys of this letter begin with that belong to a stream, or to whatever has this number."""
    return _number(letter, number)


def session_key(session: int) -> bytes:
    """S."""
    return _number(b"S", session)


def job_key(name: str) -> bytes:
    """J."""
    return b"J" + name.encode()


def prepared_key(shard: int, session: int, number: int) -> bytes:
    """B."""
    return _group(b"B", shard, session, number)


def decided_key(session: int, number: int) -> bytes:
    """V."""
    return _pair(b"V", session, number)


def split_decided(key: bytes) -> tuple[int, int]:
    """V: session, number."""
    if len(key) != 17:
        raise _damaged(key, "the key of a decision")
    return number_of(key), int.from_bytes(key[9:], "big")


def untold_key(stream: int) -> bytes:
    """W."""
    return _number(b"W", stream)


def dropped_key(stream: int) -> bytes:
    """Y."""
    return _number(b"Y", stream)


def slot_key(slot: int, stream: int, partition: int) -> bytes:
    """E."""
    return _slot.pack(b"E", slot, stream, partition)


def split_slot(key: bytes) -> tuple[int, int, int]:
    """E: slot, stream, partition."""
    if len(key) != _slot.size:
        raise _damaged(key, "the key of a slot")
    _, slot, stream, partition = _slot.unpack(key)
    return slot, stream, partition


def deleted_key(stream: int) -> bytes:
    """X."""
    return _number(b"X", stream)


def ledger_key(ledger: int) -> bytes:
    """L."""
    return _number(b"L", ledger)


def number_of(key: bytes) -> int:
    """The number in a key that has only one."""
    return int.from_bytes(key[1:9], "big")


def after_prefix(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,))


class Place(NamedTuple):
    """Where a batch lies: the position and the size of its record in the log."""

    position: int
    size: int


def pack_transaction(items: int, places: list[Place]) -> bytes:
    """The value of a T key."""
    return _SOME.pack(items, len(places)) + b"".join([_PLACE.pack(*place) for place in places])


def unpack_transaction(value: bytes) -> tuple[int, list[Place]]:
    """A transaction's number of items, and the places of its batches."""
    places = list(map(Place._make, places_of(value)))
    return _SOME.unpack_from(value)[0], places


def places_of(value: bytes) -> Iterator[tuple[int, int]]:
    """The (position, size) of each batch of a transaction."""
    size = len(value)
    if size < _SOME.size or size != _SOME.size + _PLACE.size * _SOME.unpack_from(value)[1]:
        raise _damaged(value, "a transaction")
    return _PLACE.iter_unpack(value[_SOME.size :])


def unpack_batch(value: bytes) -> tuple[Place, int]:
    """The value of a D key: where a batch lies, and how many items it has."""
    if len(value) != PLACE_AND_COUNT.size:
        raise _damaged(value, "a batch")
    position, size, count = PLACE_AND_COUNT.unpack(value)
    return Place(position, size), count


def unpack_live(value: bytes) -> tuple[int, int]:
    """The value of an L key: bytes that are alive, and that were written."""
    if len(value) != LIVE.size:
        raise _damaged(value, "a ledger's bytes")
    alive, written = LIVE.unpack(value)
    return alive, written


def unpack_head(value: bytes) -> tuple[int, int, int]:
    """The value of the P key: the log position, the greatest transaction id, the greatest number."""
    if len(value) != HEAD.size:
        raise _damaged(value, "the log position")
    position, transaction, number = HEAD.unpack(value)
    return position, transaction, number


def unpack_snapshot(value: bytes) -> tuple[int, int, int]:
    """The value of the Z key: the position that a snapshot is of, the one where it ends, its bytes."""
    if len(value) != SNAPSHOT_PLACE.size:
        raise _damaged(value, "the place of a snapshot")
    at, ended, size_bytes = SNAPSHOT_PLACE.unpack(value)
    return at, ended, size_bytes


def _damaged(data: bytes, what: str) -> Corrupt:
    return Corrupt(f"the index is damaged: {len(data)} bytes are not {what}: see `tstreams verify`")
