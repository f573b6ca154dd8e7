"""The rules of a shard: what is too much, and what jobs may do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core_client import Client, NoFacts
from tstreams.core.shard import Shard
from tstreams.errors import BadRequest, Expired, InvalidState, TooLarge
from tstreams.limits import (
    COMMIT_MEMBERS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    SCHEMA_BYTES_MAX,
    SESSION_REPLIES_MAX,
    SESSION_TTL_MS,
)
from tstreams.protocol import (
    AlterStream,
    Brought,
    CancelStep,
    CancelTransactions,
    Commit,
    CommitStep,
    CreateStream,
    Instant,
    KeepAlive,
    ReadPosition,
    Stage,
)


@pytest.fixture
def client() -> Client:
    client = Client()
    client.create()
    return client


class KnownPositions(NoFacts):
    """An index in which readers stand somewhere."""

    def position(self, stream_id: int, reader: str, partition: int) -> int | None:
        return 70 + partition


# Limits.


def test_too_many_transactions_are_open(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstreams.core.rules.OPEN_TRANSACTIONS_MAX", 2)
    producer = client.agent()
    first, _ = client.open(producer), client.open(producer)
    with pytest.raises(TooLarge, match="2 transactions are open already"):
        client.open(producer)
    client.ask(CancelTransactions, [producer], [first])
    client.open(producer)


def test_a_transaction_has_too_many_batches(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tstreams.core.rules.TRANSACTION_BATCHES_MAX", 2)
    producer = client.agent()
    transaction = client.open(producer)
    client.send(producer, transaction)
    client.send(producer, transaction)
    with pytest.raises(TooLarge, match=f"transaction {transaction} has 2 batches already"):
        client.send(producer, transaction)
    brought = [Brought(producer, 0, transaction)]
    with pytest.raises(TooLarge, match="2 batches"):
        client.ask(Commit, [producer], [transaction], [], brought, brought=[1])
    client.ask(Commit, [producer], [transaction])


def test_a_commit_has_too_many_members(client: Client) -> None:
    producer = client.agent()
    for kind in (Commit, CancelTransactions):
        with pytest.raises(TooLarge, match=f"{COMMIT_MEMBERS_MAX + 1} members"):
            client.ask(kind, [producer], list(range(COMMIT_MEMBERS_MAX)))


def test_too_many_answers_are_not_acknowledged(client: Client) -> None:
    producer = client.agent()
    while client.sequence < SESSION_REPLIES_MAX:
        client.ask(Instant, producer, 0, items=1)
    last_id = client.shard.state.last_id
    with pytest.raises(TooLarge, match="not acknowledged"):
        client.ask(Instant, producer, 0, items=1)
    assert client.shard.state.last_id == last_id
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 1))
    # It was refused without a trace: the same request is welcome now.
    request = Instant(client.session, client.sequence, 1, producer, 0)
    records, _ = client.shard.handle(client.now_ms, request, 1)
    assert len(records) == 1


def test_too_many_sessions(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstreams.core.shard.SESSIONS_MAX", 2)
    Client(client.shard)
    with pytest.raises(TooLarge, match="2 sessions"):
        client.shard.open_session(client.now_ms)
    client.now_ms += SESSION_TTL_MS
    client.tick()
    Client(client.shard)


def test_why_a_transaction_ended_is_remembered_for_a_while(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tstreams.core.state.ENDED_KEPT_MAX", 1)
    producer = client.agent()
    older, newer = client.open(producer), client.open(producer)
    client.now_ms += 1000
    client.tick()
    client.shard.state.evict()
    with pytest.raises(Expired):
        client.ask(Commit, [producer], [newer])
    with pytest.raises(InvalidState, match="not open"):
        client.ask(Commit, [producer], [older])


def test_positions_that_were_dropped_are_read_again_from_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tstreams.core.state.STREAMS_CACHED_MAX", 2)
    client = Client(Shard(KnownPositions(), last_id=0, last_number=0, now_ms=0))
    client.create(partitions=3)
    reader = client.agent("r", kind="reader")
    moves = [ReadPosition(reader, partition, 5) for partition in (0, 1)]
    client.ask(Commit, [reader], [], moves)
    client.shard.state.evict()
    client.ask(Commit, [reader], [], [ReadPosition(reader, 0, 6, 5), ReadPosition(reader, 2, 5)])
    client.shard.state.evict()
    with pytest.raises(InvalidState, match="stands at 70 in partition 0, not at 6"):
        client.ask(Commit, [reader], [], [ReadPosition(reader, 0, 7, 6)])
    client.ask(Commit, [reader], [], [ReadPosition(reader, 1, 80, 71)])


def test_a_limit_itself_is_allowed(client: Client) -> None:
    client.ask(CreateStream, "least", 1, 1_000, "", bytes(SCHEMA_BYTES_MAX))
    client.ask(AlterStream, "least", 2_000, None, b"new", bytes(SCHEMA_BYTES_MAX))
    client.ask(AlterStream, "least", 1_000)
    producer = client.agent()
    opened, staged = client.open(producer, 0, LEASE_MS_MIN), client.open(producer, 1, LEASE_MS_MAX)
    client.ask(Stage, producer, [opened], "job", 0, LEASE_MS_MIN)
    client.ask(Stage, producer, [staged], "job", 0, LEASE_MS_MAX)
    for lease_ms in (LEASE_MS_MIN - 1, LEASE_MS_MAX + 1):
        with pytest.raises(BadRequest, match="a lease is"):
            client.open(producer, 0, lease_ms)
        with pytest.raises(BadRequest, match="a lease is"):
            client.ask(Stage, producer, [], "job", 0, lease_ms)
    with pytest.raises(TooLarge, match="schema"):
        client.ask(CreateStream, "more", 1, 1_000, "", bytes(SCHEMA_BYTES_MAX + 1))


def test_all_members_of_a_commit_are_counted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tstreams.core.rules.COMMIT_MEMBERS_MAX", 5)
    producer, reader = client.agent(), client.agent("r", kind="reader")
    opened, other = client.open(producer), client.open(producer)
    moves = [ReadPosition(reader, 0, 5)]
    members, brought = [producer, reader], [Brought(producer, 1)]
    client.ask(Commit, members, [opened], moves, brought, brought=[1])
    with pytest.raises(TooLarge, match="6 members"):
        client.ask(Commit, members, [other], moves, brought * 2, brought=[1, 1])
    staged = [client.open(producer) for _ in range(4)]
    with pytest.raises(TooLarge, match="6 members"):
        client.ask(Stage, producer, [other, *staged], "job", 0, 1_000)
    client.ask(Stage, producer, staged, "job", 0, 1_000)
    with pytest.raises(TooLarge, match="6 members"):
        client.ask(CommitStep, "job", 0, staged, ["clicks", "clicks"])
    client.ask(CommitStep, "job", 0, staged, ["clicks"])
    with pytest.raises(TooLarge, match="6 members"):
        client.ask(CancelTransactions, members, [other] * 4)


# Jobs.


def test_a_step_that_was_committed_is_over_before_the_index_knows_it(client: Client) -> None:
    producer = client.agent()
    first, late = client.open(producer), client.open(producer)
    client.send(producer, first)
    client.ask(Stage, producer, [first], "job", 3, 1000)
    client.ask(CommitStep, "job", 3, [first])
    for step in (2, 3):
        with pytest.raises(InvalidState, match=f"step {step} of job 'job' is over: step 3 was"):
            client.ask(Stage, producer, [late], "job", step, 1000)
    client.ask(CommitStep, "job", 3, [late])  # done before: it takes no effect, whatever it names
    assert list(client.shard.state.open) == [late]
    client.ask(Stage, producer, [late], "job", 4, 1000)
    client.ask(CommitStep, "job", 4, [late], [], True)
    assert client.shard.state.last_step("job") == -1, "the job has ended"


def test_nonsense_about_a_job_changes_nothing(client: Client) -> None:
    producer, stranger = client.agent(), client.agent("p2")
    whole, broken = client.open(producer), client.open(producer, 1)
    client.send(producer, whole)
    client.send(producer, broken, items=0)
    attempts: list[tuple[type, tuple[Any, ...], str]] = [
        (Stage, (producer, [whole], "job", 0, 499), "a lease is"),
        (Stage, (producer, [whole], "", 0, 1000), "name"),
        (Stage, (stranger, [whole], "job", 0, 1000), "belongs to another producer"),
        (Stage, (producer, [broken], "job", 0, 1000), "ends in the middle of an item"),
        (Stage, (producer, [whole, whole], "job", 0, 1000), "stands twice"),
        (CommitStep, ("", 0, []), "name"),
        (CancelStep, ("", 0), "name"),
        (CommitStep, ("job", 0, [whole]), "was not staged for step 0 of job 'job'"),
    ]
    for kind, fields, message in attempts:
        with pytest.raises(BadRequest, match=message):
            client.ask(kind, *fields)
    client.ask(Stage, producer, [whole], "job", 0, 1000)
    for job, step in (("job", 1), ("another", 0)):
        with pytest.raises(BadRequest, match=f"was not staged for step {step} of job '{job}'"):
            client.ask(CommitStep, job, step, [whole])
    client.ask(CommitStep, "job", 0, [whole])
    assert list(client.shard.state.open) == [broken]


def test_a_staged_transaction_lives_by_the_lease_of_its_step(client: Client) -> None:
    producer = client.agent()
    short, long = client.open(producer, 0, 50_000), client.open(producer, 1, 50_000)
    client.ask(Stage, producer, [short], "job", 0, 1_000)
    client.ask(Stage, producer, [long], "job", 1, 2_000)
    client.now_ms += 999
    client.tick()
    client.ask(Stage, producer, [], "job", 1, 2_000)  # a sign of life, of the other step alone
    client.now_ms += 1
    client.tick()
    assert list(client.shard.state.open) == [long]
    client.now_ms += 1_999
    client.tick()
    assert list(client.shard.state.open) == []


def test_a_step_that_is_cancelled_takes_no_other_with_it(client: Client) -> None:
    producer = client.agent()
    first, second = client.open(producer), client.open(producer)
    client.ask(Stage, producer, [first], "job", 0, 1000)
    client.ask(Stage, producer, [second], "job", 1, 1000)
    client.ask(CancelStep, "job", 0)
    assert list(client.shard.state.open) == [second]
