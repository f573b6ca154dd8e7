"""Items in files and pipes: lines, and items behind their lengths, cut wherever blocks end."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams.cli import framing
from tstreams.cli.framing import (
    LengthPrefixed,
    Lines,
    Splitter,
    blocks,
    join_length_prefixed,
    join_lines,
)
from tstreams.errors import BadRequest


def cut(splitter: Splitter, data: bytes, sizes: list[int]) -> list[bytes]:
    """All items of data that comes in blocks of these sizes, again and again."""
    items, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        items += splitter.split(data[at : at + size])
        at, turn = at + size, turn + 1
    return items + splitter.rest()


SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=5)


@given(st.lists(st.binary(max_size=12)), SIZES)
def test_length_prefixed_gives_back_what_was_put_in(items: list[bytes], sizes: list[int]) -> None:
    assert cut(LengthPrefixed(), join_length_prefixed(items), sizes) == items


@given(st.lists(st.text("ab \r", max_size=12).map(str.encode)), SIZES)
def test_lines_give_back_what_was_put_in(items: list[bytes], sizes: list[int]) -> None:
    assert cut(Lines(), join_lines(items), sizes) == items


@pytest.mark.parametrize(
    ("data", "items"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n", [b""]),
        (b"a\n\nb\r\n", [b"a", b"", b"b\r"]),
    ],
    ids=["nothing", "no newline", "newline", "an empty line", "only the newline goes"],
)
def test_what_a_line_is(data: bytes, items: list[bytes]) -> None:
    assert cut(Lines(), data, [3]) == items


def test_a_length_that_cannot_be_is_refused_with_its_place() -> None:
    splitter = LengthPrefixed()
    assert splitter.split(b"\x01\x00\x00\x00a") == [b"a"]
    with pytest.raises(BadRequest, match=r"the item at byte 5 .* is the input length-prefixed\?"):
        splitter.split(b"\xff\xff\xff\xff")


def test_an_input_that_ends_within_an_item_is_refused() -> None:
    splitter = LengthPrefixed()
    assert splitter.split(b"\x01\x00\x00\x00a\x05\x00\x00\x00ab") == [b"a"]
    with pytest.raises(BadRequest, match="ends within the item at byte 5"):
        splitter.rest()


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "ITEM_BYTES_MAX", 10)
    splitter = Lines()
    assert splitter.split(b"123456\n1234") == [b"123456"]
    with pytest.raises(BadRequest, match="a line is longer than an item can be"):
        splitter.split(b"5678901")


def test_an_empty_block_tells_of_a_pause_once() -> None:
    reader, writer = os.pipe()
    found: list[bytes] = []
    paused = threading.Event()

    def read() -> None:
        for block in blocks(reader):
            found.append(block)
            if not block:
                paused.set()

    thread = threading.Thread(target=read)
    thread.start()
    os.write(writer, b"one")
    assert paused.wait(30)
    os.write(writer, b"two")
    os.close(writer)
    thread.join()
    os.close(reader)
    assert b"".join(found) == b"onetwo"
    assert found.index(b"") == 1
