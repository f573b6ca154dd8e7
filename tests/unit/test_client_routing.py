"""How a client follows shards to the nodes that lead them, request by request."""

from __future__ import annotations

from typing import Any

import pytest

import moebius
from tstreams.client.rules.delivery import Source
from tstreams.client.rules.routing import UNUSED_S
from tstreams.client.rules.scanning import Scan
from tstreams.client.rules.session import Session
from tstreams.client.rules.ticket import Ticket
from tstreams.errors import Error, NotFound, NotLeader
from tstreams.limits import MAP_DIAL_S, MAP_PAUSE_S_MAX, MAP_PAUSE_S_MIN
from tstreams.model import Stream
from tstreams.protocol import (
    DeleteStream,
    Done,
    Fetched,
    FetchedTransaction,
    GetStream,
    SessionOpened,
    Want,
)

from .client_nodes import Nodes, NodeScript
from .client_wires import Waiting


def session_in(nodes: Nodes, shard: int = 0) -> Session:
    """A session in a shard, whose leader answers."""
    waiting = Waiting(nodes.link.session(shard))
    leader = nodes.leaders[shard]
    assert leader is not None
    nodes.wires[leader].take("OpenSession").answer(SessionOpened(77, 1000))
    waiting.go_on()
    assert isinstance(waiting.result, Session)
    return waiting.result


def delete(session: Session, name: str) -> Ticket:
    return session.start(DeleteStream, name)


def sent(wire: NodeScript) -> list[object]:
    """What came, in its order: the numbers of changes, and the names of the rest."""
    return [getattr(it.message, "sequence", it.name) for it in wire.asked]


# Moving.


def test_what_was_not_answered_goes_to_the_next_leader_in_its_order() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    tickets = [delete(session, f"s{n}") for n in range(4)]
    a.take("DeleteStream").answer(Done())
    nodes.lead(0, "b")
    a.refuse("DeleteStream", nodes.not_leader())
    late = delete(session, "late")
    assert nodes.dialled == []
    nodes.tell("a")
    assert nodes.dialled == ["b"]
    b = nodes.wires["b"]
    # First what the client has answers to: the next leader may not know of those that were refused.
    assert sent(b) == ["KeepAlive", 2, 3, 4, 5]
    assert b.asked[0].message.acked == 1
    assert [it.message.name for it in b.asked[1:]] == ["s1", "s2", "s3", "late"]
    assert sent(a) == []
    for _ in range(4):
        b.take("DeleteStream").answer(Done())
    assert all(it.ended and it.error is None for it in [*tickets, late])
    assert session.acked == 5
    delete(session, "after")
    assert sent(b) == ["KeepAlive", 6]


def test_a_successor_that_is_named_is_believed_without_a_question() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    tickets = [delete(session, f"s{n}") for n in range(2)]
    nodes.lead(0, "b")
    a.refuse("DeleteStream", nodes.not_leader(named=True))
    assert sent(nodes.wires["b"]) == ["KeepAlive", 1, 2]
    assert nodes.routing.maps == 0
    nodes.connect("b")
    route = nodes.link.shards[0]
    assert (route.epoch, route.wire) == (2, nodes.wires["b"])
    nodes.routing.doubt(0)  # a map that says the same tells the name of the node, and nothing moves
    nodes.tell("a")
    assert route.leader is not None
    assert route.leader.node == "node-b"
    assert sent(nodes.wires["b"]) == ["KeepAlive", 1, 2]
    for _ in tickets:
        nodes.wires["b"].take("DeleteStream").answer(Done())
    assert all(it.error is None for it in tickets)


def test_a_successor_of_an_epoch_that_is_over_is_not_believed() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    delete(session, "s")
    a.refuse("DeleteStream", NotLeader(0, 1, ["tcp://b:1"]))
    assert nodes.dialled == []
    assert sent(a) == ["Describe"]


def test_a_node_that_is_about_to_end_and_was_asked_is_not_waited_for() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    delete(session, "s")
    a.refuse("DeleteStream", nodes.not_leader())
    assert sent(a) == ["Describe"]  # which it will not answer any more
    nodes.lead(0, "b")
    nodes.lose("a")
    nodes.pass_time()
    assert nodes.dialled == ["b"]
    nodes.tell("b")
    assert sent(nodes.wires["b"]) == ["KeepAlive", 1]


def test_a_connection_that_is_lost_makes_the_client_ask_others() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    ticket = delete(session, "s")
    nodes.lose("a")
    nodes.lead(0, "b")
    assert nodes.dialled == ["b"]  # of all that it knows
    nodes.tell("b")
    assert sent(nodes.wires["b"]) == ["KeepAlive", 1]
    assert sent(a) == []
    nodes.wires["b"].take("DeleteStream").answer(Done())
    assert ticket.error is None


