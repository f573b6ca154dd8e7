"""Headers in item batches: what goes in comes out, batches without them are as they were, and lies do no harm."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from tstreams.errors import BadRequest, Corrupt, TooLarge
from tstreams.items import (
    HEADER_BYTES,
    SECTION_OVERHEAD_BYTES,
    Codec,
    Items,
    Joiner,
    Kind,
    check,
    completed_by,
    headed,
    headers_of,
    opened,
    pack,
    pack_arrow,
    pack_headers,
    pack_pieces,
    read,
)
from tstreams.items.batch import VERSION
from tstreams.limits import FRAME_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, NAME_BYTES_MAX

names = st.text(min_size=1, max_size=20)
headers = st.dictionaries(names, st.binary(max_size=50), max_size=10)
some_headers = st.dictionaries(names, st.binary(max_size=50), min_size=1, max_size=10)
batches = st.lists(st.binary(max_size=80), min_size=1, max_size=50)
codecs = st.sampled_from(Codec)


def with_headers(blob: bytes, given: dict[str, bytes]) -> bytes:
    return headed(blob, pack_headers(given))


def forged(section: bytes, body: bytes, size: int | None = None, form: int = 1 << 24) -> bytes:
    """A batch of one item with this section, whatever it says its size is, and a right checksum."""
    head = struct.pack("<III", VERSION | form, 1, len(body))
    rest = struct.pack("<I", len(section) if size is None else size) + section + body
    return head + crc32c(head + rest).to_bytes(4, "little") + rest


ONE = pack([b"item"])
BODY = ONE[HEADER_BYTES:]


@given(batches, some_headers, codecs)
def test_headers_and_items_survive(
    items: list[bytes], given: dict[str, bytes], codec: Codec
) -> None:
    plain = pack(items, codec)
    blob = with_headers(plain, given)
    assert headers_of(blob) == given
    assert list(Items(blob)) == items == list(Items(memoryview(b"." + blob)[1:]))
    assert Items(blob).to_arrow().to_pylist() == items
    assert check(blob) == completed_by(blob) == len(items)
    assert opened(blob)[:4] == opened(plain)[:4]
    assert bytes(opened(blob)[4]) == plain[HEADER_BYTES:]
    assert len(blob) == len(plain) + SECTION_OVERHEAD_BYTES + len(pack_headers(given))


@given(batches, codecs)
def test_a_batch_without_headers_has_none(items: list[bytes], codec: Codec) -> None:
    blob = pack(items, codec)
    assert blob[3] == 0
    assert headers_of(blob) == {}


def test_batches_without_headers_are_as_they_always_were() -> None:
    """To the byte: whatever was written before there were headers is read, and nothing else is written."""
    assert pack([b"ab", b"", b"c"]) == bytes.fromhex(
        "010000000300000013000000dd72c15400000000020000000200000003000000616263"
    )
    compressed = "01000100010000006c0000009fd63abe9f00000000640000007801004b507878787878"
    assert list(Items(bytes.fromhex(compressed))) == [b"x" * 100]


@given(batches, some_headers, codecs, st.data())
def test_one_flipped_bit_is_found(
    items: list[bytes], given: dict[str, bytes], codec: Codec, data: st.DataObject
) -> None:
    blob = bytearray(with_headers(pack(items, codec), given))
    bit = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[bit // 8] ^= 1 << bit % 8
    for look in (check, Items, Joiner().add, headers_of):
        with pytest.raises(Corrupt):
            look(blob)


def test_every_kind_of_batch_can_have_them() -> None:
    given = {"a": b"1"}
    rows = pa.record_batch({"n": [1, 2, 3]})
    items = Items(with_headers(pack_arrow(rows), given))
    assert items.to_arrow(rows.schema).equals(rows)
    first, *others = pack_pieces(b"long" * 100, bytes_max=100)
    first = with_headers(first, given)
    assert headers_of(first) == given
    assert check(first) == 0
    assert [list(it) for it in read([first, *others])] == [[b"long" * 100]]
    last = with_headers(others[-1], given)
    assert opened(last)[0] is Kind.PIECE
    assert check(last) == 1


def test_headers_have_limits() -> None:
    assert pack_headers({}) == b""
    longest = "n" * NAME_BYTES_MAX
    assert headers_of(with_headers(ONE, {longest: b""})) == {longest: b""}
    most = {str(n): b"" for n in range(HEADERS_MAX)}
    assert headers_of(with_headers(ONE, most)) == most
    largest = {"a": bytes(HEADERS_BYTES_MAX - 4)}
    assert headers_of(with_headers(ONE, largest)) == largest
    views: dict[str, Any] = {"a": bytearray(b"1"), "b": memoryview(b"123")[::2]}
    assert headers_of(with_headers(ONE, views)) == {"a": b"1", "b": b"13"}
    with pytest.raises(TooLarge, match="65 headers"):
        pack_headers({str(n): b"" for n in range(HEADERS_MAX + 1)})
    for too_large in (HEADERS_BYTES_MAX - 3, 2**16):
        with pytest.raises(TooLarge, match="bytes are over the limit"):
            pack_headers({"a": bytes(too_large)})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"a": "text"}, TypeError),
        ({"a": 7}, TypeError),
        ({b"a": b"1"}, TypeError),
        ([("a", b"1")], TypeError),
        ({"": b"1"}, BadRequest),
        ({"é" * 128: b"1"}, BadRequest),
        ({"\ud800": b"1"}, BadRequest),
    ],
)
def test_what_is_no_header(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="header"):
        pack_headers(given)


def test_headers_need_room_in_a_batch() -> None:
    section = pack_headers({"a": b"1"})
    full = FRAME_BYTES_MAX - SECTION_OVERHEAD_BYTES - len(section)
    (piece,) = pack_pieces(bytes(full - HEADER_BYTES), bytes_max=full)
    assert len(headed(piece, section)) == FRAME_BYTES_MAX
    (piece,) = pack_pieces(bytes(full - HEADER_BYTES + 1))
    with pytest.raises(TooLarge, match="over the limit"):
        headed(piece, section)


# Lies with a right checksum.


@given(st.binary(max_size=80))
@example(b"\x01\x00\x00a\x01\x00\x00a")
@example(b"\x00\x01\x00a")
@example(b"\x01\x00\x00\xff")
@example(b"\x01\x00")
@example(b"\x01\xff\x00a")
def test_any_section_is_read_or_corrupt(section: bytes) -> None:
    blob = forged(section, BODY)
    if not section:
        with pytest.raises(BadRequest, match="out of bounds"):
            check(blob)
        return
    assert check(blob) == 1
    assert list(Items(blob)) == [b"item"]
    try:
        found = headers_of(blob)
    except Corrupt:
        return
    assert pack_headers(found) == section


@given(st.integers(0, 40) | st.integers(0, 2**32 - 1))
def test_a_section_is_as_long_as_it_says_or_refused(size: int) -> None:
    section = pack_headers({"a": b"1"})
    blob = forged(section, BODY, size)
    if size == len(section):
        assert list(Items(blob)) == [b"item"]
        return
    for look in (check, Items, headers_of):
        with pytest.raises(BadRequest, match="out of bounds"):
            look(blob)


@pytest.mark.parametrize("flags", [2, 3, 4, 128, 255])
def test_other_flags_are_refused(flags: int) -> None:
    with pytest.raises(BadRequest, match=f"flags {flags} is not known"):
        check(forged(pack_headers({"a": b"1"}), BODY, form=flags << 24))


def test_too_many_headers_are_corrupt() -> None:
    section = b"".join(struct.pack("<BH", 2, 0) + b"%02d" % n for n in range(HEADERS_MAX + 1))
    with pytest.raises(Corrupt, match="too many"):
        headers_of(forged(section, BODY))


def test_a_batch_that_ends_within_its_section() -> None:
    head = struct.pack("<III", VERSION | 1 << 24, 1, 1)
    for rest in (b"", b"\x01\x00\x00", b"\x04\x00\x00\x00abc"):
        blob = head + crc32c(head + rest).to_bytes(4, "little") + rest
        with pytest.raises(BadRequest, match="out of bounds"):
            check(blob)
