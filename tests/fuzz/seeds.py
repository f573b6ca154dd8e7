"""Write the corpus anew: python -m tests.fuzz.seeds

Seeds are what encoders make, so that fuzzing begins behind the first checks. What fuzzing finds is added by
hand, as `found-...`, and stays.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator

import pyarrow as pa

from moebius.frames import encode_frame
from moebius.messages import Call, Credit, Failure, Hello, Reply, encode, encode_json
from tests.fuzz.targets import CORPUS, READERS, REQUESTS, SCHEMA, VALUES
from tstreams import protocol
from tstreams.core import records
from tstreams.index import facts, keys
from tstreams.items import Codec, headed, pack, pack_arrow, pack_headers, pack_schema
from tstreams.items.batch import HEADER_BYTES
from tstreams.ledger.format import Head, encode_group
from tstreams.sinks.keys import ItemKey

ITEMS = [b"one", b"", b"three" * 20]
ROWS = pa.record_batch(
    [pa.array([1, None]), pa.array(["x", "y"]), pa.array([[b"a"], []], pa.list_(pa.binary()))],
    schema=SCHEMA,
)
HEADERS = [
    Hello(token="t"),
    Call(7, "0:Instant"),
    Credit(7, 100),
    Reply(7),
    Failure(7, "code", "m"),
]


def _messages() -> Iterator[tuple[str, bytes]]:
    for header in HEADERS:
        yield "headers", encode(header)
        yield "headers", encode_json(header)
        yield "frames", b"\x01\x02\x03\x04" + b"".join(encode_frame(encode(header), (b"abc", b"d")))
    yield "frames", b"\xff\xff\xff\xff" + b"".join(encode_frame(b"h", (b"z" * 70_000,)))
    for address in (
        "tcp://127.0.0.1:7070",
        "zmq+tcp://[::1]:1",
        "ipc:///tmp/x",
        "inproc://x",
        "tcp://",
    ):
        yield "addresses", address.encode()


def _protocol() -> Iterator[tuple[str, bytes]]:
    commit = protocol.Commit(
        1, 2, 0, [1], [9], [protocol.ReadPosition(1, 0, 5)], [protocol.Brought(1, 0)]
    )
    made = [
        protocol.CreateStream(1, 2, 0, "name", 4, 1000),
        commit,
        protocol.Fetch(1, [protocol.Want(0, 5)], 1000),
        protocol.Instant(1, 2, 0, 3, 0),
    ]
    for message in made:
        number = REQUESTS.index(type(message))
        yield "requests", bytes((number,)) + protocol.encode(message)
    yield "requests", bytes((len(READERS) - 1,)) + protocol.encode(protocol.KeepAlive(1, 0))
    batch = pack(ITEMS)
    entry = protocol.FetchedTransaction(0, 5, 3, 1, 0, [len(batch)])
    fetched = protocol.encode(protocol.Fetched([entry]))
    info = protocol.StreamInfo(1, "name", 4, 1000, "", None)
    for reply in (protocol.Done(7), info, protocol.AgentOpened(3, info), protocol.JobInfo(-1)):
        yield "replies", protocol.encode(reply)
    yield "replies", fetched
    yield "deliveries", len(fetched).to_bytes(2, "little") + fetched + batch


def _items() -> Iterator[tuple[str, bytes]]:
    for codec in Codec:
        blob = pack([b"abc" * 50] * 20, codec)
        yield "batches", blob
        form, count, size, _ = struct.unpack_from("<IIII", blob)
        kind, used = form >> 8 & 255, form >> 16 & 255
        head = struct.pack("<BBHI", kind, used, count, size)
        yield "sealed", head + blob[HEADER_BYTES:]
    yield "batches", pack(ITEMS)
    section = pack_headers({"traceparent": b"00-0af7", "kind": b"", "é": b"x" * 40})
    yield "batches", headed(pack(ITEMS), section)
    yield (
        "item_headers",
        len(section).to_bytes(2, "little") + section + pack([b"one"])[HEADER_BYTES:],
    )
    rows = pack_arrow(ROWS)[HEADER_BYTES:]
    yield "sealed", struct.pack("<BBHI", 1, 0, 2, len(rows)) + rows
    yield "rows", b"\x02" + rows
    yield "schemas", pack_schema(SCHEMA)
    yield "schemas", pack_schema(pa.schema([("t", pa.timestamp("us", "UTC")), ("f", pa.float32())]))
    yield (
        "pieces",
        b"\x02\x00\x03abc\x02\x01\x02de" + b"\x00\x01\x09" + struct.pack("<ii", 0, 1) + b"x",
    )


def _disk() -> Iterator[tuple[str, bytes]]:
    some: list[records.AnyRecord] = [
        records.StreamCreated(1, 2, 3, "name", 4, 1000, "", None),
        records.Committed(1, 2, [5], [], [(1, "reader", 0, 5)]),
        records.InstantMade(1, 2, 7, 1, 0, 3),
    ]
    for record in some:
        yield "log_records", b"".join(records.encode_record(record, b"items"))
    yield "ledgers", Head(1, 2, 3, 4, 5).encode()[: Head.SIZE]
    yield "ledgers", b"".join(encode_group(1, 512, [(b"abc",), (b"d", b"e")])[0])[:64]
    yield "ledgers", b"\x03\x03abc\x02de\x01f"
    values = [
        facts.encode(facts.StoredStream("name", 4, 1000, "", None, 0)),
        facts.encode(facts.StoredAgent("producer", 1, "name", 2)),
        facts.encode(facts.StoredOpen(1, 0, 3, 1000)),
        facts.encode(facts.StoredJob(1, 2)),
        facts.encode(facts.StoredSession(1, 0, {1: protocol.Done(7)})),
        keys.transaction_key(b"T", 1, 0, 5),
        keys.slot_key(1, 2, 3),
        keys.pack_transaction(3, [keys.Place(1, 2), keys.Place(3, 4)]),
        keys.pack_transaction(3, [keys.Place(1, 2)]),
        keys.PLACE_AND_COUNT.pack(1, 2, 3),
        keys.LIVE.pack(1, 2),
        keys.HEAD.pack(1, 2, 3),
    ]
    assert len(values) == len(VALUES)
    for number, value in enumerate(values):
        yield "index", bytes((number,)) + value


def _texts() -> Iterator[tuple[str, bytes]]:
    key = ItemKey("clicks", 3, 179300000000000000, 42)
    yield "item_keys", bytes(key)
    yield "item_keys", str(key).encode()
    options = "start={}\nmaxBytesPerTrigger=5\nmetadata=true\ntimeout=3.5\nstagingTtl=15m"
    for start in ("oldest", "2026-01-01T12:00:00Z", '{"0": 179300000000000000}'):
        yield "spark_options", options.format(start).encode()
    yield "spark_options", b'stream=["a","b"]\nend={"a":{"0":5}}\nconsumer=c'
    yield "spark_options", b"stream=orders-*\nstart=newest\nfailOnDataLoss=false\ntlsCa=x"
    yield (
        "spark_options",
        b"headers=true\ntracing=true\ntraceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    yield "spark_options", b"maxTransactionBytes=100\nstagingTtl=3.5\ncompression=lz4"
    yield "spark_offsets", json.dumps({"orders": {"0": 179300000000000000, "1": 0}}).encode()
    yield "framing", b"\x00\x03one\ntwo\n\nfour"
    yield "framing", b"\x01\x02" + b"".join(len(it).to_bytes(4, "little") + it for it in ITEMS)
    for point in (
        "oldest",
        "newest",
        "id:5",
        "15m",
        "2026-01-01T12:00:00+02:00",
        "2026-01-01",
        "1.5h",
    ):
        yield "points", point.encode()
    yield (
        "config",
        b'data = "x"\nlisten = ["tcp://127.0.0.1:0"]\nledger_bytes = "64MiB"\nlog_level = "info"',
    )
    yield "config", b'data = "~/x"\ntls_certificate = "a"\ntls_key = "b"\ntoken = "t"'


def main() -> None:
    """Write them."""
    for make in (_messages, _protocol, _items, _disk, _texts):
        for name, data in make():
            folder = CORPUS / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"seed-{hashlib.sha1(data).hexdigest()[:10]}").write_bytes(data)


if __name__ == "__main__":
    main()
