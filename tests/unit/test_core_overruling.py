"""What operators may do to readers and to transactions of others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core_client import Client, NoFacts, ended, stream_id
from tstreams.core.facts import CancelledByOperator
from tstreams.core.records import AgentBegun, Overruled, ReaderReset
from tstreams.core.shard import Shard
from tstreams.errors import BadRequest, Error, Expired, Fenced, InvalidState, NotFound, TooLarge
from tstreams.protocol import (
    CancelTransactions,
    CloseAgent,
    Commit,
    CommitStep,
    DeleteStream,
    Done,
    EndTransactions,
    ReadPosition,
    ResetReader,
    SendItems,
    Stage,
)


@pytest.fixture
def client() -> Client:
    client = Client()
    client.create()
    return client


def position(client: Client, reader: str = "r", partition: int = 0) -> int:
    return client.shard.state.position(stream_id(client), reader, partition)


# Readers.


def test_a_reader_that_nobody_holds_is_put_elsewhere(client: Client) -> None:
    producer = client.agent()
    first, last = client.open(producer), client.open(producer)
    operator = Client(client.shard, client.log)
    operator.sequence = 40
    assert operator.ask(ResetReader, "clicks", "r", [(0, first), (1, last)]) == Done()
    assert client.log[-1] == ReaderReset(
        operator.session, 41, stream_id(client), "r", [(0, first), (1, last)], 0
    )
    assert (position(client), position(client, partition=1)) == (first, last)
    operator.ask(ResetReader, "clicks", "r", [(1, 0)])
    assert (position(client), position(client, partition=1)) == (first, 0), "others stay"
    assert position(client, "another") == 0


def test_a_reader_that_is_held_is_moved_only_by_force(client: Client) -> None:
    client.open(client.agent())
    reader = client.agent("r", kind="reader")
    client.ask(Commit, [reader], [], [ReadPosition(reader, 0, 5)])
    operator = Client(client.shard, client.log)
    log = list(client.log)
    with pytest.raises(
        InvalidState, match=f"reader 'r' of stream 'clicks' is held by agent {reader}"
    ):
        operator.ask(ResetReader, "clicks", "r", [(0, 3)])
    assert (client.log, position(client)) == (log, 5)
    client.shard.state.lost.clear()

    operator.ask(ResetReader, "clicks", "r", [(0, 3)], True)
    assert client.log[-1] == ReaderReset(
        operator.session, operator.sequence, stream_id(client), "r", [(0, 3)], reader
    )
    assert position(client) == 3
    assert client.shard.state.lost == {reader}, "its subscription is told"
    with pytest.raises(Fenced, match=f"agent {reader} does not hold its name"):
        client.ask(Commit, [reader], [], [ReadPosition(reader, 0, 6)])
    with pytest.raises(Fenced):
        client.ask(CloseAgent, reader)
    assert position(client) == 3
    newer = client.agent("r", kind="reader")
    begun = client.log[-1]
    assert isinstance(begun, AgentBegun)
    assert begun.fenced == 0, "nobody held it"
    client.ask(Commit, [newer], [], [ReadPosition(newer, 0, 6, after=3)])
    assert position(client) == 6


def test_force_without_a_holder_fences_nobody(client: Client) -> None:
    producer, other = client.agent("r"), client.agent("other", kind="reader")
    client.ask(ResetReader, "clicks", "r", [], True)
    assert client.log[-1] == ReaderReset(
        client.session, client.sequence, stream_id(client), "r", [], 0
    )
    assert client.shard.state.agent(producer) is not None, "a producer of that name is another"
    assert client.shard.state.agent(other) is not None


def test_nonsense_about_a_reader_changes_nothing(client: Client) -> None:
    last = client.open(client.agent())
    attempts: list[tuple[tuple[Any, ...], type[Error], str]] = [
        (("none", "r", []), NotFound, "no stream 'none'"),
        (("clicks", "", []), BadRequest, "reader"),
        (("clicks", "r", [(2, 0)]), BadRequest, "partitions 0 to 1, not 2"),
        (("clicks", "r", [(0, 1), (0, 2)]), BadRequest, "a partition stands twice"),
        (("clicks", "r", [(0, last + 1)]), BadRequest, f"no transaction {last + 1} was opened yet"),
        (("clicks", "r", [(0, 1)] * 100_001), TooLarge, "100001 positions in one request are over"),
    ]
    log = list(client.log)
    for fields, kind, message in attempts:
        with pytest.raises(kind, match=message):
            client.ask(ResetReader, *fields)
    assert client.log == log
    assert position(client) == 0
    with pytest.raises(BadRequest, match="stands twice"):  # it is not too large
        client.ask(ResetReader, "clicks", "r", [(0, 1)] * 100_000)


def test_a_reset_that_is_sent_again_happens_once(client: Client) -> None:
    client.open(client.agent())
    request = ResetReader(client.session, 50, 0, "clicks", "r", [(0, 3)])
    records, reply = client.shard.handle(client.now_ms, request)
    assert len(records) == 1
    Client(client.shard).agent("r", kind="reader")  # now it would be refused
    assert client.shard.handle(client.now_ms, request) == ((), reply)


def test_a_reset_is_replayed(client: Client) -> None:
    client.open(client.agent())
    reader = client.agent("r", kind="reader")
    operator = Client(client.shard, client.log)
    operator.ask(ResetReader, "clicks", "r", [(0, 3), (1, 0)], True)
    again = Shard(NoFacts(), last_id=0, last_number=0, now_ms=0)
    for record in client.log:
        again.replay(client.now_ms, record)
    assert again.state.agent(reader) is None
    assert again.state.position(stream_id(client), "r", 0) == 3
    request = ResetReader(operator.session, operator.sequence, 0, "clicks", "r", [(0, 3), (1, 0)])
    assert again.handle(client.now_ms, request) == ((), Done()), "its answer is known"


# Transactions.


def test_what_each_producer_has_open_is_counted(client: Client) -> None:
    busy, idle = client.agent("busy"), client.agent("idle")
    first = client.open(busy)
    client.open(busy)
    state = client.shard.state
    assert (state.count_open_of(busy), state.count_open_of(idle)) == (2, 0)
    client.ask(CancelTransactions, [busy], [first])
    assert state.count_open_of(busy) == 1


def test_an_operator_cancels_what_others_have_open(client: Client) -> None:
    first_producer, second_producer = client.agent(), client.agent("p2")
    first, second, kept = (
        client.open(first_producer),
        client.open(second_producer),
        client.open(first_producer),
    )
    client.send(first_producer, first)
    operator = Client(client.shard, client.log)
    assert operator.ask(EndTransactions, [second, first]) == Done()
    assert client.log[-1] == Overruled(operator.session, operator.sequence, [second, first])
    assert list(client.shard.state.open) == [kept]
    assert client.frontier() == kept
    assert (stream_id(client), 0) in client.shard.state.stirred
    assert ended(client) == {first: CancelledByOperator, second: CancelledByOperator}
    attempts: list[tuple[type, tuple[Any, ...]]] = [
        (SendItems, (first_producer, first)),
        (Commit, ([first_producer], [first])),
        (CancelTransactions, ([first_producer], [first])),
        (EndTransactions, ([first],)),
    ]
    for kind, fields in attempts:
        with pytest.raises(
            InvalidState, match=f"transaction {first} .* an operator cancelled it"
        ) as it:
            client.ask(kind, *fields, items=1)
        assert type(it.value) is InvalidState
    client.ask(CancelTransactions, [first_producer], [kept])
    assert client.frontier() is None


def test_what_is_staged_can_be_cancelled_by_an_operator(client: Client) -> None:
    producer = client.agent()
    staged, other = client.open(producer), client.open(producer)
    client.ask(Stage, producer, [staged, other], "job", 0, 1_000)
    client.ask(EndTransactions, [staged])
    assert client.shard.state.staged("job") == [client.shard.state.open[other]]
    with pytest.raises(InvalidState, match=f"transaction {staged} .* an operator cancelled it"):
        client.ask(CommitStep, "job", 0, [staged, other])
    client.ask(CommitStep, "job", 0, [other])
    assert not client.shard.state.open


def test_all_of_them_are_cancelled_or_none(client: Client) -> None:
    producer = client.agent()
    opened, expired = client.open(producer, lease_ms=5_000), client.open(producer, lease_ms=500)
    client.now_ms += 500
    gone = 1
    attempts: list[tuple[list[int], type[Error], str]] = [
        ([opened, gone], InvalidState, f"transaction {gone} is not open: it was checkpointed"),
        ([opened, expired], Expired, f"transaction {expired}: its lease ran out"),
        ([opened, opened], BadRequest, "stands twice"),
        (list(range(100_001)), TooLarge, "100001 members"),
    ]
    log = list(client.log)
    for transactions, kind, message in attempts:
        with pytest.raises(kind, match=message):
            client.ask(EndTransactions, transactions)
    assert client.log == log
    assert list(client.shard.state.open) == [opened, expired]
    client.ask(EndTransactions, [])
    assert client.log[-1] == Overruled(client.session, client.sequence, [])


def test_a_cancel_by_an_operator_is_replayed(client: Client) -> None:
    producer = client.agent()
    cancelled, kept = client.open(producer), client.open(producer)
    Client(client.shard, client.log).ask(EndTransactions, [cancelled])
    again = Shard(NoFacts(), last_id=0, last_number=0, now_ms=0)
    for record in client.log:
        again.replay(client.now_ms, record)
    assert list(again.state.open) == [kept]
    assert dict(again.state.ended) == {cancelled: CancelledByOperator}
    assert again.state.open_of(producer) == [kept]


def test_nothing_is_left_to_cancel_of_a_stream_that_is_gone(client: Client) -> None:
    opened = client.open(client.agent())
    client.ask(DeleteStream, "clicks")
    with pytest.raises(InvalidState, match="it was checkpointed or cancelled"):
        client.ask(EndTransactions, [opened])
    with pytest.raises(NotFound):
        client.ask(ResetReader, "clicks", "r", [])
