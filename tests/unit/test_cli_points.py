"""Points in a stream, as they are written on a command line; and how input becomes batches."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pytest

from tstreams.cli import produce
from tstreams.cli.framing import join_lines
from tstreams.cli.points import id_of, offset_of
from tstreams.errors import BadRequest
from tstreams.model import ID_MAX, Offset, first_id_at

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01T12:00", NOON),
        ("2026-01-01 13:00+01:00", NOON),
        ("2026-01-01", NOON.replace(hour=0)),
        ("30m", NOON.replace(hour=11, minute=30)),
        ("2h", NOON.replace(hour=10)),
        ("0s", NOON),
    ],
)
def test_a_time_or_how_long_ago(text: str, when: datetime) -> None:
    assert id_of(text, now=NOON) == first_id_at(when)
    assert offset_of(text, now=NOON) == Offset.at(when)


def test_an_id_is_the_first_that_is_read() -> None:
    assert id_of("id:7") == 7
    assert offset_of("id:7") == Offset.after(6)
    assert offset_of("id:0") == Offset.oldest()
    assert id_of("id:9999999999999999999") == ID_MAX


def test_the_two_ends() -> None:
    assert offset_of("oldest") == Offset.oldest()
    assert offset_of("newest") == Offset.newest()


@pytest.mark.parametrize(
    "text", ["", "yesterday", "id:", "id:-1", "id:x", "7", "-5m", "9" * 30 + "d"]
)
def test_what_is_no_point(text: str) -> None:
    with pytest.raises(BadRequest, match="is no point in a stream"):
        id_of(text)


def test_long_ago_is_the_beginning() -> None:
    assert id_of("1000000d", now=NOON) == 0


def batches_of(path: Path, items: list[bytes], items_max: int) -> list[list[bytes]]:
    path.write_bytes(join_lines(items))
    with path.open("rb") as file:
        return list(produce.batches(file.fileno(), "lines", items_max))


def test_a_batch_has_at_most_so_many_items(tmp_path: Path) -> None:
    items = [b"%d" % number for number in range(10_000)]
    found = batches_of(tmp_path / "x", items, 300)
    assert list(chain.from_iterable(found)) == items
    assert [len(batch) for batch in found] == [300] * 33 + [100]


def test_a_batch_of_large_items_is_sent_before_it_is_full(tmp_path: Path) -> None:
    items = [b"x" * 300_000] * 100
    found = batches_of(tmp_path / "x", items, 1000)
    assert list(chain.from_iterable(found)) == items
    assert all(sum(map(len, batch)) < produce.BATCH_BYTES + 2 * 1024 * 1024 for batch in found)
    assert len(found) < 10
