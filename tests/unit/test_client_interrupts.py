"""Operations that are interrupted where they wait: what they leave behind, and what they take back."""

from __future__ import annotations

from typing import Any

import pytest

from tstreams.client.rules.draft import Draft
from tstreams.client.rules.group import Group
from tstreams.client.rules.instant import InstantSink
from tstreams.client.rules.producer import Producer, open_producer
from tstreams.client.rules.reader import open_reader
from tstreams.errors import InvalidState, Unavailable
from tstreams.items import read
from tstreams.limits import FRAME_BYTES_MAX, SEND_BATCH_BYTES
from tstreams.model import Offset, TransactionState
from tstreams.protocol import AgentOpened, Done, Positions, SessionOpened, StreamInfo

from .client_wires import Script, Waiting, link_to
from .test_client_producer import checkpoint, scripted

OPENED, CHECKPOINTED = TransactionState.OPENED, TransactionState.CHECKPOINTED
CANCELLED = TransactionState.CANCELLED

AGENT = AgentOpened(2, StreamInfo(3, "clicks", 4, 10**9, "", None))


def flushed(script: Script, steps: Any) -> list[Any]:
    """Run an operation, answering every batch: the batches."""
    waiting, batches = Waiting(steps), []
    while script.asked and not waiting.ended:
        asked = script.take("SendItems")
        batches.append(asked.batch)
        asked.answer(Done())
        waiting.go_on()
    assert waiting.error is None
    while script.asked:
        asked = script.take("SendItems")
        batches.append(asked.batch)
        asked.answer(Done())
    return batches


# Sending.


