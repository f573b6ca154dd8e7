"""Points in a stream, as they are written on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ..errors import BadRequest
from ..model import ID_MAX, IDS_PER_MS, Offset, first_id_at, milliseconds

POINT_HELP = (
    "a time (2026-01-01T12:00:00Z; UTC if no zone is given), how long ago (15m, 12h, 7d), "
    "or id:N, a transaction's id"
)

_ID = re.compile(r"id:(\d{1,19})")


def id_of(text: str, now: datetime | None = None) -> int:
    """The first transaction id at a point. `now` is for tests."""
    if found := _ID.fullmatch(text):
        return min(int(found[1]), ID_MAX)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return max(0, first_id_at(now or datetime.now(UTC)) - _ago_ms(text) * IDS_PER_MS)
    return first_id_at(when if when.tzinfo else when.replace(tzinfo=UTC))


def _ago_ms(text: str) -> int:
    try:
        return milliseconds(text)
    except BadRequest:
        raise BadRequest(f"{text!r} is no point in a stream: give {POINT_HELP}") from None


def offset_of(text: str, now: datetime | None = None) -> Offset:
    """Where a reader starts: `oldest`, `newest`, or a point. An id is the first that is read."""
    if text == "oldest":
        return Offset.oldest()
    if text == "newest":
        return Offset.newest()
    first = id_of(text, now)
    return Offset.after(first - 1) if first else Offset.oldest()
