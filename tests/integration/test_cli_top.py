"""`tstreams top`: as lines, as JSON, once, and on a real terminal with keys."""

from __future__ import annotations

import json
import re
import signal
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

import tstreams
from tstreams.cli.top_picture import ASCII_BLOCKS, BLOCKS, spark

from .cli import Shell, stream_of
from .discovery.doors import Door, door, wait_for
from .terminals import terminal

pytestmark = pytest.mark.xdist_group("cli-operating")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("top")
    with door(folder / "data") as made, tstreams.connect(made.tcp) as client:
        client.create_stream("busy")
        with client.producer("busy", name="stuck") as producer:
            producer.instant([b"one"])
            producer.open().send(b"two")
            wait_for(lambda: made.get("/v1/statistics")["busiest"])
            wait_for(lambda: made.get("/v1/statistics")["open_transactions"])
            yield made


def test_once_is_a_picture_without_colours_where_there_is_no_terminal(place: Door) -> None:
    shown = Shell(place.url).ok("top", "--once").text
    assert "\x1b" not in shown
    for heading in ("BUSIEST STREAMS", "SLOWEST CONSUMERS", "OLDEST OPEN TRANSACTIONS"):
        assert heading in shown
    assert re.search(r"^busy ", shown, re.MULTILINE)
    assert "busy, partition 0" in shown
    assert "working" in shown


def test_json_is_a_line_each_time(place: Door) -> None:
    told = Shell(place.url).ok("top", "--once", "--json").json
    assert (told["available"], told["open_transactions"]) == (True, 1)
    with Shell(place.url).started("top", "--json", "--interval", "0.2s") as process:
        lines = [json.loads(stream_of(process.stdout).readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert all(it["values"]["open_transactions"] == 1 for it in lines)


def test_lines_where_nothing_can_be_drawn(place: Door) -> None:
    with Shell(place.url).started("top", "--interval", "0.2s") as process:
        lines = [stream_of(process.stdout).readline().decode() for _ in range(3)]
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert lines[0].split()[:2] == ["TIME", "TXN/S"]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines[1:])


def test_a_dumb_terminal_gets_lines(place: Door) -> None:
    with terminal(Shell(place.url), "top", "--interval", "0.2s", TERM="dumb") as seen:
        seen.wait_for(r"TXN/S.*\r\n\d\d:\d\d:\d\d .*\r\n\d\d:\d\d:\d\d ")
        seen.process.send_signal(signal.SIGINT)
        assert seen.ended() == 130


def test_keys_sort_pause_and_quit_and_the_terminal_is_as_before(place: Door) -> None:
    with terminal(Shell(place.url), "top", "--interval", "0.2s") as seen:
        before = termios.tcgetattr(seen.second)
        seen.wait_for(r"sort: bytes")
        assert termios.tcgetattr(seen.second)[3] != before[3]  # keys come without Enter
        seen.strike("s")
        seen.wait_for(r"sort: items")
        seen.strike("p")
        seen.wait_for(r"paused")
        seen.strike("p")
        seen.wait_for(r"working")
        seen.strike("q")
        assert seen.ended() == 0
        assert termios.tcgetattr(seen.second)[3] == before[3]


def test_it_goes_on_while_nobody_answers(tmp_path: Path) -> None:
    words = ("top", "--interval", "0.2s", "--timeout", "2s")
    with door(tmp_path / "data") as made, terminal(Shell(made.url), *words) as seen:
        seen.wait_for(r"working")
        made.front.suspend()
        seen.wait_for(r"has not answered")
        made.front.resume()
        seen.wait_for(r"working")
        seen.strike("q")
        assert seen.ended() == 0


def test_nobody_there_at_the_start() -> None:
    done = Shell("http://127.0.0.1:1")("top")
    assert (done.code, "cannot be reached" in done.err) == (1, True)
    assert Shell("http://127.0.0.1:1")("top", "--interval", "0.01s").code == 2


def test_a_row_of_blocks() -> None:
    assert spark([0, 1, 2, 4], 10) == BLOCKS[0] + BLOCKS[2] + BLOCKS[4] + BLOCKS[7]
    assert spark([9, 0, 4], 2, ASCII_BLOCKS) == ASCII_BLOCKS[0] + ASCII_BLOCKS[7]
    assert spark([0.0, 0.0], 10) == BLOCKS[0] * 2
    assert spark([1.0], 0) == spark([], 5) == ""
