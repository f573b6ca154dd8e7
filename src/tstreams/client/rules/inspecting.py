"""What operators ask and do: one request each, of the node or of one of its shards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ...model import check_name
from ...protocol import AnyReply, Done, EndTransactions, Message, ResetReader
from .link import Link
from .ticket import Steps, answer

R = TypeVar("R", bound=AnyReply)


def inspect(link: Link, message: Message, kind: type[R], shard: int | None = None) -> Steps[R]:
    """Ask a shard, or the node."""
    return (yield from answer(link.ask(message, shard=shard), kind))


def reset_reader(
    link: Link, stream: str, reader: str, positions: Iterable[tuple[int, int]], force: bool
) -> Steps[None]:
    """Put a reader elsewhere."""
    check_name(stream)
    check_name(reader, "reader")
    session = yield from link.session(link.shard_of(stream))
    ticket = session.start(ResetReader, stream, reader, list(positions), force)
    yield from answer(ticket, Done)


def end_transactions(link: Link, shard: int, transactions: Iterable[int]) -> Steps[None]:
    """Cancel open transactions, whoever they belong to."""
    session = yield from link.session(shard)
    yield from answer(session.start(EndTransactions, list(transactions)), Done)
