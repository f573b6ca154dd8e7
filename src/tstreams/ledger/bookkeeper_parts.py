"""How an entry of the log lies in entries of BookKeeper: in one, or, if it is large, in several that follow on each other.

    part:  magic "TSBK" | version u8 | length of the mark u8 | number of the part u16 | parts u16 | ledger u64
           | offset u64 | mark | data

All numbers are little-endian. BookKeeper has a checksum for each entry of its own. An entry whose last part is missing was
never confirmed, and is not there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import Corrupt
from ..limits import MIB
from .engine import Draft, Entry, Place

PART_BYTES = 4 * MIB
"""What is put into one entry of BookKeeper. Its servers take frames of 5 MiB, unless they are told otherwise."""
PARTS_MAX = 0xFFFF

_MAGIC = b"TSBK"
_VERSION = 1
_HEADER = struct.Struct("<4sBBHHQQ")
_ENTRY_BITS = 40


def place_of(number: int, entries: int) -> Place:
    """Behind so many entries of BookKeeper of the ledger of this number. So places rise with ledgers, and in them."""
    return number << _ENTRY_BITS | entries


def split_place(place: Place) -> tuple[int, int]:
    """The ledger, and how many of its entries lie before this place."""
    return place >> _ENTRY_BITS, place & ((1 << _ENTRY_BITS) - 1)


def split_draft(draft: Draft) -> list[tuple[bytes, memoryview]]:
    """The parts of a draft: for each what comes before its data, and the data."""
    data = memoryview(draft.data)
    pieces = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)] or [data]
    mark = draft.mark.encode()
    return [
        (
            _HEADER.pack(
                _MAGIC, _VERSION, len(mark), number, len(pieces), draft.ledger_id, draft.offset
            )
            + mark,
            piece,
        )
        for number, piece in enumerate(pieces, 1)
    ]


@dataclass(frozen=True, slots=True)
class Part:
    """An entry of BookKeeper. `at` is its id there."""

    at: int
    number: int
    count: int
    ledger_id: int
    offset: int
    mark: str
    data: bytes

    @property
    def first(self) -> int:
        """Where the first part is."""
        return self.at - self.number + 1

    @property
    def end(self) -> int:
        """Behind the last part."""
        return self.first + self.count

    @staticmethod
    def decode(at: int, data: memoryview, where: str) -> Part:
        """`Corrupt` if it is not ours: BookKeeper has seen to it that it is what was written."""
        if len(data) >= _HEADER.size:
            magic, version, length, number, count, ledger_id, offset = _HEADER.unpack_from(data)
            if magic == _MAGIC and version == _VERSION and 1 <= number <= count:
                begin = _HEADER.size + length
                mark = bytes(data[_HEADER.size : begin]).decode("ascii", "replace")
                return Part(at, number, count, ledger_id, offset, mark, bytes(data[begin:]))
        raise Corrupt(f"entry {at} of {where} is not ours: others must not write to it")


def whole_entries(parts: Sequence[Part]) -> list[Entry]:
    """The entries that these parts are, up to the first that is not whole. They follow on each other."""
    entries = []
    at = 0
    while at < len(parts) and at + parts[at].count <= len(parts):
        group = parts[at : at + parts[at].count]
        first = group[0]
        if [(it.mark, it.number, it.at) for it in group] != [
            (first.mark, n + 1, first.at + n) for n in range(first.count)
        ]:
            raise Corrupt(
                f"entries {first.at} to {group[-1].at} of ledger {first.ledger_id:x} are not one whole"
            )
        data = first.data if first.count == 1 else b"".join(it.data for it in group)
        entries.append(
            Entry(
                place_of(first.ledger_id, first.at),
                place_of(first.ledger_id, first.end),
                first.ledger_id,
                first.offset,
                first.mark,
                data,
            )
        )
        at += first.count
    return entries
