"""The rules of a subscriber, with a server that says what the test wants."""

from __future__ import annotations

from typing import Any

import pytest

from tstreams.client.rules.agent import Agent, Seat
from tstreams.client.rules.cursor import Start
from tstreams.client.rules.handling import Handling
from tstreams.client.rules.session import Session
from tstreams.client.rules.subscriber import Run, Subscriber
from tstreams.client.rules.ticket import AnyOf
from tstreams.errors import Fenced, InvalidState, NotFound
from tstreams.limits import SUBSCRIBER_WINDOW_BYTES
from tstreams.protocol import AgentOpened, Done, Fetched, FetchedTransaction, StreamInfo

from .client_wires import Asked, Script, Waiting, link_to


class Bench:
    """A subscriber of three partitions, and the wire that it uses."""

    def __init__(self, engines: int = 2) -> None:
        self.script = Script()
        link = link_to(self.script)
        seat = Seat(Session(link, link.shards[0], 1), 5)
        info = StreamInfo(7, "clicks", 3, 1000, "", None)
        agent = Agent(link, "reader", "s1", AgentOpened(5, info), [seat])
        starts: list[Start] = [(partition, 1, None, False) for partition in range(3)]
        self.rules = Subscriber(agent, starts, engines)
        assert Waiting(self.rules.start()).ended
        assert self.rules.try_take() is None
        self.feed = self.script.take("Subscribe")

    def push(self, *found: tuple[int, int], size: int = 10) -> None:
        """Transactions, as partition and id."""
        entries = [FetchedTransaction(where, txn_id, 1, 1, 0, [size]) for where, txn_id in found]
        self.feed.push(Fetched(entries), bytes(size * len(found)))

    def take(self) -> Handling:
        handling = self.rules.try_take()
        assert handling is not None
        return handling

    def took(self) -> tuple[int, int]:
        """Take one and let its callback return."""
        handling = self.take()
        self.rules.returned(handling)
        return handling.place.partition, handling.id

    def again(self) -> Asked:
        """The next subscription, in the place of the one before."""
        self.feed = self.script.take("Subscribe")
        return self.feed

    def wants(self) -> dict[int, int]:
        return {want.partition: want.from_id for want in self.feed.message.wants}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_asks_for_all_partitions_under_its_name(bench: Bench) -> None:
    assert bench.wants() == {0: 1, 1: 1, 2: 1}
    assert (bench.feed.message.agent, bench.feed.message.stream) == (5, 7)
    assert (bench.feed.credit, bench.feed.timeout) == (SUBSCRIBER_WINDOW_BYTES, None)


def test_one_callback_of_a_partition_at_a_time(bench: Bench) -> None:
    bench.push((0, 10), (0, 11), (1, 12))
    first, second = bench.take(), bench.take()
    assert (first.id, second.id) == (10, 12)
    assert bench.rules.try_take() is None
    bench.rules.returned(second)
    assert bench.rules.try_take() is None
    bench.rules.returned(first)
    assert bench.took() == (0, 11)


def test_an_engine_that_waits_is_woken(bench: Bench) -> None:
    one, two = Waiting(bench.rules.take()), Waiting(bench.rules.take())
    bench.push((0, 10), (1, 11))
    woken = [it for it in (one, two) if it.target is not None and it.target.tickets[0].ended]  # type: ignore[union-attr]
    assert len(woken) == 1
    woken[0].go_on()
    assert woken[0].ended
    other = two if woken[0] is one else one
    assert other.target is not None
    assert other.target.tickets[0].ended, "it wakes the next, if there is more"  # type: ignore[union-attr]


def test_credit_comes_back_when_a_transaction_is_handed_out(bench: Bench) -> None:
    size = SUBSCRIBER_WINDOW_BYTES // 8
    for number in range(8):
        bench.push((0, 10 + number), size=size)
    assert bench.feed.credit <= 0
    for number in range(8):
        assert bench.took() == (0, 10 + number)
        assert bench.rules.counts()[1] <= (7 - number) * (size + 100)
    assert bench.feed.credit > SUBSCRIBER_WINDOW_BYTES // 2


def test_what_came_twice_is_handed_out_once(bench: Bench) -> None:
    bench.push((0, 10), (0, 11))
    bench.push((0, 11), (0, 12))
    assert [bench.took()[1] for _ in range(3)] == [10, 11, 12]
    assert bench.rules.try_take() is None


