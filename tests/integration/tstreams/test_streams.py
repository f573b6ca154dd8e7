"""Streams: made, looked up, listed, altered, purged, deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tstreams import AlreadyExists, BadRequest, Client, NotFound, Offset, TooLarge


def test_a_stream_has_what_it_was_made_with(ts: Client) -> None:
    made = ts.create_stream("clicks", partitions=4, ttl="7d", description="who clicked where")
    assert (made.name, made.partitions, made.description) == ("clicks", 4, "who clicked where")
    assert made.ttl == timedelta(days=7)
    assert made.schema is None
    assert ts.stream("clicks") == made


def test_a_stream_without_more_words_has_one_partition(ts: Client) -> None:
    assert ts.create_stream("plain").partitions == 1


@pytest.mark.parametrize("ttl", [90, 90.0, "90s", "1.5m", timedelta(seconds=90)])
def test_a_ttl_is_seconds_a_timedelta_or_text(ts: Client, ttl: float | str | timedelta) -> None:
    assert ts.create_stream("clicks", ttl=ttl).ttl == timedelta(seconds=90)


def test_a_stream_can_carry_a_schema(ts: Client) -> None:
    schema = pa.schema([("user", pa.string()), ("amount", pa.int64())])
    ts.create_stream("orders", schema=schema)
    assert ts.stream("orders").schema == schema


def test_a_name_is_taken_once(ts: Client, clicks: str) -> None:
    with pytest.raises(AlreadyExists, match="clicks"):
        ts.create_stream(clicks)


def test_what_does_not_exist_is_not_found(ts: Client) -> None:
    for use in (ts.stream, ts.delete_stream, ts.producer, ts.consumer):
        with pytest.raises(NotFound, match="nowhere"):
            use("nowhere")
    with pytest.raises(NotFound):
        ts.alter_stream("nowhere", ttl=60)
    with pytest.raises(NotFound):
        ts.purge_stream("nowhere", before=datetime.now(UTC))


def test_listings_are_in_the_order_of_names(ts: Client) -> None:
    names = ["b", "a/2", "a", "ä", "a/1", "日本", "Z"]
    for name in names:
        ts.create_stream(name)
    assert [stream.name for stream in ts.streams()] == sorted(names)
    assert [stream.name for stream in ts.streams(prefix="a")] == ["a", "a/1", "a/2"]
    assert ts.streams(prefix="nothing") == []


def test_listings_come_in_pages(ts: Client) -> None:
    for number in range(10):
        ts.create_stream(f"s{number}")
    first = ts.streams(prefix="s", limit=4)
    assert [stream.name for stream in first] == ["s0", "s1", "s2", "s3"]
    rest = ts.streams(prefix="s", after=first[-1].name)
    assert [stream.name for stream in rest] == [f"s{number}" for number in range(4, 10)]
    assert ts.streams(limit=0) == []
    with pytest.raises(BadRequest):
        ts.streams(limit=-1)


def test_a_listing_is_longer_than_one_answer(ts: Client) -> None:
    for number in range(1050):
        ts.create_stream(f"{number:04}")
    assert [stream.name for stream in ts.streams()] == [f"{number:04}" for number in range(1050)]


def test_ttl_and_description_can_be_altered(ts: Client, clicks: str) -> None:
    assert ts.alter_stream(clicks, ttl="30d").ttl == timedelta(days=30)
    altered = ts.alter_stream(clicks, description="new words")
    assert (altered.ttl, altered.description) == (timedelta(days=30), "new words")
    assert ts.stream(clicks) == altered


def test_a_deleted_stream_is_gone_with_all_it_held(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks, "c1")
    producer.instant([b"old"], partition=0)
    assert consumer.get(0, timeout=10) is not None
    consumer.checkpoint()
    ts.delete_stream(clicks)
    assert ts.streams() == []
    with pytest.raises(NotFound):
        consumer.get(0)
    ts.create_stream(clicks, partitions=4)
    fresh = ts.consumer(clicks, "c1")
    assert fresh.position(0) is None, "its saved offsets are gone too"
    assert fresh.get(0) is None


def test_purging_drops_what_was_opened_before_a_time(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    old = producer.instant([b"old"], partition=0)
    young = producer.instant([b"young"], partition=0)
    ts.purge_stream(clicks, before=young)
    consumer = ts.consumer(clicks)
    assert consumer.by_id(0, old) is None
    assert [txn.id for txn in consumer.read(max_wait=0)] == [young]
    ts.purge_stream(clicks, before=datetime.now(UTC) + timedelta(hours=1))
    consumer.seek(0, Offset.oldest())
    assert consumer.get(0) is None


@pytest.mark.parametrize("name", ["", " x", "x\n", "\x00", "\ud800"], ids=ascii)
def test_bad_names_are_refused_before_anything_is_sent(ts: Client, clicks: str, name: str) -> None:
    calls = ts.statistics().connection.calls
    for use in (ts.create_stream, ts.stream, ts.delete_stream, ts.producer, ts.consumer):
        with pytest.raises(BadRequest):
            use(name)
    with pytest.raises(BadRequest):
        ts.producer(clicks, name)
    assert ts.statistics().connection.calls == calls


def test_what_is_over_a_limit_is_too_large(ts: Client) -> None:
    calls = ts.statistics().connection.calls
    with pytest.raises(TooLarge):
        ts.create_stream("é" * 128)
    with pytest.raises(TooLarge):
        ts.create_stream("clicks", partitions=65_537)
    with pytest.raises(TooLarge):
        ts.create_stream("clicks", description="x" * 5000)
    with pytest.raises(TooLarge):
        ts.create_stream("clicks", schema=b"x" * (1024 * 1024 + 1))
    assert ts.statistics().connection.calls == calls
    assert ts.create_stream("x" * 255, partitions=65_536).partitions == 65_536


@pytest.mark.parametrize("partitions", [0, -1, True, "4"])
def test_a_number_of_partitions_makes_sense(ts: Client, partitions: int) -> None:
    with pytest.raises(BadRequest):
        ts.create_stream("clicks", partitions=partitions)


@pytest.mark.parametrize("ttl", [0.5, -1, "soon", None, float("nan")])
def test_a_ttl_makes_sense(ts: Client, ttl: float) -> None:
    with pytest.raises(BadRequest):
        ts.create_stream("clicks", ttl=ttl)


def test_a_purge_wants_a_time_with_a_zone_or_an_id(ts: Client, clicks: str) -> None:
    for before in (datetime(2024, 1, 1), -1, "yesterday"):
        with pytest.raises(BadRequest):
            ts.purge_stream(clicks, before=before)  # type: ignore[arg-type]
