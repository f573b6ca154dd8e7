"""The client's building blocks: tickets, windows, turns, sessions, errors."""

from __future__ import annotations

import pytest

import moebius
from tstreams import errors
from tstreams.client.rules.failures import is_session_end, transaction_in, translated
from tstreams.client.rules.session import Session
from tstreams.client.rules.streams import create_stream, get_stream
from tstreams.client.rules.ticket import AnyOf, Ticket, answer, answer_within
from tstreams.client.rules.turns import Turns
from tstreams.client.rules.window import Window
from tstreams.errors import BadRequest, InvalidState, NotFound, Timeout, Unavailable
from tstreams.limits import SESSION_TTL_MS
from tstreams.protocol import DeleteStream, Done, NodeInfo, SessionOpened, encode
from tstreams.sharding import home_of

from .client_wires import Script, ShardWire, Waiting, link_to, run

# Tickets.


def test_a_ticket_tells_everyone_once() -> None:
    ticket = Ticket()
    told: list[str] = []
    ticket.add_callback(lambda _: told.append("early"))
    dropped = lambda _: told.append("dropped")  # noqa: E731
    ticket.add_callback(dropped)
    ticket.drop_callback(dropped)
    ticket.done((encode(Done(7)),))
    ticket.end()
    ticket.add_callback(lambda _: told.append("late"))
    assert told == ["early", "late"]
    assert ticket.reply(Done).id == 7


def test_an_answer_of_another_kind_is_an_error() -> None:
    ticket = Ticket()
    ticket.done((encode(NodeInfo("1", [0])),))
    with pytest.raises(errors.Error, match="NodeInfo"):
        ticket.reply(Done)
    empty = Ticket()
    empty.done(None)
    with pytest.raises(errors.Error):
        empty.reply(Done)


def test_an_operation_goes_on_when_its_answer_came() -> None:
    ticket = Ticket()
    waiting = Waiting(answer(ticket, Done))
    assert waiting.target is ticket
    ticket.fail(moebius.DeadlineExceeded("late"))
    waiting.go_on()
    assert isinstance(waiting.error, Timeout)


def test_an_answer_may_be_waited_for_less_long_than_it_takes() -> None:
    ticket = Ticket()
    waiting = Waiting(answer_within(ticket, Done, 3.0, "this"))
    assert waiting.target == AnyOf((ticket,), 3.0)
    waiting.go_on()
    assert isinstance(waiting.error, Timeout)


# Windows.


def test_a_window_has_room_for_so_many_bytes_and_requests() -> None:
    window = Window(bytes_max=100, requests_max=3)
    assert [window.enter(60), window.enter(60), window.enter(40)] == [True, False, True]
    assert not window.enter(1)
    window.leave(60)
    assert [window.enter(0), window.enter(0), window.enter(0)] == [True, True, False]


def test_what_is_larger_than_the_window_goes_alone() -> None:
    window = Window(bytes_max=100)
    assert window.enter(1000)
    assert not window.enter(1)
    window.leave(1000)
    assert window.enter(1)
    assert not window.enter(1000)


def test_nobody_overtakes_whoever_waits_for_room() -> None:
    window = Window(bytes_max=100)
    assert window.enter(100)
    large, small = Waiting(window.wait(90, 9.0)), Waiting(window.wait(10, 9.0))
    assert not window.enter(0)
    window.leave(100)
    for waiting in (large, small):
        waiting.go_on()
        assert waiting.ended
        assert waiting.error is None
    assert (window.bytes, window.requests) == (100, 2)


def test_whoever_gives_up_waiting_leaves_the_line() -> None:
    window = Window(bytes_max=100)
    assert window.enter(100)
    late, interrupted, patient = (Waiting(window.wait(80, 9.0)) for _ in range(3))
    late.go_on()
    assert isinstance(late.error, Timeout)
    interrupted.interrupt()
    window.leave(100)
    patient.go_on()
    assert (patient.error, window.bytes) == (None, 80)
    granted = Waiting(window.wait(80, 9.0))
    window.leave(80)
    granted.interrupt()
    assert (window.bytes, window.requests) == (0, 0), "what was granted is given back"


def test_what_must_not_wait_pushes_in() -> None:
    window = Window(bytes_max=100, requests_max=1)
    assert window.enter(100)
    window.push_in(0)
    assert (window.bytes, window.requests) == (100, 2)


# Turns.


def test_turns_are_taken_in_order() -> None:
    turns = Turns()
    first, second, third = (Waiting(turns.enter()) for _ in range(3))
    assert [it.ended for it in (first, second, third)] == [True, False, False]
    turns.leave()
    second.go_on()
    assert second.ended
    second_done = turns.taken
    turns.leave()
    third.go_on()
    assert (second_done, third.ended) == (True, True)
    turns.leave()
    assert not turns.taken


def test_whoever_gives_up_passes_the_turn_on() -> None:
    turns = Turns()
    run(turns.enter())
    waits, granted, last = (Waiting(turns.enter()) for _ in range(3))
    waits.interrupt()
    turns.leave()
    granted.interrupt()
    last.go_on()
    assert last.ended
    turns.leave()
    assert not turns.taken


# Sessions.


def test_numbers_rise_and_answers_are_acknowledged_up_to_the_first_gap() -> None:
    script = Script()
    link = link_to(script)
    session = Session(link, link.shards[0], 5)
    tickets = [session.start(DeleteStream, f"s{n}") for n in range(4)]
    assert [it.message.sequence for it in script.asked] == [1, 2, 3, 4]
    assert {it.message.session for it in script.asked} == {5}
    for number, acked in ((1, 0), (0, 2), (3, 2), (2, 4)):
        script.asked[number].answer(Done())
        assert session.acked == acked
    assert [ticket.reply(Done) for ticket in tickets] == [Done()] * 4
    session.start(DeleteStream, "s5")
    assert script.asked[-1].message.acked == 4
    script.asked[-1].fail("deadline_exceeded")
    assert session.acked == 5, "what was given up is not waited for"


