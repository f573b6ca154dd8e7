"""Looking at single transactions and ranges, without moving a reader."""

from __future__ import annotations

from ...errors import BadRequest, TooLarge
from ...limits import BETWEEN_BYTES_MAX, FETCH_BYTES, FETCH_BYTES_MAX
from ...model import ID_MAX
from ...protocol import FetchLast, Want
from .delivery import Delivery, Source, deliveries
from .ticket import Steps


def check_id(transaction_id: int) -> int:
    """A number that can be the id of a transaction."""
    if isinstance(transaction_id, bool) or not isinstance(transaction_id, int):
        raise BadRequest(f"the id of a transaction is a number, not {transaction_id!r}")
    if not 0 <= transaction_id <= ID_MAX:
        raise BadRequest(f"{transaction_id} is the id of no transaction")
    return transaction_id


def last(source: Source, partition: int) -> Steps[Delivery | None]:
    """The last visible transaction of a partition."""
    message = FetchLast(source.stream_id, partition, FETCH_BYTES)
    ticket = source.link.ask(message, shard=source.shard_of(partition))
    found = yield from deliveries(source, ticket)
    return found[0] if found else None


def by_id(source: Source, partition: int, transaction_id: int) -> Steps[Delivery | None]:
    """A transaction, if it is visible."""
    check_id(transaction_id)
    want = Want(partition, transaction_id, transaction_id)
    ticket = source.fetch([want], FETCH_BYTES, surely=True)
    found = yield from deliveries(source, ticket)
    return found[0] if found else None


def between(
    source: Source, partition: int, from_id: int, to_id: int, bytes_max: int = BETWEEN_BYTES_MAX
) -> Steps[list[Delivery]]:
    """The visible transactions after `from_id`, up to and with `to_id`."""
    if check_id(from_id) > check_id(to_id):
        raise BadRequest(f"a range goes up, not from {from_id} to {to_id}")
    found: list[Delivery] = []
    size = 0
    next_id = from_id + 1
    while next_id <= to_id:
        ticket = source.fetch([Want(partition, next_id, to_id)], FETCH_BYTES_MAX, surely=True)
        chunk = yield from deliveries(source, ticket)
        if not chunk:
            break
        found += chunk
        size += sum(len(it.data) for it in chunk)
        if size > bytes_max:
            raise TooLarge(
                f"the transactions from {from_id} to {to_id} are over {bytes_max} bytes, "
                "too much for one list: seek() there and read()"
            )
        next_id = chunk[-1].id + 1
    return found
