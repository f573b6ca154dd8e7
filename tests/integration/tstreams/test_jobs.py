"""Jobs: many producers stage, one coordinator commits; and reading without a name."""

from __future__ import annotations

import pickle

import pytest

from tstreams import BadRequest, Client, Expired, InvalidState, NotFound, TransactionState

from .conftest import Clock, Connect


def items(ts: Client, stream: str) -> list[bytes]:
    """All that is visible."""
    partitions = range(ts.stream(stream).partitions)
    return [bytes(it) for p in partitions for txn in ts.scan(stream, p) for it in txn.items]


def test_what_many_have_staged_becomes_visible_at_once(connect: Connect) -> None:
    ts = connect()
    ts.create_stream("a", partitions=2)
    ts.create_stream("b")
    staged = []
    for number in range(3):
        worker = connect()
        for stream in "ab":
            producer = worker.producer(stream)
            txn = producer.open()
            txn.send(b"%d" % number)
            staged.append(worker.job("nightly").stage(producer, 0))
            assert txn.state is TransactionState.OPENED
            for use in (txn.checkpoint, txn.cancel, lambda txn=txn: txn.send(b"more")):
                with pytest.raises(InvalidState, match="was staged"):
                    use()
        worker.close()  # what it has staged outlives it
    assert items(ts, "a") == items(ts, "b") == []
    ts.job("nightly").commit(0, pickle.loads(pickle.dumps(staged)))
    assert sorted(items(ts, "a")) == items(ts, "b") == [b"0", b"1", b"2"]
    assert ts.job("nightly").last_step() == 0
    assert ts.job("another").last_step() is None


def test_a_step_is_committed_once(ts: Client, clicks: str) -> None:
    job, producer = ts.job("j"), ts.producer(clicks)
    producer.open(0).send(b"one")
    first = job.stage(producer, 7)
    job.commit(7, [first])
    job.commit(7, [first])
    job.commit(3, [])
    job.cancel(7)
    assert items(ts, clicks) == [b"one"]
    producer.open(0).send(b"too late")
    with pytest.raises(InvalidState, match="step 7 of job 'j' is over"):
        job.stage(producer, 7)
    producer.cancel()
    producer.open(1).send(b"two")
    job.commit(8, [job.stage(producer, 8)])
    assert items(ts, clicks) == [b"one", b"two"]


def test_other_attempts_are_dropped(ts: Client, clicks: str) -> None:
    job = ts.job("j")
    attempts = []
    for number in range(3):
        producer = ts.producer(clicks)
        producer.open(0).send(b"attempt %d" % number)
        attempts.append(job.stage(producer, 0))
    job.commit(0, attempts[1:2])
    assert items(ts, clicks) == [b"attempt 1"]  # nothing is open any more: else it would be hidden


def test_a_cancelled_step_can_be_done_again(ts: Client, clicks: str) -> None:
    job, producer = ts.job("j"), ts.producer(clicks)
    producer.open(0).send(b"bad")
    staged = job.stage(producer, 0)
    job.cancel(0)
    with pytest.raises(InvalidState):
        job.commit(0, [staged])
    producer.open(0).send(b"good")
    job.commit(0, [job.stage(producer, 0)])
    assert items(ts, clicks) == [b"good"]


def test_staged_transactions_expire_unless_somebody_works_for_them(
    ts: Client, clicks: str, clock: Clock
) -> None:
    job, producer = ts.job("j", staging_ttl=30), ts.producer(clicks)
    producer.open(0).send(b"x")
    staged = job.stage(producer, 0)
    for _ in range(3):
        clock.advance(20)
        job.renew(producer, 0)
    job.commit(0, [staged])
    producer.open(0).send(b"y")
    staged = job.stage(producer, 1)
    clock.advance(31)
    with pytest.raises(Expired):
        job.commit(1, [staged])
    assert items(ts, clicks) == [b"x"]


def test_a_step_replaces_what_was_there(ts: Client, clicks: str) -> None:
    job, producer = ts.job("j"), ts.producer(clicks)
    for partition in range(4):
        producer.instant([b"old"], partition)
    producer.open(0).send(b"new")
    staged = job.stage(producer, 0)
    with pytest.raises(NotFound):
        job.commit(0, [staged], replace=["nowhere"])
    assert items(ts, clicks) == [b"old"] * 4
    job.commit(0, [staged], replace=[clicks], final=True)
    assert items(ts, clicks) == [b"new"]
    assert job.last_step() is None  # a job that is over is not remembered


def test_nothing_to_commit(ts: Client, clicks: str) -> None:
    job, producer = ts.job("j"), ts.producer(clicks)
    assert job.stage(producer, 0).transactions == ()
    producer.open(0)  # empty
    job.commit(0, [job.stage(producer, 0)])
    assert items(ts, clicks) == []


def test_nonsense(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    with pytest.raises(BadRequest, match="a step is a number"):
        ts.job("j").stage(producer, -1)
    with pytest.raises(BadRequest, match="staging ttl"):
        ts.job("j", staging_ttl=0)
    with pytest.raises(BadRequest, match="name of a job"):
        ts.job("")
    with pytest.raises(TypeError, match="config"):
        pickle.dumps(ts.job("j"))


def test_a_range_without_a_name(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    ids = [producer.instant([b"%d" % n], 2) for n in range(2000)]
    assert [txn.id for txn in ts.scan(clicks, 2)] == ids
    assert [txn.id for txn in ts.scan(clicks, 2, after=ids[9], up_to=ids[12])] == ids[10:13]
    assert list(ts.scan(clicks, 2, after=ids[-1])) == []
    with pytest.raises(NotFound):
        list(ts.scan("nowhere", 0))
    with pytest.raises(BadRequest):
        list(ts.scan(clicks, 4))


def test_how_far_one_can_read(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    ids = [producer.instant([b"x" * 100] * 5, n % 2) for n in range(40)]
    found = ts.survey(clicks)
    assert [it.last_id for it in found.values()] == [ids[38], ids[39], None, None]
    limited = ts.survey(clicks, transactions=10)
    assert sum(it.transactions for it in limited.values()) == 10
    assert sum(it.items for it in limited.values()) == 50
    assert limited[0].more
    assert limited[0].last_id == ids[8]
    assert not limited[3].more
    rest = ts.survey(clicks, {0: ids[36], 1: ids[39]}, size=10**6)
    assert (rest[0].transactions, rest[0].last_id, rest[0].more) == (1, ids[38], False)
    assert rest[1].last_id is None
    assert 500 <= rest[0].size < 700
    held = producer.open(0)
    producer.instant([b"behind"], 0)
    assert ts.survey(clicks)[0].last_id == ids[38]
    held.cancel()
    assert (ts.survey(clicks)[0].last_id or 0) > ids[39]
    with pytest.raises(BadRequest, match="a limit"):
        ts.survey(clicks, transactions=0)
