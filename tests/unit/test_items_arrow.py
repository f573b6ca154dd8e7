"""Arrow data in batches: columns of items, rows with a schema, and bytes that only look like them."""

from __future__ import annotations

import struct
import sys
from mmap import mmap
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams.errors import BadRequest, Corrupt, TooLarge
from tstreams.items import (
    HEADER_BYTES,
    Codec,
    Items,
    Kind,
    check,
    grown,
    pack,
    pack_arrow,
    pack_column,
    pack_many,
    pack_pieces,
    pack_schema,
    read,
    read_schema,
    to_table,
)
from tstreams.items.batch import seal
from tstreams.limits import BATCH_ITEMS_MAX, FRAME_BYTES_MAX

codecs = st.sampled_from(Codec)
texts = st.lists(st.text(max_size=30) | st.just("z" * 300), max_size=40)
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.float64())]))),
        ("on", pa.bool_()),
        ("view", pa.string_view()),
        ("map", pa.map_(pa.string(), pa.int32())),
    ]
)
tags = st.lists(
    st.fixed_dictionaries({"k": st.text(max_size=5), "v": st.none() | st.floats(allow_nan=False)}),
    max_size=3,
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "name": st.none() | st.text(max_size=20),
            "tags": st.none() | tags,
            "on": st.none() | st.booleans(),
            "view": st.none() | st.text(max_size=20),
            "map": st.none()
            | st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9)), max_size=2),
        }
    ),
    min_size=1,
    max_size=20,
)


def items_of(blobs: list[bytes]) -> list[bytes]:
    return [item for part in read(blobs) for item in part]


# Columns of items.


@given(texts, codecs, st.sampled_from(TEXT_TYPES + BINARY_TYPES), st.data())
def test_a_column_becomes_items(
    values: list[str], codec: Codec, kind: pa.DataType, data: st.DataObject
) -> None:
    held = [value.encode() for value in values] if kind in BINARY_TYPES else values
    start = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(start, len(values)))
    column = pa.array(held, kind).slice(start, end - start)
    bytes_max = data.draw(st.sampled_from([64, 200, FRAME_BYTES_MAX]))
    blobs = list(pack_many(column, codec, bytes_max=bytes_max))
    assert all(len(blob) <= bytes_max for blob in blobs)
    assert items_of(blobs) == [value.encode() for value in values[start:end]]
    assert to_table(read(blobs))["item"].to_pylist() == items_of(blobs)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), codecs)
def test_arrow_and_python_make_the_same_batch(items: list[bytes], codec: Codec) -> None:
    assert list(pack_many(pa.array(items, pa.binary()), codec)) == [pack(items, codec)]
    assert list(pack_many(pa.array([b"x", *items, b"y"])[1:-1], codec)) == [pack(items, codec)]


def test_every_form_of_one_column() -> None:
    expected = [b"a", b"", b"ccc"]
    column = pa.array(expected, pa.binary())
    chunked = pa.chunked_array([column.slice(0, 1), column.slice(1, 0), column.slice(1)])
    table = pa.table({"anything": chunked})
    for data in (column, chunked, table, table.to_batches()[0], table.to_reader(), Foreign(table)):
        packed = items_of(list(pack_many(data)))
        assert packed == (expected[:1] if isinstance(data, pa.RecordBatch) else expected)
    assert items_of(list(pack_many(Foreign(chunked)))) == expected
    assert items_of(list(pack_many(ForeignArray(column)))) == expected
    assert items_of(list(pack_many(pa.array([b"ab", b"cd"], pa.binary(2))))) == [b"ab", b"cd"]


