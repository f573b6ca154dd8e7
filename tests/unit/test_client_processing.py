"""The rules of a processing loop: what is sent, how far ahead, and what a failure stops."""

from __future__ import annotations

import pytest

from tstreams.client.rules.processing import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    Processing,
    open_processing,
)
from tstreams.errors import Expired, Fenced, InvalidState, Unavailable
from tstreams.items import Items
from tstreams.limits import PROCESS_COMMITS_MAX, SEND_BATCH_BYTES
from tstreams.model import Offset
from tstreams.protocol import AgentOpened, Done, Positions, SessionOpened, StreamInfo

from .client_wires import Asked, Script, Waiting, link_to
from .test_client_reader import answer

READER, PRODUCER = 4, 3


def make(*found: tuple[int, int], delivery: str = EXACTLY_ONCE) -> tuple[Script, Processing]:
    """A loop whose reader has these transactions (partition, id) at hand."""
    script = Script()
    steps = open_processing(
        link_to(script),
        "in",
        "job",
        "out",
        delivery=delivery,
        start=Offset.oldest(),
        resume=True,
        partitions=None,
        transaction_ttl=60.0,
        compression="none",
        batch=1,
        commit_every_s=60.0,
    )
    making = Waiting(steps)
    source = StreamInfo(1, "in", 2, 10**9, "", None)
    script.take("GetStream").answer(source)
    making.go_on()
    script.take("OpenSession").answer(SessionOpened(1, 900_000))
    making.go_on()
    sink = StreamInfo(2, "out", 2, 10**9, "", None)
    script.take("OpenAgent").answer(AgentOpened(PRODUCER, sink))
    making.go_on()
    script.take("OpenAgent").answer(AgentOpened(READER, source))
    making.go_on()
    script.take("GetPositions").answer(Positions(1000, [], []))
    making.go_on()
    processing = making.result
    first = Waiting(processing.next(None, lambda: False))
    answer(script.take("Fetch"), *found)
    first.go_on()
    write(processing, first, [b"first"])
    script.asked.clear()  # it has asked for more already
    return script, processing


def write(processing: Processing, waiting: Waiting, results: list[bytes]) -> None:
    assert waiting.error is None
    writing = Waiting(processing.write(waiting.result, results))
    assert writing.ended
    assert writing.error is None


def step(processing: Processing, results: list[bytes]) -> None:
    """Take the next transaction, and write this for it."""
    waiting = Waiting(processing.next(None, lambda: False))
    assert waiting.ended
    write(processing, waiting, results)


def moves(asked: Asked) -> list[tuple[int, int, int | None]]:
    return [(it.partition, it.transaction, it.after) for it in asked.message.positions]


def test_results_and_position_are_one_request() -> None:
    script, processing = make((0, 10), (0, 11))
    step(processing, [b"second"])
    assert script.names == ["Commit"]
    asked = script.take("Commit")
    assert asked.message.agents == [READER, PRODUCER]
    assert [(it.agent, it.partition, it.transaction) for it in asked.message.brought] == [
        (PRODUCER, 0, 0)
    ]
    assert [list(Items(batch)) for batch in asked.brought] == [[b"first"]]
    assert moves(asked) == [(0, 10, None)]


def test_each_commit_says_where_the_one_before_has_left_the_reader() -> None:
    script, processing = make((0, 10), (1, 11), (0, 12), (0, 13))
    for _ in range(3):
        step(processing, [b"x"])
    assert [moves(script.take("Commit")) for _ in range(3)] == [
        [(0, 10, None)],
        [(0, 10, 10), (1, 11, None)],
        [(0, 12, 10), (1, 11, 11)],
    ]


def test_only_so_many_are_under_way() -> None:
    found = [(0, number) for number in range(10, 10 + PROCESS_COMMITS_MAX + 2)]
    script, processing = make(*found)
    for _ in range(PROCESS_COMMITS_MAX):
        step(processing, [b"x"])
    assert script.names == ["Commit"] * PROCESS_COMMITS_MAX
    waiting = Waiting(processing.next(None, lambda: False))
    assert not waiting.ended
    assert processing.done.commits == 0
    script.take("Commit").answer(Done())
    waiting.go_on()
    assert waiting.target is None
    assert processing.done.commits == 1
    assert script.names == ["Commit"] * PROCESS_COMMITS_MAX


def test_the_end_waits_for_all_commits() -> None:
    script, processing = make((0, 10), (0, 11))
    step(processing, [b"x", b"y"])
    ending = Waiting(processing.next(None, lambda: True))
    assert not ending.ended
    for _ in range(2):
        script.take("Commit").answer(Done())
    ending.go_on()
    assert (ending.target, ending.result) == (None, None)
    done = processing.done
    assert (done.transactions, done.items, done.commits) == (2, 3, 2)


@pytest.mark.parametrize(
    ("code", "error"),
    [("deadline_exceeded", Unavailable), ("fenced", Fenced), ("invalid_state", InvalidState)],
)
def test_the_first_commit_that_failed_ends_it(code: str, error: type[Exception]) -> None:
    script, processing = make((0, 10), (0, 11), (0, 12))
    step(processing, [b"x"])
    step(processing, [b"x"])
    script.take("Commit").fail(code, "the first of them")
    script.take("Commit").fail("invalid_state", "a commit before this one did not take effect")
    ending = Waiting(processing.next(None, lambda: False))
    assert isinstance(ending.error, error)
    assert "the first of them" in str(ending.error)
    assert processing.done.commits == 0


def test_results_that_are_large_are_sent_before() -> None:
    script, processing = make((0, 10), (0, 11))
    waiting = Waiting(processing.next(None, lambda: False))
    script.take("Commit").answer(Done())
    writing = Waiting(processing.write(waiting.result, [b"x" * SEND_BATCH_BYTES, b"y"]))
    script.take("OpenTransaction").answer(Done(77))
    writing.go_on()
    assert writing.ended
    ending = Waiting(processing.next(None, lambda: True))
    assert script.names == ["SendItems"] * 2
    for _ in range(2):
        script.take("SendItems").answer(Done())
    ending.go_on()
    assert script.take("Commit").message.transactions == [77]


@pytest.mark.parametrize("delivery", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_results_that_were_lost_are_not_skipped(delivery: str) -> None:
    """A transaction that ended before its commit: the position must not move without it."""
    script, processing = make((0, 10), (0, 11), delivery=delivery)
    waiting = Waiting(processing.next(None, lambda: False))
    while not waiting.ended or script.asked:
        script.take("Commit").answer(Done())
        if not waiting.ended:
            waiting.go_on()
    writing = Waiting(processing.write(waiting.result, [b"x" * SEND_BATCH_BYTES]))
    script.take("OpenTransaction").answer(Done(77))
    writing.go_on()
    script.take("SendItems").fail("expired", "transaction 77: its lease ran out")
    ending = Waiting(processing.next(None, lambda: True))
    assert isinstance(ending.error, Expired)
    assert script.names == []


def test_what_was_kept_goes_before_what_is_large() -> None:
    script, processing = make((0, 10), (0, 11))
    processing._batch = 10
    waiting = Waiting(processing.next(None, lambda: False))
    writing = Waiting(processing.write(waiting.result, [b"x" * SEND_BATCH_BYTES]))
    script.take("OpenTransaction").answer(Done(77))
    writing.go_on()
    Waiting(processing.next(None, lambda: True))
    sent = [list(Items(it.sent)) for it in script.asked]
    assert [len(item) for items in sent for item in items] == [len(b"first"), SEND_BATCH_BYTES]
