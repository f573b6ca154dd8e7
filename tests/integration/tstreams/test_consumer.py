"""Reading: one partition or all, by id, by range, and what is looked at without moving."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tstreams import BadRequest, Client, InvalidState, Offset, Producer
from tstreams.client.rules import lookups

from .conftest import Connect, eventually


@pytest.fixture
def producer(ts: Client, clicks: str) -> Iterator[Producer]:
    with ts.producer(clicks, "p1") as producer:
        yield producer


def test_get_serves_one_partition_in_order(ts: Client, clicks: str, producer: Producer) -> None:
    ids = [producer.instant([b"%d" % n], partition=0) for n in range(5)]
    producer.instant([b"elsewhere"], partition=1)
    consumer = ts.consumer(clicks, "c1")
    found = [consumer.get(0, timeout=10) for _ in range(5)]
    assert [txn.id for txn in found if txn] == ids
    assert consumer.get(0) is None
    assert consumer.position(0) == ids[-1]
    assert consumer.position(1) is None


def test_get_sees_what_was_checkpointed_before_it_was_called(
    ts: Client, clicks: str, producer: Producer
) -> None:
    consumer = ts.consumer(clicks)
    for number in range(100):
        txn_id = producer.instant([b"%d" % number], partition=0)
        read = consumer.get(0)
        assert read is not None
        assert read.id == txn_id


def test_get_waits_for_what_is_not_there_yet(ts: Client, clicks: str, producer: Producer) -> None:
    consumer = ts.consumer(clicks)
    timer = threading.Timer(0.3, producer.instant, ([b"late"],), {"partition": 0})
    timer.start()
    read = consumer.get(0, timeout=30)
    assert read is not None
    assert read.items == [b"late"]
    timer.join()


def test_get_comes_back_with_nothing(ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    assert consumer.get(0) is None
    assert consumer.get(3, timeout=0.2) is None


def test_read_hands_out_all_partitions_each_in_order(
    ts: Client, clicks: str, producer: Producer
) -> None:
    expected: dict[int, list[int]] = {partition: [] for partition in range(4)}
    for number in range(400):
        expected[number % 4].append(producer.instant([b"x"], partition=number % 4))
    found: dict[int, list[int]] = {partition: [] for partition in range(4)}
    for txn in ts.consumer(clicks).read(max_wait=0.1):
        found[txn.partition].append(txn.id)
    assert found == expected


def test_read_is_fair(ts: Client, clicks: str, producer: Producer) -> None:
    for _ in range(50):
        producer.instant([b"x" * 30_000], partition=0)
    producer.instant([b"y"], partition=3)
    reading = ts.consumer(clicks).read(max_wait=0)
    assert 3 in [next(reading).partition for _ in range(20)]


def test_read_goes_on_with_what_comes(ts: Client, clicks: str, producer: Producer) -> None:
    consumer = ts.consumer(clicks)
    reading = consumer.read()
    for number in range(20):
        txn_id = producer.instant([b"x"], partition=number % 4)
        assert next(reading).id == txn_id


def test_read_ends_when_nothing_came_for_a_while(
    ts: Client, clicks: str, producer: Producer
) -> None:
    consumer = ts.consumer(clicks)
    assert list(consumer.read(max_wait=0)) == []
    assert list(consumer.read(max_wait=0.2)) == []
    txn_id = producer.instant([b"x"])
    assert [txn.id for txn in consumer.read(max_wait=0.2)] == [txn_id]


def test_leaving_a_read_early_loses_nothing(ts: Client, clicks: str, producer: Producer) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(10)]
    consumer = ts.consumer(clicks)
    found = []
    for _ in range(5):
        for txn in consumer.read():
            found.append(txn.id)
            if len(found) % 2 == 0:
                break
    assert found == ids
    assert consumer.position(0) == ids[-1]


def test_get_and_read_share_what_they_read(ts: Client, clicks: str, producer: Producer) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(9)]
    consumer = ts.consumer(clicks)
    found = []
    for _ in range(3):
        txn = consumer.get(0, timeout=10)
        assert txn is not None
        found.append(txn.id)
        reading = consumer.read(max_wait=10)
        found += [next(reading).id, next(reading).id]
    assert found == ids


def test_threads_share_a_consumer(ts: Client, clicks: str, producer: Producer) -> None:
    futures = [producer.instant([b"x"], wait=False) for _ in range(2000)]
    expected = sorted(future.result(60) for future in futures)
    consumer = ts.consumer(clicks)
    found: list[int] = []

    def take_all() -> None:
        found.extend(txn.id for txn in consumer.read(max_wait=0.1))

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == expected


def test_many_partitions_are_asked_about_side_by_side(ts: Client) -> None:
    ts.create_stream("wide", partitions=3000)
    producer = ts.producer("wide")
    places = [0, 1, 1023, 1024, 2047, 2048, 2999]
    for place in places:
        producer.instant([b"x"], partition=place)
    consumer = ts.consumer("wide")
    assert sorted(txn.partition for txn in consumer.read(max_wait=0)) == places
    reading = consumer.read()
    for place in places:
        producer.instant([b"y"], partition=place)
        assert next(reading).partition == place


def test_a_consumer_can_read_some_partitions(ts: Client, clicks: str, producer: Producer) -> None:
    for partition in range(4):
        producer.instant([b"x"], partition=partition)
    consumer = ts.consumer(clicks, partitions=[3, 1])
    assert consumer.partitions == [1, 3]
    assert {txn.partition for txn in consumer.read(max_wait=0)} == {1, 3}
    with pytest.raises(BadRequest):
        consumer.get(0)


# Looking without moving.


def test_last_is_the_last_visible_one(ts: Client, clicks: str, producer: Producer) -> None:
    consumer = ts.consumer(clicks)
    assert consumer.last(0) is None
    producer.instant([b"x"], partition=0)
    txn_id = producer.instant([b"y"], partition=0)
    held = producer.open(0)
    producer.instant([b"z"], partition=0)
    last = consumer.last(0)
    assert last is not None
    assert (last.id, last.items) == (txn_id, [b"y"])
    held.cancel()
    newest = consumer.last(0)
    assert newest is not None
    assert newest.items == [b"z"]
    assert consumer.position(0) is None


def test_by_id(ts: Client, clicks: str, producer: Producer) -> None:
    consumer = ts.consumer(clicks)
    txn_id = producer.instant([b"x"], partition=0)
    found = consumer.by_id(0, txn_id)
    assert found is not None
    assert (found.id, found.items) == (txn_id, [b"x"])
    assert consumer.by_id(1, txn_id) is None
    assert consumer.by_id(0, txn_id + 1) is None
    opened = producer.open(0)
    behind = producer.instant([b"y"], partition=0)
    assert consumer.by_id(0, opened.id) is None
    assert consumer.by_id(0, behind) is None, "an open one holds it back"
    assert consumer.position(0) is None


def test_between_leaves_out_the_first_and_has_the_last(
    ts: Client, clicks: str, producer: Producer
) -> None:
    ids = [producer.instant([b"%d" % n], partition=0) for n in range(6)]
    consumer = ts.consumer(clicks)
    assert [txn.id for txn in consumer.between(0, ids[1], ids[4])] == ids[2:5]
    assert [txn.id for txn in consumer.between(0, 0, ids[-1])] == ids
    assert consumer.between(0, ids[2], ids[2]) == []
    held = producer.open(0)
    behind = producer.instant([b"behind"], partition=0)
    assert [txn.id for txn in consumer.between(0, ids[4], behind)] == ids[5:]
    held.cancel()
    assert [txn.id for txn in consumer.between(0, ids[4], behind)] == [ids[5], behind]
    assert consumer.position(0) is None


def test_between_is_more_than_one_answer(ts: Client, clicks: str, producer: Producer) -> None:
    ids = [producer.instant([b"x" * 1_000_000], partition=0) for _ in range(20)]
    found = ts.consumer(clicks).between(0, 0, ids[-1])
    assert [txn.id for txn in found] == ids
    assert {len(txn.items[0]) for txn in found} == {1_000_000}


def test_between_has_a_limit(ts: Client, clicks: str, producer: Producer) -> None:
    ids = [producer.instant([b"x" * 100_000], partition=0) for _ in range(10)]
    consumer = ts.consumer(clicks)
    steps = lookups.between(consumer._rules.source, 0, 0, ids[-1], bytes_max=500_000)
    with pytest.raises(Exception, match="seek") as caught:
        consumer._driver.run(steps)
    assert type(caught.value).__name__ == "TooLarge"


def test_ids_and_partitions_make_sense(ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    calls = ts.statistics().connection.calls
    for partition in (4, -1, True, "0"):
        for use in (consumer.get, consumer.last, consumer.position):
            with pytest.raises(BadRequest):
                use(partition)  # type: ignore[arg-type]
        with pytest.raises(BadRequest):
            consumer.by_id(partition, 1)  # type: ignore[arg-type]
    for wrong in (-1, 2**63, "1", True):
        with pytest.raises(BadRequest):
            consumer.by_id(0, wrong)  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        consumer.between(0, 2, 1)
    for timeout in (-1, float("nan"), "1"):
        with pytest.raises(BadRequest):
            consumer.get(0, timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises(BadRequest):
            consumer.read(max_wait=timeout)  # type: ignore[arg-type]
    for offset in (7, None, datetime.now(UTC)):
        with pytest.raises(BadRequest):
            consumer.seek(0, offset)  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        ts.consumer(clicks, start=7)  # type: ignore[arg-type]
    assert ts.statistics().connection.calls == calls


# The end.


def test_a_closed_consumer_refuses_everything(ts: Client, clicks: str) -> None:
    with ts.consumer(clicks) as consumer:
        reading = consumer.read()
    consumer.close()
    for use in (
        lambda: consumer.get(0),
        consumer.read,
        lambda: next(reading),
        lambda: consumer.last(0),
        lambda: consumer.by_id(0, 1),
        lambda: consumer.between(0, 0, 1),
        lambda: consumer.seek(0, Offset.oldest()),
        lambda: consumer.position(0),
        consumer.checkpoint,
    ):
        with pytest.raises(InvalidState, match="closed"):
            use()


@pytest.mark.parametrize("how", ["get", "read"])
def test_closing_wakes_whoever_waits(ts: Client, clicks: str, how: str) -> None:
    consumer = ts.consumer(clicks)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            consumer.get(0, timeout=100) if how == "get" else next(consumer.read())
        except InvalidState as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: consumer._rules._asks)
    consumer.close()
    thread.join(30)
    assert len(caught) == 1


def test_a_consumer_of_a_deleted_stream_says_so(connect: Connect, ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    reading = consumer.read()
    deleting = threading.Timer(0.2, connect().delete_stream, (clicks,))
    deleting.start()
    with pytest.raises(Exception, match="deleted") as caught:
        next(reading)
    deleting.join()
    assert type(caught.value).__name__ == "NotFound"


def test_a_time_in_the_future_is_no_error(ts: Client, clicks: str, producer: Producer) -> None:
    producer.instant([b"x"], partition=0)
    later = datetime.now(UTC) + timedelta(days=1)
    assert ts.consumer(clicks, start=Offset.at(later)).get(0) is None
