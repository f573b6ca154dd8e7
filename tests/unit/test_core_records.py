"""What each record does to the state of a shard, in all of its parts: a log is nothing but records."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core_client import Client, ended, stream_id
from tstreams.core.facts import Cancelled, CancelledByOperator, OpenTransactionState
from tstreams.core.records import (
    Committed,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    Opened,
    SessionBegun,
    StepCommitted,
    StreamAltered,
)
from tstreams.core.transitions import WHOLE_STREAM
from tstreams.errors import Expired, Fenced, InvalidState
from tstreams.model import IDS_PER_MS
from tstreams.protocol import (
    AlterStream,
    Brought,
    CancelStep,
    CancelTransactions,
    CloseAgent,
    Commit,
    CommitStep,
    CreateStream,
    DeleteStream,
    EndTransactions,
    Instant,
    PurgeStream,
    Stage,
)

LONG_MS = 10**9


@pytest.fixture
def client() -> Client:
    client = Client()
    client.ask(CreateStream, "clicks", 2, LONG_MS)
    return client


# Transactions.


def test_what_is_known_of_an_open_transaction(client: Client) -> None:
    producer = client.agent()
    opened = client.open(producer, 1, 5_000)
    client.send(producer, opened, 3)
    client.send(producer, opened, 0)
    assert client.shard.state.open[opened] == OpenTransactionState(
        opened,
        stream_id(client),
        1,
        producer,
        5_000,
        client.now_ms + 5_000,
        items=3,
        batches=2,
        unfinished=True,
    )
    client.send(producer, opened, 4)
    found = client.shard.state.open[opened]
    assert (found.items, found.batches, found.unfinished) == (7, 3, False)


def test_what_comes_with_a_commit_is_held_until_the_record_of_the_commit(client: Client) -> None:
    producer = client.agent()
    number = client.now_ms * IDS_PER_MS
    client.shard.apply(client.now_ms, Filled(0, 0, number, stream_id(client), 1, producer, 3))
    state = client.shard.state
    assert state.open[number] == OpenTransactionState(
        number, stream_id(client), 1, producer, 0, items=3, batches=1
    )
    found = state.open[number]
    assert (found.expires_at_ms, found.job, found.step) == (0, "", 0)
    assert client.frontier(1) == number
    assert state.open_of(producer) == [number]
    assert state.last_id == number
    state.stirred.clear()
    client.shard.apply(client.now_ms, Committed(0, 0, [number], [], []))
    assert client.frontier(1) is None
    assert state.stirred == {(stream_id(client), 1)}


def test_the_records_of_a_commit_that_brings_batches(client: Client) -> None:
    """The commit's own says which request it came from; the others would count it twice."""
    producer = client.agent()
    opened = client.open(producer)
    brought = [Brought(producer, 0, opened), Brought(producer, 1)]
    client.ask(Commit, [producer], [opened], [], brought, brought=[2, 3])
    stream, new = stream_id(client), opened + 1
    assert client.log[-3:] == [
        ItemsSent(0, 0, opened, stream, 0, 2),
        Filled(0, 0, new, stream, 1, producer, 3),
        Committed(client.session, client.sequence, [opened, new], [], []),
    ]
    with pytest.raises(ValueError, match="zip"):
        client.ask(Commit, [producer], [], [], [Brought(producer, 0)], brought=[1, 1])


def test_how_transactions_ended_is_remembered(client: Client) -> None:
    producer, other, third = client.agent(), client.agent("p2"), client.agent("p3")
    full, empty, step, lost, cancelled, dropped = (client.open(producer) for _ in range(6))
    filled_step, attempt, overruled = (client.open(producer) for _ in range(3))
    fenced, closed, deleted = client.open(other), client.open(third), client.open(producer, 1)
    client.send(producer, full)
    client.ask(Commit, [producer], [full, empty])
    client.send(producer, filled_step)
    client.ask(Stage, producer, [step, filled_step, attempt], "job", 0, 1_000)
    client.ask(CommitStep, "job", 0, [step, filled_step])
    client.ask(EndTransactions, [overruled])
    client.shard.apply(client.now_ms, Ended(0, 0, [lost], True))
    client.ask(CancelTransactions, [producer], [cancelled])
    client.ask(Stage, producer, [dropped], "job", 1, 1_000)
    client.ask(CancelStep, "job", 1)
    Client(client.shard).agent("p2")
    client.ask(CloseAgent, third)
    client.ask(DeleteStream, "clicks")
    assert ended(client) == {
        full: InvalidState,
        empty: Cancelled,
        step: Cancelled,
        filled_step: InvalidState,
        attempt: Cancelled,
        overruled: CancelledByOperator,
        lost: Expired,
        cancelled: Cancelled,
        dropped: Cancelled,
        fenced: Fenced,
        closed: Cancelled,
        deleted: Cancelled,
    }
    assert not client.shard.state.open
    assert not client.shard.state.heads


def test_readers_of_a_stream_that_is_deleted_are_told_whatever_they_read(client: Client) -> None:
    stream = stream_id(client)
    client.shard.state.stirred.clear()
    client.ask(DeleteStream, "clicks")
    assert client.shard.state.stirred == {(stream, WHOLE_STREAM)}
    assert WHOLE_STREAM not in range(2**16), "it is no partition"


