"""Items as people read them: text, JSON, hexadecimal digits, or rows."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

import msgspec

from . import resources as r
from .limits import ITEM_SHOWN_BYTES, ITEMS_SHOWN_BYTES
from .problems import Refused

Shown = Literal["text", "json", "hex"]


def show_items(items: Iterable[bytes], first: int, view: r.View) -> list[r.Item]:
    """Items from the index `first` on, as far as there is room for them; one at least."""
    found: list[r.Item] = []
    room = ITEMS_SHOWN_BYTES
    for index, data in enumerate(items, first):
        if found and min(len(data), ITEM_SHOWN_BYTES) > room:
            break
        found.append(show_item(index, data, view))
        room -= min(len(data), ITEM_SHOWN_BYTES)
    return found


def show_item(index: int, data: bytes, view: r.View) -> r.Item:
    """One item. `Refused` if it cannot be shown as was asked for."""
    if view == "arrow":
        raise Refused(
            422, "bad_request", "view: the stream has no schema, so its items are no rows"
        )
    if view in ("auto", "json") and len(data) <= ITEM_SHOWN_BYTES:
        try:
            value = _read_json(data)
        except ValueError:
            if view == "json":
                raise Refused(
                    422, "bad_request", f"view: item {index} is no JSON; text or hex shows it"
                ) from None
        else:
            # A number or a word on its own is text to people, also if it happens to be JSON.
            if view == "json" or isinstance(value, dict | list):
                return _item(index, data, "json", value, False)
    if view == "json":
        raise Refused(
            422,
            "bad_request",
            f"view: item {index} has {len(data)} bytes, and JSON cannot be cut; text or hex shows it",
        )
    head, cut = data[:ITEM_SHOWN_BYTES], len(data) > ITEM_SHOWN_BYTES
    if view == "hex" or (view == "auto" and not is_text(head, cut)):
        return _item(index, data, "hex", head.hex(), cut)
    return _item(index, data, "text", head.decode(errors="replace"), cut)


def is_text(data: bytes, cut: bool = False) -> bool:
    """Whether it is UTF-8 that people can read. Of what was `cut`, the last character may be incomplete."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not cut or error.start < len(data) - 3:
            return False
        text = data[: error.start].decode()
    return all(char.isprintable() or char in "\r\n\t" for char in text)


def show_rows(rows: Iterable[dict[str, Any]], first: int) -> list[r.Item]:
    """Rows of an Arrow table from the index `first` on, as far as there is room for them; one at least."""
    found: list[r.Item] = []
    room = ITEMS_SHOWN_BYTES
    for index, row in enumerate(rows, first):
        value = _plain(row)
        size = len(msgspec.json.encode(value))
        if found and size > room:
            break
        room -= size
        found.append(r.Item(index=index, bytes=0, view="arrow", value=value, truncated=False))
    return found


def _item(index: int, data: bytes, view: Shown, value: Any, cut: bool) -> r.Item:
    return r.Item(index=index, bytes=len(data), view=view, value=value, truncated=cut)


def _read_json(data: bytes) -> Any:
    """`ValueError` for what is no JSON, or too deep to be written again."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
        msgspec.json.encode(value)
    except (RecursionError, OverflowError, UnicodeError, msgspec.EncodeError) as error:
        raise ValueError(str(error)) from None
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _plain(value: Any) -> Any:
    """A value of Arrow as JSON: what JSON has no word for becomes text."""
    if isinstance(value, dict):
        return {str(key): _plain(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    if isinstance(value, bytes):
        text = value[:ITEM_SHOWN_BYTES]
        return text.decode() if is_text(text) and _whole(text) else base64.b64encode(text).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str):
        return value[:ITEM_SHOWN_BYTES]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
