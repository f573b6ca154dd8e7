"""Logs with fields: one line per event, for people or for programs.

    log = logging.getLogger("tstreams.server")
    log.info("a client left", extra=fields(client=7, reason="no heartbeat"))

    2026-01-01T12:00:00.123Z INFO tstreams.server a client left client=7 reason="no heartbeat"
    {"time": "2026-01-01T12:00:00.123Z", "level": "INFO", "logger": "tstreams.server", "message": ...}

Messages of other libraries (moebius, asyncio, warnings of Python) come out in the same shape.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

_EXTRA = "tstreams"
_RESERVED = frozenset({"time", "level", "logger", "message", "error"})
_PLAIN = re.compile(r"[^\s\"'=]+")
_handler: logging.Handler | None = None


def fields(**values: object) -> dict[str, dict[str, object]]:
    """What to give a logger as `extra`. Names that every line has get an underscore behind them."""
    return {_EXTRA: {name + "_" * (name in _RESERVED): value for name, value in values.items()}}


def configure(
    level: str = "info",
    format: str = "text",  # noqa: A002
    stream: TextIO | None = None,
    **always: object,
) -> None:
    """Log everything of this level and above to `stream`, by default standard error. `always`: fields of every line,
    by which one knows the process.

    Applies to all loggers of the process. Called again, it replaces what it did before; handlers that
    others have set up stay.
    """
    global _handler  # noqa: PLW0603 - logging itself is global
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(always) if format == "json" else TextLines(always))
    root = logging.getLogger()
    if _handler is not None:
        root.removeHandler(_handler)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    _handler = handler


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields_of(record: logging.LogRecord, always: Mapping[str, object]) -> Mapping[str, Any]:
    found = getattr(record, _EXTRA, None)
    return {**always, **found} if isinstance(found, Mapping) else always


def _one_line(text: str) -> str:
    """Text that cannot pretend to be another line of the log."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class TextLines(logging.Formatter):
    """Lines for people. A traceback follows its line, indented."""

    def __init__(self, always: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._always = always or {}

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        parts = [_time(record), record.levelname, record.name, _one_line(record.getMessage())]
        parts += [
            f"{name}={_text(value)}" for name, value in _fields_of(record, self._always).items()
        ]
        lines = [" ".join(parts)]
        if record.exc_info:
            lines += self.formatException(record.exc_info).splitlines()
        return "\n    ".join(lines)


def _text(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text)


class JsonLines(logging.Formatter):
    """One JSON object per line. A traceback is the text `error`."""

    def __init__(self, always: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._always = always or {}

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record, self._always),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
