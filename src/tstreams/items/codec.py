"""How the body of a batch is compressed. Decompression is bounded by the size that the header declares."""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from ..errors import Corrupt

if TYPE_CHECKING:
    import zstandard

Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(IntEnum):
    """How the body is compressed."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


CODECS = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}

_MOST = {
    Codec.LZ4: lambda stored: 255 * stored + 64,
    Codec.ZSTD: lambda stored: 128 * 1024 * (stored // 4 + 1),
}
"""The most that so many bytes can become: a length is 255 a byte, a block of 128 KiB takes four. What claims
to be more is refused before anything is allocated."""

_ZSTD_LEVEL = 1  # above it the ratio grows by a tenth, and the time doubles


class _Contexts(threading.local):
    """Zstandard's working memory: costly to make, and for one thread at a time."""

    compressor: zstandard.ZstdCompressor | None = None
    decompressor: zstandard.ZstdDecompressor | None = None


_contexts = _Contexts()


def compress(codec: Codec, body: Buffer) -> Buffer:
    """The body as it is stored, with a codec that is not NONE."""
    if codec is Codec.LZ4:
        import lz4.block

        return lz4.block.compress(body, store_size=False)  # type: ignore[no-any-return]
    compressor = _contexts.compressor
    if compressor is None:
        import zstandard

        compressor = _contexts.compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
    return compressor.compress(body)


def decompress(codec: Codec, stored: Buffer, size: int) -> Buffer:
    """The body of `size` bytes, from a codec that is not NONE. `Corrupt` if it is anything else; no more than
    `size` is ever allocated."""
    most = _MOST.get(codec)
    if most is not None and size > most(len(stored)):
        raise Corrupt(f"an item batch of {size} bytes cannot be stored in {len(stored)}")
    try:
        if codec is Codec.LZ4:
            import lz4.block

            body: Buffer = lz4.block.decompress(stored, uncompressed_size=size)
        else:
            body = _decompress_zstd(stored, size)
    except Corrupt:
        raise
    except Exception as error:
        raise Corrupt(f"an item batch of {size} bytes cannot be decompressed: {error}") from None
    if len(body) != size:
        raise Corrupt(f"an item batch has {len(body)} bytes, its header says {size}")
    return body


def _decompress_zstd(stored: Buffer, size: int) -> bytes:
    import zstandard

    # The library allocates what the frame itself declares, whatever limit it is given.
    declared = zstandard.frame_content_size(stored)
    if declared != size:
        raise Corrupt(f"a zstandard frame of {declared} bytes in an item batch of {size}")
    decompressor = _contexts.decompressor
    if decompressor is None:
        decompressor = _contexts.decompressor = zstandard.ZstdDecompressor()
    return decompressor.decompress(stored, max_output_size=size, allow_extra_data=False)
