"""Items that are larger than a batch: cut into pieces by the producer, joined by the reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from ..errors import BadRequest, Corrupt, TooLarge
from ..limits import FRAME_BYTES_MAX, ITEM_BYTES_MAX
from .batch import HEADER_BYTES, Kind, seal, unseal
from .codec import Buffer, Codec
from .sequence import Items

_OFFSETS = Struct("<ii")


def pack_pieces(
    item: Buffer, codec: Codec = Codec.NONE, *, bytes_max: int = FRAME_BYTES_MAX
) -> Iterator[bytes]:
    """Cut one item into batches of at most `bytes_max`. `TooLarge` over `ITEM_BYTES_MAX`."""
    view = memoryview(item).cast("B")
    size = len(view)
    if size == 0:
        raise BadRequest("an empty item cannot be cut into pieces")
    if size > ITEM_BYTES_MAX:
        raise TooLarge(
            f"an item of {size} bytes is over the limit of {ITEM_BYTES_MAX}: "
            "put it into an object store, and its address into the item"
        )
    step = bytes_max - HEADER_BYTES
    return (
        seal(Kind.PIECE, codec, int(start + step >= size), view[start : start + step])
        for start in range(0, size, step)
    )


class Joiner:
    """Reads the batches of a transaction in their order, and holds pieces until their item is complete.

    It holds one item at most, so never more than `ITEM_BYTES_MAX`.
    """

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[Buffer] = []
        self._size = 0

    @property
    def pending(self) -> bool:
        """An item has begun and is not complete."""
        return bool(self._pieces)

    def add(self, blob: Buffer) -> Items | None:
        """The items that this batch completes; None if it is a piece that others must follow.

        `Corrupt` if the batch is damaged or comes between the pieces of an item, `BadRequest` if it makes
        no sense, `TooLarge` if the pieces grow over the limit of an item.
        """
        kind, count, body = unseal(blob)
        if kind is not Kind.PIECE:
            if self._pieces:
                raise Corrupt(f"a batch of {count} items comes between the pieces of an item")
            return Items.of_body(kind, count, body)
        self._size += len(body)
        if self._size > ITEM_BYTES_MAX:
            raise TooLarge(f"the pieces of an item are over the limit of {ITEM_BYTES_MAX} bytes")
        self._pieces.append(body)
        if count == 0:
            return None
        whole = b"".join((_OFFSETS.pack(0, self._size), *self._pieces))
        self._pieces.clear()
        self._size = 0
        return Items.of_body(Kind.BYTES, 1, memoryview(whole))

    def finish(self) -> None:
        """Nothing follows. `Corrupt` if an item lacks its last piece."""
        if self._pieces:
            raise Corrupt(f"an item ends after {self._size} bytes, without its last piece")


def read(blobs: Iterable[Buffer]) -> Iterator[Items]:
    """The items of a whole transaction, batch by batch; an item that came in pieces is one of its own."""
    joiner = Joiner()
    for blob in blobs:
        items = joiner.add(blob)
        if items is not None:
            yield items
    joiner.finish()
