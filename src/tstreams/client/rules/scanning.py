"""Reading without a name: how far a stream can be read, and the transactions in between."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import BadRequest
from ...limits import FETCH_BYTES, FETCH_WANTS_MAX
from ...model import ID_MAX, Stretch
from ...protocol import Survey, Surveyed, SurveyWant, Want
from .delivery import Delivery, Source, deliveries
from .link import Link
from .lookups import check_id
from .partitioning import check_partition
from .roaming import is_astray
from .streams import find_stream, stream_of
from .ticket import Steps, Ticket, answer

Limits = dict[int, tuple[int, int]]
"""Transactions and bytes, 0 for no limit, by partition."""


_NOTHING = Stretch(None, 0, 0, 0, False)


def find_source(link: Link, name: str, roams: bool | None = None) -> Steps[Source]:
    """A stream to read from. `roams`: see `Source`."""
    info = yield from find_stream(link, name)
    return Source(link, stream_of(info), info.id, roams=roams)


class Scan:
    """A range of a partition, fetched a part at a time, the next one while somebody works on the last."""

    def __init__(self, source: Source, partition: int, after: int, up_to: int) -> None:
        check_partition(source.stream, partition)
        self.source = source
        self._partition = partition
        self._up_to = check_id(up_to)
        self._ticket: Ticket | None = None
        self._from_id = 0
        self._ask(check_id(after) + 1)

    def _ask(self, from_id: int, surely: bool = False) -> None:
        self._ticket = None
        self._from_id = from_id
        if from_id <= self._up_to:
            want = Want(self._partition, from_id, self._up_to)
            self._ticket = self.source.fetch([want], FETCH_BYTES, ahead=True, surely=surely)

    def next(self) -> Steps[list[Delivery]]:
        """The next part; nothing at the end."""
        if self._ticket is None:
            return []
        found = yield from deliveries(self.source, self._ticket)
        if not found and is_astray(self._ticket):
            self._ask(self._from_id, surely=True)
            found = yield from deliveries(self.source, self._ticket)
        self._ask(found[-1].id + 1 if found else ID_MAX + 1)
        return found

    def close(self) -> None:
        """Nobody wants the rest."""
        if self._ticket is not None:
            self.source.link.cancel(self._ticket)
            self._ticket = None


def survey(
    source: Source,
    after: Mapping[int, int] | None,
    transactions_max: int | None,
    bytes_max: int | None,
) -> Steps[dict[int, Stretch]]:
    """How far partitions can be read. Limits hold for all partitions together."""
    if after is None:
        after = dict.fromkeys(range(source.stream.partitions), 0)
    for partition, last_id in after.items():
        check_partition(source.stream, partition)
        check_id(last_id)
    limits = (_check_limit(transactions_max), _check_limit(bytes_max))
    found = yield from _survey(source, after, dict.fromkeys(after, limits))
    if not any(limits):
        return found
    shares = _shares(found, *limits)
    if shares is None:
        return found
    return (yield from _survey(source, after, shares))


def _check_limit(limit: int | None) -> int:
    if limit is None:
        return 0
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise BadRequest(f"a limit is a number from 1 on, not {limit!r}")
    return limit


def _shares(found: dict[int, Stretch], transactions_max: int, bytes_max: int) -> Limits | None:
    """What each partition may take of the limits, by how much there is in it; None if all of it fits."""
    transactions = sum(it.transactions for it in found.values())
    size = sum(it.size for it in found.values())
    part = min(
        transactions_max / transactions if transactions_max and transactions else 1.0,
        bytes_max / size if bytes_max and size else 1.0,
    )
    if part >= 1.0:
        return None
    return {
        partition: (max(1, int(it.transactions * part)), max(1, int(it.size * part)))
        for partition, it in found.items()
    }


def _survey(source: Source, after: Mapping[int, int], limits: Limits) -> Steps[dict[int, Stretch]]:
    stretches: dict[int, Stretch] = dict.fromkeys(after, _NOTHING)
    tickets: list[Ticket] = []
    for shard, partitions in source.by_shard(after).items():
        wants = [SurveyWant(it, min(after[it] + 1, ID_MAX), *limits[it]) for it in partitions]
        for at in range(0, len(wants), FETCH_WANTS_MAX):
            message = Survey(source.stream_id, wants[at : at + FETCH_WANTS_MAX])
            tickets.append(source.link.ask(message, shard=shard))
    for ticket in tickets:
        surveyed = yield from answer(ticket, Surveyed)
        for it in surveyed.stretches:
            stretches[it.partition] = Stretch(
                it.last_id or None, it.transactions, it.items, it.bytes, it.more
            )
    return stretches