def test_a_node_that_comes_back_and_still_leads_keeps_what_was_sent_to_it() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    delete(session, "s")
    nodes.lose("a")
    nodes.tell("b")  # it knows nothing new
    nodes.connect("a")
    nodes.tell("a")
    assert sent(a) == [1]  # the connection has sent it again by itself
    nodes.pauses.clear()
    assert nodes.routing.maps == 2


def test_a_node_that_refuses_and_leads_again_gets_all_in_order() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    for n in range(3):
        delete(session, f"s{n}")
    a.refuse("DeleteStream", NotLeader(0, 1, [], "whether this took effect is not known"))
    assert sent(a) == [2, 3, "Describe"]
    nodes.tell("a")
    assert sent(a) == ["KeepAlive", 1, 2, 3]


def test_questions_move_too_and_can_be_cancelled_where_they_are() -> None:
    nodes = Nodes()
    a = nodes.wires["a"]
    ticket = nodes.link.ask(GetStream("s"), shard=0)
    other = nodes.link.ask(GetStream("t"), shard=0)
    nodes.lead(0, "b")
    a.refuse("GetStream", nodes.not_leader())
    nodes.tell("a")
    b = nodes.wires["b"]
    assert sent(b) == ["GetStream", "GetStream"]
    nodes.link.cancel(ticket)
    assert ticket.wire is b
    assert len(b.cancelled) == 1
    assert not other.ended


def test_other_shards_stay_where_they_are() -> None:
    nodes = Nodes(shards=2)
    first, second = session_in(nodes, 0), session_in(nodes, 1)
    delete(first, "s")
    delete(second, "t")
    nodes.lead(0, "b")
    nodes.wires["a"].refuse("DeleteStream", nodes.not_leader(0))
    nodes.tell("a")
    assert [it.shard for it in nodes.wires["b"].asked] == ["0", "0"]
    assert [it.shard for it in nodes.wires["a"].asked] == ["1"]


def test_what_was_begun_on_the_way_out_follows_and_is_sorted_in() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    delete(session, "first")
    stray = a.take("DeleteStream")  # it is between the client and the connection
    nodes.lead(0, "b")
    nodes.link.ask(GetStream("s"), shard=0)
    a.refuse("GetStream", nodes.not_leader())
    nodes.tell("a")
    b = nodes.wires["b"]
    delete(session, "second")
    b.refuse("DeleteStream", NotLeader(0, 2, ["tcp://b:1"], "request 2 came before those ahead"))
    a.asked.append(stray)
    a.refuse("DeleteStream", nodes.not_leader())
    assert sent(a) == ["Describe"]
    nodes.connect("b")
    nodes.tell("a")
    assert [it for it in sent(b) if isinstance(it, int)] == [1, 2]


def test_a_question_that_is_asked_while_its_shard_moves_is_not_left_behind() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    delete(session, "s")
    nodes.lead(0, "b")
    begin = a.begin

    def begin_late(*args: Any, **options: Any) -> Any:
        a.begin = begin  # type: ignore[method-assign]
        a.refuse("DeleteStream", nodes.not_leader())
        nodes.tell("a")
        return begin(*args, **options)

    a.begin = begin_late  # type: ignore[method-assign]
    nodes.link.ask(GetStream("s"), shard=0)
    assert sent(a) == []
    assert "GetStream" in sent(nodes.wires["b"])


# Nodes that stand still.


def test_what_a_silent_node_was_asked_moves_when_another_leads() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    ticket = delete(session, "s")
    nodes.fall_silent("a")
    assert nodes.dialled == ["b"]  # another is asked, not the one that says nothing
    nodes.connect("b")
    nodes.tell("b")
    assert sent(a) == [1]  # nobody else leads yet
    assert not ticket.ended
    nodes.lead(0, "b")
    nodes.pass_time()
    asked = next(it for it in nodes.wires.values() if "Describe" in it.names)
    assert asked is not a
    nodes.tell(asked.station.address[6])
    assert sent(nodes.wires["b"]) == ["KeepAlive", 1]
    assert sent(a) == []


def test_a_silent_node_that_answers_again_keeps_what_it_was_asked() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    delete(session, "s")
    nodes.fall_silent("a")
    nodes.connect("b")
    nodes.tell("b")
    nodes.fall_silent("a", silent=False)
    nodes.tell("a")
    assert sent(a) == [1]  # it was never sent again
    asked = nodes.routing.maps
    while nodes.pauses:
        nodes.pass_time()
    assert nodes.routing.maps == asked


def test_nobody_reads_from_a_silent_follower() -> None:
    nodes = Nodes()
    follower = reading(nodes)
    assert nodes.link.shards.follower(0) is follower
    follower.station.fell_silent(True)
    assert nodes.link.shards.follower(0) is not follower


