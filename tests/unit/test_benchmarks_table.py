"""Results of benchmarks: several files together, groups, the table, the plots, and the page that shows them."""

from __future__ import annotations

import json
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import __main__ as command
from benchmarks import plots, table
from benchmarks.groups import Entry, Group, groups_of
from benchmarks.interface import BadOptions, BenchmarkFailed, Progress, Report
from benchmarks.page import render
from benchmarks.results import ALL, load, rows_of, save, together
from benchmarks.rounds import Spread

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The command takes SIGTERM for itself, which is right for a process of its own."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def figures(*rounds: float) -> dict[str, Any]:
    return Spread(rounds).as_dict()


def latency_report(date: str = "2026-01-02 03:04 UTC", ours: float = 200.0) -> dict[str, Any]:
    def result(subject: str, *rounds: float) -> dict[str, Any]:
        return {"subject": subject, "p50_us": figures(*rounds), "p99_us": figures(*rounds)}

    synced, left = "synced before it is acknowledged", "left to the system"
    return {
        "benchmark": "latency",
        "results": [
            result("redis", 100, 110, 120),
            result("tstreams", ours, 2 * ours, ours),
            result("tstreams-nofsync", 50, 60, 70),
        ],
        "durability": {"redis": synced, "tstreams": synced, "tstreams-nofsync": left},
        "missing": {"jetstream": "there is none here"},
        "rate": 1000,
        "rounds": 3,
        "machine": {"cores": 2, "cpu": "a processor", "kernel": "Linux 6", "python": "CPython 3"},
        "versions": {"tstreams": "0.1", "redis-server": "7.0"},
        "seconds": 12.3,
        "run": {"date": date, "commit": "abc", "changed": False, "command": "a command"},
    }


def growth_report(axis: str, date: str, too_fast: list[str]) -> dict[str, Any]:
    base = latency_report(date)
    point = {"commits_per_s": figures(10), "p99_us": figures(20, 30), "setup_us_per_unit": 1.5}
    costs = {"server_us_per_commit": figures(5, 6), "server_us_per_read": figures(7)}
    fit = {"exponent": 0.1, "tail_exponent": None, "allowed": 0.0, "verdict": "flat"}
    return base | {
        "benchmark": "growth",
        "missing": {},
        "grows_faster_than_it_should": too_fast,
        "axes": [
            {
                "axis": axis,
                "title": f"number of {axis}",
                "why": "It is so.",
                "growth": {"server_us_per_commit": fit},
                "points": [{"at": at, **point, **costs} for at in (1, 10, 100)],
            }
        ],
    }


def test_ours_is_compared_round_by_round() -> None:
    groups = groups_of(latency_report())
    assert [(group.workload, group.figure) for group in groups] == [
        ("1000 messages/s, synced", "p50, µs"),
        ("1000 messages/s, not synced", "p50, µs"),
        ("1000 messages/s, synced", "p99, µs"),
        ("1000 messages/s, not synced", "p99, µs"),
    ]
    ours, redis = groups[0].entries
    assert (ours.subject, redis.subject, redis.version) == ("tstreams", "redis", "7.0")
    assert groups[0].ratio(redis).rounds == pytest.approx((2.0, 400 / 110, 200 / 120))
    assert groups[0].ratio(ours).rounds == ()


def durable_report() -> dict[str, Any]:
    def result(subject: str, clients: int, *rounds: float) -> dict[str, Any]:
        shape = {"mode": "write", "items": 100, "item_bytes": 100, "clients": clients}
        return {"subject": subject, **shape, **figures(*rounds)}

    return latency_report() | {
        "benchmark": "durable",
        "results": [
            result("rabbitmq-batch", 4, 10, 20, 30),
            result("redis", 4, 1, 2, 3),
            result("tstreams", 4, 4, 4, 6),
            result("tstreams-nofsync", 4, 20, 20, 15),
        ],
        "durability": {
            "rabbitmq-batch": "left to the system; a transaction is one entry",
            "redis": "appendfsync always",
            "tstreams": "fdatasync once per group, before the replies",
            "tstreams-nofsync": "left to the system",
        },
        "versions": {"tstreams": "0.1", "redis-server": "7.0", "rabbitmq-server": "3.10.8"},
    }


def test_what_is_not_synced_is_compared_with_ours_not_synced() -> None:
    unsynced, synced = groups_of(durable_report())
    assert [entry.subject for entry in synced.entries] == ["tstreams", "redis"]
    assert synced.workload == "write 100 x 100 B, 4 clients"
    ours, theirs = unsynced.entries
    assert unsynced.workload == "write 100 x 100 B, 4 clients, not synced"
    assert (ours.subject, theirs.subject) == ("tstreams-nofsync", "rabbitmq-batch")
    assert theirs.version == "3.10.8"
    assert unsynced.ratio(theirs).rounds == pytest.approx((2.0, 1.0, 0.5))


def test_every_row_says_all_about_itself() -> None:
    rows = rows_of(latency_report())
    assert len(rows) == 6
    for row in rows:
        assert row["durability"]
        assert row["version"]
        assert row["machine"] == "2 cores, a processor, Linux 6, CPython 3"
        assert row["min"] <= row["median"] <= row["max"]
        assert row["run"]["commit"] == "abc"


