"""Item batches: what goes in comes out, in Python and in Arrow, and damage is found."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams.errors import BadRequest, Corrupt, TooLarge
from tstreams.items import HEADER_BYTES, Codec, Items, check, pack
from tstreams.limits import BATCH_ITEMS_MAX

batches = st.lists(st.binary(max_size=80), min_size=1, max_size=50)
codecs = st.sampled_from(Codec)


@given(batches, codecs)
def test_items_survive(items: list[bytes], codec: Codec) -> None:
    blob = pack(items, codec)
    read = Items(blob)
    assert check(blob) == len(read) == len(items)
    assert list(read) == items == read
    assert [read[n] for n in range(len(items))] == items
    assert [read[-n - 1] for n in range(len(items))] == items[::-1]
    assert read[1:3] == items[1:3]
    assert read.to_arrow().to_pylist() == items
    with pytest.raises(IndexError):
        read[len(items)]


@given(batches, codecs, st.data())
def test_one_flipped_bit_is_found(items: list[bytes], codec: Codec, data: st.DataObject) -> None:
    blob = bytearray(pack(items, codec))
    bit = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[bit // 8] ^= 1 << bit % 8
    for look in (check, Items):
        with pytest.raises((Corrupt, BadRequest)):
            look(blob)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    try:
        Items(data)
    except (Corrupt, BadRequest):
        return
    pytest.fail("random bytes with a right checksum")


@given(batches, st.integers(0, 200))
def test_a_shortened_batch_is_refused(items: list[bytes], cut: int) -> None:
    blob = pack(items)
    with pytest.raises(Corrupt):
        Items(blob[: max(0, len(blob) - 1 - cut)])


def test_what_can_be_packed() -> None:
    assert list(Items(pack(iter([bytearray(b"a"), memoryview(b"b")])))) == [b"a", b"b"]
    with pytest.raises(BadRequest, match="at least one"):
        pack([])
    with pytest.raises(TypeError, match="str"):
        pack([b"a", "b"])  # type: ignore[list-item]
    with pytest.raises(TooLarge, match="items"):
        pack([b""] * (BATCH_ITEMS_MAX + 1))


def test_compression_is_kept_only_where_it_helps() -> None:
    text = [b"the same words again and again"] * 100
    assert len(pack(text, Codec.LZ4)) < len(pack(text)) / 3
    assert len(pack(text, Codec.ZSTD)) < len(pack(text)) / 3
    assert len(pack([b"x"], Codec.ZSTD)) == len(pack([b"x"]))


def test_arrow_shares_the_memory_of_the_batch() -> None:
    blob = pack([bytes(1000)] * 1000)
    before = pa.total_allocated_bytes()
    column = Items(blob).to_arrow()
    assert pa.total_allocated_bytes() == before
    assert len(column) == 1000


def test_offsets_that_go_back_never_reach_arrow() -> None:
    """A producer that lies, with a right checksum."""
    from crc32c import crc32c

    blob = bytearray(pack([b"aaaa", b"bbbb", b"cccc"]))
    blob[HEADER_BYTES + 4 : HEADER_BYTES + 8] = (2**31 - 1).to_bytes(4, "little")
    blob[HEADER_BYTES - 4 : HEADER_BYTES] = crc32c(
        blob[HEADER_BYTES:], crc32c(blob[: HEADER_BYTES - 4])
    ).to_bytes(4, "little")
    read = Items(blob)
    assert len(list(read)) == 3
    with pytest.raises(pa.ArrowInvalid):
        read.to_arrow()
