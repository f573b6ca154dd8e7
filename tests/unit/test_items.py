"""Item batches: what goes in comes out, damage is found, and lies with a right checksum do no harm."""

from __future__ import annotations

import subprocess
import sys
from array import array
from collections.abc import Iterator

import lz4.block
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from tstreams.errors import BadRequest, Corrupt, TooLarge
from tstreams.items import (
    HEADER_BYTES,
    Codec,
    Items,
    Joiner,
    Kind,
    check,
    pack,
    pack_many,
    pack_pieces,
    read,
)
from tstreams.items.batch import BODY_BYTES_MAX, VERSION, seal
from tstreams.items.even import EVEN_ITEMS_MAX
from tstreams.limits import BATCH_ITEMS_MAX, FRAME_BYTES_MAX, ITEM_BYTES_MAX

batches = st.lists(st.binary(max_size=80), min_size=1, max_size=50)
codecs = st.sampled_from(Codec)
even_batches = st.tuples(st.integers(0, 40), st.integers(1, 60)).map(
    lambda shape: [bytes([n]) * shape[0] for n in range(shape[1])]
)


def forged(kind: int, codec: int, count: int, size: int, stored: bytes) -> bytes:
    """Any header, with a right checksum."""
    from crc32c import crc32c

    numbers = count.to_bytes(4, "little") + size.to_bytes(4, "little")
    head = bytes((VERSION, kind, codec, 0)) + numbers
    return head + crc32c(head + stored).to_bytes(4, "little") + stored


@given(batches | even_batches, codecs)
def test_items_survive(items: list[bytes], codec: Codec) -> None:
    blob = pack(items, codec)
    found = Items(blob)
    assert check(blob) == len(found) == len(items)
    assert list(found) == items == found
    assert [found[n] for n in range(len(items))] == items
    assert [found[-n - 1] for n in range(len(items))] == items[::-1]
    assert found[1:3] == items[1:3]
    assert list(Items(memoryview(b"." + blob)[1:])) == items
    with pytest.raises(IndexError):
        found[len(items)]


