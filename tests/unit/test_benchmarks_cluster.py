"""`cluster` and `failover`: how their figures are reckoned, and how they go into the table."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cluster, failover
from benchmarks.cluster_plan import (
    FOLLOWERS,
    JETSTREAM,
    LEADER,
    ONE_SHARD,
    OURS,
    READ,
    SCALE,
    TWO_SHARDS,
    TYPICAL,
    WRITE,
    Key,
    Phase,
)
from benchmarks.cluster_report import make_report as cluster_report
from benchmarks.failover_clients import Moments
from benchmarks.failover_report import EVENTS, Event, Found, Gap
from benchmarks.failover_report import make_report as failover_report
from benchmarks.groups import groups_of
from benchmarks.interface import BadOptions
from benchmarks.page import render
from benchmarks.results import together


def phases(*rates: float) -> list[Phase]:
    """Of 100 items a transaction, one second each."""
    return [
        Phase(round(it / 100), round(it), 1.0, it * 1e-6, it * 2e-6, it * 3e-6, 0.25)
        for it in rates
    ]


def measured_report(folder: Path) -> dict[str, Any]:
    measured: dict[Key, list[Phase]] = {
        (READ, LEADER, TYPICAL): phases(1000, 2000),
        (READ, FOLLOWERS, TYPICAL): phases(3000, 4000),
        (SCALE, ONE_SHARD, TYPICAL): phases(1000, 1000),
        (SCALE, TWO_SHARDS, TYPICAL): phases(1500, 1700),
        (WRITE, JETSTREAM, TYPICAL): phases(100, 200),
        (WRITE, OURS, TYPICAL): phases(900, 1600),
    }
    durability = {subject: "on three disks" for _, subject, _ in measured}
    missing = {"kafka": "there is none here"}
    return cluster_report(cluster.FULL, measured, durability, missing, folder, 1.0).data


def test_ratios_of_a_cluster_are_taken_within_a_round(tmp_path: Path) -> None:
    data = measured_report(tmp_path)
    assert data["ratio_rounds"]["items_vs_jetstream"] == [9.0, 8.0]
    assert data["ratios"]["items_vs_jetstream"] == 8.5
    assert data["ratios"]["two_shards_vs_one"] == 1.6
    assert data["ratios"]["followers_vs_leaders"] == 2.5
    assert data["ratios"]["items_vs_kafka"] is None
    assert data["targets"]["items_vs_jetstream"] == 8.0
    ours = next(it for it in data["results"] if it["subject"] == OURS)
    assert ours["servers_us_per_transaction"]["median"] == pytest.approx(100)
    assert ours["engine_us_per_transaction"]["median"] == pytest.approx(200)
    assert ours["clients_us_per_transaction"]["median"] == pytest.approx(300)
    assert ours["idle"]["median"] == 0.25


def test_groups_of_a_cluster_begin_with_what_is_compared(tmp_path: Path) -> None:
    found = {group.workload: group for group in groups_of(measured_report(tmp_path))}
    assert {name: [it.subject for it in group.entries] for name, group in found.items()} == {
        "write 100 x 100 B, 4 clients": [OURS, JETSTREAM],
        "write on one server 100 x 100 B, 4 clients": [TWO_SHARDS, ONE_SHARD],
        "read back 100 x 100 B, 4 clients": [FOLLOWERS, LEADER],
    }
    scaled = found["write on one server 100 x 100 B, 4 clients"]
    assert scaled.ratio(scaled.entries[1]).rounds == (1.5, 1.7)


def test_a_pause_is_what_an_event_has_added() -> None:
    moments = Moments()
    moments.all = [10.0, 10.1, 10.2, 10.3, 12.4, 12.5, 12.6]
    longest_s, usual_s = moments.gap(10.35)
    assert longest_s == pytest.approx(2.1)
    assert usual_s == pytest.approx(0.1)
    assert Gap(longest_s, usual_s).ms == pytest.approx(2000)


def test_a_pause_that_began_before_the_event_counts() -> None:
    moments = Moments()
    moments.all = [1.0, 1.1, 1.2, 1.3, 1.9]
    assert moments.gap(1.5)[0] == pytest.approx(0.6)
    assert moments.gap(1.25)[0] == pytest.approx(0.6)
    assert moments.gap(2.0) == pytest.approx((0.0, 0.1))


def failed_over(folder: Path) -> dict[str, Any]:
    found = Found(written=7)
    for kind in EVENTS:
        for number in range(1, 11):
            errors = ("Timeout: too late",) if (kind, number) == ("roll", 3) else ()
            found.keep(Event(kind, Gap(number / 10 + 0.01, 0.01), Gap(number / 5, 0.0), errors))
    return failover_report(failover.FULL, found, folder, 1.0).data


def test_percentiles_and_errors_are_told_by_event(tmp_path: Path) -> None:
    data = failed_over(tmp_path)
    assert data["gaps"]["kill"]["write_ms"]["p50"] == 550
    assert data["figures"]["kill_p99_ms"] == pytest.approx(991)
    assert data["gaps"]["kill"]["read_ms"]["max"] == 2000
    assert data["targets"]["kill_p99_ms"] == 5000
    assert (data["figures"]["kill_errors"], data["figures"]["roll_errors"]) == (0, 1)
    assert data["errors"]["roll"] == ["Timeout: too late"]


def test_both_are_on_the_page(tmp_path: Path) -> None:
    reports = [measured_report(tmp_path), failed_over(tmp_path)]
    text, drawn = render(together(reports, {}), "pictures")
    assert set(drawn) == {"cluster.svg", "failover.svg"}
    assert "### Durable transactions on three copies" in text
    assert "| leader killed | tstreams" in text
    assert "p99, ms without an answer | 991 |" in text
    assert "- kafka, in cluster: there is none here." in text


@pytest.mark.parametrize(
    ("benchmark", "words"),
    [
        (cluster, ["--rounds", "2"]),
        (cluster, ["--shards", "0"]),
        (cluster, ["--window", "1000"]),
        (failover, ["--kills", "19"]),
        (failover, ["--session-s", "0.5"]),
    ],
)
def test_nonsense_is_refused(benchmark: Any, words: list[str]) -> None:
    parser = ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    benchmark.add_arguments(parser)
    with pytest.raises(BadOptions):
        benchmark.make_plan(parser.parse_args(words))
