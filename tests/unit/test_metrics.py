"""What a shard counts: every record in the right place, and of streams only the busiest."""

from __future__ import annotations

import pytest

from tstreams import measures
from tstreams.core.records import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    Committed,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    Opened,
    Overruled,
    ReaderReset,
    SessionsEnded,
    StepCommitted,
    StreamDeleted,
)
from tstreams.server import measuring
from tstreams.server.metrics import NS_PER_S, Metrics, Tally
from tstreams.server.visible import Chosen


def wrote(
    metrics: Metrics, *records: AnyRecord, shown: tuple[int, ...] = (), size: int = 100
) -> None:
    metrics.wrote([(it, 0, size) for it in records], shown, 2_000_000, 1_000_000)


def instant(stream: int, count: int = 3) -> InstantMade:
    return InstantMade(0, 0, 1, stream, 0, count)


def test_every_record_is_counted_where_it_belongs() -> None:
    metrics = Metrics(0)
    wrote(metrics, instant(1), instant(2, 4))
    wrote(metrics, Opened(0, 0, 9, 1, 0, 3, 1000), ItemsSent(0, 0, 9, 1, 0, 5))
    wrote(metrics, Filled(0, 0, 10, 2, 0, 3, 6), Committed(0, 0, [9, 10], [11], []), shown=(1, 2))
    wrote(metrics, StepCommitted(0, 0, "j", 0, [12], [13], [14, 15], [], False, 0), shown=(1,))
    wrote(metrics, Ended(0, 0, [1, 2], True), Ended(0, 0, [3], False), Overruled(0, 0, [4, 5]))
    wrote(metrics, SessionsEnded(0, 0, [1], [2], [3, 4]), StreamDeleted(0, 0, 1, [1]))
    wrote(metrics, AgentBegun(0, 0, 2, "reader", 1, "r", 1, [7]), AgentEnded(0, 0, 2, [8, 9]))
    wrote(metrics, AgentBegun(0, 0, 2, "reader", 1, "r", 0, []), ReaderReset(0, 0, 1, "r", [], 2))
    assert (metrics.commits, metrics.items, metrics.opened) == (5, 18, 1)
    assert (metrics.records, metrics.groups, metrics.append_bytes) == (16, 8, 1600)
    assert (metrics.expired, metrics.overruled, metrics.fenced) == (4, 2, 2)
    assert metrics.cancelled == 1 + 1 + 2 + 1 + 1 + 1 + 2
    assert metrics.group_records.sum == 16
    assert sum(metrics.group_records.counts) == sum(metrics.sync_seconds.counts) == 8
    assert (sum(metrics.commit_seconds.counts), metrics.commit_seconds.sum) == (16, 32_000_000)
    by_stream = dict(metrics.busiest())
    first, second = by_stream[1], by_stream[2]
    assert (first.transactions, first.items, first.bytes) == (3, 8, 200)
    assert (second.transactions, second.items, second.bytes) == (2, 10, 200)


def test_what_went_to_readers_counts_when_it_is_whole() -> None:
    metrics = Metrics(0)
    whole, part = Chosen(0, 1, 5, 1, 0, [(0, 10)]), Chosen(0, 2, 7, 3, 0, [(0, 10), (0, 10)])
    metrics.read(1, [whole, part], 30)
    metrics.read(1, [Chosen(0, 2, 7, 3, 2, [(0, 10)])], 10)
    metrics.sent(2, 4, 8, 100)
    assert (metrics.answers_read, metrics.transactions_read) == (3, 6)
    assert (metrics.items_read, metrics.bytes_read) == (20, 140)
    it = dict(metrics.busiest())[1]
    assert (it.transactions_read, it.items_read, it.bytes_read, it.bytes) == (2, 12, 40, 0)


def test_a_tally_counts_up_to_its_bounds() -> None:
    tally = Tally((0.001, 0.01), NS_PER_S)
    for value, times in ((0, 1), (1_000_000, 2), (1_000_001, 3), (10_000_000, 4), (10_000_001, 5)):
        tally.add(value, times)
    assert tally.counts == [3, 7, 5]
    assert tally.sum == 2_000_000 + 3_000_003 + 40_000_000 + 50_000_005


def test_without_a_sync_there_is_no_time_of_it() -> None:
    metrics = Metrics(0)
    metrics.wrote([(instant(1), 0, 10)], (), 5, 0)
    assert sum(metrics.sync_seconds.counts) == 0
    assert sum(metrics.commit_seconds.counts) == 1


def test_only_the_busiest_streams_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstreams.server.metrics.STREAMS_MEASURED_MAX", 10)
    monkeypatch.setattr("tstreams.server.metrics.BUSIEST_STREAMS", 3)
    metrics = Metrics(0)
    for _ in range(5):
        wrote(metrics, instant(1), instant(2))
    wrote(metrics, instant(2))
    for stream in range(100, 200):
        wrote(metrics, instant(stream))
        assert metrics.streams <= 10
    assert [it for it, _ in metrics.busiest()][:2] == [2, 1]
    assert len(metrics.busiest()) == 3
    assert dict(metrics.busiest())[2].transactions == 6, "it was never dropped"


def test_many_streams_that_are_only_read_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstreams.server.metrics.STREAMS_MEASURED_MAX", 10)
    metrics = Metrics(0)
    for stream in range(100):
        metrics.sent(stream, 1, 1, 1)
        assert metrics.streams <= 20


def test_who_was_busy_long_ago_gives_way() -> None:
    metrics = Metrics(0)
    for _ in range(50):
        wrote(metrics, instant(1))
    for age_ms in range(20):
        metrics.age(age_ms)
    wrote(metrics, instant(2))
    assert [it for it, _ in metrics.busiest()] == [2, 1]
    it = dict(metrics.busiest())
    assert (it[1].transactions, it[1].since_ms, it[2].since_ms) == (50, 0, 19)


def test_every_measure_is_described_and_the_names_keep_their_rules() -> None:
    assert set(measuring.HISTOGRAMS) == set(measures.HISTOGRAMS)
    assert all(name.endswith("_total") for name in measures.COUNTERS)
    assert not any(name.endswith("_total") for name in (*measures.GAUGES, *measures.HISTOGRAMS))
    texts = [*measures.COUNTERS.values(), *measures.GAUGES.values(), *measures.HISTOGRAMS.values()]
    assert all(text[0].isupper() or text[0].isdigit() for text in texts)
    assert all(text.endswith(".") for text in texts)
