"""A key for each item of every stream, for stores without transactions.

The key says where the item stands, which never changes: whoever stores the item again stores it in the same
place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Protocol

from ..errors import BadRequest, Error
from ..limits import BATCH_ITEMS_MAX, PARTITIONS_MAX, TRANSACTION_BATCHES_MAX
from ..model import ID_MAX, check_name

_INDEX_MAX = BATCH_ITEMS_MAX * TRANSACTION_BATCHES_MAX
_TEXT = "{}:{:05d}:{:019d}:{:011d}"
_NUMBERS = struct.Struct(">HQQ")


class Numbered(Protocol):
    """What has items, and a place in a stream: a transaction that was read."""

    @property
    def stream(self) -> str:
        """The name of its stream."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def id(self) -> int:
        """Its id."""

    @property
    def items(self) -> Iterable[bytes]:
        """Its items."""


@dataclass(frozen=True, order=True, slots=True)
class ItemKey:
    """Where an item stands: its stream, partition, transaction, and its number in that.

    `str(key)` and `bytes(key)` sort as the keys do, inside a stream; the bytes also among streams. Both
    can be parsed back.
    """

    stream: str
    partition: int
    transaction_id: int
    index: int
    """Of the item in the transaction, from 0 on."""

    @classmethod
    def parse(cls, key: str | bytes) -> ItemKey:
        """The key that was written as text or as bytes. `BadRequest` if it was none."""
        try:
            if isinstance(key, str):
                stream, *numbers = key.rsplit(":", 3)
                made = cls(stream, *map(int, numbers))
            else:
                name, numbers_packed = key[: -_NUMBERS.size - 1], key[-_NUMBERS.size :]
                made = cls(bytes(name).decode(), *_NUMBERS.unpack(numbers_packed))
            is_good = (str(made) if isinstance(key, str) else bytes(made)) == key
        except (ValueError, TypeError, struct.error, Error):
            is_good = False
        if not is_good:
            raise BadRequest(f"this is no key of an item: {key!r}")
        return made

    def __str__(self) -> str:
        """Such as `clicks:00003:0173167891234500007:00000000042`."""
        self._check()
        return _TEXT.format(*astuple(self))

    def __bytes__(self) -> bytes:
        """The name, a zero byte, and the numbers in 2, 8 and 8 bytes, big-endian."""
        self._check()
        return (
            self.stream.encode()
            + b"\0"
            + _NUMBERS.pack(self.partition, self.transaction_id, self.index)
        )

    def _check(self) -> None:
        check_name(self.stream)
        for number, limit in (
            (self.partition, PARTITIONS_MAX - 1),
            (self.transaction_id, ID_MAX),
            (self.index, _INDEX_MAX),
        ):
            if not isinstance(number, int) or not 0 <= number <= limit:
                raise BadRequest(f"{self!r} has a number that is out of bounds: {number!r}")


def keyed_items(transaction: Numbered) -> Iterator[tuple[ItemKey, bytes]]:
    """The items of a transaction, each with its key."""
    stream, partition, transaction_id = transaction.stream, transaction.partition, transaction.id
    for index, item in enumerate(transaction.items):
        yield ItemKey(stream, partition, transaction_id, index), item
