"""How a ledger lies in its file.

    ledger:  head (512 bytes) | group | group | ...
    head:    magic "TSLEDGER" | version u32 | crc32c u32 | ledger u64 | epoch u64 | created ms u64
             | previous ledger u64 | its length u64
    group:   magic u32 | crc32c u32 | bytes of its records u32 | number of records u32 | records,
             then zeros up to a multiple of 512
    record:  length u32 | crc32c u32 | the record

All numbers are little-endian. Every checksum also covers the ledger's id and the offset, so that bytes
of a recycled file, or of another place, are never taken for a record. A group is what one `append`
wrote and one sync made durable. Groups begin at multiples of 512: a sector that holds acknowledged
bytes is never written again, and a group can be found behind damage by looking at sector starts only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from crc32c import crc32c

from ..errors import Corrupt
from ..items import Buffer
from .port import Record

SECTOR_BYTES = 512
MAGIC = b"TSLEDGER"
VERSION = 1
GROUP_MAGIC = 0x50524754  # "TGRP"

_HEAD = struct.Struct("<8sIIQQQQQ")
_GROUP = struct.Struct("<IIII")
_RECORD = struct.Struct("<II")
_PLACE = struct.Struct("<QQII")
_ZEROS = bytes(SECTOR_BYTES)

RECORD_OVERHEAD_BYTES = _RECORD.size
GROUP_OVERHEAD_BYTES = _GROUP.size


@dataclass(frozen=True, slots=True)
class Head:
    """The first sector of a ledger: who began it, and where the one before it ended."""

    SIZE: ClassVar[int] = _HEAD.size
    """How much of its sector it fills; the rest is zeros."""

    ledger_id: int
    epoch: int
    created_ms: int
    previous_id: int
    previous_size: int

    def encode(self) -> bytes:
        """As it is stored."""
        fields = (self.ledger_id, self.epoch, self.created_ms, self.previous_id, self.previous_size)
        checksum = crc32c(_HEAD.pack(MAGIC, VERSION, 0, *fields))
        return _HEAD.pack(MAGIC, VERSION, checksum, *fields).ljust(SECTOR_BYTES, b"\0")

    @staticmethod
    def decode(data: Buffer, name: str) -> Head:
        """From the first sector of the file `name`."""
        if len(data) < _HEAD.size:
            raise Corrupt(f"ledger file {name} is too short for its head")
        magic, version, checksum, *fields = _HEAD.unpack_from(data)
        if magic != MAGIC or checksum != crc32c(_HEAD.pack(magic, version, 0, *fields)):
            raise Corrupt(f"the head of ledger file {name} is damaged")
        if version != VERSION:
            raise Corrupt(f"ledger file {name} has version {version}; this program reads {VERSION}")
        return Head(*fields)


def sectors_up(size: int) -> int:
    """The next multiple of a sector."""
    return -(-size // SECTOR_BYTES) * SECTOR_BYTES


def encode_group(
    ledger_id: int, offset: int, records: Sequence[Record]
) -> tuple[list[Buffer], list[int], int]:
    """The buffers of a group at `offset`, the offsets of its records, and where the next one begins."""
    buffers: list[Buffer] = [b""]
    offsets: list[int] = []
    at = offset + GROUP_OVERHEAD_BYTES
    for record in records:
        size = sum(map(len, record))
        checksum = crc32c(_PLACE.pack(ledger_id, at, size, 0))
        for part in record:
            checksum = crc32c(part, checksum)
        buffers.append(_RECORD.pack(size, checksum))
        buffers += record
        offsets.append(at)
        at += RECORD_OVERHEAD_BYTES + size
    body = at - offset - GROUP_OVERHEAD_BYTES
    checksum = crc32c(_PLACE.pack(ledger_id, offset, body, len(records)))
    buffers[0] = _GROUP.pack(GROUP_MAGIC, checksum, body, len(records))
    if left := -at % SECTOR_BYTES:
        buffers.append(_ZEROS[:left])
    return buffers, offsets, at + left


def group_at(ledger_id: int, offset: int, data: Buffer, at: int = 0) -> tuple[int, int] | None:
    """The body size and the number of records of the group whose header lies at `data[at:]`, or None."""
    if len(data) - at < GROUP_OVERHEAD_BYTES:
        return None
    magic, checksum, body, count = _GROUP.unpack_from(data, at)
    if magic != GROUP_MAGIC or checksum != crc32c(_PLACE.pack(ledger_id, offset, body, count)):
        return None
    return body, count


def decode_record(ledger_id: int, offset: int, data: memoryview) -> memoryview:
    """The record that lies at the beginning of `data`; `Corrupt` says where if it is damaged."""
    if len(data) >= RECORD_OVERHEAD_BYTES:
        size, checksum = _RECORD.unpack_from(data)
        record = data[RECORD_OVERHEAD_BYTES : RECORD_OVERHEAD_BYTES + size]
        if (
            len(record) == size
            and crc32c(record, crc32c(_PLACE.pack(ledger_id, offset, size, 0))) == checksum
        ):
            return record
    raise Corrupt(f"ledger {ledger_id:x}: the record at offset {offset} is damaged")


def decode_group(
    ledger_id: int, offset: int, body: memoryview, count: int
) -> Iterator[tuple[int, memoryview]]:
    """The records of a group (without its header) that lies at `offset`, with their offsets."""
    at = 0
    first = offset + GROUP_OVERHEAD_BYTES
    for _ in range(count):
        record = decode_record(ledger_id, first + at, body[at:])
        yield first + at, record
        at += RECORD_OVERHEAD_BYTES + len(record)
    if at != len(body):
        raise Corrupt(
            f"ledger {ledger_id:x}: the group at offset {offset} is longer than its records"
        )
