"""What only a server of several shards has: agents, checkpoints and loops that span them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tstreams import (
    Client,
    Error,
    Expired,
    Fenced,
    InvalidState,
    Offset,
    TransactionState,
    Unavailable,
)
from tstreams.client.rules.parts import Part
from tstreams.sharding import home_of, job_home, shard_of

from .collecting import Collector
from .conftest import ONE_NODE, Clock, Connect
from .faces import Face
from .servers import ServerProcess
from .three_nodes import SHARDS

OPENED, CHECKPOINTED = TransactionState.OPENED, TransactionState.CHECKPOINTED
CANCELLED, INVALID = TransactionState.CANCELLED, TransactionState.INVALID


@pytest.fixture
def shards() -> int:
    return SHARDS


@pytest.fixture
def wide(ts: Client) -> str:
    """A stream with two partitions in each shard."""
    return ts.create_stream("wide", partitions=2 * SHARDS).name


def make_at(ts: Client, shard: int, what: str) -> str:
    """A stream of one partition, in this shard."""
    names = (f"{what} {number}" for number in range(1000))
    name = next(it for it in names if home_of(it, SHARDS) == shard)
    return ts.create_stream(name).name


def visible(ts: Client, stream: str) -> dict[int, list[bytes]]:
    """All items, by partition."""
    partitions = range(ts.stream(stream).partitions)
    return {
        it: [bytes(item) for txn in ts.scan(stream, it) for item in txn.items] for it in partitions
    }


def saved(ts: Client, stream: str, name: str) -> list[int | None]:
    """Where a reader of this name would begin. It takes the name."""
    with ts.consumer(stream, name) as consumer:
        return [consumer.position(it) for it in consumer.partitions]


def calls_of(ts: Client, use: Callable[[], object]) -> int:
    """How many requests something takes."""
    before = ts.statistics().connection.calls
    use()
    return ts.statistics().connection.calls - before


# Streams.


def test_streams_are_listed_in_order_whoever_has_them(ts: Client) -> None:
    names = [f"s{number:03}" for number in range(100)]
    for name in names:
        ts.create_stream(name)
    assert {home_of(name, SHARDS) for name in names} == set(range(SHARDS))
    assert [it.name for it in ts.streams()] == names
    assert [it.name for it in ts.streams(limit=7)] == names[:7]
    assert [it.name for it in ts.streams(after="s049", limit=20)] == names[50:70]
    assert ts.streams(limit=0) == []


def test_what_is_altered_purged_and_deleted_is_so_in_all_shards(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    ids = [producer.instant([b"old"], it) for it in reversed(range(6))]
    ts.alter_stream(wide, description="new")
    assert ts.stream(wide).description == "new"
    ts.purge_stream(wide, max(ids) + 1)
    assert all(items == [] for items in visible(ts, wide).values())
    producer.instant([b"young"], 4)
    assert visible(ts, wide)[4] == [b"young"]
    ts.delete_stream(wide)
    for partition in range(6):
        with pytest.raises(Error):
            producer.instant([b"x"], partition)
    ts.create_stream(wide, partitions=6)
    assert all(items == [] for items in visible(ts, wide).values())


# Agents.


def test_who_takes_a_name_over_fences_everywhere(ts: Client, connect: Connect, wide: str) -> None:
    old = ts.producer(wide, "p1")
    txns = [old.open(it) for it in range(3)]
    new = connect().producer(wide, "p1")
    for partition in range(6):
        with pytest.raises(Fenced, match="producer 'p1' of stream 'wide'"):
            old.instant([b"zombie"], partition)
    for txn in txns:
        with pytest.raises(Fenced):
            txn.checkpoint()
    for partition in range(6):
        new.instant([b"x"], partition)
    assert visible(ts, wide) == {it: [b"x"] for it in range(6)}


def test_an_agent_of_some_partitions_leaves_those_of_others_alone(ts: Client, wide: str) -> None:
    """Names are of a stream, not of a partition: at home the two meet."""
    left, right = ts.producer(wide, "left", partitions=[0, 3]), ts.producer(wide, partitions=[1, 2])
    left.instant([b"left"], 3)
    right.instant([b"right"], 1)
    assert left.partitions == [0, 3]
    assert sum(len(it) for it in visible(ts, wide).values()) == 2


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_of_two_that_race_for_a_name_one_has_it_everywhere(
    connect: Connect, wide: str, kind: str
) -> None:
    """And the other has it nowhere, or was refused at once."""
    clients = [connect(), connect()]
    for _ in range(15):
        agents: list[Any] = [None, None]
        barrier = threading.Barrier(2)

        def race(which: int, agents: list[Any] = agents, gate: Any = barrier) -> None:
            gate.wait()
            try:
                agents[which] = getattr(clients[which], kind)(wide, "racer")
            except Fenced as error:
                agents[which] = error

        threads = [threading.Thread(target=race, args=(it,)) for it in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        fates = [fate_of(agent) for agent in agents]
        assert sorted(fates) == ["fenced", "holds"], agents


def fate_of(agent: Any) -> str:
    """Whether an agent holds its name, in all shards alike."""
    if isinstance(agent, Fenced):
        return "fenced"
    fates = set()
    for partition in range(SHARDS):
        try:
            if hasattr(agent, "instant"):
                agent.instant([b"x"], partition)
            else:
                agent.seek(partition, Offset.oldest())
                agent.checkpoint()
            fates.add("holds")
        except Fenced:
            fates.add("fenced")
    assert len(fates) == 1, "one and the same everywhere"
    return fates.pop()


# Producers.


@ONE_NODE
def test_a_checkpoint_of_a_producer_spans_shards(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    txns = [producer.open(it) for it in range(6)]
    for txn in txns:
        txn.send_many([b"%d" % txn.partition, b"x" * 100_000])
    assert calls_of(ts, producer.checkpoint) == SHARDS, "two prepare, and one decides"
    assert {txn.state for txn in txns} == {CHECKPOINTED}
    assert [items[0] for items in visible(ts, wide).values()] == [b"%d" % it for it in range(6)]


@ONE_NODE
def test_a_checkpoint_within_one_shard_is_one_request(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    for partition in (1, 4):
        producer.open(partition).send(b"x")
    assert shard_of(wide, 1, SHARDS) == shard_of(wide, 4, SHARDS)
    assert calls_of(ts, producer.checkpoint) == 1


def test_large_and_empty_ones_span_shards_too(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    txns = [producer.open(it) for it in range(3)]
    txns[1].send_many([b"x" * 50_000] * 100)
    txns[2].send(b"y")
    producer.checkpoint()
    assert [txn.state for txn in txns] == [CANCELLED, CHECKPOINTED, CHECKPOINTED]
    assert [len(it) for it in visible(ts, wide).values()] == [0, 100, 1, 0, 0, 0]


def test_a_checkpoint_that_is_refused_has_no_effect_in_any_shard(
    ts: Client, clock: Clock, wide: str
) -> None:
    producer = ts.producer(wide, transaction_ttl=60.0)
    old = producer.open(0)
    clock.advance(59)
    young = [producer.open(it) for it in (1, 2, 4)]
    for txn in (old, *young):
        txn.send(b"x")
    clock.advance(2)
    with pytest.raises(Expired, match=f"producer .* transaction {old.id}"):
        producer.checkpoint()
    assert old.state is INVALID
    assert {txn.state for txn in young} == {OPENED}, "they are as before"
    assert not any(visible(ts, wide).values())
    young[0].send(b"y")
    producer.checkpoint()
    assert {txn.state for txn in young} == {CHECKPOINTED}
    expected = {0: [], 1: [b"x", b"y"], 2: [b"x"], 3: [], 4: [b"x"], 5: []}
    assert visible(ts, wide) == expected, "each item is there once"
    producer.instant([b"after"], 0)
    assert visible(ts, wide)[0] == [b"after"], "nothing holds up the readers"


def test_a_cancel_spans_shards(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    txns = [producer.open(it) for it in range(6)]
    producer.cancel()
    assert {txn.state for txn in txns} == {CANCELLED}
    for partition in range(6):
        producer.instant([b"x"], partition)
    assert visible(ts, wide) == {it: [b"x"] for it in range(6)}


# Readers.


def test_a_consumer_reads_all_shards_in_turns(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    for number in range(300):
        producer.instant([b"%d" % number], number % 6, wait=False)
    producer.instant([b"300"], 0)
    with ts.consumer(wide, "c1") as consumer:
        found = [(txn.partition, int(txn.items[0])) for txn in consumer.read(max_wait=0)]
        consumer.checkpoint()
        positions = [consumer.position(it) for it in range(6)]
    assert len(found) == 301
    for partition in range(6):
        mine = [number for it, number in found if it == partition]
        assert mine == sorted(mine)
    assert len({shard_of(wide, partition, SHARDS) for partition, _ in found[:60]}) == SHARDS
    assert saved(ts, wide, "c1") == positions


def test_newest_is_asked_of_each_shard(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    for partition in range(6):
        producer.instant([b"before"], partition)
    with ts.consumer(wide, "c1", start=Offset.newest()) as consumer:
        after = {producer.instant([b"after"], it) for it in range(6)}
        assert {txn.id for txn in consumer.read(max_wait=0)} == after
        for partition in range(6):
            consumer.seek(partition, Offset.newest())
        assert list(consumer.read(max_wait=0)) == []
        consumer.seek(4, Offset.oldest())
        assert [bytes(txn.items[0]) for txn in consumer.read(max_wait=0)] == [b"before", b"after"]


def test_looking_goes_to_the_shard_of_the_partition(ts: Client, wide: str) -> None:
    producer = ts.producer(wide)
    ids = [producer.instant([b"%d" % it], it) for it in range(6)]
    consumer = ts.consumer(wide, partitions=[0])
    for partition, txn_id in enumerate(ids):
        last, found = consumer.last(partition), consumer.by_id(partition, txn_id)
        assert last is not None
        assert found is not None
        assert last.id == found.id == txn_id
        assert [it.id for it in consumer.between(partition, 0, txn_id)] == [txn_id]


def test_a_stream_that_nobody_has_written_to_is_empty_in_all_shards(ts: Client, wide: str) -> None:
    assert not any(visible(ts, wide).values())
    assert {it.last_id for it in ts.survey(wide).values()} == {None}


def test_a_subscriber_hears_of_all_shards(ts: Client, wide: str) -> None:
    producer, got = ts.producer(wide), Collector()
    early = [producer.instant([b"x"], it % 6) for it in range(60)]
    with ts.subscriber(wide, "s1", engines=2, **got.callbacks) as subscriber:
        late = [producer.instant([b"x"], it % 6) for it in range(60)]
        got.wait_for(120)
        subscriber.stop()
        subscriber.checkpoint()
    for partition in range(6):
        assert got.of(partition) == [*early[partition::6], *late[partition::6]]
    assert saved(ts, wide, "s1") == late[-6:]


# Groups.


@ONE_NODE
def test_a_group_within_one_shard_is_one_request(ts: Client) -> None:
    source, sink = make_at(ts, 1, "in"), make_at(ts, 1, "out")
    ts.producer(source).instant([b"x"])
    consumer, producer = ts.consumer(source, "c1"), ts.producer(sink, "p1")
    group = ts.checkpoint_group()
    group.add(consumer)
    group.add(producer)
    assert consumer.get(0, timeout=10) is not None
    producer.open(0).send(b"y")
    assert calls_of(ts, group.checkpoint) == 1
    assert visible(ts, sink) == {0: [b"y"]}


def test_a_group_over_all_shards(ts: Client, wide: str) -> None:
    ts.create_stream("out", partitions=6)
    source = ts.producer(wide)
    ids = [source.instant([b"%d" % it], it) for it in range(6)]
    consumer, producer = ts.consumer(wide, "c1"), ts.producer("out", "p1")
    group = ts.checkpoint_group()
    group.add(consumer)
    group.add(producer)
    for _ in range(6):
        txn = next(iter(consumer.read(max_wait=20)))
        producer.open((txn.partition + 1) % 6).send_many(list(txn.items))
    assert not any(visible(ts, "out").values())
    group.checkpoint()
    assert visible(ts, "out") == {it: [b"%d" % ((it - 1) % 6)] for it in range(6)}
    assert saved(ts, wide, "c1") == ids


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_refused_group_is_as_before(ts: Client, connect: Connect, cancelled: bool) -> None:
    """It goes on without the member that was lost; or it is cancelled, and reads the same again."""
    source, other = make_at(ts, 0, "in"), make_at(ts, 0, "spare")
    sinks = [make_at(ts, shard, "out") for shard in (1, 2)]
    ids = [ts.producer(source).instant([b"%d" % it]) for it in range(2)]
    consumer = ts.consumer(source, "c1")
    producers = [ts.producer(sink, "p1") for sink in sinks]
    doomed = ts.consumer(other, "doomed")
    group = ts.checkpoint_group()
    for producer in producers:
        group.add(producer)
    for reader in (consumer, doomed):
        group.add(reader)
    read = consumer.get(0, timeout=10)
    assert read is not None
    for producer in producers:
        producer.open(0).send_many(list(read.items))
    connect().consumer(other, "doomed")
    with pytest.raises(Fenced, match="'doomed'"):
        group.checkpoint()
    group.remove(doomed)
    if cancelled:
        group.cancel()
    else:
        group.checkpoint()
    for _ in range(2 if cancelled else 1):
        read = consumer.get(0, timeout=10)
        assert read is not None
        for producer in producers:
            producer.open(0).send_many(list(read.items))
        group.checkpoint()
    assert [visible(ts, sink)[0] for sink in sinks] == [[b"0", b"1"]] * 2
    assert saved(ts, source, "c1") == [ids[1]]


# Jobs.


def test_a_step_that_replaces_a_stream_asks_only_the_shards_that_have_some_of_it(
    ts: Client, wide: str
) -> None:
    """Whatever shard decides, and wherever else the job has written."""
    small = ts.create_stream("small", partitions=2).name
    old, other = ts.producer(small), ts.producer(wide)
    for number in range(SHARDS):
        job = ts.job(next(it for it in (f"{number}{n}" for n in range(99)) if at(it) == number))
        for partition in range(2):
            old.instant([b"old"], partition)
        old.open(1).send(b"new %d" % number)
        for partition in range(SHARDS):
            other.open(partition).send(b"%d" % number)
        staged = [job.stage(producer, 0) for producer in (old, other)]
        assert len(staged[1].parts) == SHARDS
        job.commit(0, staged, replace=[small])
        assert visible(ts, small) == {0: [], 1: [b"new %d" % number]}
        assert visible(ts, wide)[2] == [b"%d" % it for it in range(number + 1)]
        assert job.last_step() == 0


def at(job: str) -> int:
    return job_home(job, SHARDS)


# Loops.


@pytest.mark.parametrize("step", [0, 1])
def test_a_loop_over_shards(ts: Client, wide: str, step: int) -> None:
    """Each partition's results in the shard where they come from, or each in another one."""
    sink = next(
        name
        for name in (f"out {it}" for it in range(1000))
        if (home_of(name, SHARDS) - home_of(wide, SHARDS)) % SHARDS == step
    )
    ts.create_stream(sink, partitions=6)
    producer = ts.producer(wide)
    for number in range(600):
        producer.instant([b"%d" % number], number % 6, wait=False)
    done = ts.process(wide, "job", sink, lambda txn: txn.items, max_wait=0.5, batch=20)
    assert (done.transactions, done.items) == (600, 600)
    assert visible(ts, sink) == {it: [b"%d" % n for n in range(it, 600, 6)] for it in range(6)}
    with ts.consumer(wide, "job") as consumer:
        assert list(consumer.read(max_wait=0)) == []


