"""How busy a node is: measured, smoothed, and told only if it matters."""

from __future__ import annotations

import pytest

from tstreams.server.load import NOTICEABLE, Load, LoadMeter, work_of
from tstreams.server.metrics import Metrics


def run(
    meter: LoadMeter, seconds: int, busy: float, work: dict[int, int], first_s: int = 0
) -> list[Load]:
    """So many seconds with the same load; what was told."""
    told = []
    for second in range(first_s, first_s + seconds + 1):
        done = {shard: second * each for shard, each in work.items()}
        load = meter.look(float(second), second * busy, done)
        if load is not None:
            meter.told(load)
            told.append(load)
    return told


def test_the_time_of_a_node_is_divided_by_what_its_shards_have_done() -> None:
    last = run(LoadMeter(), 60, 0.8, {0: 300, 1: 100, 2: 0})[-1]
    assert last.node == pytest.approx(0.8, abs=NOTICEABLE)
    assert last.shards[0] == pytest.approx(0.6, abs=NOTICEABLE)
    assert last.shards[1] == pytest.approx(0.2, abs=NOTICEABLE)
    assert last.shards[2] == pytest.approx(0.01)


def test_a_load_that_stays_is_told_a_few_times_and_then_no_more() -> None:
    meter = LoadMeter()
    assert 1 < len(run(meter, 60, 0.5, {0: 10})) <= 0.5 / NOTICEABLE
    assert run(meter, 60, 0.5, {0: 10}, first_s=60) == []


def test_an_idle_node_tells_nothing_and_a_short_peak_is_no_reason() -> None:
    meter = LoadMeter()
    assert run(meter, 60, 0.01, {0: 1, 1: 0}) == []
    (peak,) = [meter.look(61.0, 61 * 0.01 + 1.0, {0: 100, 1: 0})]
    assert peak is not None
    assert peak.node < 0.25


def test_a_shard_that_is_led_no_more_is_told_no_more() -> None:
    meter = LoadMeter()
    run(meter, 60, 0.5, {0: 10, 1: 10})
    told = run(meter, 60, 0.5, {0: 10}, first_s=60)
    assert set(told[0].shards) == {0}


def test_what_could_not_be_told_is_tried_again() -> None:
    meter = LoadMeter()
    meter.look(0.0, 0.0, {0: 0})
    first = meter.look(5.0, 5.0, {0: 10})
    assert first is not None
    assert meter.look(10.0, 10.0, {0: 20}) is not None


def test_a_clock_that_stands_still_measures_nothing() -> None:
    meter = LoadMeter()
    assert meter.look(1.0, 0.0, {0: 0}) is None
    assert meter.look(1.0, 9.0, {0: 10}) is None


def test_whatever_a_shard_does_is_work() -> None:
    metrics = Metrics(0)
    before = work_of(metrics)
    for name in ("groups", "records", "answers_read"):
        setattr(metrics, name, 1)
    metrics.append_bytes = metrics.bytes_read = 64 * 1024
    assert work_of(metrics) == before + 5
