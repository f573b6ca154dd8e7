"""Messages of a JetStream stream, and the entries that they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from nats.aio.msg import Msg

from ..limits import MIB
from .engine import EngineUnfit, Entry, Place

HEADER = "Tstreams-Entry"

NEWS_BYTES_MAX = 8 * MIB
"""What a follower keeps of messages that came by themselves and were not read yet; the rest it asks for."""


@dataclass(frozen=True, slots=True)
class Part:
    """A message of the stream."""

    sequence: int
    ledger_id: int
    mark: str
    offset: int
    number: int
    count: int
    data: bytes

    @staticmethod
    def of(message: Msg) -> Part:
        """What was read or came; `EngineUnfit` if somebody else has published it."""
        headers = message.headers or {}
        try:
            mark, offset, number, count = headers[HEADER].split(" ")
            sequence, subject = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
            ledger_id = int(subject.rpartition(".")[2], 16)
            return Part(
                sequence, ledger_id, mark, int(offset), int(number), int(count), message.data
            )
        except (KeyError, ValueError) as error:
            raise EngineUnfit(
                f"message {headers.get('Nats-Sequence')} of the stream {headers.get('Nats-Stream')} is not "
                f"ours: others must not publish to it"
            ) from error


def whole(parts: Sequence[Part]) -> list[Entry]:
    """The entries that these messages are, all of them whole."""
    entries = []
    at = 0
    while at < len(parts):
        first = parts[at]
        group = parts[at : at + first.count]
        right = [
            (it.mark, it.number, it.sequence) == (first.mark, n, first.sequence + n - 1)
            for n, it in enumerate(group, 1)
        ]
        if len(group) < first.count or not all(right):
            raise EngineUnfit(
                f"the messages from {first.sequence} on are not the whole of an entry"
            )
        entries.append(entry_of(group))
        at += first.count
    return entries


def entry_of(parts: Sequence[Part]) -> Entry:
    """The entry that these messages are."""
    first, last = parts[0], parts[-1]
    data = first.data if len(parts) == 1 else b"".join(it.data for it in parts)
    return Entry(first.sequence - 1, last.sequence, first.ledger_id, first.offset, first.mark, data)


class News:
    """Messages that came by themselves, and were not read yet. Invariant: their numbers have no gap."""

    def __init__(self, bytes_max: int = NEWS_BYTES_MAX) -> None:
        self._parts: deque[Part] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max

    def add(self, part: Part) -> None:
        """One more came. After one that did not come, what was there before is asked for."""
        if self._parts and part.sequence != self._parts[-1].sequence + 1:
            self.clear()
        self._parts.append(part)
        self._bytes += len(part.data)
        while self._bytes > self._bytes_max:
            self._drop_first()

    def after(self, place: Place, bytes_max: int) -> list[Part]:
        """The messages of the next entries behind a place, all of them whole: about so many bytes, but one entry at
        least. None if the next one did not come, or not all of it."""
        while self._parts and self._parts[0].sequence <= place:
            self._drop_first()
        if not self._parts or self._parts[0].sequence != place + 1 or self._parts[0].number != 1:
            return []
        found: list[Part] = []
        size, complete = 0, 0
        for part in self._parts:
            if complete and size + len(part.data) > bytes_max:
                break
            found.append(part)
            size += len(part.data)
            if part.number == part.count:
                complete = len(found)
        return found[:complete]

    def clear(self) -> None:
        """Forget all of it."""
        self._parts.clear()
        self._bytes = 0

    def _drop_first(self) -> None:
        self._bytes -= len(self._parts.popleft().data)
