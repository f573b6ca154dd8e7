"""The client: a connection to a server, and what can be done with it."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

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
from ..rules.scanning import Scan, find_source, survey
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
from .process import process
from .producer import Producer
from .received import ReadTransaction
from .scan import scan
from .subscriber import Subscriber

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Client:
    """A connection to a tstreams server. Threads share it.

    It reconnects by itself, and repeats what was not answered; the effect happens once. Every call has
    the deadline `timeout`; past it `Timeout` (or `Unavailable`) says that nobody knows whether the call
    took effect. Close it, or `with` it. After a fork the child must connect anew; to use it in another
    process, send its `config` there.
    """

    def __init__(
        self, config: ClientConfig, *, on_closed: Callable[[], None] = lambda: None
    ) -> None:
        self.config = config
        """What it was made of. Can be pickled."""
        self._on_closed = on_closed
        self._pid = moebius.process.pid
        self._closed = False
        self._lock = threading.Lock()
        self._agents: set[Producer | Consumer | Subscriber] = set()
        begun_at = time.monotonic()
        try:
            tracing = tracing_of(config.tracing)
        except ImportError:
            on_closed()
            raise
        try:
            self._network = Network(config)
            station, self._wire = self._network.open()
        except moebius.Error as error:
            on_closed()
            raise translated(error) from None
        except BaseException:
            on_closed()
            raise
        self._link = Link(self._wire, config.timeout, tracing, roams=check_read(config.read))
        self._link.route(self._network, station)
        self._driver = Driver(self._wire, self._link)
        try:
            left_s = config.timeout - (time.monotonic() - begun_at)
            self._driver.run(self._link.describe(max(0.001, left_s)))
        except BaseException:
            self.close()
            raise

    # Streams.

    def create_stream(
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
        return self._run(steps)

    def stream(self, name: str) -> Stream:
        """A stream by its name. `NotFound` if there is none."""
        return self._run(streams.get_stream(self._link, name))

    def streams(
        self, prefix: str = "", limit: int | None = None, after: str | None = None
    ) -> list[Stream]:
        """Streams in the order of their names: those that begin with `prefix` and come after `after`.

        With a `limit` at most so many; the name of the last is the next call's `after`.
        """
        return self._run(streams.list_streams(self._link, prefix, limit, after))

    def alter_stream(
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
        return self._run(steps)

    def delete_stream(self, name: str) -> None:
        """Delete a stream with all it holds, and the offsets of its readers."""
        self._run(streams.delete_stream(self._link, name))

    def purge_stream(self, name: str, before: datetime | int) -> None:
        """Drop the transactions that were opened before a time, or before the one of this id."""
        self._run(streams.purge_stream(self._link, name, before))

    # Agents.

    def producer(
        self,
        stream: str,
        name: str | None = None,
        *,
        partitions: Iterable[int] | None = None,
        transaction_ttl: Ttl = 60.0,
        compression: str = "none",
    ) -> Producer:
        """Make a producer; an older one of the same name and stream is fenced.

        `partitions` restricts it. `transaction_ttl`: how long its open transactions live if this client
        vanishes; while it lives they are kept alive. `compression`: "none", "lz4" or "zstd".
        Without a name it gets one of its own.
        """
        steps = open_producer(self._link, stream, name, partitions, transaction_ttl, compression)
        return self._keep(Producer(self._driver, self._run(steps), self._forget))

    def consumer(
        self,
        stream: str,
        name: str | None = None,
        *,
        start: Offset | None = None,
        resume: bool = True,
        partitions: Iterable[int] | None = None,
        read: Read | None = None,
    ) -> Consumer:
        """Make a consumer; an older reader of the same name and stream is fenced.

        It goes on after its last checkpoint, or begins at `start` (the oldest transaction, if you name
        none) where there is none, and everywhere with `resume=False`.

        `read="any"` lets nodes answer that follow the leader, in place of it: what was just written may come a
        little later, in its order as ever. None: as the client was told.
        """
        begin = Offset.oldest() if start is None else start
        roams = None if read is None else check_read(read)
        steps = open_reader(self._link, stream, name, begin, resume, partitions, roams)
        return self._keep(Consumer(self._driver, self._run(steps), self._forget))

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
    ) -> Subscriber:
        """Make a subscriber; an older reader of the same name and stream is fenced.

        `on_transaction(subscriber, transaction)` is called on `engines` threads, from the moment it is
        started; `on_failure(error)` gets what went wrong (without it, the log does). It goes on after
        its last checkpoint, or begins at `start` as a consumer does. `read`: as for a consumer.
        """
        check_callbacks(on_transaction, on_failure)
        begin = Offset.oldest() if start is None else start
        roams = None if read is None else check_read(read)
        steps = open_subscriber(self._link, stream, name, begin, resume, partitions, engines, roams)
        rules = self._run(steps)
        return self._keep(Subscriber(self._driver, rules, self._forget, on_transaction, on_failure))

    def checkpoint_group(self) -> CheckpointGroup:
        """Make a group of agents that checkpoint together. It is empty: `add` agents of this client."""
        self._check()
        return CheckpointGroup(self._driver, Group(self._link))

    def scan(
        self,
        stream: str,
        partition: int,
        *,
        after: int = 0,
        up_to: int = ID_MAX,
        read: Read | None = None,
    ) -> Iterator[ReadTransaction]:
        """The transactions of a partition after one id, up to and with another, without taking a name.

        Ends where nothing more is visible. While you work on some, the next are fetched.
        `read`: as for a consumer; where it ends, the leader says.
        """
        roams = None if read is None else check_read(read)
        source = self._run(find_source(self._link, stream, roams))
        return scan(self._driver, Scan(source, partition, after, up_to))

    def survey(
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
        source = self._run(find_source(self._link, stream))
        return self._run(survey(source, after, transactions, size))

    def inspection(self) -> Inspection:
        """What an operator sees of the server, and may do about it."""
        self._check()
        return Inspection(self._driver, self._link)

    def job(self, name: str, *, staging_ttl: Ttl = STAGING_TTL_S) -> Job:
        """Take part in a job: producers in many processes, whose transactions one coordinator commits.

        `staging_ttl`: how long staged transactions live after the last sign of life of their step. While
        they are staged they hold up the readers of their partitions, as all open transactions do.
        """
        self._check()
        return Job(self._driver, JobRules(self._link, name, staging_ttl))

    def process(
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
        stop: threading.Event | None = None,
        batch: int = PROCESS_BATCH,
        commit_every: float = PROCESS_COMMIT_S,
        on_commit: Callable[[Processed], object] | None = None,
        transaction_ttl: Ttl = 60.0,
        compression: str = "none",
    ) -> Processed:
        """Read `source`, call `fn` with each transaction, and write what it gives to `sink`.

        `fn` gives items, each on its own or with a key or a partition before it: `(b"user-7", item)`,
        `(3, item)`; or Arrow data; or None. Items without either go to the partition of the same
        number. Results are written as `fn` gives them, so it may be a generator over large things.

        "exactly-once" commits results and position together. "at-least-once" commits the results first,
        "at-most-once" the position: a crash between the two repeats, or loses, a batch. Each commit
        covers up to `batch` transactions or `commit_every` seconds, and what is here if no more is.
        `on_commit` is called when some were acknowledged, with what has been done so far: exactly once
        does not wait for that, but goes on working, up to 64 commits ahead. Each of them takes effect
        only after the one before it.

        Ends when nothing came for `max_wait` seconds, or `stop` is set: all that was done is committed
        then. An exception of `fn`, or Ctrl-C, drops what was not committed or on its way there and goes up;
        called again, it goes on there. It takes `name` on both streams: whoever runs under it already is `Fenced`.
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
        return process(self._driver, self._run(steps), fn, wait_s, stop, on_commit)

    # Life.

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Close all agents, subscribers first, and the connection. May be called again.

        It waits for callbacks under way, but no longer than a few seconds.
        """
        if self._pid != moebius.process.pid:
            return
        self._wire.check_caller()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # Callbacks may use the others.
            agents = sorted(self._agents, key=lambda it: not isinstance(it, Subscriber))
            self._agents.clear()
        until = time.monotonic() + CLIENT_CLOSE_TIMEOUT_S
        try:
            for agent in agents:
                self._driver.run(agent._rules.close(until))
        finally:
            self._driver.close()
            self._link.close()
            self._network.close()
            self._on_closed()

    def statistics(self) -> ClientStatistics:
        """What this client is doing."""
        self._check()
        window = self._link.window
        with self._lock:
            agents = len(self._agents)
        return ClientStatistics(
            self._wire.statistics(), window.requests, window.bytes, agents, len(self._network)
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<client of {self.config.url}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a client")

    # Inside.

    def _run(self, steps: Steps[T]) -> T:
        self._check()
        return self._driver.run(steps)

    def _check(self) -> None:
        if self._pid != moebius.process.pid:
            raise forked("this client")
        if self._closed:
            raise InvalidState("this client is closed: connect anew")

    def _keep(self, agent: A) -> A:
        with self._lock:
            if not self._closed:
                self._agents.add(agent)
                return agent
        agent.close()
        raise InvalidState("this client was closed while an agent was being made")

    def _forget(self, agent: Producer | Consumer | Subscriber) -> None:
        with self._lock:
            self._agents.discard(agent)


A = TypeVar("A", Producer, Consumer, Subscriber)


def connect(
    url: str | Sequence[str] | ClientConfig,
    token: str = "",
    timeout: float = CLIENT_TIMEOUT_S,
    tls: Tls | ssl.SSLContext | None = None,
    curve: moebius.CurveClient | None = None,
    tracing: bool | None = None,
    read: Read = "leader",
) -> Client:
    """Connect to a server: `with tstreams.connect("tcp://127.0.0.1:7070") as ts: ...`

    Of a cluster name any node, or some of them, so that one is there (`"tcp://a:7070,tcp://b:7070"`, or a list): the
    others are found. The URL of a front door (`http://...`), or of several, does, too.

    `read="any"` lets nodes that follow answer readers, unless those say otherwise: see `consumer`. `timeout` is the deadline of connecting and of every call. `tls` is for tcp addresses, `curve` for
    those of ZeroMQ. `tracing` makes spans with OpenTelemetry; None leaves that to the environment, in
    `TSTREAMS_TRACING`. Instead of all that, the `config` of another client.
    """
    if isinstance(url, ClientConfig):
        return Client(url)
    if isinstance(tls, bool):
        raise BadRequest("tls is a tstreams.Tls or an ssl.SSLContext, not a bool")
    return Client(ClientConfig(joined(url), token, timeout, tls, curve, tracing, read))
