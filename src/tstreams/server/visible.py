"""What readers may see of a shard: which transactions, and their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from ..core.facts import Agent, StreamState
from ..core.records import InstantMade
from ..core.rules import fenced, no_partition
from ..core.shard import Shard, session_ended
from ..core.waits import InDoubt
from ..errors import BadRequest, Corrupt
from ..index import Index, floor_of
from ..index.keys import ONE_BATCH, unpack_transaction
from ..items import Buffer
from ..limits import FETCH_BYTES_MAX, FETCH_TRANSACTIONS_MAX, KIB, SURVEY_TRANSACTIONS_MAX
from ..model import ID_MAX
from ..protocol import (
    Fetched,
    FetchedTransaction,
    StretchInfo,
    Survey,
    SurveyWant,
    Want,
    encode,
)
from .caught_up import CaughtUp
from .metrics import Metrics
from .payloads import Payloads

_SHARE_BYTES_MIN = 64 * KIB
"""Of many partitions each gets so much of an answer at least, before the next has its turn."""

_PARTS_MAX = 60
_PART_BYTES_MIN = 16 * KIB
"""Up to so many transactions that are so large, of one batch each, go as parts of their own: a frame has 64 parts
at most."""

_PIECES_BYTES_MIN = 64 * KIB
_PIECE_BYTES_MIN = 4 * KIB
"""From these sizes on, of an answer and of its batches on average, they are not copied together."""


class Chosen(msgspec.Struct, gc=False):
    """A transaction, or a part of it, that goes into an answer. A struct of msgspec, because one is made for each
    transaction that is read, and that is cheaper than a dataclass."""

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


class Visible:
    """The visible part of a shard. To be asked only when all that the core has decided is durable."""

    _core: Shard
    agent: Callable[[int], Agent | None]
    """An agent, if it holds its name."""
    heads: Mapping[tuple[int, int], object]
    """The partitions, by stream, in which something is open. In others what is made is visible at once."""
    _caught_up: CaughtUp

    def __init__(self, index: Index, payloads: Payloads, metrics: Metrics) -> None:
        self._index = index
        self._payloads = payloads
        self.metrics = metrics

    def follow(self, core: Shard) -> None:
        """Answer by what this core says; it is made anew when the one before has to be given up."""
        self._core = core
        self.agent = core.state.agent
        self.heads = core.state.heads
        self._caught_up = CaughtUp(core.state.stirred)

    def stirred(self) -> set[tuple[int, int]]:
        """The partitions in which something may have become visible, until `settle` is called."""
        return self._core.state.stirred

    def settle(self) -> None:
        """Everyone has been told what became visible."""
        self._caught_up.forget_stirred()
        self._core.state.stirred.clear()

    def lost(self) -> set[int]:
        """The agents that hold their names no more. Whoever has told everyone clears it."""
        return self._core.state.lost

    def check_agent(self, agent_id: int, session_id: int) -> None:
        """`Fenced` if an agent does not hold its name, unless it has lost it with its session."""
        if self.agent(agent_id) is None:
            if session_id and session_id not in self._core.state.sessions:
                raise session_ended()
            raise fenced(agent_id)

    def stream(self, stream_id: int) -> StreamState:
        """A stream; `NotFound` if it was deleted."""
        return self._core.state.stream(stream_id)

    def check_partition(self, stream: StreamState, partition: int) -> None:
        """Refuse a partition that a stream has not, or not in this shard."""
        if partition not in stream.local:
            raise no_partition(stream, partition, self._core.state.number)

    def check_settled(self, stream_id: int, wants: Iterable[Want]) -> None:
        """`InDoubt` where the next that could be read is part of a group that may have happened already: whoever has
        seen another part of it must not be told that there is nothing."""
        state = self._core.state
        if not state.groups.prepared:
            return
        self.check_replaced(stream_id)
        heads = (state.head_group(stream_id, it.partition, it.to_id) for it in wants)
        doubts = dict.fromkeys(group for group in heads if group is not None)
        if doubts:
            raise InDoubt(doubts)

    def check_replaced(self, stream_id: int) -> None:
        """`InDoubt` if what a stream holds may have been replaced already."""
        if doubts := self._core.state.groups.replacing.get(stream_id):
            raise InDoubt(doubts)

    def collect(
        self, now_ms: int, stream_id: int, wants: Iterable[Want], bytes_max: int, shares: int
    ) -> tuple[list[Chosen], int, list[int]]:
        """The visible transactions that are wanted, as far as they fit into an answer; how many of the
        wants were looked at; and the partitions of those in which there may be more. Each gets a fair
        share of the room."""
        stream = self.stream(stream_id)
        floor = floor_of(stream.purged_before, stream.ttl_ms, now_ms)
        answer = _Answer(min(bytes_max, FETCH_BYTES_MAX))
        share = answer.room // max(1, shares)
        scans: list[_Scan] = []
        looked = 0
        for want in wants:
            if want.partition not in stream.local:
                raise no_partition(stream, want.partition, self._core.state.number)
            looked += 1
            if self._caught_up.holds((stream_id, want.partition), max(want.from_id, floor)):
                continue
            scan = _Scan(want, self._range(stream_id, want, floor))
            scans.append(scan)
            scan.take(answer, share)
            if answer.is_full:
                break
        for scan in scans:  # what some did not use is for the others
            if scan.is_held and not answer.is_full:
                scan.take(answer, answer.room)
        self._note_ends(stream_id, scans, floor)
        return answer.chosen, looked, [it.partition for it in scans if it.has_more]

    def _note_ends(self, stream_id: int, scans: list[_Scan], floor: int) -> None:
        """Where a partition was read to its end, there need be no looking until it is stirred up."""
        for scan in scans:
            if not scan.has_more and scan.is_unbounded:
                key = (stream_id, scan.partition)
                self._caught_up.note(key, max(scan.next_id, floor))

    def _range(self, stream_id: int, want: Want, floor: int) -> Iterator[tuple[int, bytes]]:
        frontier = self._core.state.frontier(stream_id, want.partition)
        to_id = want.to_id if frontier is None else min(want.to_id, frontier - 1)
        from_id = max(want.from_id, floor)
        return self._index.facts.transactions(stream_id, want.partition, from_id, to_id)

    def survey(self, now_ms: int, survey: Survey) -> list[StretchInfo]:
        """How far can be read in partitions, and how much that is."""
        stream = self.stream(survey.stream)
        floor = floor_of(stream.purged_before, stream.ttl_ms, now_ms)
        budget = max(1, SURVEY_TRANSACTIONS_MAX // max(1, len(survey.wants)))
        stretches = []
        for want in survey.wants:
            self.check_partition(stream, want.partition)
            self.check_settled(stream.id, [Want(want.partition, want.from_id)])
            if want.transactions_max or want.bytes_max:
                asked = Want(want.partition, want.from_id)
                found = self._range(stream.id, asked, floor)
                stretches.append(_measure(want, found, budget))
            else:
                last_id = self._last_id(stream.id, want.partition)
                first_id = max(want.from_id, floor)
                end = self._index.facts.last_transaction(
                    stream.id, want.partition, first_id, last_id
                )
                stretches.append(StretchInfo(want.partition, end[0] if end else 0))
        return stretches

    def _last_id(self, stream_id: int, partition: int) -> int:
        """No visible transaction has a greater id."""
        frontier = self._core.state.frontier(stream_id, partition)
        return self._core.state.last_id if frontier is None else frontier - 1

    def last(self, now_ms: int, stream_id: int, partition: int, bytes_max: int) -> list[Chosen]:
        """The last visible transaction of a partition, if there is one."""
        state = self._core.state
        stream = state.stream(stream_id)
        self.check_partition(stream, partition)
        self.check_settled(stream_id, [Want(partition, 0)])
        floor = floor_of(stream.purged_before, stream.ttl_ms, now_ms)
        last_id = self._last_id(stream_id, partition)
        found = self._index.facts.last_transaction(stream_id, partition, floor, last_id)
        if found is None:
            return []
        transaction, value = found
        want = Want(partition, transaction, transaction)
        return [_choose(want, transaction, value, bytes_max, True)[0]]

    def pack(self, chosen: list[Chosen]) -> tuple[Buffer, ...]:
        """An answer: what it holds, and all batches end to end, or each for itself if they are large.

        It ends before the first damaged batch; `Corrupt` names it if it is the first of all.
        """
        return self.pack_some(chosen)[1] if chosen else (_NOTHING, b"")

    def pack_for(self, stream_id: int, chosen: list[Chosen]) -> tuple[Buffer, ...]:
        """The same for a reader of a stream, and counted as read."""
        if not chosen:
            return _NOTHING, b""
        packed, answer = self.pack_some(chosen)
        self.metrics.read(stream_id, packed, sum(map(len, answer[1:])))
        return answer

    def pack_some(self, chosen: list[Chosen]) -> tuple[list[Chosen], tuple[Buffer, ...]]:
        """The same, and what is in it."""
        chosen, head, batches = self.pack_apart(chosen)
        if go_as_parts(batches, len(chosen)):
            return chosen, (head, *batches)
        return chosen, (head, b"".join(batches))

    def pack_apart(self, chosen: list[Chosen]) -> tuple[list[Chosen], bytes, list[Buffer]]:
        """What is in an answer, what it holds, and its batches, which whoever sends it need not copy."""
        chosen, batches = self._read(chosen)
        sizes = map(len, batches)
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
        return chosen, encode(Fetched(listed)), batches

    def _read(self, chosen: list[Chosen]) -> tuple[list[Chosen], list[Buffer]]:
        try:
            return chosen, self._payloads.read([place for it in chosen for place in it.places])
        except Corrupt:
            batches: list[Buffer] = []
            for number, it in enumerate(chosen):
                try:
                    batches += self._payloads.read(it.places)
                except Corrupt as error:
                    if number == 0:
                        where = f"transaction {it.transaction} in partition {it.partition}"
                        raise Corrupt(f"{where} cannot be read: {error.message}") from error
                    return chosen[:number], batches
            return chosen, batches


def go_as_parts(batches: list[Buffer], transactions: int) -> bool:
    """Whether the batches of so many transactions go as parts of their own: one always does, and large ones."""
    count = len(batches)
    if count == 1:
        return True
    return count == transactions <= _PARTS_MAX and sum(map(len, batches)) >= _PART_BYTES_MIN * count


def go_in_pieces(batches: list[Buffer]) -> bool:
    """Whether to send the batches one after the other costs less than to copy them together first."""
    return sum(map(len, batches)) >= max(_PIECES_BYTES_MIN, _PIECE_BYTES_MIN * len(batches))


def pack_fresh(made: list[tuple[InstantMade, Buffer]]) -> tuple[Buffer, ...]:
    """An answer with whole transactions that have just been made."""
    if len(made) == 1:  # the same without lists: a reader waits for it
        ((it, batch),) = made
        only = FetchedTransaction(it.partition, it.transaction, it.count, 1, 0, [len(batch)])
        return (encode(Fetched([only])), batch)
    listed = [
        FetchedTransaction(it.partition, it.transaction, it.count, 1, 0, [len(batch)])
        for it, batch in made
    ]
    return (encode(Fetched(listed)), b"".join([batch for _, batch in made]))


def _measure(
    want: SurveyWant, found: Iterator[tuple[int, bytes]], transactions_max: int
) -> StretchInfo:
    """Count transactions up to the limits of a want; one at least."""
    if want.transactions_max:
        transactions_max = min(transactions_max, want.transactions_max)
    last_id = transactions = items = size = 0
    for transaction, value in found:
        count, places = unpack_transaction(value)
        grown = size + sum(place.size for place in places)
        if transactions and (
            transactions >= transactions_max or (want.bytes_max and grown > want.bytes_max)
        ):
            return StretchInfo(want.partition, last_id, transactions, items, size, True)
        last_id, size = transaction, grown
        transactions += 1
        items += count
    return StretchInfo(want.partition, last_id, transactions, items, size)


_NOTHING = encode(Fetched([]))


class _Answer:
    """What has been chosen for an answer, and the room that is left in it."""

    __slots__ = ("chosen", "room")

    def __init__(self, room: int) -> None:
        self.chosen: list[Chosen] = []
        self.room = room

    @property
    def is_full(self) -> bool:
        return self.room <= 0 or len(self.chosen) >= FETCH_TRANSACTIONS_MAX


class _Scan:
    """A want, and how far it has been served.

    `_held` is the transaction that there was no room for. After one that went in part nothing more is taken:
    its reader asks for the rest first.
    """

    __slots__ = ("_found", "_held", "_want", "has_more", "is_held", "next_id")

    def __init__(self, want: Want, found: Iterator[tuple[int, bytes]]) -> None:
        self._want = want
        self._found = found
        self._held: tuple[int, bytes] | None = None
        self.has_more = True
        """Whether there may be more than was taken."""
        self.is_held = False
        """Whether more could be taken if there were room."""
        self.next_id = want.from_id
        """Everything before it was taken, or is none of this want's business."""

    @property
    def partition(self) -> int:
        """What it looks at."""
        return self._want.partition

    @property
    def is_unbounded(self) -> bool:
        """Whether it wants everything from its first id on."""
        return self._want.to_id == ID_MAX

    def take(self, answer: _Answer, share: int) -> None:
        """Put as much into the answer as the share allows."""
        room = min(answer.room, max(share, _SHARE_BYTES_MIN))
        self.is_held = True
        chosen = answer.chosen
        # As `answer.is_full` says: this is done for each transaction that is read.
        while answer.room > 0 and len(chosen) < FETCH_TRANSACTIONS_MAX:
            found = self._held or next(self._found, None)
            if found is None:
                self.has_more = self.is_held = False
                return
            transaction, value = found
            it, size = _choose(self._want, transaction, value, room, not chosen)
            if not it.places:
                self._held = found
                return
            self._held = None
            chosen.append(it)
            answer.room -= size
            room -= size
            if it.batches > 1 and not it.whole:
                self.is_held = False
                return
            self.next_id = transaction + 1


def _choose(
    want: Want, transaction: int, value: bytes, room: int, at_least_one: bool
) -> tuple[Chosen, int]:
    """As many batches of a transaction as there is room for, and what they take."""
    if len(value) == ONE_BATCH.size and not want.first_batch:  # most are like this
        items, _, position, size = ONE_BATCH.unpack(value)
        if size > room and not at_least_one:
            return Chosen(want.partition, transaction, items, 1, 0, []), 0
        return Chosen(want.partition, transaction, items, 1, 0, [(position, size)]), size
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
    return Chosen(want.partition, transaction, items, len(places), first, taken), size
