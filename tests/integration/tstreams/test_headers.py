"""Headers of transactions: from the producer to every kind of reader, and never in the way of the items."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tstreams import BadRequest, Client, TooLarge, TransactionState
from tstreams.items import HEADER_BYTES, headers_of
from tstreams.limits import FRAME_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, SEND_BATCH_BYTES

from .conftest import eventually

HEADERS = {"kind": b"order", "trace-é": bytes(range(256))}
LARGEST = {"a": bytes(HEADERS_BYTES_MAX - 4)}


def only(ts: Client, stream: str, partition: int = 0) -> Any:
    """The only transaction of a partition."""
    (found,) = ts.scan(stream, partition)
    return found


def test_transactions_have_the_headers_that_they_were_given(ts: Client, clicks: str) -> None:
    with ts.producer(clicks) as producer:
        with producer.transaction(0, headers=HEADERS) as txn:
            txn.send_many([b"a", b"b"])
            assert txn.headers == HEADERS
        opened = producer.open(1, headers=HEADERS)
        opened.send(b"c")
        opened.checkpoint()
        producer.instant([b"d"], 2, headers=HEADERS)
        with producer.transaction(3) as plain:
            plain.send(b"e")
            assert plain.headers == {}
    with ts.consumer(clicks) as consumer:
        found = {it.partition: it for it in consumer.read(max_wait=0.0)}
    assert [found[n].headers for n in range(4)] == [HEADERS, HEADERS, HEADERS, {}]
    assert [list(found[n].items) for n in range(4)] == [[b"a", b"b"], [b"c"], [b"d"], [b"e"]]
    assert [len(it) for _, it in sorted(found.items())] == [2, 1, 1, 1]


def test_instants_of_all_kinds(ts: Client, clicks: str) -> None:
    with ts.producer(clicks) as producer:
        first = producer.instant([b"1"], 0, headers={"n": b"1"})
        second = producer.instant([b"2"], 0, headers={"n": b"2"}, wait=False).result()
        producer.instant([b"3"], 0, headers={"n": b"3"}, reliable=False)
        producer.instant([b"4"], 0, headers={})
    found = eventually(lambda: len(them := list(ts.scan(clicks, 0))) == 4 and them)
    assert [it.headers for it in found] == [{"n": b"1"}, {"n": b"2"}, {"n": b"3"}, {}]
    assert [it.id for it in found][:2] == [first, second]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_only_the_first_batch_of_many_has_them(ts: Client, clicks: str, compression: str) -> None:
    items = [bytes([n % 256]) * 1000 for n in range(5 * SEND_BATCH_BYTES // 1000)]
    producer = ts.producer(clicks, compression=compression)
    with producer.transaction(0, headers=HEADERS) as txn:
        for item in items:
            txn.send(item)
    found = only(ts, clicks)
    assert found.headers == HEADERS
    assert list(found.items) == items
    batches = list(found._delivery.batches())
    assert len(batches) > 1
    assert [headers_of(it) for it in batches] == [HEADERS, *[{}] * (len(batches) - 1)]


def test_a_transaction_of_which_only_a_part_is_here(ts: Client, clicks: str) -> None:
    """A reader gets the first batches of a large one: they are enough for its headers."""
    with ts.producer(clicks) as producer, producer.transaction(0, headers=HEADERS) as txn:
        for n in range(12):
            txn.send_many([bytes([n]) * SEND_BATCH_BYTES])
    found = only(ts, clicks)
    assert len(found._delivery.entry.sizes) < found._delivery.entry.batches
    assert found.headers == HEADERS
    assert [it[0] for it in found.items] == list(range(12))


def test_an_item_that_leaves_no_room_in_its_batch(ts: Client, clicks: str) -> None:
    """A whole batch without headers: with them it takes another one, and the item goes in pieces."""
    item = bytes(FRAME_BYTES_MAX - HEADER_BYTES - 2 * 4)
    with ts.producer(clicks) as producer:
        producer.instant([item], 0)
        producer.instant([item], 1, headers=LARGEST)
        with producer.transaction(2, headers=LARGEST) as txn:
            txn.send(item)
    for partition, headers in ((0, {}), (1, LARGEST), (2, LARGEST)):
        found = only(ts, clicks, partition)
        assert found.headers == headers
        assert list(found.items) == [item]


def test_arrow_data(ts: Client) -> None:
    rows = pa.table({"n": list(range(1000)), "text": ["x" * 100] * 1000})
    ts.create_stream("rows", 3, schema=rows.schema)
    with ts.producer("rows", compression="zstd") as producer:
        producer.instant(rows, 0, headers=HEADERS)
        with producer.transaction(1, headers=HEADERS) as txn:
            txn.send_many(rows.slice(0, 0))
            txn.send_many(rows.slice(0, 500))
            txn.send_many(rows.slice(500))
    for partition in (0, 1):
        found = only(ts, "rows", partition)
        assert found.headers == HEADERS
        assert found.to_arrow().equals(rows)


def test_a_transaction_without_items_is_none_whatever_its_headers(ts: Client, clicks: str) -> None:
    with ts.producer(clicks) as producer:
        with producer.transaction(0, headers=HEADERS) as txn:
            pass
        assert txn.state is TransactionState.CANCELLED
        with pytest.raises(BadRequest, match="at least one item"):
            producer.instant([], 0, headers=HEADERS)
    assert list(ts.scan(clicks, 0)) == []


def test_wrong_headers_open_nothing(ts: Client, clicks: str) -> None:
    with ts.producer(clicks) as producer:
        many = {str(n): b"" for n in range(HEADERS_MAX + 1)}
        for headers, error in (
            ({"a": "text"}, TypeError),
            ({"": b""}, BadRequest),
            (many, TooLarge),
        ):
            wrong: Any = headers
            with pytest.raises(error, match="header"):
                producer.open(0, headers=wrong)
            with pytest.raises(error, match="header"):
                producer.instant([b"a"], 0, headers=wrong)
        producer.instant([b"after"], 0)
    assert list(only(ts, clicks).items) == [b"after"]


def test_subscribers_see_them_and_groups_commit_them(ts: Client, clicks: str) -> None:
    ts.create_stream("out")
    with ts.producer(clicks) as producer:
        for n in range(3):
            producer.instant([b"%d" % n], 0, headers={"n": b"%d" % n})
    out, group = ts.producer("out"), ts.checkpoint_group()
    group.add(out)
    seen: list[dict[str, bytes]] = []

    def handle(subscriber: Any, txn: Any) -> None:
        seen.append(txn.headers)
        out.open(0, headers={**txn.headers, "from": b"subscriber"}).send(b"x")

    with ts.subscriber(clicks, name="s", on_transaction=handle) as subscriber:
        group.add(subscriber)
        eventually(lambda: subscriber.position(0) == [*ts.scan(clicks, 0)][-1].id)
        group.checkpoint()
    assert seen == [{"n": b"%d" % n} for n in range(3)]
    assert [it.headers for it in ts.scan("out", 0)] == [
        {"n": b"%d" % n, "from": b"subscriber"} for n in range(3)
    ]


def test_loops_read_past_them(ts: Client, clicks: str) -> None:
    ts.create_stream("out", 4)
    seen: list[dict[str, bytes]] = []

    def double(txn: Any) -> list[bytes]:
        seen.append(txn.headers)
        return [b"%d items" % len(txn)]

    with ts.producer(clicks) as producer:
        producer.instant([b"a", b"b"], 0, headers=HEADERS)
    done = ts.process(clicks, "loop", "out", double, max_wait=0.0)
    assert (done.transactions, done.items) == (1, 1)
    assert seen == [HEADERS]
    assert (list(only(ts, "out").items), only(ts, "out").headers) == ([b"2 items"], {})
