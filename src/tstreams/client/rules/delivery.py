"""A transaction as it came from the server: whole, or its first batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...errors import Corrupt, Error, NotFound
from ...items import Buffer, headers_of
from ...limits import FETCH_BYTES
from ...model import Stream
from ...protocol import Fetch, Fetched, FetchedTransaction, Want, decode_reply
from .link import Link
from .roaming import is_astray
from .ticket import Steps, Ticket

if TYPE_CHECKING:
    import pyarrow as pa

    from moebius.messages import Parts


class Source:
    """Where deliveries come from: what all transactions of a reader have in common."""

    def __init__(
        self,
        link: Link,
        stream: Stream,
        stream_id: int,
        reader: str = "",
        roams: bool | None = None,
    ) -> None:
        self.link = link
        self.stream = stream
        self.stream_id = stream_id
        self.reader = reader
        """Its name, if it has one."""
        self.roams = link.roams if roams is None else roams
        """Whether nodes may answer that follow, and may be behind."""
        self._ring = link.shards.ring_of(stream.name, stream.partitions)
        self.schema: pa.Schema | None = stream.schema

    def shard_of(self, partition: int) -> int:
        """The shard of a partition."""
        return self._ring[partition % len(self._ring)]

    def by_shard(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Partitions, by their shards."""
        found: dict[int, list[int]] = {}
        for partition in partitions:
            found.setdefault(self.shard_of(partition), []).append(partition)
        return found

    def fetch(
        self,
        wants: list[Want],
        bytes_max: int,
        wait_s: float = 0.0,
        *,
        ahead: bool = False,
        surely: bool = False,
    ) -> Ticket:
        """Ask for transactions of one shard; the deadline begins when the server has waited. `ahead`: they are
        there, and should come in while somebody works on those before them. `surely`: only the leader can say that
        there is nothing."""
        message = Fetch(self.stream_id, wants, bytes_max, int(wait_s * 1000))
        link = self.link
        shard = self._ring[wants[0].partition % len(self._ring)]
        if self.roams and not surely:
            ticket = link.ask_any(message, shard=shard, wait_s=wait_s)
        else:
            ticket = link.ask(message, shard=shard, timeout_s=link.timeout_s + wait_s)
        if ahead:
            ticket.wire.go_on()
        return ticket


class Delivery:
    """One transaction, and the batches of it that are here.

    Invariant: `data` is as long as the sum of `entry.sizes`.
    """

    __slots__ = ("data", "entry", "id", "source")

    def __init__(self, source: Source, entry: FetchedTransaction, data: memoryview) -> None:
        self.source = source
        self.entry = entry
        self.id = entry.id
        self.data = data

    def batches(self) -> Iterator[Buffer]:
        """The batches that are here."""
        return cut(self.data, self.entry.sizes)

    def headers(self) -> dict[str, bytes]:
        """What stands in the first batch, beside its items. `Corrupt` if that cannot be read."""
        entry = self.entry
        if entry.first_batch or not entry.sizes:
            raise Corrupt(f"transaction {entry.id} came without its first batch")
        return headers_of(self.data[: entry.sizes[0]])

    def more(self, first_batch: int) -> Steps[Delivery]:
        """The batches from this one on, as many as fit into an answer."""
        entry = self.entry
        want = Want(entry.partition, entry.id, entry.id, first_batch)
        ticket = self.source.fetch([want], FETCH_BYTES)
        found = yield from deliveries(self.source, ticket)
        if not found and is_astray(ticket):
            ticket = self.source.fetch([want], FETCH_BYTES, surely=True)
            found = yield from deliveries(self.source, ticket)
        if not found or found[0].entry.first_batch != first_batch or not found[0].entry.sizes:
            raise NotFound(
                f"the rest of transaction {entry.id} is gone: its ttl ended, or it was purged, "
                "while it was being read"
            )
        return found[0]


def cut(data: memoryview, sizes: list[int]) -> Iterator[Buffer]:
    """The parts of what came end to end."""
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size


def deliveries(source: Source, ticket: Ticket) -> Steps[list[Delivery]]:
    """Wait for the answer to a `Fetch`."""
    if not ticket.ended:
        try:
            yield ticket
        except BaseException:
            source.link.cancel(ticket)
            raise
    return unpack(source, ticket)


def unpack(source: Source, ticket: Ticket) -> list[Delivery]:
    """The transactions in an answer."""
    return _cut_out(source, ticket.reply(Fetched), ticket.parts)


def unpack_parts(source: Source, parts: Parts) -> list[Delivery]:
    """The transactions in what the server sent without being asked each time."""
    fetched = decode_reply(parts[0]) if parts else None
    if not isinstance(fetched, Fetched):
        raise Error(f"the server sent {type(fetched).__name__}, not Fetched")
    entries = fetched.transactions
    if len(entries) == 1 and len(parts) == 2 and sum(entries[0].sizes) == len(parts[1]):
        return [Delivery(source, entries[0], memoryview(parts[1]))]  # most have one
    return _cut_out(source, fetched, parts)


def _cut_out(source: Source, fetched: Fetched, parts: Parts) -> list[Delivery]:
    if len(parts) > 2:
        return _take_apart(source, fetched.transactions, parts[1:])
    data = memoryview(parts[1]) if len(parts) > 1 else memoryview(b"")
    found = []
    at = 0
    for entry in fetched.transactions:
        end = at + sum(entry.sizes)
        found.append(Delivery(source, entry, data[at:end]))
        at = end
    if at != len(data):
        raise Corrupt(f"an answer has {len(data)} bytes of batches, and says that it has {at}")
    return found


def _take_apart(source: Source, entries: list[FetchedTransaction], parts: Parts) -> list[Delivery]:
    """The same where each transaction has a part of its own."""
    sizes, said = [len(part) for part in parts], [sum(entry.sizes) for entry in entries]
    if sizes != said:
        raise Corrupt(f"an answer has batches of {sizes} bytes, and says that it has {said}")
    return [
        Delivery(source, entry, memoryview(part))
        for entry, part in zip(entries, parts, strict=True)
    ]
