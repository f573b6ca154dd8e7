"""What must hold of a simulated shard, whatever has happened to it."""

from __future__ import annotations

from collections import Counter

from tests.simulation.client import SimulatedRequest
from tests.simulation.model import Stream
from tests.simulation.world import World, unpacked
from tstreams.index import keys
from tstreams.ledger.port import split_position
from tstreams.protocol import (
    AgentList,
    DeleteStream,
    Fetch,
    Fetched,
    FetchLast,
    GetJob,
    GetPositions,
    JobInfo,
    ListAgents,
    ListOpen,
    ListReaders,
    ListStreams,
    OpenList,
    Positions,
    ReaderList,
    StreamList,
    Want,
)
from tstreams.server.shard import Shard

READERS = ("x", "y")
JOBS = ("u", "v")


def readers_see_what_they_should(world: World) -> None:
    """All that was acknowledged and lives, whole, in order, and nothing else."""
    listed = world.read(ListStreams("", "", 100)).reply
    assert isinstance(listed, StreamList)
    streams = sorted(world.model.streams.values(), key=lambda it: it.name)
    assert listed.streams == [it.info() for it in streams]
    for stream in streams:
        expected = [
            (partition, it.id, it.batches)
            for partition in range(stream.partitions)
            for it in world.model.visible(stream, partition)
        ]
        assert world.everything(stream.id, stream.partitions) == expected
        for partition in range(stream.partitions):
            last = unpacked(world.read(FetchLast(stream.id, partition, 10**6)))
            assert last == [it for it in expected if it[0] == partition][-1:]
        _positions_are_right(world, stream)
    _operators_see_what_is_there(world)
    for job in JOBS:
        found = world.read(GetJob(job)).reply
        assert found == JobInfo(world.model.last_steps.get(job, -1))


def _operators_see_what_is_there(world: World) -> None:
    model = world.model
    opened = world.read(ListOpen(0, 0, 100)).reply
    assert isinstance(opened, OpenList)
    assert [(it.id, it.stream, it.agent) for it in opened.transactions] == sorted(
        (it.id, it.stream, it.agent) for it in model.open()
    )
    agents = world.read(ListAgents(0, 0, 100)).reply
    assert isinstance(agents, AgentList)
    assert [(it.id, it.kind, it.name) for it in agents.agents] == sorted(
        (it.id, it.kind, it.name) for it in model.agents.values()
    )
    readers = world.read(ListReaders(0, b"", 100)).reply
    assert isinstance(readers, ReaderList)
    holders = {
        (it.stream, it.name): it.id
        for it in model.agents.values()
        if it.kind == "reader" and it.stream in model.streams
    }
    saved = {(of, name) for of, name, _ in model.positions if of in model.streams}
    assert {(it.stream, it.name): it.agent for it in readers.readers} == {
        key: holders.get(key, 0) for key in holders.keys() | saved
    }


def _positions_are_right(world: World, stream: Stream) -> None:
    model = world.model
    for reader in READERS:
        found = world.read(GetPositions(stream.id, reader)).reply
        assert isinstance(found, Positions)
        saved = [
            (partition, it)
            for (of, name, partition), it in sorted(model.positions.items())
            if (of, name) == (stream.id, reader)
        ]
        assert [tuple(it) for it in found.saved] == saved
        assert sorted(tuple(it) for it in found.heads) == model.heads(stream)
        assert found.next_id == model.last_id + 1


def read_in_small_bites(world: World, stream: Stream, bytes_max: int) -> None:
    """Whole or in chunks, however little is asked for at a time, it is the same in the end."""
    for partition in range(stream.partitions):
        seen: dict[int, list[list[bytes]]] = {}
        want = Want(partition, 0)
        while found := _chunks(world.read(Fetch(stream.id, [want], bytes_max))):
            for transaction, first, batches, total in found:
                assert first == len(seen.setdefault(transaction, []))
                seen[transaction] += batches
                following = first + len(batches)
                want = Want(partition, transaction, first_batch=following)
                if following == total:
                    want = Want(partition, transaction + 1)
        visible = world.model.visible(stream, partition)
        assert list(seen.items()) == [(it.id, it.batches) for it in visible]


def _chunks(request: SimulatedRequest) -> list[tuple[int, int, list[list[bytes]], int]]:
    """What a `Fetch` brought: transaction, its first batch here, batches, how many it has in all."""
    assert isinstance(request.reply, Fetched)
    return [
        (it.id, it.first_batch, batches, it.batches)
        for it, (_, _, batches) in zip(request.reply.transactions, unpacked(request), strict=True)
    ]


def live_bytes_are_what_is_referred_to(shard: Shard) -> None:
    """What says when a ledger can go is what a recount over all transactions comes to."""
    index, log = shard.index, shard.log
    counted: Counter[int] = Counter()
    for _, value in index.store.scan(b"T"):
        for position, size in keys.places_of(value):
            counted[split_position(position)[0]] += size
    for _, value in index.store.scan(b"D"):
        position, size, _ = keys.PLACE_AND_COUNT.unpack(value)
        counted[split_position(position)[0]] += size
    there = {it.id for it in log.ledgers()}
    assert counted.keys() <= there, "something refers to a ledger that is gone"
    for ledger in there | {keys.number_of(key) for key, _ in index.store.scan(b"L")}:
        assert index.live.live(ledger) == counted[ledger]
        assert index.live.dead(ledger) >= 0


def in_the_end_nothing_is_left(world: World) -> None:
    """Delete all streams: the disk is empty but for the ledger in use, and so is the index."""
    world.storage.steps_left = None
    world.end_turn()
    world.storage.room().full = False
    world.look_at_disk()
    world.open_session()
    world.end_turn()
    for stream in list(world.model.streams.values()):
        world.ask(world.clients[-1], DeleteStream, stream.name)
    world.end_turn()
    world.tidy_up()
    live_bytes_are_what_is_referred_to(world.shard)
    assert len(world.shard.log.ledgers()) == 1
    left = Counter(chr(key[0]) for key, _ in world.shard.index.store.scan(b""))
    assert not left.keys() & set("NMTODACX"), left