@pytest.mark.parametrize("code", ["disconnected", "stopping", "unavailable", "overloaded"])
def test_a_broken_subscription_is_begun_anew_where_it_was(bench: Bench, code: str) -> None:
    bench.push((0, 10), (1, 20))
    bench.feed.fail(code, "away for a moment")
    assert bench.took() == (0, 10)
    bench.again()
    assert bench.wants() == {0: 11, 1: 21, 2: 1}
    assert bench.took() == (1, 20)
    bench.push((0, 11))
    assert bench.took() == (0, 11)


def test_what_is_queued_takes_room_of_the_next_subscription(bench: Bench) -> None:
    size = SUBSCRIBER_WINDOW_BYTES // 4
    bench.push((0, 10), (0, 11), (0, 12), size=size)
    bench.feed.fail("disconnected")
    handling = bench.take()
    feed = bench.again()
    assert feed.credit < SUBSCRIBER_WINDOW_BYTES // 2
    bench.rules.returned(handling)
    bench.took()
    bench.took()
    assert feed.credit > SUBSCRIBER_WINDOW_BYTES * 3 // 4


def test_who_is_refused_again_and_again_waits_longer_each_time(bench: Bench) -> None:
    pauses = []
    for _ in range(12):
        bench.feed.fail("unavailable", "the shard has stopped")
        waiting = Waiting(bench.rules.take())
        if "Subscribe" not in bench.script.names:
            target: Any = waiting.target
            pauses.append(target.timeout_s)
            bench.rules._inflows[0].begins_at = 0.0
            waiting.go_on()
        bench.again()
    assert 0.0 < pauses[0] <= 0.05
    assert pauses[-1] > 4.0
    assert max(pauses) <= 5.0
    bench.push((0, 10))
    assert bench.took() == (0, 10)


@pytest.mark.parametrize(
    ("code", "kind"), [("fenced", Fenced), ("not_found", NotFound)], ids=["fenced", "deleted"]
)
def test_what_ends_it_is_told_to_one_engine(bench: Bench, code: str, kind: type) -> None:
    bench.feed.fail(code, "agent 5 is not wanted")
    one, two = Waiting(bench.rules.take()), Waiting(bench.rules.take())
    assert type(one.error) is kind
    assert "reader 's1' of stream 'clicks' is not wanted" in str(one.error)
    assert (two.ended, two.error, two.result) == (True, None, None)
    runs: list[Run] = []
    for _ in range(2):
        bench.rules.engine_ended()
        runs.append(bench.rules.run)
    assert runs == [Run.STOPPING, Run.STOPPED]


def test_the_fenced_get_nothing_more_and_others_what_had_come(bench: Bench) -> None:
    bench.push((0, 10))
    bench.feed.fail("fenced", "agent 5")
    assert bench.rules.try_take() is None
    other = Bench()
    other.push((0, 10), (0, 11))
    other.feed.fail("corrupt", "bad bytes")
    assert [other.took()[1] for _ in range(2)] == [10, 11]
    assert other.rules.try_take() is None
    assert other.rules.run is Run.STOPPING


def test_a_failed_partition_stops_and_is_asked_for_no_more(bench: Bench) -> None:
    bench.push((0, 10), (0, 11), (1, 20))
    handling, other = bench.take(), bench.take()
    error = ValueError()
    assert bench.rules.failed(handling, error)
    bench.rules.returned(other)
    assert bench.rules.failures() == {0: error}
    marks, _ = bench.rules.look()
    assert [(it.partition, it.transaction) for it in bench.rules.positions_of(marks)] == [(1, 20)]
    size = SUBSCRIBER_WINDOW_BYTES // 4
    for number in range(5):
        bench.push((0, 12 + number), size=size)
        assert bench.rules.try_take() is None
    bench.again()
    assert bench.wants() == {1: 21, 2: 1}


def test_a_slow_partition_does_not_starve_the_others(bench: Bench) -> None:
    size = SUBSCRIBER_WINDOW_BYTES // 8
    bench.push((0, 10), size=size)
    slow = bench.take()
    for number in range(8):
        bench.push((0, 11 + number), size=size)
    idle = Waiting(bench.rules.take())
    assert not idle.ended
    assert bench.again().credit == SUBSCRIBER_WINDOW_BYTES
    assert bench.wants() == {1: 1, 2: 1}
    bench.push((1, 20))
    idle.go_on()
    assert idle.result.id == 20
    bench.rules.returned(idle.result)
    bench.rules.returned(slow)
    kept = [bench.took()[1]]
    while "Subscribe" not in bench.script.names and (found := bench.rules.try_take()):
        kept.append(found.id)
        bench.rules.returned(found)
    assert kept == list(range(11, 11 + len(kept)))
    assert len(kept) < 8
    assert bench.rules.try_take() is None
    bench.again()
    assert bench.wants() == {0: kept[-1] + 1, 1: 21, 2: 1}