def test_what_could_not_be_sent_leaves_no_gap() -> None:
    class Broken(Script):
        def begin(self, *args: object, **options: object) -> object:
            raise moebius.Closed("this client was made before a fork")

    link = link_to(Broken())
    session = Session(link, link.shards[0], 5)
    with pytest.raises(InvalidState, match="fork"):
        session.start(DeleteStream, "x")
    assert (session.acked, link.window.requests) == (1, 0)


def test_a_session_is_begun_once_by_whoever_needs_it_first() -> None:
    script = Script()
    link = link_to(script)
    waiting = [Waiting(link.session(0)) for _ in range(3)]
    assert script.names == ["OpenSession"]
    script.take("OpenSession").answer(SessionOpened(7, 1000))
    for it in waiting:
        it.go_on()
    assert len({id(it.result) for it in waiting}) == 1
    assert waiting[0].result.id == 7


def test_a_session_that_could_not_begin_is_tried_again() -> None:
    script = Script()
    link = link_to(script)
    waiting = Waiting(link.session(0))
    script.take("OpenSession").fail("unavailable", "the disk is full")
    waiting.go_on()
    assert isinstance(waiting.error, Unavailable)
    Waiting(link.session(0))
    assert script.names == ["OpenSession"]


def test_after_the_end_of_a_session_the_next_one_is_begun() -> None:
    wire = ShardWire()
    link = link_to(wire)
    run(create_stream(link, "clicks", 1, "7d", "", None))
    (session,) = link.sessions()
    wire.now_ms += SESSION_TTL_MS + 60_000
    wire.shard.tick(wire.now_ms)
    session.beat()
    assert session.ended is not None
    assert "anew" in session.ended.message
    with pytest.raises(InvalidState, match="anew"):
        session.start(DeleteStream, "clicks")
    assert link.window.requests == 0
    run(create_stream(link, "other", 1, "7d", "", None))
    (fresh,) = link.sessions()
    assert fresh.id != session.id


def test_keepalives_come_three_times_in_the_shortest_lease() -> None:
    script = Script()
    link = link_to(script)
    woken: list[bool] = []
    link.on_leases = lambda: woken.append(True)
    waiting = Waiting(link.session(0))
    script.take("OpenSession").answer(SessionOpened(7, 1000))
    waiting.go_on()
    session = waiting.result
    idle_s = link.beat_s()
    session.hold_lease(60_000)
    session.hold_lease(600)
    assert link.beat_s() == pytest.approx(0.2)
    session.drop_lease(600)
    assert link.beat_s() == pytest.approx(20)
    assert 20 < idle_s < SESSION_TTL_MS / 1000 / 2
    assert len(woken) == 3
    link.beat()
    link.beat()
    assert script.names == ["KeepAlive"], "one at a time"
    script.take("KeepAlive").answer(Done())
    link.beat()
    assert script.names == ["KeepAlive"]


# Errors.


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("not_found", NotFound),
        ("bad_request", errors.BadRequest),
        ("too_large", errors.TooLarge),
        ("fenced", errors.Fenced),
        ("expired", errors.Expired),
        ("corrupt", errors.Corrupt),
        ("already_exists", errors.AlreadyExists),
        ("unavailable", Unavailable),
        ("timeout", Timeout),
        ("deadline_exceeded", Timeout),
        ("disconnected", Unavailable),
        ("stopping", Unavailable),
        ("overloaded", Unavailable),
        ("closed", InvalidState),
        ("unauthorized", errors.Unauthorized),
        ("unknown_command", errors.BadRequest),
        ("handler_failed", errors.Error),
        ("of the future", errors.Error),
    ],
)
def test_every_code_has_its_error(code: str, kind: type[errors.Error]) -> None:
    error = translated(moebius.Error.from_wire(code, "what happened"))
    assert type(error) is kind
    assert error.message == "what happened"
    assert not is_session_end(error)


def test_an_error_names_its_transaction() -> None:
    assert transaction_in(errors.Expired("transaction 123: its lease ran out")) == 123
    assert transaction_in(errors.Expired("something else")) is None


# Shards.


def test_a_server_that_does_not_serve_all_shards_is_not_ready() -> None:
    link = link_to(Script())
    with pytest.raises(Unavailable, match="no shards yet"):
        link.shards.learn(NodeInfo("test", [], total=3))
    with pytest.raises(Unavailable, match=r"nobody serves the shards \[1\]"):
        link.shards.learn(NodeInfo("test", [0, 2], total=3))
    link.shards.learn(NodeInfo("test", [2, 0, 1], epochs=[9, 7, 8], total=3))
    assert [link.shards[it].epoch for it in link.shards.numbers] == [7, 8, 9]
    with pytest.raises(BadRequest, match="no shard 3"):
        link.shards[3]
    with pytest.raises(errors.Corrupt, match="1025 shards"):
        link.shards.learn(NodeInfo("test", list(range(1025)), total=1025))


def test_requests_go_to_the_home_of_their_stream() -> None:
    script = Script()
    link = link_to(script, shards=3)
    names = [f"s{n}" for n in range(20)]
    for name in names:
        Waiting(get_stream(link, name))
    assert [it.shard for it in script.asked] == [str(home_of(name, 3)) for name in names]
    assert {it.shard for it in script.asked} == {"0", "1", "2"}