def test_the_newest_report_of_a_benchmark_counts(tmp_path: Path) -> None:
    save(tmp_path / "b.json", latency_report("2026-01-01 00:00 UTC", ours=111.0))
    newer = together([latency_report("2026-01-02 00:00 UTC", ours=222.0)], {"spark": "no Java"})
    save(tmp_path / "a.json", newer)
    results = load([tmp_path])
    assert [row["median"] for row in results["rows"] if row["subject"] == "tstreams"] == [222, 222]
    assert results["failed"] == {"spark": "no Java"}
    assert results["left_out"]["latency"] == {"jetstream": "there is none here"}


def test_growth_may_be_measured_axis_by_axis(tmp_path: Path) -> None:
    reports: list[tuple[str, int, list[str]]] = [
        ("items", 1, ["items: p99_us"]),
        ("streams", 2, []),
        ("items", 3, []),
    ]
    for axis, day, too_fast in reports:
        report = growth_report(axis, f"2026-01-0{day} 00:00 UTC", too_fast)
        save(tmp_path / f"{axis}-{day}.json", report)
    (found,) = load([tmp_path])["reports"]
    assert [axis["axis"] for axis in found["axes"]] == ["items", "streams"]
    assert found["grows_faster_than_it_should"] == []
    text, _ = render(load([tmp_path]), ".")
    assert text.count("2026-01-02 00:00 UTC") == 1, "it says of which run the other axis is"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"benchmark": "all"}'])
def test_a_file_that_holds_no_results_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "some.json"
    file.write_text(text)
    with pytest.raises(BadOptions, match=r"some\.json is not what"):
        load([tmp_path])


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="there is no JSON in"):
        load([tmp_path])


def test_the_table_and_the_plots(tmp_path: Path) -> None:
    results = together(
        [latency_report(), growth_report("streams", "2026-01-01 00:00 UTC", [])], {"spark": "why"}
    )
    text, drawn = render(results, "pictures")
    assert "| redis 7.0 | synced before it is acknowledged | p50, µs | 110 | 100 .. 120 |" in text
    assert "`a command`, 2026-01-02 03:04 UTC, commit abc, machine A, 3 rounds" in text
    assert "- spark could not be done: why" in text
    assert "- jetstream, in latency: there is none here." in text
    assert set(drawn) == {"latency.svg", "growth-streams.svg"}
    for name, picture in drawn.items():
        assert ET.fromstring(picture).tag == f"{SVG}svg"
        assert f"(pictures/{name})" in text


def test_bars_are_as_long_as_their_figures() -> None:
    entries = [
        Entry(name, None, "", Spread((it,))) for name, it in (("tstreams", 50.0), ("peer", 100.0))
    ]
    picture = plots.bars("title", [Group("b", "w <&>", "f", False, tuple(entries))])
    found = ET.fromstring(picture).findall(f"{SVG}rect")[1:]
    ours, theirs = (float(bar.attrib["width"]) for bar in found)
    assert theirs == pytest.approx(2 * ours)


def test_equal_factors_are_equal_distances() -> None:
    line = plots.Line("l", tuple((float(x), float(x), x, x) for x in (1, 10, 100)))
    picture = plots.panels("title", [plots.Panel("p", "across", (line,), slope=1.0)])
    dots = list(ET.fromstring(picture).iter(f"{SVG}circle"))
    xs, ys = ([float(dot.attrib[name]) for dot in dots] for name in ("cx", "cy"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)
    assert ys[0] > ys[2]


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="needs the lines"):
        table.between_marks("no marks", "text", tmp_path / "page.md")


def test_only_what_is_between_the_marks_is_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    save(tmp_path / "in" / "one.json", latency_report())
    assert command.main(["table", "--from", str(tmp_path / "in"), "--page", str(page)]) == 0
    text = page.read_text("utf-8")
    assert text.startswith(f"before\n{table.BEGIN}\n\n| Machine |")
    assert text.endswith(f"{table.END}\nafter\n")
    assert "old" not in text
    again = load([tmp_path / table.ASSETS / table.RESULTS])
    assert render(again, table.ASSETS)[0] in text
    assert (tmp_path / table.ASSETS / "latency.svg").exists()


def test_the_page_shows_the_results_that_lie_beside_it() -> None:
    assets = PAGE.parent / table.ASSETS
    results = json.loads((assets / table.RESULTS).read_text("utf-8"))
    text, drawn = render(results, table.ASSETS)
    assert table.between_marks(PAGE.read_text("utf-8"), text, PAGE) == PAGE.read_text("utf-8")
    assert {file.name: file.read_text("utf-8") for file in assets.glob("*.svg")} == drawn


class Canned:
    """A benchmark that reports what it was given, or fails."""

    SUMMARY = "Nothing is measured."

    def __init__(self, data: dict[str, Any] | None) -> None:
        self._data = data

    def add_arguments(self, parser: ArgumentParser) -> None:
        """It has no options."""

    def run(self, arguments: Namespace, progress: Progress) -> Report:
        if self._data is None:
            raise BenchmarkFailed("the disk is broken\nand so on")
        return Report(self._data, ())


def test_one_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canned = {"durable": Canned(None), "latency": Canned(latency_report())}
    monkeypatch.setattr(command, "BENCHMARKS", canned)
    assert command.main(["all", "--json", "--out", str(tmp_path)]) == 1
    results = json.loads(capsys.readouterr().out)
    assert results == json.loads((tmp_path / ALL).read_text("utf-8"))
    assert list(results["failed"]) == ["durable"]
    (report,) = results["reports"]
    assert report["run"]["command"] == "python -m benchmarks latency --json"
    assert "- durable could not be done: the disk is broken\n" in (tmp_path / "table.md").read_text(
        "utf-8"
    )
    assert (tmp_path / "latency.svg").exists()
