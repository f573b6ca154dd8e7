"""What a history is: one JSON line for each operation of each client.

Times are microseconds of a clock that all clients share, and that never goes back; a `Clock` line says what
the time of day was. `outcome` is `ok`, `unknown` (nobody said whether it took effect) or the code of the error
that refused it. What begins is written down too, so that it is known if its client dies: see `begun`. A `stream` is its name and its number (`clicks#3`): one that is made anew is another.
`agent` and `epoch` say who did it: of two agents of one name the newer has the greater epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

OK = "ok"
UNKNOWN = "unknown"
ROLES = ("producer", "reader")

Key: TypeAlias = tuple[str, int, int]
"""Which transaction: stream, partition, id."""


class Operation(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of all operations."""

    start: int
    end: int
    outcome: str = OK
    agent: str = ""
    epoch: int = 0


class Clock(Operation, tag="clock"):
    """The time of day at `start`, in milliseconds since the epoch."""

    wall_ms: int = 0


class Created(Operation, tag="created"):
    """A stream was made, or is known to exist. `ttl_ms` 0: not known."""

    stream: str = ""
    ttl_ms: int = 0


class Altered(Operation, tag="altered"):
    """A stream got another ttl."""

    stream: str = ""
    ttl_ms: int = 0


class Purged(Operation, tag="purged"):
    """What was opened before this id was dropped."""

    stream: str = ""
    before: int = 0


class Deleted(Operation, tag="deleted"):
    """A stream was deleted."""

    stream: str = ""


class Begin(Operation, tag="begin"):
    """An agent took its name, and fenced those that had it before."""


class Close(Operation, tag="close"):
    """An agent gave its name back; what it had open is cancelled."""


class Open(Operation, tag="open"):
    """A transaction was opened. `id` 0: its client was not told."""

    stream: str = ""
    partition: int = 0
    id: int = 0


class Send(Operation, tag="send"):
    """Items were added to an open transaction. `ok` says only that the client took them."""

    stream: str = ""
    partition: int = 0
    id: int = 0
    count: int = 0
    digest: int = 0


class Instant(Operation, tag="instant"):
    """A whole transaction in one request. `id` 0: its client was not told."""

    stream: str = ""
    partition: int = 0
    id: int = 0
    count: int = 0
    digest: int = 0


class Commit(Operation, tag="commit"):
    """Transactions were checkpointed and offsets saved, all or nothing.

    `offsets` are (reader, stream, partition, id). `members` are (agent, epoch) of all that took part.
    `at_once`: the transactions were opened by the commit itself.
    """

    transactions: list[Key] = []
    offsets: list[tuple[str, str, int, int]] = []
    members: list[tuple[str, int]] = []
    at_once: bool = False


class Cancel(Operation, tag="cancel"):
    """Open transactions were dropped. `by_name`: these, and one that had expired would have been refused; else whatever
    was open, as a group or a producer cancels all that it has."""

    transactions: list[Key] = []
    by_name: bool = True


class Read(Operation, tag="read"):
    """A transaction was read. `moves`: in its turn; else it was looked up, without moving."""

    stream: str = ""
    partition: int = 0
    id: int = 0
    count: int = 0
    digest: int = 0
    moves: bool = True


class Empty(Operation, tag="empty"):
    """There was nothing to read after this id, up to and with `up_to` (0: without end)."""

    stream: str = ""
    partition: int = 0
    after: int = 0
    up_to: int = 0
    moves: bool = True


class Stand(Operation, tag="stand"):
    """Where a reader stands: the next one that it reads is the first after this id. -1: not known.

    `resumed`: that is what the server had saved for it (0: nothing).
    """

    stream: str = ""
    partition: int = 0
    after: int = -1
    resumed: bool = False


AnyOperation: TypeAlias = (
    Clock
    | Created
    | Altered
    | Purged
    | Deleted
    | Begin
    | Close
    | Open
    | Send
    | Instant
    | Commit
    | Cancel
    | Read
    | Empty
    | Stand
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyOperation] = msgspec.json.Decoder(AnyOperation)


class BadHistory(Exception):
    """A line is no operation."""


def encode(operation: AnyOperation) -> bytes:
    """One line, with its end."""
    return _encoder.encode(operation) + b"\n"


def begun(number: int, operation: AnyOperation) -> bytes:
    """A line that says that it begins. Its outcome is unknown until the line that says that it is `over`."""
    return b"?%d %s" % (number, encode(operation))


def over(number: int, operation: AnyOperation) -> bytes:
    """A line that says what came of the operation that began under this number, in the same file."""
    return b"=%d %s" % (number, encode(operation))


def decode(line: bytes) -> AnyOperation:
    """One operation."""
    return _decoder.decode(line)


def read(paths: Iterable[Path]) -> Iterator[AnyOperation]:
    """All operations of some files. The last line of a client that was killed may be cut short, and what it had
    under way has an unknown outcome."""
    for path in paths:
        under_way: dict[bytes, AnyOperation] = {}
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                mark, (label, text) = line[:1], (b"", line)
                if mark in b"?=":
                    label, _, text = line[1:].partition(b" ")
                try:
                    operation: AnyOperation = _decoder.decode(text)
                except msgspec.DecodeError as error:
                    raise BadHistory(f"{path}, line {number}: {error}") from None
                if mark == b"?":
                    under_way[label] = operation
                else:
                    under_way.pop(label, None)
                    yield operation
        for operation in under_way.values():
            operation.outcome, operation.end = UNKNOWN, operation.start
            yield operation


def write(path: Path, operations: Iterable[AnyOperation]) -> None:
    """A file with these operations."""
    with path.open("wb") as file:
        file.writelines(map(encode, operations))