def test_an_interrupted_send_loses_nothing_and_keeps_the_order() -> None:
    script, draft, _ = scripted()
    items = [b"%02d" % number * (SEND_BATCH_BYTES // 2) for number in range(40)]
    writing = Waiting(draft.add_many(items))
    assert len(script.asked) == 16, "and the others wait for room"
    writing.interrupt()
    draft.add(b"later")
    batches = flushed(script, draft.flush())
    assert [item for group in read(batches) for item in group] == [*items, b"later"]


def test_the_pieces_of_an_item_are_gone_on_with() -> None:
    script, draft, producer = scripted()
    producer.agent.link.window.push_in(20 * 1024 * 1024)  # nobody answers for these
    item = b"x" * (FRAME_BYTES_MAX * 3)
    writing = Waiting(draft.add_many([item]))
    assert len(script.asked) < 3
    writing.interrupt()
    producer.agent.link.window.leave(20 * 1024 * 1024)
    batches = flushed(script, draft.flush())
    assert [len(it) for group in read(batches) for it in group] == [len(item)]


def test_an_interrupted_sender_passes_its_turn_on() -> None:
    script, draft, _ = scripted()
    first = Waiting(draft.add_many([b"x" * SEND_BATCH_BYTES] * 20))
    second = Waiting(draft.add_many([b"y" * SEND_BATCH_BYTES]))
    first.interrupt()
    while not second.ended:
        script.take("SendItems").answer(Done())
        second.go_on()
    assert second.error is None


def test_a_batch_that_nobody_waited_for_is_waited_for_by_the_checkpoint() -> None:
    script, draft, producer = scripted()
    draft.add(b"x" * SEND_BATCH_BYTES)
    interrupted = Waiting(checkpoint(producer, draft))
    interrupted.interrupt()
    assert draft.state is OPENED
    waiting = Waiting(checkpoint(producer, draft))
    assert script.names == ["SendItems"], "no commit before it has arrived"
    script.take("SendItems").answer(Done())
    waiting.go_on()
    assert script.names == ["Commit"]


def test_closing_forgets_what_was_not_sent() -> None:
    script, draft, producer = scripted()
    writing = Waiting(draft.add_many([b"x" * SEND_BATCH_BYTES] * 20))
    writing.interrupt()
    producer.abandon(draft)
    assert draft.state is CANCELLED
    with pytest.raises(InvalidState):
        draft.add(b"x")
    assert isinstance(Waiting(draft.flush()).error, InvalidState)
    assert script.names == ["SendItems"] * 16 + ["CancelTransactions"]


# Checkpoints.


def interrupted_commit() -> tuple[Script, Draft, Producer]:
    script, draft, producer = scripted()
    draft.add(b"x")
    waiting = Waiting(checkpoint(producer, draft))
    assert script.names == ["Commit"]
    waiting.interrupt()
    assert isinstance(waiting.error, KeyboardInterrupt)
    return script, draft, producer


def test_a_checkpoint_that_was_sent_is_ended_by_its_answer() -> None:
    script, draft, _ = interrupted_commit()
    assert draft.state is OPENED
    assert draft.sealed, "nothing can be added while nobody knows"
    script.take("Commit").answer(Done())
    assert draft.state is CHECKPOINTED


def test_a_checkpoint_that_was_sent_may_fail() -> None:
    script, draft, producer = interrupted_commit()
    script.take("Commit").fail("deadline_exceeded", "no answer")
    assert (draft.state, draft.sealed) == (OPENED, False)
    Waiting(producer.cancel_one(draft))
    script.take("CancelTransactions").answer(Done())


def test_an_abandoned_checkpoint_goes_before_the_cancel() -> None:
    script, draft, producer = interrupted_commit()
    producer.abandon(draft)
    assert script.names == ["Commit", "CancelTransactions"]
    script.take("Commit").answer(Done())
    script.take("CancelTransactions").fail("invalid_state", "transaction 77 is not open")
    assert draft.state is CHECKPOINTED


def test_a_long_instant_whose_end_failed_does_not_stay_open() -> None:
    script, _, producer = scripted()
    writing = Waiting(producer.write_long(0, iter([b"batch"])))
    script.take("OpenTransaction").answer(Done(88))
    writing.go_on()
    ending = Waiting(producer.commit_long(writing.result))
    script.take("SendItems").answer(Done())
    ending.go_on()
    script.take("Commit").fail("deadline_exceeded", "no answer")
    ending.go_on()
    assert isinstance(ending.error, Unavailable)
    asked = script.take("CancelTransactions")
    assert (asked.message.transactions, asked.timeout) == ([88], None)


def test_a_readers_checkpoint_is_noted_also_if_nobody_waits_for_it() -> None:
    from .test_client_reader import make, positions, read_some

    script, reader = make()
    read_some(script, reader, (0, 10))
    waiting = Waiting(reader.checkpoint())
    waiting.interrupt()
    script.take("Commit").answer(Done())
    Waiting(reader.checkpoint())
    assert positions(script.take("Commit")) == []


# Agents.


def test_a_group_in_doubt_goes_no_further_however_early_one_looks() -> None:
    """The answer comes on another thread: it is there a moment before the group is told of it."""
    script, draft, producer = scripted()
    draft.add(b"x")
    link = producer.agent.link
    making = Waiting(open_reader(link, "clicks", "r", Offset.newest(), True, None))
    agent = AgentOpened(5, StreamInfo(3, "clicks", 4, 10**9, "", None))
    script.take("OpenAgent").answer(agent)
    making.go_on()
    script.take("GetPositions").answer(Positions(80, [], []))
    making.go_on()
    group = Group(link)
    group.add(producer)
    group.add(making.result)
    first = Waiting(group.checkpoint())
    later: list[Waiting] = []

    def look(_: object) -> None:
        first.go_on()
        later.append(Waiting(group.checkpoint()))

    asked = script.take("Commit")
    asked.sink._callbacks.insert(0, look)
    asked.fail("deadline_exceeded", "no answer")
    assert isinstance(first.error, Unavailable)
    assert script.names == []
    assert isinstance(later[0].error, InvalidState)


def test_an_interrupted_cancel_of_a_group_leaves_nothing_for_the_next_checkpoint() -> None:
    """Its readers have gone back, so that what was written must not count."""
    script, draft, producer = scripted()
    draft.add(b"x")
    group = Group(producer.agent.link)
    group.add(producer)
    cancelling = Waiting(group.cancel())
    assert script.names == ["CancelTransactions"]
    cancelling.interrupt()
    assert isinstance(cancelling.error, KeyboardInterrupt)
    checking = Waiting(group.checkpoint())
    for name in script.names:
        asked = script.take(name)
        if name == "Commit":
            assert (asked.message.transactions, asked.message.brought) == ([], [])
        asked.answer(Done())
    checking.go_on()
    assert (checking.ended, checking.error, draft.state) == (True, None, CANCELLED)


def test_a_name_that_nobody_waited_for_is_given_back() -> None:
    script = Script()
    making = Waiting(open_producer(link_to(script), "clicks", "p1", None, 60.0, "none"))
    script.take("OpenSession").answer(SessionOpened(1, 900_000))
    making.go_on()
    making.interrupt()
    assert script.names == ["OpenAgent"]
    script.take("OpenAgent").answer(AGENT)
    assert script.take("CloseAgent").message.agent == 2


def test_a_name_that_was_refused_is_not_given_back() -> None:
    script = Script()
    making = Waiting(open_producer(link_to(script), "clicks", "p1", None, 60.0, "none"))
    script.take("OpenSession").answer(SessionOpened(1, 900_000))
    making.go_on()
    making.interrupt()
    script.take("OpenAgent").fail("not_found", "no such stream")
    assert script.names == []


@pytest.mark.parametrize("how", ["interrupted", "failed"])
def test_a_reader_that_does_not_know_where_it_stands_gives_its_name_back(how: str) -> None:
    script = Script()
    steps = open_reader(link_to(script), "clicks", "c1", Offset.oldest(), True, None)
    making = Waiting(steps)
    script.take("OpenSession").answer(SessionOpened(1, 900_000))
    making.go_on()
    script.take("OpenAgent").answer(AGENT)
    making.go_on()
    if how == "interrupted":
        making.interrupt()
    else:
        script.take("GetPositions").fail("deadline_exceeded", "no answer")
        making.go_on()
    assert making.error is not None
    assert script.take("CloseAgent").message.agent == 2


def test_a_session_that_somebody_began_serves_the_next() -> None:
    script = Script()
    link = link_to(script)
    first, second = Waiting(link.session(0)), Waiting(link.session(0))
    first.interrupt()
    script.take("OpenSession").answer(SessionOpened(1, 900_000))
    second.go_on()
    assert second.result.id == 1


# Futures.


class Unwanted:
    """A future that was cancelled."""

    def done(self) -> bool:
        return True

    def set_result(self, result: int, /) -> None:
        raise AssertionError("it is done already")

    def set_exception(self, exception: BaseException, /) -> None:
        raise AssertionError("it is done already")


@pytest.mark.parametrize("ok", [True, False])
def test_an_instant_whose_future_was_cancelled_leaves_the_window(ok: bool) -> None:
    script, _, producer = scripted()
    window = producer.agent.link.window
    assert producer.try_instant(InstantSink(Unwanted()), 0, b"batch")
    assert window.bytes == 5
    asked = script.take("Instant")
    if ok:
        asked.answer(Done(5))
    else:
        asked.fail("deadline_exceeded", "no answer")
    assert (window.bytes, window.requests) == (0, 0)