@given(batches, codecs, st.data())
def test_one_flipped_bit_is_found(items: list[bytes], codec: Codec, data: st.DataObject) -> None:
    blob = bytearray(pack(items, codec))
    bit = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[bit // 8] ^= 1 << bit % 8
    for look in (check, Items, Joiner().add):
        with pytest.raises(Corrupt):
            look(blob)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        Items(data)


@given(batches, st.integers(0, 200))
def test_a_shortened_batch_is_refused(items: list[bytes], cut: int) -> None:
    blob = pack(items)
    with pytest.raises(Corrupt):
        Items(blob[: max(0, len(blob) - 1 - cut)])


def test_what_can_be_packed() -> None:
    views: list[bytearray | memoryview] = [bytearray(b"a"), memoryview(b"b")]
    assert list(Items(pack(iter(views)))) == [b"a", b"b"]
    numbers = array("h", [1, 2])
    backwards = memoryview(b"abc")[::-1]
    assert list(Items(pack([b"a", memoryview(numbers)]))) == [b"a", numbers.tobytes()]
    assert list(Items(pack([backwards, b"a"]))) == [b"cba", b"a"]
    (packed,) = pack_many(iter([memoryview(numbers), backwards]))
    assert list(Items(packed)) == [numbers.tobytes(), b"cba"]
    with pytest.raises(BadRequest, match="at least one"):
        pack([])
    with pytest.raises(TooLarge, match="items"):
        pack([b""] * (BATCH_ITEMS_MAX + 1))
    with pytest.raises(TooLarge, match="bytes"):
        pack([bytes(FRAME_BYTES_MAX // 4)] * 4)
    with pytest.raises(TooLarge, match="bytes"):
        pack([bytes(FRAME_BYTES_MAX)])


def test_items_are_equal_to_any_sequence_of_the_same() -> None:
    items = Items(pack([b"a", b"bc"]))
    assert items == [b"a", b"bc"]
    assert items == (b"a", b"bc")
    assert items == Items(pack([b"a", b"bc"], Codec.ZSTD))
    for other in ([b"a"], [b"a", b"cb"], Items(pack([b"a", b"b"])), b"abc", "abc", 7, None):
        assert items != other
    assert repr(items) == "<2 items, 15 bytes>"
    assert items.nbytes == 15 == 3 * 4 + 3


def test_items_that_only_look_as_if_they_had_one_size() -> None:
    items = [b"12", b"3", b"456"]  # the first, times their number, is all of them together
    assert list(Items(pack(items))) == items


@pytest.mark.parametrize("wrong", ["text", 7, None, [b"a"]])
def test_what_is_not_an_item(wrong: object) -> None:
    for items in ([wrong], [b"a", wrong]):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            pack(items)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=type(wrong).__name__):
            list(pack_many(iter(items)))


def test_compression_is_kept_only_where_it_helps() -> None:
    text = [b"the same words again and again"] * 100
    assert len(pack(text, Codec.LZ4)) < len(pack(text)) / 3
    assert len(pack(text, Codec.ZSTD)) < len(pack(text)) / 3
    assert len(pack([b"x"], Codec.ZSTD)) == len(pack([b"x"]))


def test_many_items_of_one_size() -> None:
    items = [b"%04d" % (n % 10_000) for n in range(EVEN_ITEMS_MAX + 1)]
    assert list(Items(pack(items))) == items
    assert list(Items(pack(items[:-1]))) == items[:-1]


# Many batches.


@given(
    st.lists(st.binary(max_size=150) | st.just(b"z" * 1000), max_size=40),
    codecs,
    st.integers(40, 400),
    st.sampled_from([list, tuple, iter]),
)
def test_many_batches_hold_the_same_items(
    items: list[bytes], codec: Codec, bytes_max: int, form: type
) -> None:
    blobs = list(pack_many(form(items), codec, bytes_max=bytes_max))
    assert all(len(blob) <= bytes_max for blob in blobs)
    assert sum(check(blob) for blob in blobs) == len(items)
    assert [item for part in read(blobs) for item in part] == items


def test_what_fits_is_one_batch() -> None:
    assert list(pack_many([b"a", b"b"])) == [pack([b"a", b"b"])]
    assert list(pack_many([])) == list(pack_many(iter([]))) == []
    room = FRAME_BYTES_MAX - HEADER_BYTES - 8
    assert [len(blob) for blob in pack_many([bytes(room)])] == [FRAME_BYTES_MAX]
    whole_in_a_piece, over = bytes(room + 8), bytes(room + 9)
    assert [check(blob) for blob in pack_many([whole_in_a_piece])] == [1]
    assert [check(blob) for blob in pack_many([over])] == [0, 1]


def test_a_batch_takes_a_million_items() -> None:
    blobs = list(pack_many([b""] * (BATCH_ITEMS_MAX + 1)))
    assert [check(blob) for blob in blobs] == [BATCH_ITEMS_MAX, 1]


def test_an_endless_producer_is_cut_into_frames() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(1_000_000)

    blobs = pack_many(endless())
    assert [check(next(blobs)) for _ in range(2)] == [16, 16]


# Pieces.


@given(st.binary(min_size=1, max_size=500), codecs, st.integers(HEADER_BYTES + 1, 200))
def test_pieces_become_the_item_again(item: bytes, codec: Codec, bytes_max: int) -> None:
    blobs = list(pack_pieces(item, codec, bytes_max=bytes_max))
    assert all(len(blob) <= bytes_max for blob in blobs)
    assert [check(blob) for blob in blobs] == [0] * (len(blobs) - 1) + [1]
    joiner = Joiner()
    assert [joiner.add(blob) for blob in blobs[:-1]] == [None] * (len(blobs) - 1)
    assert joiner.pending == (len(blobs) > 1)
    assert joiner.add(blobs[-1]) == [item]
    assert not joiner.pending
    joiner.finish()


def test_pieces_that_are_broken_off() -> None:
    first, last = pack_pieces(b"abcd", bytes_max=HEADER_BYTES + 2)
    with pytest.raises(Corrupt, match="2 bytes"):
        list(read([first]))
    with pytest.raises(Corrupt, match="between"):
        list(read([first, pack([b"x"]), last]))
    assert [list(part) for part in read([pack([b"x"]), first, last])] == [[b"x"], [b"abcd"]]
    with pytest.raises(BadRequest, match="Joiner"):
        Items(first)


def test_the_largest_item() -> None:
    item = bytes(ITEM_BYTES_MAX - 1) + b"!"
    blobs = list(pack_many([item]))
    assert max(map(len, blobs)) == FRAME_BYTES_MAX
    ((joined,),) = read(blobs)
    assert joined == item
    for too_large in ([item + b"."], iter([item + b"."])):
        with pytest.raises(TooLarge, match="item"):
            list(pack_many(too_large))
    with pytest.raises(BadRequest, match="empty"):
        pack_pieces(b"")


def test_pieces_without_end_are_not_held() -> None:
    endless = seal(Kind.PIECE, Codec.LZ4, 0, bytes(BODY_BYTES_MAX))
    joiner = Joiner()
    for _ in range(4):
        assert joiner.add(endless) is None
    with pytest.raises(TooLarge, match="pieces"):
        joiner.add(endless)


# Lies with a right checksum.


@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 3) | st.integers(0, 2**32 - 1),
    st.integers(0, 40) | st.integers(0, 2**32 - 1),
    st.binary(max_size=60),
)
@example(2, 0, 2, 1, b"x")
@example(2, 0, 0, 0, b"")
def test_a_forged_header_is_refused_or_harmless(
    kind: int, codec: int, count: int, size: int, stored: bytes
) -> None:
    blob = forged(kind, codec, count, size, stored)
    try:
        checked = check(blob)
    except BadRequest:
        for look in (Items, Joiner().add):
            with pytest.raises(BadRequest):
                look(blob)
        return
    assert checked == count
    assert (0 if kind == Kind.PIECE.value else 1) <= count <= BATCH_ITEMS_MAX
    try:
        items = Joiner().add(blob)
        assert items is None or items.kind is Kind.ARROW or len(list(items)) == count
    except Corrupt:
        assert codec or kind == Kind.BYTES.value


@given(batches, st.data())
def test_forged_offsets_are_corrupt_or_harmless(items: list[bytes], data: st.DataObject) -> None:
    size = 4 * (len(items) + 1)
    body = bytearray(pack(items)[HEADER_BYTES:])
    at = data.draw(st.integers(0, len(items))) * 4
    offset = data.draw(st.integers(-3, 100) | st.integers(-(2**31), 2**31 - 1))
    body[at : at + 4] = offset.to_bytes(4, "little", signed=True)
    blob = forged(0, 0, len(items), len(body), bytes(body))
    try:
        found = list(Items(blob))
    except Corrupt:
        return
    assert b"".join(found) == body[size:]


def test_offsets_that_go_back_are_corrupt() -> None:
    body = bytearray(pack([b"aaaa", b"bbbb", b"cccc"])[HEADER_BYTES:])
    body[4:8] = (2**31 - 1).to_bytes(4, "little")
    items = Items(forged(0, 0, 3, len(body), bytes(body)))
    for look in (
        list,
        lambda items: items[0],
        lambda items: items[1],
        lambda items: items.to_arrow(),
    ):
        with pytest.raises(Corrupt):
            look(items)
    assert items[2] == b"cccc"


@pytest.mark.parametrize(
    ("kind", "codec", "count", "size", "stored"),
    [
        (Kind.BYTES, Codec.NONE, 0, 8, bytes(8)),
        (Kind.ARROW, Codec.NONE, 0, 8, bytes(8)),
        (Kind.BYTES, Codec.NONE, BATCH_ITEMS_MAX + 1, 8, bytes(8)),
        (Kind.PIECE, Codec.NONE, 2, 8, bytes(8)),
        (Kind.PIECE, Codec.NONE, 0, 0, b""),
        (Kind.BYTES, Codec.NONE, 1, 9, bytes(8)),
        (Kind.BYTES, Codec.LZ4, 1, BODY_BYTES_MAX + 1, bytes(8)),
        (Kind.BYTES, Codec.ZSTD, 1, 8, bytes(8)),
    ],
    ids=lambda value: value.name if isinstance(value, Kind | Codec) else "",
)
def test_a_header_out_of_bounds(
    kind: Kind, codec: Codec, count: int, size: int, stored: bytes
) -> None:
    with pytest.raises(BadRequest, match="out of bounds"):
        check(forged(kind.value, codec.value, count, size, stored))


def test_a_batch_larger_than_a_frame() -> None:
    blob = forged(Kind.PIECE.value, 0, 1, BODY_BYTES_MAX + 1, bytes(BODY_BYTES_MAX + 1))
    with pytest.raises(TooLarge, match="over the limit"):
        check(blob)


BODY = bytes(4) + (100_000).to_bytes(4, "little") + bytes(100_000)


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        (Codec.LZ4, lz4.block.compress(bytes(2**24), store_size=False)),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(2**24))),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(2**24))),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(BODY) + b"more"),
        (Codec.LZ4, lz4.block.compress(BODY[:-1], store_size=False)),
        (Codec.LZ4, b"\xff" * 100),
        (Codec.ZSTD, b"\xff" * 100),
    ],
    ids=["lz4", "zstd", "zstd of unknown size", "zstd and more", "short lz4", "no lz4", "no zstd"],
)
def test_a_body_that_is_not_what_its_header_says(codec: Codec, stored: bytes) -> None:
    blob = forged(Kind.BYTES.value, codec.value, 1, len(BODY), stored)
    assert check(blob) == 1
    assert Items(forged(Kind.BYTES.value, Codec.NONE.value, 1, len(BODY), BODY)) == [bytes(100_000)]
    with pytest.raises(Corrupt):
        Items(blob)
    piece = forged(Kind.PIECE.value, codec.value, 1, len(BODY), stored)
    with pytest.raises(Corrupt):
        Joiner().add(piece)  # any bytes are a piece, so their number is all there is to see


def test_a_zstandard_frame_that_declares_a_terabyte_is_not_believed() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(2**20)))
    huge = bytes(frame[:4]) + b"\xe0" + (2**40).to_bytes(8, "little") + bytes(frame[-20:])
    assert zstandard.frame_content_size(huge) == 2**40
    with pytest.raises(Corrupt, match="1099511627776"):
        Items(forged(Kind.BYTES.value, Codec.ZSTD.value, 1, 1000, huge))


def test_bytes_need_no_pyarrow() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from tstreams.items import Items, check, pack, pack_many, read
[blob] = pack_many(iter([b"a"]))
assert check(blob) == 1 and list(Items(blob)) == [b"a"] and [*read([blob])] == [[b"a"]]
try:
    Items(blob).to_arrow()
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "tstreams[arrow]" in done.stdout
