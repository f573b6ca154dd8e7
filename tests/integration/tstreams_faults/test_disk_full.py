"""A full disk: writers are told at once, readers go on, and writing goes on by itself once there is room."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import tstreams
from tests.crash.server import KilledServer
from tests.integration.tstreams_faults.small_disk import fill, free_bytes
from tstreams.server.verify import verify

ITEM_BYTES = 200_000
Written = list[tuple[int, bytes]]


def write_until_refused(*producers: tstreams.Producer) -> tuple[Written, tstreams.Unavailable]:
    """All that was acknowledged, and the refusal, when it is the last word."""
    written: Written = []
    refusals = 0
    while True:
        item = os.urandom(ITEM_BYTES if len(written) % 2 else 50)
        try:
            written.append((producers[len(written) % len(producers)].instant([item]), item))
            refusals = 0
        except tstreams.Unavailable as error:
            refusals += 1
            if refusals == 3:
                return written, error
            time.sleep(0.3)  # what was prepared for more to come is given back now


def write_once_there_is_room(producer: tstreams.Producer, item: bytes) -> int:
    """What a patient writer does."""
    for _ in range(150):
        try:
            return producer.instant([item])
        except tstreams.Unavailable as error:
            assert "disk is full" in error.message
            time.sleep(0.2)
    raise AssertionError("there is room, and writing does not go on")


def everything(ts: tstreams.Client, stream: str) -> Written:
    """All that a new reader sees."""
    with ts.consumer(stream) as consumer:
        return [(it.id, it.items[0]) for it in consumer.read(max_wait=0.5)]


def assert_refused(producer: tstreams.Producer) -> None:
    """At once, and in words."""
    with pytest.raises(tstreams.Unavailable, match=r"disk is full.*Make room") as refused:
        producer.instant([bytes(ITEM_BYTES)])
    assert not isinstance(refused.value, tstreams.Timeout)


def test_a_disk_full_of_our_own_data(server: KilledServer, small_disk: Path) -> None:
    """Deleting a stream makes room, also if what is kept lies between what is deleted."""
    with tstreams.connect(server.url) as ts:
        ts.create_stream("kept", ttl="1d")
        ts.create_stream("bulk", ttl="1d")
        kept, bulk = ts.producer("kept"), ts.producer("bulk")
        open_one = kept.open()
        open_one.send(b"before it was full")
        written, error = write_until_refused(kept, bulk)
        assert "disk is full" in error.message
        assert len(written) > 150, "most of the disk has been used"
        assert free_bytes(small_disk) > 0, "there is a reserve, for what must go on"
        for producer in (kept, bulk):
            assert_refused(producer)
        with ts.consumer("bulk", name="reader") as reader:
            assert [(it.id, it.items[0]) for it in reader.read(max_wait=0.5)] == written[1::2]
            reader.checkpoint()  # readers go on in every respect
        ts.delete_stream("bulk")
        assert everything(ts, "kept") == [], "what was opened first is still open"
        open_one.cancel()
        last = write_once_there_is_room(kept, b"after it was full")
        assert everything(ts, "kept") == [*written[::2], (last, b"after it was full")]
        ts.create_stream("bulk", ttl="1d")
        again, error = write_until_refused(ts.producer("bulk"))
        assert len(again) > 50, "the room of what was deleted can be used again"
        assert "disk is full" in error.message
        assert everything(ts, "bulk") == again
    assert server.stop() == 0
    assert verify(server.data).problems == []


def test_a_disk_full_of_what_is_not_ours(server: KilledServer, small_disk: Path) -> None:
    with tstreams.connect(server.url) as ts:
        ts.create_stream("kept", ttl="1d")
        producer = ts.producer("kept")
        written = [(producer.instant([item]), item) for item in map(os.urandom, [50_000] * 40)]
        open_one = producer.open()
        open_one.send_many([os.urandom(ITEM_BYTES)] * 3)
        filler = fill(small_disk)
        assert_refused(producer)
        fill(small_disk)
        for _ in range(4):  # longer than it takes until the index would be flushed
            assert everything(ts, "kept") == written
            assert_refused(producer)
            time.sleep(3)
        fill(small_disk)
        filler.unlink()
        last = write_once_there_is_room(producer, b"after it was full")
        open_one.cancel()
        assert everything(ts, "kept") == [*written, (last, b"after it was full")]
        fill(small_disk)
    assert server.stop() == 0, "a full disk is no reason not to stop"
    assert verify(server.data).problems == []


def test_a_kill_while_the_disk_is_full(server: KilledServer, small_disk: Path) -> None:
    with tstreams.connect(server.url) as ts:
        ts.create_stream("kept", ttl="1d")
        ts.create_stream("bulk", ttl="1d")
        kept, bulk = ts.producer("kept"), ts.producer("bulk")
        written, _ = write_until_refused(kept, bulk)
        server.kill()
        server.start()
        assert everything(ts, "kept") == written[::2]
        assert everything(ts, "bulk") == written[1::2]
        assert_refused(bulk)
        filler = fill(small_disk)
        server.kill()
        with pytest.raises(RuntimeError, match="Make room on the disk"):
            server.start()  # not a byte is left: it says so, and damages nothing
        filler.unlink()
        server.start()
        assert everything(ts, "bulk") == written[1::2]
        ts.delete_stream("bulk")
        last = write_once_there_is_room(kept, b"after it was full")
        assert everything(ts, "kept") == [*written[::2], (last, b"after it was full")]
    assert server.stop() == 0
    assert verify(server.data).problems == []