class Foreign:
    """What another library shows of its data."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_stream__(requested_schema)


class ForeignArray:
    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_array__(requested_schema)


def test_many_small_chunks_are_one_batch() -> None:
    chunks = [pa.array([b"%d" % n]) for n in range(100)]
    assert len(list(pack_many(pa.chunked_array(chunks)))) == 1
    table = pa.table({"n": pa.chunked_array([[n] for n in range(100)])})
    assert [check(blob) for blob in pack_many(table, schema=table.schema)] == [100]


def test_a_column_over_the_limits_is_split() -> None:
    nothing = pa.array([b""]).take(pa.array([0] * (BATCH_ITEMS_MAX + 1)))
    assert [check(blob) for blob in pack_column(nothing)] == [BATCH_ITEMS_MAX, 1]
    big = pa.array([b"a", bytes(FRAME_BYTES_MAX), b"b"], pa.large_binary())
    assert [check(blob) for blob in pack_many(big)] == [1, 0, 1, 1]


def test_offsets_beyond_four_bytes() -> None:
    data = pa.py_buffer(mmap(-1, 2**31 + 8))  # takes no memory where it is not touched
    offsets = pa.array([2**31, 2**31 + 3, 2**31 + 8], pa.int64()).buffers()[1]
    column = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, data])
    assert items_of(list(pack_many(column))) == [bytes(3), bytes(5)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pa.array([b"a", None]), "1 of 2 items are null"),
        (pa.array([1, 2]), "int64"),
        (pa.table({"a": [b"x"], "b": [b"y"]}), "2 columns"),
        (pa.array(["a"]).dictionary_encode(), "dictionary"),
    ],
    ids=["null", "numbers", "two columns", "dictionary"],
)
def test_what_is_no_column_of_items(data: object, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        list(pack_many(data))


def test_a_null_outside_of_the_slice_does_no_harm() -> None:
    assert items_of(list(pack_many(pa.array([None, b"a", b"b"])[1:]))) == [b"a", b"b"]


def test_reading_shares_the_memory_of_the_batch() -> None:
    blob = pack([bytes(1000)] * 1000)
    rows_blob = pack_arrow(pa.record_batch({"n": list(range(10_000))}))
    before = pa.total_allocated_bytes()
    column = Items(blob).to_arrow()
    batch = Items(rows_blob).to_arrow(pa.schema([("n", pa.int64())]))
    assert pa.total_allocated_bytes() == before
    assert (len(column), len(batch)) == (1000, 10_000)


def test_a_joined_item_in_arrow() -> None:
    table = to_table(read([pack([b"x"]), *pack_pieces(b"abc", bytes_max=HEADER_BYTES + 1)]))
    assert table.to_pydict() == {"item": [b"x", b"abc"]}
    assert to_table([]).to_pydict() == {"item": []}


# Rows.


@given(rows, codecs, st.integers(1200, 6000))
def test_rows_survive(values: list[dict[str, Any]], codec: Codec, bytes_max: int) -> None:
    table = pa.Table.from_pylist(values, SCHEMA)
    blobs = list(pack_many(table, codec, schema=SCHEMA, bytes_max=bytes_max))
    assert all(len(blob) <= bytes_max for blob in blobs)
    assert sum(check(blob) for blob in blobs) == len(values)
    assert to_table(read(blobs), read_schema(pack_schema(SCHEMA))).equals(table)


@given(rows, codecs, st.data())
def test_one_flipped_bit_is_found(
    values: list[dict[str, Any]], codec: Codec, data: st.DataObject
) -> None:
    blob = bytearray(pack_arrow(pa.RecordBatch.from_pylist(values, SCHEMA), codec))
    bit = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[bit // 8] ^= 1 << bit % 8
    for look in (check, Items):
        with pytest.raises(Corrupt):
            look(blob)


def test_rows_are_not_items() -> None:
    items = Items(pack_arrow(pa.record_batch({"n": [1, 2]})))
    assert (len(items), items.kind) == (2, Kind.ARROW)
    for look in (list, lambda items: items[0], lambda items: items.to_arrow()):
        with pytest.raises(BadRequest):
            look(items)
    with pytest.raises(BadRequest, match="schema"):
        Items(pack([b"x"])).to_arrow(SCHEMA)
    with pytest.raises(BadRequest, match="schema"):
        list(pack_many([b"x"], schema=SCHEMA))


def test_rows_that_do_not_fit_the_schema() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)], {"note": "ours"})
    blobs = list(pack_many(pa.table({"n": [1, 2]}), schema=schema))
    assert to_table(read(blobs), schema).schema.equals(schema, check_metadata=True)
    wrongs: list[tuple[dict[str, list[Any]], str]] = [
        ({"n": [None, 1]}, "'n' has nulls"),
        ({"m": [1]}, "no column 'm'"),
        ({"n": [1.5]}, "'n' is double, and int64"),
        ({"n": [1], "m": [1]}, "no column 'm'"),
    ]
    for wrong, words in wrongs:
        with pytest.raises(BadRequest, match=words):
            list(pack_many(pa.table(wrong), schema=schema))
    liar = pa.RecordBatch.from_arrays([pa.array([None, 1])], schema=schema)
    with pytest.raises(BadRequest, match="'n' has nulls"):
        list(pack_many(liar, schema=schema))
    two = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    for table, words in (
        (pa.table({"a": [1]}), "'b' of the stream's schema is missing"),
        (pa.table({"b": [1]}), "'a' of the stream's schema is missing"),
        (pa.table({"b": [1], "a": [1]}), "'b' is not in its place: the order is a, b"),
    ):
        with pytest.raises(BadRequest, match=words):
            list(pack_many(table, schema=two))


def test_limits_of_rows() -> None:
    with pytest.raises(BadRequest, match="at least one"):
        pack_arrow(pa.record_batch({"n": pa.array([], pa.int64())}))
    many = pa.record_batch({"n": pa.nulls(BATCH_ITEMS_MAX + 1, pa.int8())})
    with pytest.raises(TooLarge, match="rows"):
        pack_arrow(many)
    assert sum(check(blob) for blob in pack_many(many, schema=many.schema)) == BATCH_ITEMS_MAX + 1
    large = pa.record_batch({"b": [bytes(FRAME_BYTES_MAX)]})
    with pytest.raises(TooLarge, match="row"):
        list(pack_many(large, schema=large.schema))
    with pytest.raises(TooLarge, match="a batch of"):
        pack_arrow(large)
    assert list(pack_many(many.slice(0, 0), schema=many.schema)) == []


def test_small_chunks_are_put_together_up_to_the_limit() -> None:
    chunks = [pa.table({"n": list(range(at, at + 100))}) for at in range(0, 2000, 100)]
    table = pa.concat_tables(chunks)
    assert table["n"].num_chunks == 20
    blobs = list(pack_many(table, schema=table.schema, bytes_max=4000))
    assert 4 <= len(blobs) < 10
    assert max(map(len, blobs)) <= 4000
    assert to_table(read(blobs), table.schema).equals(table)


class Coded(pa.ExtensionType):  # type: ignore[misc]
    """A type of a user's own, stored in a way that a batch cannot hold."""

    def __init__(self) -> None:
        super().__init__(pa.dictionary(pa.int8(), pa.string()), "tests.coded")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Coded:
        return cls()


