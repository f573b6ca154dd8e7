"""The targets: each takes any bytes, gives them to a decoder, and lets nothing but its typed errors pass.

A decoder returns or raises the error that it documents. Whatever else comes out of a target is a bug: another
exception, a failed assertion, more memory than `BYTES_MAX`, or no end.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pyarrow as pa
from crc32c import crc32c

import moebius.errors
from moebius.addresses import parse_address
from moebius.buffers import Buffers
from moebius.frames import FrameDecoder, encode_frame
from moebius.limits import Limits
from moebius.messages import DecodeError, Message, Parts, decode, decode_json
from tstreams import protocol
from tstreams.cli.framing import SPLITTERS
from tstreams.cli.points import id_of, offset_of
from tstreams.cli.sources import parse_file, resolve, tls_problems
from tstreams.client.rules.delivery import unpack_parts
from tstreams.config import SETTINGS
from tstreams.core import records
from tstreams.errors import BadRequest, Corrupt, Error, TooLarge
from tstreams.index import facts, keys
from tstreams.items import Items, Joiner, Kind, check, read_schema, to_table
from tstreams.items.batch import VERSION
from tstreams.ledger import format as ledger_format
from tstreams.model import Stream, check_name, milliseconds, time_of
from tstreams.server.wire import decoder
from tstreams.sinks.keys import ItemKey
from tstreams.spark import offsets, options

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}
CORPUS = Path(__file__).parent / "corpus"
BYTES_MAX = 80 * 2**20
"""No input of a few kilobytes may make a decoder hold more: an item of 64 MiB and what surrounds it."""

LIMITS = Limits(frame_bytes_max=200_000, header_bytes_max=300, parts_max=5)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.binary()))])


def target(function: Target) -> Target:
    """Make it one of them."""
    TARGETS[function.__name__] = function
    return function


def text_of(data: bytes) -> str:
    """Text as programs get it from the outside, also if it was none."""
    return data.decode("utf-8", "surrogateescape")


# moebius.


@target
def frames(data: bytes) -> None:
    """A byte stream; the first four bytes say how it is cut."""
    cuts, stream = [byte * 16 + 1 for byte in data[:4]] or [1], data[4:]
    decoder = FrameDecoder(LIMITS, Buffers(4096))
    found: list[tuple[bytes, Parts]] = []
    at = turn = 0
    while at < len(stream):
        buffer = decoder.room
        assert len(buffer) > 0
        size = min(len(buffer), cuts[turn % len(cuts)], len(stream) - at)
        buffer[:size] = stream[at : at + size]
        found += decoder.advance(size)
        at += size
        turn += 1
    assert decoder.error is None or isinstance(decoder.error, moebius.errors.Error)
    again = b"".join(b"".join(encode_frame(header, parts)) for header, parts in found)
    assert stream.startswith(again)


@target
def headers(data: bytes) -> None:
    """Headers of messages, in both encodings."""
    for read in (decode, decode_json):
        with contextlib.suppress(*DecodeError):
            assert isinstance(read(data), Message)


@target
def addresses(data: bytes) -> None:
    """What servers listen on."""
    with contextlib.suppress(moebius.errors.BadRequest):
        parse_address(text_of(data))


# The protocol.

REQUESTS = [
    *get_args(protocol.ChangeRequest),
    *get_args(protocol.ReadRequest),
    *get_args(protocol.InspectRequest),
]
READERS = [decoder(kind, None) for kind in (*REQUESTS, protocol.Subscribe, protocol.KeepAlive)]


@target
def requests(data: bytes) -> None:
    """Requests, as a server reads them; the first byte says which."""
    read = READERS[data[0] % len(READERS)] if data else READERS[0]
    request: Any = SimpleNamespace(parts=(data[1:],))
    with contextlib.suppress(moebius.errors.RemoteError):
        assert isinstance(read(request), protocol.Message)


@target
def replies(data: bytes) -> None:
    """Replies, as a client reads them."""
    with contextlib.suppress(Corrupt):
        assert isinstance(protocol.decode_reply(data), protocol.Message)


@target
def deliveries(data: bytes) -> None:
    """What is pushed to a subscriber: a reply, and batches behind it."""
    size = int.from_bytes(data[:2], "little")
    parts: tuple[bytes, ...] = (data[2 : 2 + size], data[2 + size :])
    if size % 2:  # one for each transaction
        parts = (parts[0], *(parts[1][at : at + 64] for at in range(0, len(parts[1]), 64)))
    source: Any = SimpleNamespace(schema=None)
    with contextlib.suppress(Error):
        for delivery in unpack_parts(source, parts):
            assert len(delivery.data) == sum(delivery.entry.sizes)
            for batch in delivery.batches():
                check(batch)


# Item batches.


def _read(blob: bytes) -> None:
    try:
        check(blob)
        items = Joiner().add(blob)
    except (Corrupt, BadRequest, TooLarge):
        return
    if items is None:
        return
    if items.kind is Kind.ARROW:
        with contextlib.suppress(Corrupt):
            items.to_arrow(SCHEMA)
        return
    try:
        found = list(items)
        column = items.to_arrow()
    except Corrupt:
        return
    assert len(found) == len(items) == len(column)
    assert found == column.to_pylist()
    assert found[-1] == items[-1]


@target
def batches(data: bytes) -> None:
    """Item batches as they come."""
    _read(data)


@target
def sealed(data: bytes) -> None:
    """Item batches with a right checksum: kind, codec, count and size, then the body."""
    if len(data) < 8:
        return
    kind, codec, count, size = struct.unpack("<BBHI", data[:8])
    head = struct.pack("<BBBxII", VERSION, kind % 4, codec % 4, count, size)
    body = data[8:]
    checksum = crc32c(body, crc32c(head))
    _read(head + checksum.to_bytes(4, "little") + body)


@target
def pieces(data: bytes) -> None:
    """The batches of a transaction, each behind its length, with right checksums."""
    joiner, at = Joiner(), 0
    try:
        while at + 3 < len(data):
            kind, count, size = data[at], data[at + 1], data[at + 2]
            body = data[at + 3 : at + 3 + size]
            head = struct.pack("<BBBxII", VERSION, kind % 3, 0, count, len(body))
            joiner.add(head + crc32c(body, crc32c(head)).to_bytes(4, "little") + body)
            at += 3 + size
        joiner.finish()
    except (Corrupt, BadRequest, TooLarge):
        return


# Arrow.


@target
def schemas(data: bytes) -> None:
    """The Arrow schema that a stream carries."""
    from datetime import timedelta

    with contextlib.suppress(Corrupt):
        assert isinstance(read_schema(data), pa.Schema)
    with contextlib.suppress(Corrupt):
        assert isinstance(Stream("s", 1, timedelta(1), "", data).schema, pa.Schema)


@target
def rows(data: bytes) -> None:
    """Arrow rows: a record batch, as a batch of a stream with a schema holds it."""
    items = Items.of_body(Kind.ARROW, int.from_bytes(data[:1], "little"), memoryview(data[1:]))
    with contextlib.suppress(Corrupt):
        to_table([items], SCHEMA).to_pylist()


# The disk.


@target
def log_records(data: bytes) -> None:
    """What the log holds."""
    with contextlib.suppress(Corrupt):
        _, end = records.decode_record(memoryview(data))
        assert end <= len(data)


@target
def ledgers(data: bytes) -> None:
    """The head of a ledger file, and its groups: as they come, and with right checksums."""
    with contextlib.suppress(Corrupt):
        ledger_format.Head.decode(data, "name")
    found = ledger_format.group_at(1, 512, data)
    assert found is None or len(found) == 2
    body = memoryview(data)[1:]
    with contextlib.suppress(Corrupt):
        for _, record in ledger_format.decode_group(1, 512, body, int.from_bytes(data[:1])):
            assert len(record) <= len(data)
    whole = bytearray()
    at = 0
    while at + 1 < len(body):
        given = bytes(body[at + 1 : at + 1 + body[at]])
        buffers, _, _ = ledger_format.encode_group(1, 512 + len(whole), [(given,)])
        whole += b"".join(buffers)[ledger_format.GROUP_OVERHEAD_BYTES :][: 8 + len(given)]
        at += 1 + body[at]
    with contextlib.suppress(Corrupt):
        list(ledger_format.decode_group(1, 512, memoryview(bytes(whole)), 3))


VALUES: list[Callable[[bytes], object]] = [
    facts.decode_stream,
    facts.decode_agent,
    facts.decode_open,
    facts.decode_job,
    facts.decode_session,
    keys.split_transaction,
    keys.split_slot,
    keys.unpack_transaction,
    lambda value: list(keys.places_of(value)),
    keys.unpack_batch,
    keys.unpack_live,
    keys.unpack_head,
]


@target
def index(data: bytes) -> None:
    """Keys and values of the index; the first byte says which."""
    read = VALUES[data[0] % len(VALUES)] if data else VALUES[0]
    with contextlib.suppress(Corrupt):
        read(data[1:])


# What people and other programs write.


@target
def item_keys(data: bytes) -> None:
    """Keys of items, as sinks store them."""
    for key in (data, text_of(data)):
        with contextlib.suppress(BadRequest):
            made = ItemKey.parse(key)
            assert key in (bytes(made), str(made))


@target
def spark_options(data: bytes) -> None:
    """Options of the Spark source and sink: lines of name=value."""
    given = {"url": "tcp://127.0.0.1:1", "stream": "s"}
    for line in text_of(data).split("\n")[:30]:
        name, _, value = line.partition("=")
        given[name] = value
    for kind in (options.ReadOptions, options.WriteOptions):
        with contextlib.suppress(BadRequest, TooLarge):
            kind.parse(given)


@target
def spark_offsets(data: bytes) -> None:
    """Offsets, as Spark hands them back from its checkpoint."""
    import json

    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(Corrupt):
        made = offsets.from_json(found)
        assert offsets.from_json(offsets.to_json(made)) == made


@target
def framing(data: bytes) -> None:
    """Items in a pipe; the first byte says how they are framed, the second how the pipe is cut."""
    splitter = list(SPLITTERS.values())[data[0] % len(SPLITTERS) if data else 0]()
    step = data[1] + 1 if len(data) > 1 else 1
    with contextlib.suppress(BadRequest):
        found = [
            item
            for at in range(2, len(data), step)
            for item in splitter.split(data[at : at + step])
        ]
        found += splitter.rest()
        assert sum(map(len, found)) <= len(data)


@target
def points(data: bytes) -> None:
    """Points in a stream, durations, names."""
    text = text_of(data)
    for read in (id_of, offset_of, milliseconds, check_name):
        with contextlib.suppress(BadRequest, TooLarge):
            read(text)
    time_of(int.from_bytes(data[:8], "big") >> 1)


@target
def config(data: bytes) -> None:
    """A configuration file, and the same lines as variables and as flags."""
    written, problem = parse_file(data)
    assert isinstance(written, dict)
    assert (problem is None) or not written
    found = resolve({}, {}, written, _somewhere() / "tstreams.toml")
    found.problems.extend(tls_problems(found))
    names = list(SETTINGS)
    lines = text_of(data).split("\n")[:20]
    variables = {f"TSTREAMS_{name.upper()}": line for name, line in zip(names, lines, strict=False)}
    flags = dict(zip(names[::-1], lines, strict=False))
    for it in (found, resolve({}, variables), resolve(flags, {})):
        with contextlib.suppress(BadRequest, TooLarge):
            it.config()


@cache
def _somewhere() -> Path:
    return Path("/nonexistent")
