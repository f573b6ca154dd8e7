"""The parts of the demo that need no server: its day, its payments, its pictures and its report."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tstreams.cli import demo as command
from tstreams.cli.main import main
from tstreams.demo import report
from tstreams.demo.audit import Findings
from tstreams.demo.history import History, Life, MicroBatch, Sample
from tstreams.demo.payments import CLOSING_ID, batch, closing_mark, phantoms
from tstreams.demo.plots import Plot, nice_ticks, short
from tstreams.demo.processes import Lines
from tstreams.demo.producing import Account
from tstreams.demo.show import Options, Outcome
from tstreams.demo.story import (
    BATCH,
    DELAY_S_MAX,
    LEAD_TICKS,
    MINUTE,
    MORNING,
    PARTITIONS,
    WATERMARK_MINUTES,
    Day,
)

# The day.


@pytest.mark.parametrize("payments", [1000, 1001, 1002, 1003, 20_000])
def test_a_day_has_as_many_payments_as_it_was_told(payments: int) -> None:
    day = Day(payments)
    ids = [
        it
        for tick in range(day.ticks)
        for partition in range(PARTITIONS)
        for it in batch(day, tick, partition)["payment"].to_pylist()
    ]
    assert len(ids) == len(set(ids)) == payments
    assert min(ids) >= 0


def test_payments_are_always_the_same() -> None:
    assert batch(Day(5000), 3, 1).equals(batch(Day(5000), 3, 1))
    assert not batch(Day(5000), 3, 1).equals(batch(Day(5000, seed=2), 3, 1))


def test_no_payment_is_later_than_the_watermark_allows() -> None:
    assert DELAY_S_MAX / 60 + 2 * LEAD_TICKS < WATERMARK_MINUTES
    day = Day(40_000)
    for tick in range(day.ticks):
        for partition in range(PARTITIONS):
            found = batch(day, tick, partition)
            times = found["time"].to_pylist()
            begin = MORNING + tick * MINUTE
            assert begin - timedelta(seconds=DELAY_S_MAX) <= min(times)
            assert max(times) < begin + MINUTE
            assert {card % PARTITIONS for card in found["card"].to_pylist()} == {partition}


def test_what_is_not_to_be_counted_can_be_told_from_payments() -> None:
    ids = phantoms(0, 0)["payment"].to_pylist() + phantoms(7, 3)["payment"].to_pylist()
    assert len(set(ids)) == 2 * BATCH
    assert max(ids) < CLOSING_ID < 0
    day = Day(1000)
    mark = closing_mark(day, 2).to_pylist()
    assert [it["payment"] for it in mark] == [CLOSING_ID]
    assert mark[0]["time"] - timedelta(minutes=WATERMARK_MINUTES) >= day.closed


# Lines of children.


def test_half_a_line_waits_for_its_other_half() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file, os.fdopen(writing, "wb", buffering=0) as out:
        lines = Lines(file)
        assert list(lines.take()) == []
        out.write(b'{"a": 1}\n{"a"')
        assert list(lines.take()) == [{"a": 1}]
        out.write(b": 2}\n")
        assert list(lines.take()) == [{"a": 2}]


# The pictures.


@pytest.mark.parametrize("top", [0.0, 0.03, 1.0, 7.0, 99.9, 27_211.0, 3e6])
def test_ticks_are_few_and_reach_the_top(top: float) -> None:
    ticks = nice_ticks(top)
    assert ticks[0] == 0.0
    assert ticks[-1] >= top
    assert 2 <= len(ticks) <= 8


def test_numbers_on_an_axis_are_short() -> None:
    assert [short(it) for it in (0.5, 250, 20_000, 1_500_000)] == ["0.5", "250", "20k", "1.5M"]


def test_a_plot_is_svg_with_what_was_put_in() -> None:
    plot = Plot("rows & more", 10.0, 50.0)
    plot.line([(0, 0), (10, 50)], "line", "#123456", fill=True)
    plot.bars([(1, 2, 30, "one <bar>")], "bars", "#654321")
    plot.mark(5.0, "kill 1", "#ff0000")
    root = ET.fromstring(plot.svg())
    texts = ["".join(it.itertext()) for it in root.iter() if it.tag.endswith(("text", "title"))]
    assert {"rows & more", "line", "bars", "one <bar>", "kill 1", "seconds", "50"} <= set(texts)
    (line,) = (it for it in root.iter() if it.tag.endswith("polyline"))
    (_, first), (_, last) = (map(float, it.split(",")) for it in line.attrib["points"].split())
    assert last < first  # SVG counts from the top


# The report.


def outcome(**found: Any) -> Outcome:
    """Two drivers, one kill."""
    history = History(
        samples=[Sample(0.0, 0, 0), Sample(5.0, 500, 0), Sample(10.0, 1000, 1000)],
        batches=[
            MicroBatch(0, 1, 2.0, 1.0, 500, 0, 10),
            MicroBatch(1, 2, 7.0, 2.0, 500, 0, 10),
        ],
        lives=[Life(1, 0.0, 1.0, 4.0, 1, 1), Life(2, 4.0, 6.0, 10.0, None, 1)],
        closed=9.0,
        ended=12.0,
    )
    findings = Findings(payments=1000, alerts=3, totals=4, patterns={"burst": 3}, **found)
    account = Account(3, 1000, 12, 1, 1, 200)
    return Outcome(Options(1000, 1), account, findings, history, Path("folder"))


def test_the_report_is_one_page_that_fetches_nothing() -> None:
    page = report.page(outcome())
    assert page.count("<svg") == 3
    assert page.count(">kill 1<") == 3
    assert "nothing missing and nothing duplicated" in page
    assert "killed once" in page
    assert "SIGKILL in the middle of micro-batch 1" in page
    for fetched in ("<script", "<link", "src=", "@import", "url("):
        assert fetched not in page
    ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_a_failed_audit_is_a_failed_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "report.html"
    for found in ({"missing": 1}, {"duplicated": 2}, {"strange": 3}, {"phantoms": 4}):
        assert command.finish(outcome(**found), path, as_json=True, kept=False) == 1
        printed = json.loads(capsys.readouterr().out)
        assert printed["ok"] is False
        assert {it: printed[it] for it in found} == found
        assert "The audit failed" in path.read_text()
    assert command.finish(outcome(), path, as_json=False, kept=True) == 0
    text = capsys.readouterr().out
    assert "every payment counts exactly once" in text
    assert f"report: {path}" in text
    assert "tstreams serve --data folder/data" in text


def test_without_its_packages_the_demo_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "NEEDED", ("no_such_package",))
    assert main(["demo"]) == 1
    assert 'pip install "tstreams[spark]"' in capsys.readouterr().err