def test_a_type_of_a_users_own() -> None:
    schema = pa.schema([("id", pa.uuid()), ("n", pa.int64())])
    table = pa.table({"id": [bytes(range(16))], "n": [1]}, schema)
    blobs = list(pack_many(table, schema=read_schema(pack_schema(schema))))
    assert to_table(read(blobs), schema).equals(table)


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'tstreams\[arrow\]'"):
        read_schema(b"")


def test_schemas() -> None:
    with pytest.raises(BadRequest, match="'deep' is dictionary"):
        pack_schema(pa.schema([("deep", pa.list_(pa.dictionary(pa.int8(), pa.string())))]))
    with pytest.raises(BadRequest, match="'hidden' is dictionary"):
        pack_schema(pa.schema([("hidden", Coded())]))
    with pytest.raises(BadRequest, match="at least one column"):
        pack_schema(pa.schema([]))
    with pytest.raises(TooLarge, match="schema"):
        pack_schema(pa.schema([(f"{n:0100}", pa.int8()) for n in range(10_000)]))
    assert read_schema(pack_schema(SCHEMA)).equals(SCHEMA)


@given(rows, st.integers(1, len(SCHEMA) - 1), codecs)
def test_a_schema_grows(values: list[dict[str, Any]], count: int, codec: Codec) -> None:
    """Rows of any of its ages are read with the columns of any other."""
    old = pa.schema(list(SCHEMA)[:count])
    young = read_schema(pack_schema(grown(old, SCHEMA)))
    assert young.equals(SCHEMA)
    whole = pa.Table.from_pylist(values, SCHEMA)
    before = list(pack_many(whole.select(old.names), codec, schema=old))
    after = list(pack_many(whole, codec, schema=young))
    lacking = list(pack_many(whole.select(old.names), codec, schema=young))
    assert to_table(read(before), young).select(old.names).equals(whole.select(old.names))
    for name in SCHEMA.names[count:]:
        assert to_table(read(before), young)[name].null_count == len(values)
    assert to_table(read(after), young).equals(whole)
    assert to_table(read(after), old).equals(whole.select(old.names))
    assert to_table(read([*lacking, *after]), young).num_rows == 2 * len(values)


