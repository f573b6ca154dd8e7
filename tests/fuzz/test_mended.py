"""What fuzzing found, one by one: each is refused with the error that its decoder documents."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from crc32c import crc32c

from moebius.buffers import Buffers
from moebius.frames import PREFIX, STEP_BYTES, FrameDecoder, encode_frame
from moebius.limits import Limits
from tests.fuzz.targets import CORPUS
from tstreams import protocol
from tstreams.cli.sources import load, parse_file, resolve, tls_problems
from tstreams.config import read_number
from tstreams.core.records import decode_record
from tstreams.errors import BadRequest, Corrupt, Error
from tstreams.index import facts, keys
from tstreams.items import Codec, Items, pack
from tstreams.items.batch import BODY_BYTES_MAX, VERSION
from tstreams.model import Stream, milliseconds
from tstreams.sinks.keys import ItemKey
from tstreams.spark.offsets import from_json
from tstreams.spark.options import ReadOptions, WriteOptions

GIVEN = {"url": "tcp://127.0.0.1:1", "stream": "s"}


def kept(target: str, name: str) -> bytes:
    return (CORPUS / target / f"found-{name}").read_bytes()


CASES: dict[str, tuple[type[Error], Callable[[], object]]] = {
    "a reply of nothing": (Corrupt, lambda: protocol.decode_reply(b"")),
    "a reply that is not UTF-8": (
        Corrupt,
        lambda: protocol.decode_reply(kept("replies", "not-utf8")),
    ),
    "a record that is not UTF-8": (
        Corrupt,
        lambda: decode_record(memoryview(kept("log_records", "not-utf8"))),
    ),
    "a record whose header is cut": (
        Corrupt,
        lambda: decode_record(memoryview(kept("log_records", "header-cut-where-it-ends"))),
    ),
    "a key that is short": (Corrupt, lambda: keys.split_transaction(b"abc")),
    "a slot that is short": (Corrupt, lambda: keys.split_slot(b"abc")),
    "a transaction that is short": (Corrupt, lambda: keys.unpack_transaction(b"abc")),
    "fewer places than said": (
        Corrupt,
        lambda: keys.unpack_transaction(struct.pack("<QIQI", 3, 2, 1, 2)),
    ),
    "a batch that is short": (Corrupt, lambda: keys.unpack_batch(b"abc")),
    "live bytes that are short": (Corrupt, lambda: keys.unpack_live(b"abc")),
    "a head that is short": (Corrupt, lambda: keys.unpack_head(b"abc")),
    "a stream that is none": (Corrupt, lambda: facts.decode_stream(b"\x01")),
    "a session that is none": (Corrupt, lambda: facts.decode_session(b"\xa1\xff")),
    "a schema that is none": (
        Corrupt,
        lambda: Stream("s", 1, timedelta(1), "", b"\xff" * 8).schema,
    ),
    "the key of an item with a long name": (
        BadRequest,
        lambda: ItemKey.parse(kept("item_keys", "long-name")),
    ),
    "a timeout that is no number": (
        BadRequest,
        lambda: ReadOptions.parse({**GIVEN, "timeout": "soon"}),
    ),
    "a number in superscript": (
        BadRequest,
        lambda: ReadOptions.parse({**GIVEN, "maxBytesPerTrigger": "²"}),
    ),
    "a ttl in superscript": (BadRequest, lambda: WriteOptions.parse({**GIVEN, "stagingTtl": "²"})),
    "a number of 5000 digits": (
        BadRequest,
        lambda: ReadOptions.parse({**GIVEN, "minPartitions": "9" * 5000}),
    ),
    "an id without end": (
        BadRequest,
        lambda: ReadOptions.parse({**GIVEN, "start": '{"0": Infinity}'}),
    ),
    "a partition below zero": (
        BadRequest,
        lambda: ReadOptions.parse({**GIVEN, "start": '{"-1": 5}'}),
    ),
    "JSON without end": (
        BadRequest,
        lambda: ReadOptions.parse({**GIVEN, "start": '{"a":' + "[" * 100_000}),
    ),
    "an offset that is a number": (Corrupt, lambda: from_json(99)),  # type: ignore[arg-type]
    "an offset that is text": (Corrupt, lambda: from_json({"a": {"0": "x"}})),  # type: ignore[dict-item]
    "a duration of 5000 digits": (BadRequest, lambda: milliseconds(10**5000)),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused(case: str) -> None:
    error, call = CASES[case]
    with pytest.raises(error) as raised:
        call()
    assert raised.type is error


@pytest.mark.parametrize("raw", [float("inf"), float("nan"), "9" * 400, 16**5000], ids="abcd")
def test_a_setting_that_is_no_number(raw: object) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        read_number(raw, "bytes")


@pytest.mark.parametrize(
    "name", ["infinite-bytes", "unknown-home", "huge-hex", "huge-text", "zero-byte-in-path"]
)
def test_a_file_with_a_bad_setting_is_a_problem(name: str) -> None:
    written, reason = parse_file(kept("config", name))
    assert reason is None
    found = resolve({}, {}, written, Path("x.toml"))
    assert found.problems + tls_problems(found)


@pytest.mark.parametrize("name", ["deep", "too-many-digits"])
def test_a_file_that_cannot_be_read_says_why(name: str) -> None:
    assert parse_file(kept("config", name))[1]


def test_a_configuration_of_nobody() -> None:
    with pytest.raises(BadRequest, match="nobody-of-that-name"):
        load({"config": "~nobody-of-that-name/x.toml"}, {})


def batch(codec: Codec, body: bytes, size: int) -> bytes:
    head = struct.pack("<BBBxII", VERSION, 0, codec, 1, size)
    return head + crc32c(body, crc32c(head)).to_bytes(4, "little") + body


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_small_batch_cannot_claim_much_memory(codec: Codec) -> None:
    blob = batch(codec, b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", BODY_BYTES_MAX), BODY_BYTES_MAX)
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="cannot be stored"):
            Items(blob)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_what_compresses_best_is_still_read(codec: Codec) -> None:
    for size in (64, 1000, 128 * 1024, BODY_BYTES_MAX - 8):
        assert Items(pack([bytes(size)], codec))[0] == bytes(size)


def test_a_prefix_does_not_cost_a_frame() -> None:
    decoder = FrameDecoder(Limits(), Buffers(65_536))
    prefix = PREFIX.pack(16 * 2**20, 1, 1)
    decoder.room[: len(prefix)] = prefix
    assert decoder.advance(len(prefix)) == []
    assert len(decoder.room) <= STEP_BYTES


@pytest.mark.parametrize(
    "size", [70_000, STEP_BYTES, 4 * STEP_BYTES - 9, 5 * STEP_BYTES, 16 * STEP_BYTES]
)
@pytest.mark.parametrize("read_bytes", [65_536, 3 * STEP_BYTES])
def test_a_large_frame_grows_to_its_size(size: int, read_bytes: int) -> None:
    decoder = FrameDecoder(Limits(), Buffers(read_bytes))
    payload = bytes(range(256)) * (size // 256)
    stream = b"".join(encode_frame(b"header", (payload, b"tail"))) * 2
    found, at = [], 0
    while at < len(stream):
        buffer = decoder.room
        count = min(len(buffer), len(stream) - at)
        buffer[:count] = stream[at : at + count]
        found += decoder.advance(count)
        at += count
    assert [(header, [bytes(it) for it in parts]) for header, parts in found] == [
        (b"header", [payload, b"tail"])
    ] * 2
