"""Where readers start, resume and seek; and who holds a name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tstreams import Client, Consumer, Fenced, Offset, Producer

from .conftest import Connect


@pytest.fixture
def producer(ts: Client, clicks: str) -> Iterator[Producer]:
    with ts.producer(clicks, "p1") as producer:
        yield producer


def write(producer: Producer, count: int) -> list[int]:
    return [producer.instant([b"x"], partition=0) for _ in range(count)]


def ids(consumer: object) -> list[int]:
    return [txn.id for txn in consumer.read(max_wait=0)]  # type: ignore[attr-defined]


def test_oldest_is_the_default(ts: Client, clicks: str, producer: Producer) -> None:
    written = write(producer, 3)
    assert ids(ts.consumer(clicks)) == written
    assert ids(ts.consumer(clicks, start=Offset.oldest())) == written


def test_newest_sees_what_comes_later(ts: Client, clicks: str, producer: Producer) -> None:
    write(producer, 3)
    consumer = ts.consumer(clicks, start=Offset.newest())
    assert consumer.position(0) is None
    assert ids(consumer) == []
    later = write(producer, 2)
    assert ids(consumer) == later


def test_newest_sees_what_was_opened_before_and_checkpointed_after(
    ts: Client, clicks: str, producer: Producer
) -> None:
    write(producer, 1)
    opened = producer.open(0)
    hidden = producer.instant([b"y"], partition=0)
    consumer = ts.consumer(clicks, start=Offset.newest())
    opened.send(b"x")
    opened.checkpoint()
    assert ids(consumer) == [opened.id, hidden]


def test_at_a_time_includes_it(ts: Client, clicks: str, producer: Producer) -> None:
    write(producer, 2)
    consumer = ts.consumer(clicks)
    first, second = (txn for txn in consumer.read(max_wait=0))
    expected = [second.id] if first.time < second.time else [first.id, second.id]
    assert ids(ts.consumer(clicks, start=Offset.at(second.time))) == expected
    assert ids(ts.consumer(clicks, start=Offset.at(first.time))) == [first.id, second.id]


def test_after_an_id(ts: Client, clicks: str, producer: Producer) -> None:
    written = write(producer, 4)
    assert ids(ts.consumer(clicks, start=Offset.after(written[1]))) == written[2:]


def test_a_consumer_resumes_after_its_checkpoint(
    ts: Client, clicks: str, producer: Producer
) -> None:
    written = write(producer, 4)
    with ts.consumer(clicks, "c1") as consumer:
        for _ in range(2):
            assert consumer.get(0, timeout=10) is not None
        consumer.checkpoint()
        assert consumer.get(0, timeout=10) is not None, "read, but not checkpointed"
    with ts.consumer(clicks, "c1", start=Offset.newest()) as resumed:
        assert resumed.position(0) == written[1]
        assert resumed.position(1) is None
        assert ids(resumed) == written[2:]
    assert ids(ts.consumer(clicks, "c1", resume=False)) == written


def test_a_checkpoint_covers_what_was_handed_out(
    ts: Client, clicks: str, producer: Producer
) -> None:
    written = write(producer, 100)
    with ts.consumer(clicks, "c1") as consumer:
        reading = consumer.read()
        assert [next(reading).id for _ in range(3)] == written[:3]
        consumer.checkpoint()
    assert ts.consumer(clicks, "c1").position(0) == written[2]


def test_seek_to_an_id(ts: Client, clicks: str, producer: Producer) -> None:
    written = write(producer, 5)
    consumer = ts.consumer(clicks)
    assert ids(consumer) == written
    consumer.seek(0, Offset.after(written[1]))
    assert consumer.position(0) == written[1]
    txn = consumer.get(0, timeout=10)
    assert txn is not None
    assert txn.id == written[2]


def test_seek_drops_what_was_fetched_ahead(ts: Client, clicks: str, producer: Producer) -> None:
    written = write(producer, 50)
    consumer = ts.consumer(clicks)
    reading = consumer.read(max_wait=0)
    assert next(reading).id == written[0]
    consumer.seek(0, Offset.after(written[40]))
    assert [txn.id for txn in reading] == written[41:]
    consumer.seek(0, Offset.oldest())
    assert consumer.position(0) is None
    assert ids(consumer) == written


def test_seek_to_newest(ts: Client, clicks: str, producer: Producer) -> None:
    write(producer, 3)
    consumer = ts.consumer(clicks)
    consumer.seek(0, Offset.newest())
    assert ids(consumer) == []
    later = write(producer, 1)
    assert ids(consumer) == later


def test_seek_leaves_the_other_partitions_alone(
    ts: Client, clicks: str, producer: Producer
) -> None:
    written = write(producer, 3)
    elsewhere = [producer.instant([b"x"], partition=1) for _ in range(3)]
    consumer = ts.consumer(clicks)
    assert len(ids(consumer)) == 6
    consumer.seek(0, Offset.after(written[0]))
    assert consumer.position(1) == elsewhere[-1]
    assert ids(consumer) == written[1:]


def test_an_offset_moves_durably_by_a_checkpoint_only(
    ts: Client, clicks: str, producer: Producer
) -> None:
    written = write(producer, 4)
    with ts.consumer(clicks, "c1") as consumer:
        ids(consumer)
        consumer.checkpoint()
        consumer.seek(0, Offset.after(written[0]))
    with ts.consumer(clicks, "c1") as consumer:
        assert consumer.position(0) == written[-1]
        consumer.seek(0, Offset.after(written[0]))
        consumer.checkpoint()
    with ts.consumer(clicks, "c1") as consumer:
        assert consumer.position(0) == written[0]
        consumer.seek(0, Offset.oldest())
        consumer.checkpoint()
    with ts.consumer(clicks, "c1", start=Offset.newest()) as consumer:
        assert consumer.position(0) is None
        assert ids(consumer) == written


def test_seek_wakes_whoever_reads(ts: Client, clicks: str, producer: Producer) -> None:
    import threading

    written = write(producer, 2)
    consumer = ts.consumer(clicks, start=Offset.newest())
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(next(consumer.read()).id))
    thread.start()
    consumer.seek(0, Offset.after(written[0]))
    thread.join(30)
    assert found == [written[1]]


# Names.


def test_a_second_producer_of_a_name_fences_the_first(
    connect: Connect, ts: Client, clicks: str
) -> None:
    first = ts.producer(clicks, "p1")
    txn = first.open(0)
    txn.send(b"zombie")
    second = connect().producer(clicks, "p1")
    for use in (txn.checkpoint, first.checkpoint, first.open, lambda: first.instant([b"x"])):
        with pytest.raises(Fenced):
            use()
    first.close()
    second.instant([b"mine"], partition=0)
    assert [list(txn.items) for txn in ts.consumer(clicks).read(max_wait=0)] == [[b"mine"]]


def test_a_second_consumer_of_a_name_fences_the_first(
    connect: Connect, ts: Client, clicks: str, producer: Producer
) -> None:
    written = write(producer, 2)
    first = ts.consumer(clicks, "c1")
    assert ids(first) == written
    second = connect().consumer(clicks, "c1")
    with pytest.raises(Fenced):
        first.checkpoint()
    first.close()
    assert second.position(0) is None
    second.checkpoint()


def test_names_are_per_kind_and_stream(ts: Client, clicks: str) -> None:
    ts.create_stream("other")
    agents: list[Producer | Consumer] = [ts.producer(clicks, "x"), ts.consumer(clicks, "x")]
    agents += [ts.producer("other", "x"), ts.consumer("other", "x")]
    for agent in agents:
        agent.checkpoint()


def test_an_agent_without_a_name_gets_one_of_its_own(ts: Client, clicks: str) -> None:
    first, second = ts.producer(clicks), ts.producer(clicks)
    assert first.name != second.name
    first.instant([b"x"])
    second.instant([b"y"])
    assert ts.consumer(clicks).name != ts.consumer(clicks).name


def test_a_checkpoint_saves_where_newest_was(ts: Client) -> None:
    ts.create_stream("two", partitions=2)
    producer = ts.producer("two")
    with ts.consumer("two", name="c", start=Offset.newest()) as consumer:
        read = producer.instant([b"read"], partition=0)
        found = consumer.get(0, timeout=5)
        assert found is not None
        assert found.id == read
        consumer.checkpoint()
    missed = producer.instant([b"while nobody read"], partition=1)
    with ts.consumer("two", name="c", start=Offset.newest()) as consumer:
        found = consumer.get(1, timeout=5)
        assert found is not None
        assert found.id == missed
        assert consumer.get(0) is None
