"""Amounts in few letters, tables that fit, and points as REST takes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tstreams.cli.points import bound_of, place_of
from tstreams.cli.tables import (
    Cell,
    _fitting,
    age,
    bytes_rate,
    latency,
    left,
    number,
    rate,
    rich_table,
    right,
    short,
    show_table,
    when,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 µs"),
        (0.00012, "120 µs"),
        (0.25, "250 ms"),
        (0.9996, "1.0 s"),
        (59.9, "59.9 s"),
        (60, "1 m 0 s"),
        (310, "5 m 10 s"),
        (3599.9, "1 h 0 m"),
        (10_920, "3 h 2 m"),
        (4 * 86_400 + 3600, "4 d 1 h"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (0.34, "0.3"),
        (9.96, "10"),
        (950, "950"),
        (999.7, "1.0k"),
        (12_340, "12.3k"),
        (123_400, "123k"),
        (4.6e6, "4.6M"),
        (2e12, "2.0T"),
    ],
)
def test_short_numbers(count: float, text: str) -> None:
    assert short(count) == text


def test_other_amounts() -> None:
    assert (rate(1500), rate(None)) == ("1.5k/s", "-")
    assert (bytes_rate(2048), bytes_rate(None)) == ("2.0 KiB/s", "-")
    assert (latency(0), latency(0.0123), latency(2)) == ("-", "12.30 ms", "2.0 s")
    assert (number(1234), number(1234, exact=False)) == ("1,234", "1,234+")
    assert when(None) == "-"
    assert when(datetime(2026, 1, 1, 12, tzinfo=UTC)) == "2026-01-01 12:00:00"


COLUMNS = (left("NAME"), right("A", spare=True), left("B", spare=True), right("C"))
ROWS = [("a-name", "10", Cell("word", "red"), "1")]


@pytest.mark.parametrize(
    ("room", "kept"), [(80, "NAME A B C"), (13, "NAME A C"), (10, "NAME C"), (1, "NAME C")]
)
def test_columns_that_can_be_spared_are_left_out_from_the_right(room: int, kept: str) -> None:
    columns, rows = _fitting(COLUMNS, ROWS, room)
    assert [it.heading for it in columns] == kept.split()
    assert all(len(row) == len(columns) for row in rows)


def test_a_table_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(COLUMNS, ROWS, "nothing")
    assert capsys.readouterr().out == "NAME     A  B     C\na-name  10  word  1\n"
    show_table(COLUMNS, [], "there is nothing")
    assert capsys.readouterr() == ("", "there is nothing\n")


def test_a_table_by_rich_takes_names_as_they_are() -> None:
    table = rich_table((left("NAME"),), [("[red]not a colour[/red]",)])
    assert table is not None
    (cell,) = table.columns[0].cells
    assert str(cell) == "[red]not a colour[/red]"


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_where_a_reader_goes_on() -> None:
    assert (place_of("oldest"), place_of("newest")) == ("oldest", "newest")
    assert place_of("1h", NOW) == {"time": "2026-01-01T11:00:00+00:00"}
    assert place_of("2026-01-01") == {"time": "2026-01-01T00:00:00+00:00"}
    assert place_of("id:77") == {"id": "76"}, "77 is the first that it reads"
    assert place_of("id:1") == "oldest"


def test_bounds_of_a_range() -> None:
    assert bound_of("id:77") == "77"
    assert bound_of("15m", NOW) == "2026-01-01T11:45:00+00:00"
