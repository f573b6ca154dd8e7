"""What operators ask and do: one request each, of the node or of one of its shards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ...model import check_name
from ...protocol import AnyReply, Done, EndTransactions, Message, ResetReader
from .link import Link
from .streams import find_stream
from .ticket import Steps, answer

R = TypeVar("R", bound=AnyReply)


def inspect(link: Link, message: Message, kind: type[R], shard: int | None = None) -> Steps[R]:
    """Ask a shard, or the node."""
    return (yield from answer(link.ask(message, shard=shard), kind))


def reset_reader(
    link: Link, stream: str, reader: str, positions: Iterable[tuple[int, int]], force: bool
) -> Steps[None]:
    """Put a reader elsewhere. With partitions in several shards it is not one step: if a shard fails, those that
    were asked before may be done, and it can be asked for again.

    The home comes first. Who holds the name holds it there, whatever it reads: so if that is refused, nothing was
    done. If it is forced, all shards are told, because in each the holder has to be fenced.
    """
    check_name(stream)
    check_name(reader, "reader")
    info = yield from find_stream(link, stream)
    ring = link.shards.ring_of(stream, info.partitions)
    by_shard: dict[int, list[tuple[int, int]]] = {ring[0]: []}
    if force:
        by_shard = {shard: [] for shard in ring}
    for position in positions:
        by_shard.setdefault(ring[position[0] % len(ring)], []).append(position)
    sessions = yield from link.sessions_in(by_shard)
    for shard, session in sessions.items():
        ticket = session.start(ResetReader, stream, reader, by_shard[shard], force)
        yield from answer(ticket, Done)


def end_transactions(link: Link, shard: int, transactions: Iterable[int]) -> Steps[None]:
    """Cancel open transactions, whoever they belong to."""
    session = yield from link.session(shard)
    yield from answer(session.start(EndTransactions, list(transactions)), Done)