# Whom to believe.


def test_a_node_that_does_not_know_that_it_leads_no_more_is_not_believed() -> None:
    nodes = Nodes()
    session = session_in(nodes)
    delete(session, "s")
    old = nodes.info("a")
    nodes.lead(0, "b")
    nodes.wires["a"].refuse("DeleteStream", nodes.not_leader())
    nodes.tell("a")
    b = nodes.wires["b"]
    b.refuse("DeleteStream", NotLeader(0, 2))
    nodes.pass_time()
    nodes.tell("a", old)
    route = nodes.link.shards[0]
    assert (route.epoch, route.wire) == (2, b)
    nodes.lead(0, "c")
    nodes.connect("b")
    nodes.tell("b")
    assert (route.epoch, route.wire) == (3, nodes.wires["c"])
    assert sent(nodes.wires["c"]) == ["KeepAlive", "KeepAlive", 1]


def test_one_map_is_asked_for_at_a_time_with_growing_pauses() -> None:
    nodes = Nodes()
    session, a = session_in(nodes), nodes.wires["a"]
    nodes.connect("a")
    nodes.lead(0, None)
    pauses = []
    for n in range(20):
        delete(session, f"s{n}")
        a.refuse("DeleteStream", nodes.not_leader())
        asked = [it for it in nodes.wires.values() if "Describe" in it.names]
        assert len(asked) == 1
        assert asked[0].names.count("Describe") == 1
        nodes.tell(asked[0].station.address[6])
        assert len(nodes.pauses) == 1
        pauses.append(nodes.pass_time())
    wanted_s = MAP_PAUSE_S_MIN
    for pause_s in pauses:  # each differs a little, so that not all clients ask at the same moment
        assert wanted_s / 2 <= pause_s <= wanted_s
        wanted_s = min(2 * wanted_s, MAP_PAUSE_S_MAX)
    assert wanted_s == MAP_PAUSE_S_MAX
    assert len(set(pauses)) > 1
    assert set(nodes.wires) == {"a", "b", "c"}  # all were asked


def test_a_leader_that_cannot_be_reached_is_doubted() -> None:
    nodes = Nodes(leaders="b")
    ticket = nodes.link.ask(GetStream("s"), shard=0)
    assert sent(nodes.wires["b"]) == ["GetStream"]  # it waits for a connection
    nodes.lead(0, "c")
    nodes.wait(MAP_DIAL_S)
    nodes.tell("a")
    assert sent(nodes.wires["c"]) == ["GetStream"]
    nodes.lead(0, "a")  # and that one has gone, too
    nodes.wait(MAP_DIAL_S)
    nodes.tell("a")
    assert sent(nodes.wires["a"]) == ["GetStream"]
    nodes.wait(MAP_DIAL_S)
    assert nodes.routing.maps == 2
    assert not ticket.ended


def test_a_shard_without_a_leader_is_waited_for() -> None:
    nodes = Nodes()
    nodes.lead(0, None)
    link = nodes.link
    link.shards.learn(nodes.info("a"))
    ticket = link.ask(GetStream("s"), shard=0)
    nodes.wires["a"].refuse("GetStream", nodes.not_leader())
    nodes.tell("a")
    assert not ticket.ended
    nodes.lead(0, "c")
    nodes.pass_time()
    nodes.tell("b")
    nodes.wires["c"].take("GetStream").fail(NotFound.code, "there is none")
    assert isinstance(ticket.error, NotFound)


def test_other_errors_are_not_kept() -> None:
    nodes = Nodes()
    ticket = delete(session_in(nodes), "s")
    asked = nodes.wires["a"].take("DeleteStream")
    error = moebius.Error.from_wire("unavailable", "the disk is full")
    assert not nodes.wires["a"].station.refused(asked.command, error)
    asked.sink.fail(error)
    assert ticket.error is not None
    assert nodes.routing.maps == 0


# Connections.


def test_a_connection_is_made_when_something_is_asked_of_its_node() -> None:
    nodes = Nodes(shards=3, leaders="abc")
    assert nodes.dialled == []
    nodes.link.ask(GetStream("s"), shard=1)
    nodes.link.ask(GetStream("t"), shard=1)
    assert nodes.dialled == ["b"]
    assert nodes.wires["b"].names == ["GetStream", "GetStream"]
    session_in(nodes, 2)
    assert nodes.dialled == ["b", "c"]