def test_all_engines_at_work_is_no_reason_to_drop_anything(bench: Bench) -> None:
    size = SUBSCRIBER_WINDOW_BYTES // 4
    for number in range(6):
        bench.push((number % 2, 10 + number), size=size)
    first, second = bench.take(), bench.take()
    bench.rules.returned(first)
    assert bench.take().place is first.place
    assert bench.script.names == []
    assert second.place.queue


def test_a_rewind_lets_what_is_at_hand_come_again(bench: Bench) -> None:
    bench.push((0, 10), (0, 11), (1, 20))
    assert bench.took() == (0, 10)
    marks, _ = bench.rules.look()
    bench.rules.saved(marks)
    assert bench.took() == (1, 20)
    at_hand = bench.take()
    bench.rules.rewind()
    assert bench.rules.try_take() is None
    bench.again()
    assert bench.wants() == {0: 11, 1: 1, 2: 1}
    bench.push((0, 11), (1, 20))
    assert bench.took() == (1, 20)
    assert bench.rules.try_take() is None, "not beside the call that is at work"
    bench.rules.returned(at_hand)
    assert (at_hand.returned_as, bench.rules.position(0)) == (0, 10)
    assert bench.took() == (0, 11)


def test_what_the_server_says_must_make_sense(bench: Bench) -> None:
    bench.feed.sink.item((b"\xc1 no message",))
    waiting = Waiting(bench.rules.take())
    assert "cannot be read" in str(waiting.error)
    assert bench.feed in bench.script.cancelled


# Interrupted.


def test_an_engine_that_is_interrupted_passes_on_what_it_was_woken_for(bench: Bench) -> None:
    one, two = Waiting(bench.rules.take()), Waiting(bench.rules.take())
    bench.push((0, 10))
    one.interrupt()
    assert isinstance(two.target, AnyOf)
    assert two.target.tickets[0].ended
    two.go_on()
    assert two.result.id == 10


def test_an_engine_that_is_interrupted_leaves_no_place_in_the_line(bench: Bench) -> None:
    one, two = Waiting(bench.rules.take()), Waiting(bench.rules.take())
    one.interrupt()
    bench.push((0, 10))
    two.go_on()
    assert two.result.id == 10


def test_if_one_engine_ends_all_do(bench: Bench) -> None:
    one, two = Waiting(bench.rules.take()), Waiting(bench.rules.take())
    one.interrupt()
    bench.rules.engine_ended()
    assert bench.rules.run is Run.STOPPING
    two.go_on()
    assert (two.ended, two.result, two.error) == (True, None, None)
    bench.rules.engine_ended()
    assert Waiting(bench.rules.stop()).error is None, "it had to stop by itself"
    assert isinstance(Waiting(bench.rules.stop()).error, InvalidState)


def test_a_checkpoint_is_noted_also_if_nobody_waits_for_it(bench: Bench) -> None:
    bench.push((0, 10), (0, 11))
    bench.took()
    Waiting(bench.rules.checkpoint()).interrupt()
    bench.took()
    later = Waiting(bench.rules.checkpoint())
    assert bench.script.names == ["Commit"], "one after the other, also if nobody waits"
    bench.script.take("Commit").answer(Done())
    later.go_on()
    positions = bench.script.take("Commit").message.positions
    assert [(it.partition, it.transaction) for it in positions] == [(0, 11)]


def test_a_start_waits_for_what_an_interrupted_checkpoint_says(bench: Bench) -> None:
    """A group may have covered a call that then failed: it must not come again."""
    bench.push((0, 10))
    handling = bench.take()
    marks, _ = bench.rules.look(handling)
    assert Waiting(bench.rules.saving.enter()).ended
    bench.rules.failed(handling, KeyboardInterrupt())
    for _ in range(2):
        bench.rules.engine_ended()
    starting = Waiting(bench.rules.start())
    assert not starting.ended
    bench.rules.saved(marks)
    bench.rules.saving.leave()
    starting.go_on()
    assert starting.target is None
    assert bench.rules.try_take() is None
    bench.again()
    assert bench.wants()[0] == 11
    assert bench.rules.position(0) == 10
