"""The nouns of tstreams: streams, transactions and their states, ids that are times, offsets."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from .errors import BadRequest, Corrupt, TooLarge
from .limits import DESCRIPTION_BYTES_MAX, NAME_BYTES_MAX, PARTITIONS_MAX, STREAM_TTL_MS_MIN

if TYPE_CHECKING:
    import pyarrow as pa

Ttl: TypeAlias = float | int | str | timedelta
"""Seconds, a `timedelta`, or text such as "90s", "15m", "12h", "7d"."""

IDS_PER_MS = 100_000
"""A transaction id is milliseconds since the epoch times this, plus a counter."""

ID_MAX = 2**63 - 1


class TransactionState(Enum):
    """What has become of a transaction. The last three are final."""

    OPENED = "opened"
    CHECKPOINTED = "checkpointed"
    CANCELLED = "cancelled"
    INVALID = "invalid"
    """Its time ran out."""


NEXT_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.OPENED: frozenset(
        {TransactionState.CHECKPOINTED, TransactionState.CANCELLED, TransactionState.INVALID}
    ),
    TransactionState.CHECKPOINTED: frozenset(),
    TransactionState.CANCELLED: frozenset(),
    TransactionState.INVALID: frozenset(),
}


def time_of(transaction_id: int) -> datetime:
    """When a transaction was opened."""
    return datetime.fromtimestamp(transaction_id // IDS_PER_MS / 1000, UTC)


def first_id_at(when: datetime) -> int:
    """The smallest id that a transaction opened at this time can have."""
    if when.tzinfo is None:
        raise BadRequest(f"{when!r} has no time zone: say which one, for example UTC")
    ms = -((-when.timestamp() * 1000) // 1)  # up: an id is never before its millisecond
    return min(max(0, int(ms)) * IDS_PER_MS, ID_MAX)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as a client sees it."""

    name: str
    partitions: int
    ttl: timedelta
    description: str = ""
    schema_bytes: bytes | None = None
    """The serialised Arrow schema, if the stream has one."""
    id: int = field(default=0, repr=False)
    """Its number on its server. A stream that is made anew under the same name has another."""
    purged_before: int = field(default=0, repr=False, compare=False)
    """Transactions with smaller ids cannot be read any more: they were purged, or others took their place."""

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema, if the stream has one. Needs pyarrow. `Corrupt` if its bytes are none."""
        if self.schema_bytes is None:
            return None
        import pyarrow as pa
        import pyarrow.ipc

        try:
            return pa.ipc.read_schema(pa.py_buffer(self.schema_bytes))
        except Exception as error:
            raise Corrupt(f"the schema of stream {self.name!r} cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a partition that can be read. What `client.survey` gives."""

    last_id: int | None
    """The last transaction in it; None: there is nothing to read."""
    transactions: int
    items: int
    size: int
    """Bytes, as they are stored. Like the two above it was counted only if a limit was given."""
    more: bool
    """Whether there is more behind it, for which the limit had no room."""


class Anchor(Enum):
    """What an offset counts from."""

    OLDEST = "oldest"
    NEWEST = "newest"
    FROM_ID = "from_id"


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a reader starts. Make one with `oldest()`, `newest()`, `at(time)` or `after(id)`."""

    anchor: Anchor
    id: int = 0
    """FROM_ID: the first id that may be read."""

    @staticmethod
    def oldest() -> Offset:
        """The first transaction that is still there."""
        return Offset(Anchor.OLDEST)

    @staticmethod
    def newest() -> Offset:
        """What becomes visible from now on, also if it was opened before."""
        return Offset(Anchor.NEWEST)

    @staticmethod
    def at(when: datetime) -> Offset:
        """The first transaction opened at this time or later; the time may lie in the future."""
        return Offset(Anchor.FROM_ID, first_id_at(when))

    @staticmethod
    def after(transaction_id: int) -> Offset:
        """The first transaction after this one."""
        if transaction_id < 0:
            raise BadRequest(f"a transaction id is not negative: {transaction_id}")
        return Offset(Anchor.FROM_ID, min(transaction_id + 1, ID_MAX))


_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TTL = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")


def milliseconds(ttl: Ttl) -> int:
    """A duration in milliseconds."""
    if isinstance(ttl, timedelta):
        seconds = ttl.total_seconds()
    elif isinstance(ttl, str):
        found = _TTL.fullmatch(ttl)
        if found is None:
            raise BadRequest(
                f"{ttl!r} is no duration: write for example '90s', '15m', '12h' or '7d'"
            )
        seconds = float(found[1]) * _UNITS[found[2]]
    elif isinstance(ttl, int | float) and not isinstance(ttl, bool):
        seconds = ttl
    else:
        raise BadRequest(f"{ttl!r} is no duration: give seconds, a timedelta or text such as '7d'")
    if not 0 <= seconds < 1e11:
        raise BadRequest(f"a duration of {float_of(seconds):g} seconds is out of bounds")
    return round(seconds * 1000)


def float_of(number: float) -> float:
    """For messages: a number of any size, which as an integer may be too long to be written."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def check_name(name: str, what: str = "stream") -> str:
    """A name that can be used: not empty, printable, not too long."""
    if not isinstance(name, str) or not name:
        raise BadRequest(f"the name of a {what} is text, and not empty: {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadRequest(f"the name of a {what} must be valid Unicode: {name!r}") from None
    if size > NAME_BYTES_MAX:
        raise TooLarge(f"the name of a {what} has {size} bytes, {NAME_BYTES_MAX} are allowed")
    if not name.isprintable() or any(
        unicodedata.category(char) == "Zs" for char in name[:1] + name[-1:]
    ):
        raise BadRequest(
            f"the name of a {what} must be printable, without space at its ends: {name!r}"
        )
    return name


def check_partitions(partitions: int) -> int:
    """A number of partitions that a stream can have."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise BadRequest(f"a stream has at least one partition, not {partitions!r}")
    if partitions > PARTITIONS_MAX:
        raise TooLarge(f"{partitions} partitions are over the limit of {PARTITIONS_MAX}")
    return partitions


def check_stream_ttl(ttl: Ttl) -> int:
    """A stream's ttl, in milliseconds."""
    ttl_ms = milliseconds(ttl)
    if ttl_ms < STREAM_TTL_MS_MIN:
        raise BadRequest(f"a stream's ttl is at least {STREAM_TTL_MS_MIN} ms, not {ttl_ms}")
    return ttl_ms


def check_description(description: str) -> str:
    """A description that is not too long."""
    if not isinstance(description, str):
        raise BadRequest(f"a description is text, not {type(description).__name__}")
    if len(description.encode(errors="replace")) > DESCRIPTION_BYTES_MAX:
        raise TooLarge(f"a description may have {DESCRIPTION_BYTES_MAX} bytes")
    return description
