"""The rules of a shard: what is too much, and what jobs may do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core_client import Client
from tstreams.errors import BadRequest, Expired, InvalidState, TooLarge
from tstreams.limits import COMMIT_MEMBERS_MAX, SESSION_REPLIES_MAX, SESSION_TTL_MS
from tstreams.protocol import (
    Brought,
    CancelStep,
    CancelTransactions,
    Commit,
    CommitStep,
    Instant,
    KeepAlive,
    Stage,
)


@pytest.fixture
def client() -> Client:
    client = Client()
    client.create()
    return client


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


# Jobs.


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
