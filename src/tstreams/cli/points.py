"""Points in a stream, as they are written on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ..errors import BadRequest
from ..model import ID_MAX, IDS_PER_MS, Offset, first_id_at, milliseconds, time_of

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


def place_of(text: str, now: datetime | None = None) -> str | dict[str, str]:
    """The same, as REST takes it: the place after which a reader goes on. A time may be in the future."""
    if text in ("oldest", "newest"):
        return text
    first = id_of(text, now)
    if not _ID.fullmatch(text):
        return {"time": time_of(first).isoformat()}
    return {"id": str(first - 1)} if first > 1 else "oldest"


def bound_of(text: str, now: datetime | None = None) -> str:
    """A bound of a range, as REST takes it: an id, or a time."""
    first = id_of(text, now)
    return str(first) if _ID.fullmatch(text) else time_of(first).isoformat()
