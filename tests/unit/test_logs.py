"""Logs: lines for people and lines for programs, with the same fields."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from tstreams.logs import configure, fields

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield io.StringIO()
    for handler in [one for one in root.handlers if one not in before]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(False)


def test_text(stream: io.StringIO) -> None:
    configure("info", "text", stream)
    log = logging.getLogger("tstreams.server")
    log.info("a client left", extra=fields(client=7, reason="no heartbeat", empty="", tail='a"b'))
    assert re.fullmatch(
        rf'{TIME} INFO tstreams.server a client left client=7 reason="no heartbeat" empty="" tail="a\\"b"\n',
        stream.getvalue(),
    )


def test_json_has_the_same_fields(stream: io.StringIO) -> None:
    configure("info", "json", stream)
    log = logging.getLogger("tstreams.server")
    log.warning("a client left", extra=fields(client=7, level="x", what={1}))
    line = json.loads(stream.getvalue())
    assert re.fullmatch(TIME, line.pop("time"))
    assert line == {
        "level": "WARNING",
        "logger": "tstreams.server",
        "message": "a client left",
        "client": 7,
        "level_": "x",
        "what": "{1}",
    }


def test_other_loggers_come_out_alike_and_the_level_counts(stream: io.StringIO) -> None:
    configure("warning", "text", stream)
    logging.getLogger("moebius").info("serving on %s", "tcp://127.0.0.1:1")
    logging.getLogger("moebius.workers").error("worker %d died", 3)
    assert re.fullmatch(rf"{TIME} ERROR moebius.workers worker 3 died\n", stream.getvalue())


def test_configuring_again_replaces(stream: io.StringIO) -> None:
    first = io.StringIO()
    configure("info", "json", first)
    configure("debug", "text", stream)
    logging.getLogger("tstreams").debug("hello")
    assert first.getvalue() == ""
    assert stream.getvalue().endswith("DEBUG tstreams hello\n")


@pytest.mark.parametrize("shape", ["text", "json"])
def test_what_a_client_sends_cannot_pretend_to_be_a_line(stream: io.StringIO, shape: str) -> None:
    configure("info", shape, stream)
    log = logging.getLogger("tstreams")
    log.info("bad name %s", "x\n2026-01-01 ERROR\x1b[31m", extra=fields(name="a\nb"))
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_a_traceback_is_indented_or_a_field(stream: io.StringIO) -> None:
    log = logging.getLogger("tstreams")
    try:
        raise ValueError("broken")
    except ValueError:
        configure("info", "text", stream)
        log.exception("failed")
        in_json = io.StringIO()
        configure("info", "json", in_json)
        log.exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("ERROR tstreams failed")
    assert all(line.startswith("    ") for line in rest)
    assert rest[-1].strip() == "ValueError: broken"
    line = json.loads(in_json.getvalue())
    assert (line["message"], line["error"].splitlines()[-1]) == ("failed", "ValueError: broken")