def test_a_connection_that_leads_nowhere_any_more_is_closed() -> None:
    nodes = Nodes(shards=2, leaders="bb")
    session_in(nodes, 0)
    nodes.connect("b")
    for leader in "ca":
        nodes.lead(0, leader)
        nodes.lead(1, leader)
        route = nodes.link.shards[0]
        nodes.routing.doubt(0)
        asked = next(it for it in nodes.wires.values() if "Describe" in it.names)
        nodes.tell(asked.station.address[6])
        assert route.wire is nodes.wires[leader]
        nodes.connect(leader)
    nodes.link.shards[0].followers = nodes.link.shards[1].followers = ()
    nodes.wait(UNUSED_S)
    assert {it for it, wire in nodes.wires.items() if wire.closed} == {"b", "c"}


def test_what_concerns_no_shard_is_asked_of_a_node_that_is_there() -> None:
    nodes = Nodes(leaders="b")
    session_in(nodes)
    nodes.connect("b")
    nodes.lose("a")
    assert nodes.routing.contact() is nodes.wires["b"]
    nodes.connect("a")
    assert nodes.routing.contact() is nodes.wires["a"]


def test_a_closed_client_asks_for_nothing() -> None:
    nodes = Nodes()
    session_in(nodes)
    nodes.link.close()
    nodes.lose("a")
    assert nodes.routing.maps == 0


# Reading from those who follow.


def source_of(nodes: Nodes) -> Source:
    stream = Stream("s", 1, None, "", None, 5, 0)  # type: ignore[arg-type]
    return Source(nodes.link, stream, 5, roams=True)


def reading(nodes: Nodes) -> NodeScript:
    """The follower that this client reads from, once there is a connection to it."""
    assert nodes.link.shards.follower(0) is None
    (name,) = nodes.dialled
    nodes.connect(name)
    return nodes.wires[name]


def found(*ids: int) -> Fetched:
    return Fetched([FetchedTransaction(0, it, 1, 1, 0, [1]) for it in ids])


def test_a_follower_answers_once_it_is_connected() -> None:
    nodes = Nodes()
    source = source_of(nodes)
    source.fetch([Want(0, 1)], 1000)
    assert nodes.wires["a"].take("Fetch").command == "0:Fetch"  # nobody waits for a connection
    nodes.connect(nodes.dialled[0])
    source.fetch([Want(0, 1)], 1000)
    assert nodes.wires[nodes.dialled[0]].take("Fetch").command == "0:any:Fetch"


@pytest.mark.parametrize("code", ["unavailable", "not_found", "disconnected", "deadline"])
def test_whatever_a_follower_says_is_wrong_the_leader_has_the_last_word(code: str) -> None:
    nodes = Nodes()
    follower = reading(nodes)
    ticket = source_of(nodes).fetch([Want(0, 1)], 1000)
    follower.take("Fetch").fail(code, "no")
    assert not ticket.ended
    nodes.wires["a"].take("Fetch").fail(NotFound.code, "the stream was deleted")
    assert isinstance(ticket.error, NotFound)
    again = source_of(nodes).fetch([Want(0, 1)], 1000)
    assert again.wire is not follower  # not for a while


def test_where_a_scan_ends_the_leader_says() -> None:
    nodes = Nodes()
    follower = reading(nodes)
    scan = Scan(source_of(nodes), 0, 0, 100)
    part = Waiting(scan.next())
    follower.take("Fetch").answer(found(3, 4), b"34")
    part.go_on()
    assert [it.id for it in part.result] == [3, 4]
    part = Waiting(scan.next())
    follower.take("Fetch").answer(found())  # it is behind
    part.go_on()
    asked = nodes.wires["a"].take("Fetch")
    assert asked.message.wants[0].from_id == 5
    asked.answer(found(7), b"7")
    part.go_on()
    assert [it.id for it in part.result] == [7]
    part = Waiting(scan.next())
    follower.take("Fetch").answer(found())
    part.go_on()
    nodes.wires["a"].take("Fetch").answer(found())
    part.go_on()
    assert part.result == []


def test_a_follower_that_is_refused_by_nobody_is_no_reason_to_ask_for_a_map() -> None:
    nodes = Nodes()
    follower = reading(nodes)
    ticket = source_of(nodes).fetch([Want(0, 1)], 1000)
    follower.refuse("Fetch", NotLeader(0, 1))
    assert nodes.wires["a"].names == ["Fetch"]
    assert not ticket.ended
    assert nodes.routing.maps == 0


def test_a_reader_that_is_cancelled_while_the_leader_is_asked_hears_nothing() -> None:
    nodes = Nodes()
    follower = reading(nodes)
    ticket = source_of(nodes).fetch([Want(0, 1)], 1000)
    asked = follower.take("Fetch")
    nodes.link.cancel(ticket)
    asked.fail("unavailable")
    assert nodes.wires["a"].names == []
    assert ticket.ended
    assert not isinstance(ticket.error, Error)
