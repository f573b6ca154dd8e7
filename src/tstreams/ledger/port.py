"""The log port: what a shard needs of a log.

The rules every log keeps:
- one writer: taking over with a higher epoch shuts out every earlier writer, for ever;
- a ledger is never opened for writing again; taking over always begins a new one;
- `append` comes back only when the records are durable; if it raises, whether they are is not known,
  unless it raises `DiskFull`, which means that nothing was written;
- ledgers are deleted whole.

`Readable` is what all have, by position and at once. A `Log` is in local files, and its writer waits for the disk.
A `SharedLog` is kept by an engine (see `engine`), and its writer is told later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ..errors import Unavailable
from ..items import Buffer

Record: TypeAlias = Sequence[Buffer]
"""One record, as buffers that are written end to end."""

Position: TypeAlias = int
"""Where a record lies: the ledger's id and the offset in it. Positions are ordered as the log is."""

OFFSET_BITS = 40
OFFSET_MASK = (1 << OFFSET_BITS) - 1
START: Position = 0
NO_END: Position = 1 << 63


def position_of(ledger_id: int, offset: int) -> Position:
    """Put a position together."""
    return ledger_id << OFFSET_BITS | offset


def split_position(position: Position) -> tuple[int, int]:
    """Take a position apart: (ledger id, offset)."""
    return position >> OFFSET_BITS, position & OFFSET_MASK


class DiskFull(Unavailable):
    """There is no room for another ledger. Nothing was written; try again when there is."""

    code = "disk_full"


class LogFailed(Unavailable):
    """A write or a sync failed. What the disk holds is not known: this log must be opened anew."""

    code = "log_failed"


class LogFenced(Unavailable):
    """Another writer has taken the log over. Whether what was under way is in the log is not known here: the new
    writer knows."""


class LogBehind(Unavailable):
    """Ledgers were deleted before they were read here. What they held must come from elsewhere: a snapshot."""


class LedgerDamaged(Unavailable):
    """The copy of a ledger on this node is damaged, and is being fetched again. Nothing is lost: try again."""


Group: TypeAlias = tuple[Position, list[tuple[Position, memoryview]]]
"""What one append wrote: the position behind it, and its records with theirs."""


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger of the list."""

    id: int
    epoch: int
    size_bytes: int
    closed: bool
    created_ms: int


class Readable(Protocol):
    """What is confirmed, by position."""

    @property
    def epoch(self) -> int:
        """The greatest epoch that the log has seen."""

    def read_many(self, wanted: Sequence[tuple[Position, int]]) -> list[memoryview]:
        """Records of these positions and sizes; those that lie together are read together."""

    def scan(self, start: Position, stop: Position = NO_END) -> Iterator[Group]:
        """All confirmed groups from this position (where a group begins) on, in order."""

    @property
    def end(self) -> Position:
        """Behind the last confirmed record."""

    def ledgers(self, after: int = 0, limit: int | None = None) -> list[LedgerInfo]:
        """The list, oldest first: all of it, or up to so many of those after a ledger."""


class Log(Readable, Protocol):
    """The managed ledger of one shard, in local files."""

    def take_over(self, epoch: int, now_ms: int) -> None:
        """Become the writer: shut out all earlier ones and begin a new ledger."""

    def roll(self, now_ms: int) -> None:
        """Close the current ledger and begin the next: what is dead in it can then be removed."""

    @property
    def spare_bytes_wanted(self) -> int:
        """How much room `prepare` would take; 0: it has nothing to do."""

    def prepare(self) -> None:
        """Do what makes later appends faster. May run in a thread beside `append`."""

    def relax(self, now_ms: int, *, scarce: bool = False) -> None:
        """Give back what `prepare` has taken, if it is not needed, or if room is scarce. Not while
        `prepare` runs."""

    def append(self, records: Sequence[Record], now_ms: int) -> list[Position]:
        """Append a group of records, durably. Their positions."""

    def sync(self) -> None:
        """Make durable what `append` did not, if the log was told to leave that to the system."""

    def trim(self, ledger_ids: Iterable[int]) -> None:
        """Delete whole ledgers. One that is gone already is no error; the current one is refused."""

    def close(self) -> None:
        """Give everything back. The log can be opened again."""


class SharedLog(Readable, Protocol):
    """The managed ledger of one shard, kept by an engine for all nodes. On the loop that it was opened on.

    A writer has one group under way at most. Nothing is confirmed, and `end` does not move, before the engine has
    said so. `LogFenced`: somebody else is the writer now.
    """

    async def take_over(self, epoch: int, now_ms: int) -> None:
        """Become the writer: read to the end, shut out all earlier ones and begin a new ledger."""

    async def roll(self, now_ms: int) -> None:
        """Close the current ledger and begin the next."""

    def append(self, records: Sequence[Record], now_ms: int) -> Awaitable[list[Position]]:
        """Begin to append a group of records; their positions come when it is confirmed. It goes on if
        nobody waits for it any more."""

    async def trim(self, ledger_ids: Iterable[int]) -> None:
        """Delete whole ledgers, for all nodes. One that is gone already is no error; the current one is refused."""

    async def close(self) -> None:
        """Give everything back. The log can be opened again."""
