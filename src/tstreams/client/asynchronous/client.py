"""The client: a connection to a server, and what can be done with it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import moebius
import moebius.process

from ...errors import BadRequest, InvalidState
from ...limits import (
    CLIENT_CLOSE_TIMEOUT_S,
    CLIENT_TIMEOUT_S,
    PROCESS_BATCH,
    PROCESS_COMMIT_S,
    STAGING_TTL_S,
)
from ...model import ID_MAX, Offset, Stream, Stretch, Ttl
from ..config import ClientConfig, Read, Tls, check_read, joined
from ..pickling import refuse_to_pickle
from ..rules import streams
from ..rules.agent import forked
from ..rules.failures import translated
from ..rules.group import Group
from ..rules.job import Job as JobRules
from ..rules.link import Link
from ..rules.processing import EXACTLY_ONCE, Processed, open_processing
from ..rules.producer import open_producer
from ..rules.reader import check_wait, open_reader
from ..rules.scanning import find_source, survey
from ..rules.stations import Station
from ..rules.subscribing import check_callbacks, open_subscriber
from ..rules.ticket import Steps
from ..statistics import ClientStatistics
from ..tracing import tracing_of
from .consumer import Consumer
from .driver import Driver
from .group import CheckpointGroup
from .inspection import Inspection
from .job import Job
from .network import Network
from .opening import Opening
from .process import process
from .producer import Producer
from .received import ReadTransaction
from .scan import Scanning
from .subscriber import Subscriber, halt

if TYPE_CHECKING:
    import pyarrow as pa

    from ..tracing.spans import Tracing

T = TypeVar("T")


class Client:
    """A connection to a tstreams server, for asyncio. Tasks share it; it belongs to the loop it was opened on.

    It reconnects by itself, and repeats what was not answered; the effect happens once. Every call has
    the deadline `timeout`; past it `Timeout` (or `Unavailable`) says that nobody knows whether the call
    took effect. Every call may be cancelled where it waits. Close it, or `async with` it. To use it on
    another loop or in another process, send its `config` there.
    """

    def __init__(
        self,
        config: ClientConfig,
        network: Network,
        station: Station,
        wire: moebius.aio.Client,
        on_closed: Callable[[], Awaitable[None]] | None,
        tracing: Tracing | None,
    ) -> None:
        self.config = config
        """What it was made of. Can be pickled."""
        self._wire = wire
        self._on_closed = on_closed
        self._pid = moebius.process.pid
        self._closed = False
        self._ended = asyncio.Event()
        self._agents: dict[Producer | Consumer | Subscriber, None] = {}
        self._network = network
        self._link = Link(wire, config.timeout, tracing, roams=check_read(config.read))
        self._link.route(network, station)
        self._driver = Driver(self._link)

    # Streams.

    async def create_stream(
        self,
        name: str,
        partitions: int = 1,
        ttl: Ttl = "7d",
        description: str = "",
        *,
        schema: pa.Schema | bytes | None = None,
    ) -> Stream:
        """Make a stream. `AlreadyExists` if there is one of that name.

        `ttl`: how long transactions live after they were opened. With a `schema` its transactions hold
        rows of Arrow data instead of single items.
        """
        steps = streams.create_stream(self._link, name, partitions, ttl, description, schema)
        return await self._run(steps)

    async def stream(self, name: str) -> Stream:
        """A stream by its name. `NotFound` if there is none."""
        return await self._run(streams.get_stream(self._link, name))

    async def streams(
        self, prefix: str = "", limit: int | None = None, after: str | None = None
    ) -> list[Stream]:
        """Streams in the order of their names: those that begin with `prefix` and come after `after`.

        With a `limit` at most so many; the name of the last is the next call's `after`.
        """
        return await self._run(streams.list_streams(self._link, prefix, limit, after))

    async def alter_stream(
        self,
        name: str,
        *,
        ttl: Ttl | None = None,
        description: str | None = None,
        schema: pa.Schema | None = None,
    ) -> Stream:
        """Give a stream another ttl or description, or more columns; what is None stays as it is.

        A `schema` may grow by nullable columns at its end: `BadRequest` names what else was changed. What
        was written before has nulls in them. Producers and readers that are there keep to the columns that
        they know; `InvalidState` if somebody else changed the schema at the same time.
        """
        steps = streams.alter_stream(self._link, name, ttl, description, schema)
        return await self._run(steps)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with all it holds, and the offsets of its readers."""
        await self._run(streams.delete_stream(self._link, name))

    async def purge_stream(self, name: str, before: datetime | int) -> None:
        """Drop the transactions that were opened before a time, or before the one of this id."""
        await self._run(streams.purge_stream(self._link, name, before))

    # Agents.

    def producer(
        self,
        stream: str,
        name: str | None = None,
        *,
        partitions: Iterable[int] | None = None,
        transaction_ttl: Ttl = 60.0,
        compression: str = "none",
    ) -> Opening[Producer]:
        """Make a producer; an older one of the same name and stream is fenced. `await` or `async with` it.

        `partitions` restricts it. `transaction_ttl`: how long its open transactions live if this client
        vanishes, or its loop stands still; while it lives they are kept alive. `compression`: "none",
        "lz4" or "zstd". Without a name it gets one of its own.
        """
        steps = open_producer(self._link, stream, name, partitions, transaction_ttl, compression)

        async def make() -> Producer:
            producer = Producer(self._driver, await self._run(steps), self._forget)
            return await self._keep(producer)

        return Opening(make())

    def consumer(
        self,
        stream: str,
        name: str | None = None,
        *,
        start: Offset | None = None,
        resume: bool = True,
        partitions: Iterable[int] | None = None,
        read: Read | None = None,
    ) -> Opening[Consumer]:
        """Make a consumer; an older reader of the same name and stream is fenced. `await` or `async with` it.

        It goes on after its last checkpoint, or begins at `start` (the oldest transaction, if you name
        none) where there is none, and everywhere with `resume=False`.

        `read="any"` lets nodes answer that follow the leader, in place of it: what was just written may come a
        little later, in its order as ever. None: as the client was told.
        """
        begin = Offset.oldest() if start is None else start
        roams = None if read is None else check_read(read)
        steps = open_reader(self._link, stream, name, begin, resume, partitions, roams)

        async def make() -> Consumer:
            consumer = Consumer(self._driver, await self._run(steps), self._forget)
            return await self._keep(consumer)

        return Opening(make())

    def scan(
        self,
        stream: str,
        partition: int,
        *,
        after: int = 0,
        up_to: int = ID_MAX,
        read: Read | None = None,
    ) -> Scanning:
        """The transactions of a partition after one id, up to and with another, without taking a name.

        For `async for`. Ends where nothing more is visible. While you work on some, the next are fetched.
        `read`: as for a consumer; where it ends, the leader says.
        """
        self._check()
        roams = None if read is None else check_read(read)
        return Scanning(self._driver, self._link, stream, partition, after, up_to, roams)

    async def survey(
        self,
        stream: str,
        after: Mapping[int, int] | None = None,
        *,
        transactions: int | None = None,
        size: int | None = None,
    ) -> dict[int, Stretch]:
        """How far each partition can be read now, and how much that is, without reading it.

        `after`: the partitions, each with the id that was read last; else all, from their beginnings. With
        a limit on `transactions` or on `size` (bytes as they are stored), over all partitions together,
        stretches are cut to it, and what they hold is counted. One transaction comes at least of each.
        """
        source = await self._run(find_source(self._link, stream))
        return await self._run(survey(source, after, transactions, size))

    def job(self, name: str, *, staging_ttl: Ttl = STAGING_TTL_S) -> Job:
        """Take part in a job: producers in many processes, whose transactions one coordinator commits.

        `staging_ttl`: how long staged transactions live after the last sign of life of their step. While
        they are staged they hold up the readers of their partitions, as all open transactions do.
        """
        self._check()
        return Job(self._driver, JobRules(self._link, name, staging_ttl))

    def inspection(self) -> Inspection:
        """What an operator sees of the server, and may do about it. Not awaited: it asks nobody."""
        self._check()
        return Inspection(self._driver, self._link)

    def subscriber(
        self,
        stream: str,
        name: str | None = None,
        *,
        on_transaction: Callable[[Subscriber, ReadTransaction], object],
        on_failure: Callable[[BaseException], object] | None = None,
        start: Offset | None = None,
        resume: bool = True,
        engines: int = 1,
        partitions: Iterable[int] | None = None,
        read: Read | None = None,
    ) -> Opening[Subscriber]:
        """Make a subscriber; an older reader of the same name and stream is fenced. `async with` it, which
        starts it too; or `await` it, and `start` it later.

        `on_transaction(subscriber, transaction)` is called in `engines` tasks, from the moment it is
        started; `on_failure(error)` gets what went wrong (without it, the log does). Either may be a
        coroutine function, or a plain one that does not block. It goes on after its last checkpoint, or
        begins at `start` as a consumer does. `read`: as for a consumer.
        """
        begin = Offset.oldest() if start is None else start
        roams = None if read is None else check_read(read)
        steps = open_subscriber(self._link, stream, name, begin, resume, partitions, engines, roams)

        async def make() -> Subscriber:
            check_callbacks(on_transaction, on_failure)
            rules = await self._run(steps)
            subscriber = Subscriber(self._driver, rules, self._forget, on_transaction, on_failure)
            return await self._keep(subscriber)

        return Opening(make())

    def checkpoint_group(self) -> CheckpointGroup:
        """Make a group of agents that checkpoint together. It is empty: `add` agents of this client.

        Not awaited: it asks nobody.
        """
        self._check()
        return CheckpointGroup(self._driver, Group(self._link))

    async def process(
        self,
        source: str,
        name: str,
        sink: str,
        fn: Callable[[ReadTransaction], Any],
        *,
        delivery: str = EXACTLY_ONCE,
        start: Offset | None = None,
        resume: bool = True,
        partitions: Iterable[int] | None = None,
        max_wait: float | None = None,
        stop: asyncio.Event | None = None,
        batch: int = PROCESS_BATCH,
        commit_every: float = PROCESS_COMMIT_S,
        on_commit: Callable[[Processed], object] | None = None,
        transaction_ttl: Ttl = 60.0,
        compression: str = "none",
    ) -> Processed:
        """Read `source`, call `fn` with each transaction, and write what it gives to `sink`.

        `fn` gives items, each on its own or with a key or a partition before it: `(b"user-7", item)`,
        `(3, item)`; or Arrow data; or None. Items without either go to the partition of the same
        number. It may be a function, a generator, a coroutine function or an async generator; of
        generators the results are written as they come.

        "exactly-once" commits results and position together. "at-least-once" commits the results first,
        "at-most-once" the position: a crash between the two repeats, or loses, a batch. Each commit
        covers up to `batch` transactions or `commit_every` seconds, and what is here if no more is.
        `on_commit` is called when some were acknowledged, with what has been done so far: exactly once
        does not wait for that, but goes on working, up to 64 commits ahead. Each of them takes effect
        only after the one before it.

        Ends when nothing came for `max_wait` seconds, or `stop` is set: all that was done is committed
        then. An exception of `fn`, or cancelling the task, drops what was not committed or on its way there and
        goes up; called again, it goes on there. It takes `name` on both streams: whoever runs under it
        already is `Fenced`.
        """
        if not callable(fn):
            raise BadRequest(f"fn is a function of a transaction, not {fn!r}")
        wait_s = check_wait(max_wait, "max_wait")
        steps = open_processing(
            self._link,
            source,
            name,
            sink,
            delivery=delivery,
            start=Offset.oldest() if start is None else start,
            resume=resume,
            partitions=partitions,
            transaction_ttl=transaction_ttl,
            compression=compression,
            batch=batch,
            commit_every_s=check_wait(commit_every, "commit_every") or 0.0,
        )
        return await process(self._driver, await self._run(steps), fn, wait_s, stop, on_commit)

    # Life.

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    async def close(self) -> None:
        """Close all agents, subscribers first, and the connection. May be called again.

        Callbacks under way have a few seconds to return; then they are cancelled. If the task is cancelled
        in here they are cancelled at once, and the server is told all the same; only nobody waits for its
        answer.
        """
        if self._pid != moebius.process.pid:
            return
        self._driver.check()
        if self._closed:
            await self._ended.wait()
            return
        self._closed = True
        agents = list(self._agents)
        self._agents.clear()
        try:
            try:  # callbacks may use the others
                until = time.monotonic() + CLIENT_CLOSE_TIMEOUT_S
                await halt([agent for agent in agents if isinstance(agent, Subscriber)], until)
            finally:
                until = time.monotonic() + CLIENT_CLOSE_TIMEOUT_S
                goodbyes = [self._driver.spawn(agent._rules.close(until)) for agent in agents]
            if goodbyes:
                await asyncio.wait(goodbyes)
        finally:
            self._driver.close()
            self._link.close()
            try:
                await self._network.close()
            finally:
                self._ended.set()
                if self._on_closed is not None:
                    await self._on_closed()

    def statistics(self) -> ClientStatistics:
        """What this client is doing."""
        self._check()
        window = self._link.window
        agents = len(self._agents)
        return ClientStatistics(
            self._wire.statistics(), window.requests, window.bytes, agents, len(self._network)
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<client of {self.config.url}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a client")

    # Inside.

    async def _run(self, steps: Steps[T]) -> T:
        self._check()
        return await self._driver.run(steps)

    def _check(self) -> None:
        if self._pid != moebius.process.pid:
            raise forked("this client")
        if self._closed:
            raise InvalidState("this client is closed: connect anew")

    def _forget(self, agent: Producer | Consumer | Subscriber) -> None:
        """An agent was closed."""
        self._agents.pop(agent, None)

    async def _keep(self, agent: A) -> A:
        if not self._closed:
            self._agents[agent] = None
            return agent
        await agent.close()
        raise InvalidState("this client was closed while an agent was being made")


A = TypeVar("A", Producer, Consumer, Subscriber)


async def open_client(
    config: ClientConfig, on_closed: Callable[[], Awaitable[None]] | None = None
) -> Client:
    """Connect. `on_closed` is called after the connection was closed, also if it never came about."""
    begun_at = time.monotonic()
    try:
        tracing = tracing_of(config.tracing)
        network = Network(config)
        station, wire = await network.open()
    except BaseException as error:
        if on_closed is not None:
            await on_closed()
        if isinstance(error, moebius.Error):
            raise translated(error) from None
        raise
    client = Client(config, network, station, wire, on_closed, tracing)
    try:
        left_s = config.timeout - (time.monotonic() - begun_at)
        await client._driver.run(client._link.describe(max(0.001, left_s)))
    except BaseException:
        await client.close()
        raise
    return client


def connect(
    url: str | Sequence[str] | ClientConfig,
    token: str = "",
    timeout: float = CLIENT_TIMEOUT_S,
    tls: Tls | ssl.SSLContext | None = None,
    curve: moebius.CurveClient | None = None,
    tracing: bool | None = None,
    read: Read = "leader",
) -> Opening[Client]:
    """Connect to a server: `async with tstreams.aio.connect("tcp://127.0.0.1:7070") as ts: ...`

    Or `ts = await tstreams.aio.connect(...)`. Of a cluster name any node, or some of them, so that one is there
    (`"tcp://a:7070,tcp://b:7070"`, or a list): the others are found. The URL of a front door (`http://...`), or of several, does, too.

    `read="any"` lets nodes that follow answer readers, unless those say otherwise: see `consumer`. `timeout` is the deadline of connecting and of every call.
    `tls` is for tcp addresses, `curve` for those of ZeroMQ. `tracing` makes spans with OpenTelemetry; None
    leaves that to the environment, in `TSTREAMS_TRACING`. Instead of all that, the `config` of another client.
    """
    if not isinstance(url, ClientConfig):
        if isinstance(tls, bool):
            raise BadRequest("tls is a tstreams.Tls or an ssl.SSLContext, not a bool")
        url = ClientConfig(joined(url), token, timeout, tls, curve, tracing, read)
    return Opening(open_client(url))
