"""What readers ask: ranges of visible transactions, now or when there are some."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from moebius import Request

from ..core.shard import Shard
from ..core.transitions import WHOLE_STREAM
from ..errors import BadRequest, Corrupt, Error, TooLarge
from ..index import Index, floor_of
from ..index.keys import unpack_transaction
from ..items import Buffer
from ..limits import (
    FETCH_BYTES_MAX,
    FETCH_TRANSACTIONS_MAX,
    FETCH_WAIT_MS_MAX,
    FETCH_WANTS_MAX,
    KIB,
    WAITING_FETCHES_MAX,
)
from ..protocol import Fetch, Fetched, FetchedTransaction, FetchLast, Want, encode
from .payloads import Payloads
from .wire import wire_error

_SHARE_BYTES_MIN = 64 * KIB
"""Of many partitions each gets so much of an answer at least, before the next has its turn."""


@dataclass(slots=True)
class _Waiter:
    """A `Fetch` that found nothing."""

    request: Request
    fetch: Fetch
    timer: asyncio.TimerHandle


class Reads:
    """Answers readers. Must be asked only when everything that the core has decided is durable."""

    _core: Shard

    def __init__(self, index: Index, payloads: Payloads) -> None:
        self._index = index
        self._payloads = payloads
        self._waiters: dict[int, dict[int, _Waiter]] = {}
        self._waiting = 0
        self._last_waiter = 0

    def follow(self, core: Shard) -> None:
        """Answer by what this core says; it is made anew when the one before has to be given up."""
        self._core = core

    def fetch(self, now_ms: int, request: Request, fetch: Fetch) -> None:
        """Answer, or wait for something to answer with."""
        if len(fetch.wants) > FETCH_WANTS_MAX:
            raise TooLarge(
                f"{len(fetch.wants)} partitions in one request are over {FETCH_WANTS_MAX}"
            )
        found = self._collect(now_ms, fetch, fetch.wants)
        if found or not fetch.wait_ms or not fetch.wants:
            request.answer(self._pack(found))
            return
        if self._waiting >= WAITING_FETCHES_MAX:
            raise TooLarge(f"{self._waiting} readers wait already")
        self._waiting += 1
        self._last_waiter += 1
        number, wait_s = self._last_waiter, min(fetch.wait_ms, FETCH_WAIT_MS_MAX) / 1000
        timer = request.client.loop.call_later(wait_s, self._give_up, fetch.stream, number)
        self._waiters.setdefault(fetch.stream, {})[number] = _Waiter(request, fetch, timer)

    def last(self, now_ms: int, request: FetchLast) -> tuple[Buffer, ...]:
        """The last visible transaction."""
        stream = self._core.state.stream(request.stream)
        self._check_partition(stream.partitions, request.partition)
        floor = floor_of(stream.purged_before, stream.ttl_ms, now_ms)
        frontier = self._core.state.frontier(request.stream, request.partition)
        last_id = self._core.state.last_id if frontier is None else frontier - 1
        found = self._index.facts.last_transaction(
            request.stream, request.partition, floor, last_id
        )
        if found is None:
            return self._pack([])
        transaction, value = found
        want = Want(request.partition, transaction, transaction)
        chosen, _ = _choose(want, transaction, value, request.bytes_max, True)
        return self._pack([chosen])

    def wake(self, now_ms: int) -> None:
        """Look again at the partitions in which something may have become visible."""
        stirred = self._core.state.stirred
        if self._waiters:
            by_stream: dict[int, set[int]] = {}
            for stream_id, partition in stirred:
                if stream_id in self._waiters:
                    by_stream.setdefault(stream_id, set()).add(partition)
            for stream_id, partitions in by_stream.items():
                for number in list(self._waiters[stream_id]):
                    self._look_again(now_ms, stream_id, number, partitions)
        stirred.clear()

    def end_waits(self, error: Error | None = None) -> None:
        """Answer all that wait: with nothing, or with this."""
        for stream_id in list(self._waiters):
            for number in list(self._waiters[stream_id]):
                request = self._dismiss(stream_id, number)
                if error is None:
                    request.answer(self._pack([]))
                else:
                    request.fail(wire_error(error))

    @property
    def waiting(self) -> int:
        """Readers that wait."""
        return self._waiting

    # Inside.

    def _look_again(self, now_ms: int, stream_id: int, number: int, partitions: set[int]) -> None:
        waiter = self._waiters[stream_id][number]
        if waiter.request.client.gone:
            self._dismiss(stream_id, number).answer()
            return
        everything = WHOLE_STREAM in partitions
        wants = [it for it in waiter.fetch.wants if everything or it.partition in partitions]
        try:
            found = self._collect(now_ms, waiter.fetch, wants) if wants else []
            answer = self._pack(found) if found else None
        except Error as error:
            self._dismiss(stream_id, number).fail(wire_error(error))
            return
        if answer is not None:
            self._dismiss(stream_id, number).answer(answer)

    def _give_up(self, stream_id: int, number: int) -> None:
        if number in self._waiters.get(stream_id, ()):
            self._dismiss(stream_id, number).answer(self._pack([]))

    def _dismiss(self, stream_id: int, number: int) -> Request:
        waiters = self._waiters[stream_id]
        waiter = waiters.pop(number)
        if not waiters:
            del self._waiters[stream_id]
        waiter.timer.cancel()
        self._waiting -= 1
        return waiter.request

    def _collect(self, now_ms: int, fetch: Fetch, wants: Iterable[Want]) -> list[_Chosen]:
        """The visible transactions that are wanted, as far as they fit into an answer."""
        state = self._core.state
        stream = state.stream(fetch.stream)
        floor = floor_of(stream.purged_before, stream.ttl_ms, now_ms)
        left = min(fetch.bytes_max, FETCH_BYTES_MAX)
        share = max(_SHARE_BYTES_MIN, left // max(1, len(fetch.wants)))
        chosen: list[_Chosen] = []
        for want in wants:
            self._check_partition(stream.partitions, want.partition)
            frontier = state.frontier(fetch.stream, want.partition)
            to_id = want.to_id if frontier is None else min(want.to_id, frontier - 1)
            room = min(left, share)
            found = self._index.facts.transactions(
                fetch.stream, want.partition, max(want.from_id, floor), to_id
            )
            for transaction, value in found:
                it, size = _choose(want, transaction, value, room, not chosen)
                if it.places:
                    chosen.append(it)
                    room -= size
                    left -= size
                if room <= 0 or not it.whole or len(chosen) >= FETCH_TRANSACTIONS_MAX:
                    break
            if left <= 0 or len(chosen) >= FETCH_TRANSACTIONS_MAX:
                break
        return chosen

    def _check_partition(self, partitions: int, partition: int) -> None:
        if partition >= partitions:
            raise BadRequest(
                f"the stream has the partitions 0 to {partitions - 1}, not {partition}"
            )

    def _read(self, chosen: list[_Chosen]) -> tuple[list[_Chosen], list[Buffer]]:
        """The batches of what was chosen, or of those before the first that is damaged."""
        try:
            return chosen, self._payloads.read([place for it in chosen for place in it.places])
        except Corrupt:
            batches: list[Buffer] = []
            for number, it in enumerate(chosen):
                try:
                    batches += self._payloads.read(it.places)
                except Corrupt:
                    if number == 0:
                        raise
                    return chosen[:number], batches
            return chosen, batches

    def _pack(self, chosen: list[_Chosen]) -> tuple[Buffer, ...]:
        """An answer: what it holds, and all batches end to end."""
        if not chosen:
            return (_NOTHING, b"")
        chosen, batches = self._read(chosen)
        sizes = iter(map(len, batches))
        listed = [
            FetchedTransaction(
                it.partition,
                it.transaction,
                it.items,
                it.batches,
                it.first_batch,
                [next(sizes) for _ in it.places],
            )
            for it in chosen
        ]
        blob = batches[0] if len(batches) == 1 else b"".join(batches)
        return (encode(Fetched(listed)), blob)


_NOTHING = encode(Fetched([]))


@dataclass(slots=True)
class _Chosen:
    """A transaction, or a part of it, that goes into an answer."""

    partition: int
    transaction: int
    items: int
    batches: int
    first_batch: int
    places: list[tuple[int, int]]

    @property
    def whole(self) -> bool:
        """Whether its last batch is in the answer."""
        return self.first_batch + len(self.places) >= self.batches


def _choose(
    want: Want, transaction: int, value: bytes, room: int, at_least_one: bool
) -> tuple[_Chosen, int]:
    """As many batches of a transaction as there is room for, and what they take."""
    items, places = unpack_transaction(value)
    first = want.first_batch if transaction == want.from_id else 0
    if first and first >= len(places):
        raise BadRequest(f"transaction {transaction} has {len(places)} batches, not {first + 1}")
    taken: list[tuple[int, int]] = []
    size = 0
    for place in places[first:]:
        if size + place.size > room and (taken or not at_least_one):
            break
        taken.append(place)
        size += place.size
    return _Chosen(want.partition, transaction, items, len(places), first, taken), size