def test_numbers_and_ids_are_never_given_out_twice(client: Client) -> None:
    producer, stream = client.agent(), stream_id(client)
    last = client.open(producer)
    number = client.shard.state.last_number
    again: list[Any] = [
        Opened(0, 0, last, stream, 1, producer, 1_000),
        Filled(0, 0, last, stream, 1, producer, 1),
        InstantMade(0, 0, last, stream, 1, 1),
        SessionBegun(number, 0),
    ]
    for record in again:
        with pytest.raises(AssertionError, match=r"ids only rise|given out once"):
            client.shard.apply(client.now_ms, record)


# Streams.


def test_what_has_died_stays_dead_whatever_the_ttl_becomes(client: Client) -> None:
    client.now_ms = 10_000_000
    client.ask(AlterStream, "clicks", 2_000)
    assert client.log[-1] == StreamAltered(
        client.session, client.sequence, stream_id(client), 2_000, "", 0
    )
    client.ask(AlterStream, "clicks", 60_000)
    stream = client.shard.state.stream_named("clicks")
    assert stream.purged_before == (10_000_000 - 2_000) * IDS_PER_MS
    client.now_ms = 9_000_000  # the clock steps back
    client.ask(AlterStream, "clicks", 70_000)
    assert stream.purged_before == (10_000_000 - 2_000) * IDS_PER_MS
    client.now_ms = 20_000_000
    client.ask(AlterStream, "clicks", 70_000, "the same ttl")
    assert stream.purged_before == (10_000_000 - 2_000) * IDS_PER_MS


def test_nothing_is_older_than_the_beginning(client: Client) -> None:
    client.ask(AlterStream, "clicks", 2 * LONG_MS)  # the clock says less than the ttl before
    assert client.shard.state.stream_named("clicks").purged_before == 0
    assert client.log[-1].purged_before == 0  # type: ignore[union-attr]


def test_what_was_purged_stays_so(client: Client) -> None:
    producer = client.agent()
    last = client.ask(Instant, producer, 0, items=1).id
    client.ask(PurgeStream, "clicks", 10**18)
    stream = client.shard.state.stream_named("clicks")
    assert stream.purged_before == last + 1, "what comes later is not purged"
    client.ask(PurgeStream, "clicks", last - 5)
    assert stream.purged_before == last + 1


def test_a_deleted_stream_takes_all_that_is_open_in_it_along(client: Client) -> None:
    client.ask(CreateStream, "wide", 5, LONG_MS)
    producer, kept = client.agent("p", "wide"), client.open(client.agent())
    late, early = client.open(producer, 2), client.open(producer, 0)
    second = client.open(producer, 2)
    client.ask(DeleteStream, "wide")
    assert client.log[-1].cancelled == [early, late, second]  # type: ignore[union-attr]
    assert list(client.shard.state.open) == [kept]


# Jobs.


def test_what_was_staged_has_nothing_to_do_with_its_producer_any_more(client: Client) -> None:
    producer = client.agent()
    staged, kept = client.open(producer), client.open(producer, 1)
    client.send(producer, staged)
    client.ask(Stage, producer, [staged], "job", 4, 2_000)
    state = client.shard.state
    found = state.open[staged]
    assert (found.agent, found.job, found.step) == (0, "job", 4)
    assert (found.lease_ms, found.expires_at_ms) == (2_000, client.now_ms + 2_000)
    assert state.open_of(producer) == [kept]
    assert state.staged("job") == [found]
    client.ask(CloseAgent, producer)
    assert list(state.open) == [staged]
    client.ask(CommitStep, "job", 4, [staged])
    assert state.staged("job") == []


def test_a_step_replaces_what_streams_held_before(client: Client) -> None:
    client.ask(CreateStream, "other", 1, LONG_MS)
    client.ask(CreateStream, "empty", 1, LONG_MS)
    first_producer, second_producer = client.agent(), client.agent("p", "other")
    first, second = client.open(first_producer), client.open(first_producer, 1)
    third, nothing = client.open(second_producer), client.open(second_producer)
    for producer, it in (
        (first_producer, second),
        (first_producer, first),
        (second_producer, third),
    ):
        client.send(producer, it)
        client.ask(Stage, producer, [it], "job", 0, 1_000)
    client.ask(Stage, second_producer, [nothing], "job", 0, 1_000)
    attempt = client.open(first_producer)
    client.ask(Stage, first_producer, [attempt], "job", 0, 1_000)
    state = client.shard.state
    names = ["other", "clicks", "empty"]
    streams = [state.stream_named(it) for it in names]
    after_all = state.last_id + 1
    client.ask(CommitStep, "job", 0, [second, third, nothing, first], names)
    before = [third, first, after_all]
    assert client.log[-1] == StepCommitted(
        client.session,
        client.sequence,
        "job",
        0,
        [second, third, first],
        [nothing],
        [attempt],
        [(it.id, id_) for it, id_ in zip(streams, before, strict=True)],
        False,
        client.now_ms,
    )
    assert [it.purged_before for it in streams] == before
    assert state.last_step("job") == 0
    streams[0].purged_before = 10**18
    client.shard.apply(
        client.now_ms, StepCommitted(0, 0, "job", 1, [], [], [], [(streams[0].id, 5)], False, 0)
    )
    assert streams[0].purged_before == 10**18
