"""A leader that stood still while another took over, and goes on: what is written to it must not be believed.

A client of its own opens a producer at the leader before it is stopped, and writes to it again just before it goes on: to
that node and to no other, whoever leads. What it is told goes into the histories, and so the checker knows of each
acknowledged write whether it is there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import count

import moebius
from tests.checker.digest import content_of
from tests.checker.history import OK, UNKNOWN, Begin
from tests.checker.history import Instant as WrittenInstant
from tests.checker.recording import Recorder, now_us, outcome_of
from tests.integration.tstreams_shards.raw import Raw
from tests.torture.cluster.node import TorturedNode
from tests.torture.cluster.servers import SHARDS
from tstreams import Client
from tstreams.errors import Error, Unavailable
from tstreams.items import pack
from tstreams.protocol import AgentOpened, Done, Instant, OpenAgent
from tstreams.sharding import home_of

ANSWER_S_MAX = 20.0


@cache
def stream_in(shard: int) -> str:
    """The name of a stream of one partition that is in this shard."""
    names = (f"zombie-{number}" for number in count())
    return next(it for it in names if home_of(it, SHARDS) == shard)


ZOMBIES = tuple(map(stream_in, range(SHARDS)))
"""The streams that are written to in this way."""


def make_zombie_streams(ts: Client) -> None:
    """One in each shard."""
    for name in ZOMBIES:
        ts.create_stream(name, partitions=1, ttl="1d")


class Believer:
    """A client that believes that a node leads a shard, whatever others say."""

    def __init__(self, recorder: Recorder, node: TorturedNode, shard: int, name: str) -> None:
        """`Error` or `moebius.Error` if the node does not lead it."""
        self._recorder = recorder
        self._shard = shard
        self._name = name
        self._raw = Raw(lambda _: node.url, connect_timeout=5.0)
        self._pool = ThreadPoolExecutor(1)
        self._written = 0
        stream = stream_in(shard)
        begun = now_us()
        opened = self._raw.change(shard, OpenAgent, "producer", stream, name)
        assert isinstance(opened, AgentOpened), opened
        self._agent = opened.agent
        self._label = f"{stream}#{opened.stream.id}"
        self._who = f"producer:{self._label}/{name}"
        recorder.add(Begin(begun, now_us(), agent=self._who, epoch=self._agent))
        if (answer := self.write()) != OK:
            self.close()
            raise Unavailable(f"it has answered {answer}")

    def write(self) -> str:
        """Write something to that node, and wait for the answer: `ok`, or what the error is called."""
        self._written += 1
        items = [f"{self._name}/{self._written}".encode()]
        operation = WrittenInstant(
            0, 0, UNKNOWN, self._who, self._agent, self._label, 0, 0, *content_of(items)
        )
        number = self._recorder.begin(operation)
        change = partial(self._raw.change, self._shard, Instant, self._agent, 0)
        try:
            answer = change(batches=[pack(items)], timeout=ANSWER_S_MAX)
        except (Error, moebius.Error) as error:
            operation.outcome, told = outcome_of(error), type(error).__name__
        else:
            assert isinstance(answer, Done), answer
            operation.outcome, operation.id, told = OK, answer.id, OK
        self._recorder.end(number, operation)
        return told

    def write_later(self) -> None:
        """Begin to write, and do not wait for the answer."""
        self._later = self._pool.submit(self.write)

    def answer(self) -> str:
        """What came of that."""
        return self._later.result(2 * ANSWER_S_MAX)

    def close(self) -> None:
        """Go away."""
        self._pool.shutdown()
        self._raw.close()
