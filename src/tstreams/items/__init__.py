"""Item batches: how the items of a transaction lie on the wire, in the ledger, and in Arrow.

    pack(items), pack_many(items or Arrow data)     make batches
    pack_headers(mapping), headed(batch, headers)   what a transaction says of itself, in its first batch
    check(batch), opened(batch)                     what a server does: header and checksum
    Items(batch), Joiner, read(batches), to_table() what a reader does
    headers_of(batch)                               the same, of the headers

`batch.py` describes the bytes. pyarrow is imported only by what is asked to make or take Arrow data.
"""

from __future__ import annotations

from .arrow import pack_arrow, pack_column, to_table
from .batch import (
    HEADER_BYTES,
    SECTION_OVERHEAD_BYTES,
    Kind,
    check,
    completed_by,
    headed,
    opened,
)
from .codec import CODECS, Buffer, Codec
from .headers import headers_of, pack_headers
from .packing import pack, pack_many
from .pieces import Joiner, pack_pieces, read
from .schemas import grown, pack_schema, read_schema
from .sequence import Items

__all__ = [
    "CODECS",
    "HEADER_BYTES",
    "SECTION_OVERHEAD_BYTES",
    "Buffer",
    "Codec",
    "Items",
    "Joiner",
    "Kind",
    "check",
    "completed_by",
    "grown",
    "headed",
    "headers_of",
    "opened",
    "pack",
    "pack_arrow",
    "pack_column",
    "pack_headers",
    "pack_many",
    "pack_pieces",
    "pack_schema",
    "read",
    "read_schema",
    "to_table",
]