def test_a_loop_that_begins_at_the_end_saves_that_in_all_shards(ts: Client, wide: str) -> None:
    ts.create_stream("out", partitions=6)
    producer = ts.producer(wide)
    for partition in range(6):
        producer.instant([b"before"], partition)
    first = threading.Event()

    def stop_at_first(txn: Any) -> list[bytes]:
        first.set()
        return [bytes(it) for it in txn.items]

    def write() -> None:
        while not first.is_set():
            producer.instant([b"one"], 2)
            first.wait(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    ts.process(
        wide, "job", "out", stop_at_first, start=Offset.newest(), stop=first, max_wait=20, batch=1
    )
    writer.join()
    between = [producer.instant([b"between"], it) for it in range(6)]
    ts.process(wide, "job", "out", lambda txn: txn.items, start=Offset.newest(), max_wait=0.5)
    found = Counter(item for items in visible(ts, "out").values() for item in items)
    assert found[b"between"] == len(between)
    assert found[b"before"] == 0


# Servers that go away between the steps.


@pytest.fixture
def before_the_decision(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen, once, when all others have prepared and the decision is not sent yet."""

    def arrange(happen: Callable[[], None]) -> None:
        commit = Part.commit
        left = [happen]

        def late(part: Part, others: Any = (), number: int = 0) -> Any:
            if others and left:
                left.pop()()
            return commit(part, others, number)

        monkeypatch.setattr(Part, "commit", late)

    return arrange


class Copying:
    """A group that copies a stream to another one, each partition into another shard."""

    def __init__(self, ts: Client) -> None:
        self.ts = ts
        self.consumer, self.producer = ts.consumer("in", "c1"), ts.producer("out", "p1")
        self.group = ts.checkpoint_group()
        self.group.add(self.consumer)
        self.group.add(self.producer)

    def copy(self, partitions: range = range(SHARDS)) -> None:
        """The next transaction of each partition."""
        for partition in partitions:
            txn = self.consumer.get(partition, timeout=20)
            assert txn is not None
            self.producer.open((partition + 1) % SHARDS).send_many(list(txn.items))


def fill(ts: Client, count: int) -> None:
    for name in ("in", "out"):
        ts.create_stream(name, partitions=SHARDS)
    with ts.producer("in") as producer:
        for number in range(count):
            for partition in range(SHARDS):
                producer.instant([b"%d/%d" % (partition, number)], partition)


def copied(count: int) -> dict[int, list[bytes]]:
    """What is in "out" when so many of each partition were copied."""
    return {
        (it + 1) % SHARDS: [b"%d/%d" % (it, number) for number in range(count)]
        for it in range(SHARDS)
    }


def test_a_server_that_dies_before_the_decision_is_only_slow(
    server: ServerProcess, face: Face, before_the_decision: Any
) -> None:
    with face.connect(server.address) as ts:
        fill(ts, 2)
        copying = Copying(ts)

        def die() -> None:
            server.kill()
            server.start()

        before_the_decision(die)
        for _ in range(2):
            copying.copy()
            copying.group.checkpoint()
        assert visible(ts, "out") == copied(2)


def test_a_server_that_dies_behind_the_decision_has_all_of_it(
    server: ServerProcess, face: Face
) -> None:
    with face.connect(server.address) as ts:
        fill(ts, 3)
        copying = Copying(ts)
        for _ in range(3):
            copying.copy()
            copying.group.checkpoint()
            server.kill()
            server.start()
        assert visible(ts, "out") == copied(3)
        assert None not in saved(ts, "in", "c1")


def test_who_does_not_wait_for_the_decision_finds_all_or_nothing(
    server: ServerProcess, face: Face, before_the_decision: Any
) -> None:
    with face.connect(server.address) as ts, face.connect(server.address, timeout=1.5) as hasty:
        fill(ts, 2)
        copying = Copying(hasty)
        before_the_decision(server.kill)
        copying.copy()
        with pytest.raises(Unavailable):
            copying.group.checkpoint()
        with pytest.raises(InvalidState, match="nobody knows"):
            copying.group.checkpoint()
        server.start()
        again = Copying(ts)  # of the same names: it knows where it stands
        stands = {again.consumer.position(it) is None for it in range(SHARDS)}
        assert len(stands) == 1, "in all shards, or in none"
        for _ in range(2 if stands.pop() else 1):
            again.copy()
            again.group.checkpoint()
        assert visible(ts, "out") == copied(2)
