"""A leader whose session may be over answers nobody who wants to hear the leader, whatever is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import moebius
import tstreams
from tests.integration.replicas.sites import Site, in_memory
from tests.integration.tstreams.conftest import Clock, eventually
from tstreams.errors import NotLeader
from tstreams.protocol import (
    Browse,
    Fetch,
    FetchLast,
    GetJob,
    GetPositions,
    GetReaders,
    GetStream,
    GetTransaction,
    ListAgents,
    ListJobs,
    ListLedgers,
    ListNumbers,
    ListOpen,
    ListReaders,
    ListSessions,
    ListStreams,
    Message,
    OpenSession,
    Subscribe,
    Survey,
    SurveyWant,
    Want,
    encode,
)
from tstreams.server.handlers import Handlers

QUESTIONS: dict[type[Message], Callable[[int, int], Message]] = {
    GetStream: lambda _, __: GetStream("clicks"),
    ListStreams: lambda _, __: ListStreams("", "", 10),
    GetPositions: lambda stream, _: GetPositions(stream, "r"),
    GetJob: lambda _, __: GetJob("job"),
    Survey: lambda stream, _: Survey(stream, [SurveyWant(0, 1)]),
    Fetch: lambda stream, _: Fetch(stream, [Want(0, 1)], 1000),
    FetchLast: lambda stream, _: FetchLast(stream, 0, 1000),
    ListNumbers: lambda _, __: ListNumbers(0, 10),
    ListOpen: lambda _, __: ListOpen(0, 0, 10),
    ListReaders: lambda _, __: ListReaders(0, b"", 10),
    GetReaders: lambda stream, _: GetReaders(stream, ["r"]),
    ListAgents: lambda _, __: ListAgents(0, 0, 10),
    ListSessions: lambda _, __: ListSessions(0, 10),
    ListLedgers: lambda _, __: ListLedgers(0, 10),
    ListJobs: lambda _, __: ListJobs("", 10),
    Browse: lambda stream, _: Browse(stream, 0, 0, 2**62, 10),
    GetTransaction: lambda stream, number: GetTransaction(stream, 0, number),
}


class Doubtful:
    """A node that leads, and a stream with one transaction in it; its session can be made doubtful."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.replica = site.start("a")
        site.lead("a")
        self.sure = True
        self.replica.shared.alive = lambda: self.sure
        self.address = site.nodes["a"].addresses[0]
        with tstreams.connect(self.address) as ts:
            self.stream = ts.create_stream("clicks").id
            with ts.producer("clicks", name="p") as producer:
                self.last = producer.instant([b"x"], partition=0)


@pytest.fixture
def doubtful(tmp_path: Path, clock: Clock) -> Iterator[Doubtful]:
    site = Site(tmp_path, in_memory(), clock)
    yield Doubtful(site)
    site.close()


def refused(call: Callable[[], Any]) -> bool:
    with pytest.raises(moebius.Error) as error:
        call()
    return NotLeader.read(error.value.message) is not None


def test_no_question_is_answered(doubtful: Doubtful) -> None:
    router = Handlers(doubtful.replica.shard).router
    asked = {it.removeprefix("any:") for it in router.commands if it.startswith("any:")}
    known: list[type[Message]] = [*QUESTIONS, Subscribe]
    assert asked == {it.__name__ for it in known}  # there are no others
    with moebius.Client(doubtful.address) as wire:
        for kind, make in QUESTIONS.items():
            call = partial(
                wire.call_parts, f"0:{kind.__name__}", encode(make(doubtful.stream, doubtful.last))
            )
            doubtful.sure = True
            assert call()
            doubtful.sure = False
            assert refused(call)
        assert refused(lambda: wire.call("0:OpenSession", encode(OpenSession())))
        asks = encode(Subscribe(doubtful.stream, [Want(0, 1)], 1000))
        assert refused(lambda: list(wire.stream("0:Subscribe", asks)))


def test_who_has_waited_in_vain_is_not_told_that_there_is_nothing(doubtful: Doubtful) -> None:
    waits = encode(Fetch(doubtful.stream, [Want(0, doubtful.last + 1)], 1000, wait_ms=300))
    reads = doubtful.replica.shard.reads
    with moebius.Client(doubtful.address) as wire:
        for command in ("0:Fetch", "0:any:Fetch"):
            doubtful.sure = True
            asked = wire.submit(command, waits)
            eventually(lambda: reads.waiting)
            doubtful.sure = False
            assert refused(partial(asked.result, 60)), command  # as if it asked only now


def test_a_subscription_to_a_node_that_is_about_to_lead_waits_for_it(doubtful: Doubtful) -> None:
    site, shared = doubtful.site, doubtful.replica.shared
    site.run(doubtful.replica.step_down())
    site.call(lambda: shared.expect(True))
    asks = encode(Subscribe(doubtful.stream, [Want(0, 1)], 1000))
    with moebius.Client(doubtful.address) as wire:
        stream = wire.stream("0:Subscribe", asks)
        asked = wire.submit("0:GetStream", encode(GetStream("clicks")))
        eventually(lambda: site.call(lambda: len(shared._line._waiting)))
        assert not asked.done()
        site.lead("a")
        assert asked.result(60)
        assert stream.next_parts()
        stream.close()


def test_a_subscription_waits_in_vain_for_a_node_that_does_not_lead_after_all(
    doubtful: Doubtful,
) -> None:
    site, shared = doubtful.site, doubtful.replica.shared
    site.run(doubtful.replica.step_down())
    site.call(lambda: shared.expect(True))
    asks = encode(Subscribe(doubtful.stream, [Want(0, 1)], 1000))
    with moebius.Client(doubtful.address) as wire:
        stream = wire.stream("0:Subscribe", asks)
        asked = wire.submit("0:GetStream", encode(GetStream("clicks")))
        eventually(lambda: site.call(lambda: len(shared._line._waiting)))
        site.call(lambda: shared.expect(False))
        assert refused(lambda: asked.result(60))
        assert refused(lambda: list(stream))