def test_a_schema_grows_in_no_other_way() -> None:
    old = pa.schema(
        [pa.field("a", pa.int64(), nullable=False), ("b", pa.struct([("x", pa.int8())]))]
    )
    a, b = old
    for new, words in (
        ([b], "'a' is missing"),
        ([a.with_nullable(True), b], "'a' is not nullable and cannot become nullable"),
        ([a, b.with_nullable(False)], "'b' is nullable and cannot become not nullable"),
        ([a.with_type(pa.int32()), b], "'a' is int64 and cannot become int32"),
        ([b, a], "'b' comes before 'a'"),
        ([a, pa.field("c", pa.int8()), b], "'c' comes before 'b'"),
        ([a, b, pa.field("c", pa.int8(), nullable=False)], "'c' is new and not nullable"),
        ([a, b.with_type(pa.struct([("x", pa.int8()), ("y", pa.int8())]))], "'b' is struct"),
    ):
        with pytest.raises(BadRequest, match=words):
            grown(old, pa.schema(new))
    again = grown(
        grown(old, pa.schema([a, b, ("c", pa.int8())])), pa.schema([a, b, ("c", pa.int8())])
    )
    assert list(pack_many(pa.table({"a": [1], "b": [{"x": 1}]}, old), schema=again))
    with pytest.raises(BadRequest, match="one column of a name, not several that are 'a'"):
        pack_schema(pa.schema([a, b, a]))


# Lies with a right checksum.


@given(st.binary(max_size=200) | st.just(pack_schema(SCHEMA)[:100]))
def test_a_schema_that_is_none(data: bytes) -> None:
    with pytest.raises(Corrupt):
        read_schema(data)


@given(rows, st.data())
def test_forged_rows_are_corrupt_or_harmless(
    values: list[dict[str, Any]], data: st.DataObject
) -> None:
    batch = pa.RecordBatch.from_pylist(values, SCHEMA)
    body = bytearray(batch.serialize())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) // 4 - 1)) * 4
        number = data.draw(
            st.sampled_from([-1, 1, 2**31 - 1, -(2**31)]) | st.integers(0, 2**31 - 1)
        )
        body[at : at + 4] = number.to_bytes(4, "little", signed=True)
    items = Items(seal(Kind.ARROW, Codec.NONE, len(values), body))
    try:
        found = items.to_arrow(SCHEMA)
    except Corrupt:
        return
    assert len(found.to_pylist()) == len(values)


def test_rows_of_another_schema_or_number() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    with pytest.raises(Corrupt):
        Items(pack_arrow(batch)).to_arrow(SCHEMA)
    with pytest.raises(Corrupt, match="2 rows, its header says 3"):
        Items(seal(Kind.ARROW, Codec.NONE, 3, bytes(batch.serialize()))).to_arrow(batch.schema)
    with pytest.raises(Corrupt):
        Items(seal(Kind.ARROW, Codec.NONE, 1, pack_schema(SCHEMA))).to_arrow(SCHEMA)


def without(table: str, field: int) -> bytes:
    """Rows in a message that lacks a field of one of its flatbuffer's tables."""
    body = bytearray(pa.record_batch({"n": [1, 2]}).serialize())
    start = 8  # behind the continuation marker and the length of the metadata

    def number(form: str, at: int) -> int:
        return int(struct.unpack_from("<" + form, body, at)[0])

    def vtable(at: int) -> int:
        return at - number("i", at)

    at = start + number("I", start)
    if table == "batch":
        header = at + number("H", vtable(at) + 4 + 2 * 2)
        at = header + number("I", header)
    slot = vtable(at) + 4 + 2 * field
    assert number("H", slot) > 0, "it was there"
    struct.pack_into("<H", body, slot, 0)
    return bytes(body)


@pytest.mark.parametrize(("table", "field"), [("message", 2), ("batch", 1)])
def test_a_message_that_lacks_a_part_is_corrupt(table: str, field: int) -> None:
    schema = pa.schema([("n", pa.int64())])
    with pytest.raises(Corrupt):
        Items(seal(Kind.ARROW, Codec.NONE, 2, without(table, field))).to_arrow(schema)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_within_compression_is_refused(compression: str) -> None:
    batch = pa.record_batch({"n": list(range(1000))})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    _, message = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    items = Items(seal(Kind.ARROW, Codec.NONE, 1000, bytes(message.serialize())))
    with pytest.raises(Corrupt, match="compressed"):
        items.to_arrow(batch.schema)
