"""The loop that stores a stream in a database."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..client.blocking.client import Client
from ..client.blocking.consumer import Consumer
from ..client.blocking.received import ReadTransaction
from ..errors import BadRequest
from ..limits import (
    SINK_BATCH,
    SINK_BATCH_BYTES,
    SINK_RETRY_FOR_S,
    SINK_RETRY_S_MAX,
    SINK_RETRY_S_MIN,
    SINK_STOP_S,
)
from ..model import Anchor, Offset
from .database import Database, database_of, is_engine
from .failures import is_passing
from .offsets import Claim, OffsetStore

log = logging.getLogger("tstreams.sinks")

Store: TypeAlias = Callable[[Any, list[ReadTransaction]], object]
"""What a user stores with: it gets a connection and transactions, and does not commit."""


@dataclass(slots=True)
class Loaded:
    """What a loop has stored in a database."""

    transactions: int = 0
    """Transactions of the stream that were stored."""
    items: int = 0
    """The items in them."""
    commits: int = 0
    """Transactions of the database that it took."""
    retries: int = 0
    """How often the database had failed, and the loop began again where the database said."""


def into_database(
    ts: Client,
    source: str,
    name: str,
    connect: Any,
    fn: Store,
    *,
    start: Offset | None = None,
    partitions: Iterable[int] | None = None,
    batch: int = SINK_BATCH,
    max_wait: float | None = None,
    stop: threading.Event | None = None,
    retry_for: float = SINK_RETRY_FOR_S,
    table: str = "tstreams_offsets",
    paramstyle: str | None = None,
) -> Loaded:
    """Read `source`, and store it in a database with `fn`, each transaction exactly once.

    `connect` gives a new connection of a DB-API driver, or is an engine of SQLAlchemy. For each batch, of
    up to `batch` transactions that are here, `fn(connection, transactions)` is called inside a transaction
    of the database. What it writes is committed together with the place in the stream, which is kept in
    `table`. It must not commit by itself.

    It goes on where the database says, under this `name`; where nothing is saved yet it begins at `start`
    (the oldest transaction). Whoever runs under the name already is `Fenced`, and what it had not committed
    is rolled back.

    When the database fails it connects again, finds out what was committed, and goes on from there; after
    `retry_for` seconds without success the failure goes up. Other exceptions of `fn` go up at once. Nothing
    of their batch is stored; called again, it is the next.

    Ends when nothing came for `max_wait` seconds, or `stop` is set.
    """
    if not isinstance(ts, Client):
        raise BadRequest(f"this loop is for the blocking client, not for {ts!r}")
    if not callable(fn):
        raise BadRequest(f"fn is a function of a connection and transactions, not {fn!r}")
    if not callable(connect) and not is_engine(connect):
        raise BadRequest(
            f"connect is a function that gives a connection, or an engine, not {connect!r}"
        )
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise BadRequest(f"a batch is a number of transactions, not {batch!r}")
    for seconds, what in ((max_wait, "max_wait"), (retry_for, "retry_for")):
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds >= 0):
            raise BadRequest(f"{what} is a number of seconds, not {seconds!r}")
    begin = Offset.oldest() if start is None else start
    if not isinstance(begin, Offset):
        raise BadRequest(f"start is an Offset, not {start!r}")
    store = OffsetStore(table, paramstyle=paramstyle)
    # Where it stands is the database's to say. What the stream may know about this name does not count.
    with ts.consumer(source, name, resume=False, partitions=partitions) as consumer:
        places = Places(ts, consumer, store, begin)
        batches = Batches(consumer, batch, max_wait, stop)
        return Loading(places, batches, connect, fn, retry_for).run()


class Places:
    """The consumer, the name in the database, and that they agree."""

    def __init__(self, ts: Client, consumer: Consumer, store: OffsetStore, start: Offset) -> None:
        # After the consumer was made: if the stream is made anew in between, nothing can be read.
        self.stream = ts.stream(consumer.stream)
        self.store = store
        self._consumer = consumer
        self._start = start
        self._claim: Claim | None = None

    @property
    def claim(self) -> Claim:
        """What is ours."""
        assert self._claim is not None
        return self._claim

    def take(self, database: Database) -> None:
        """Claim the name, or claim it again, and go to where the database says."""
        connection, consumer = database.connection, self._consumer
        if self._claim is None:
            claim = self.store.claim(connection, consumer.name, self.stream)
        else:
            claim = self.store.renew(connection, self._claim)
        self._claim = claim
        missing = [it for it in consumer.partitions if it not in claim.positions]
        if missing and self._start.anchor is not Anchor.OLDEST:
            self._save_beginning(database, missing)
            self.take(database)
            return
        claim.seek(consumer)
        for partition in missing:
            if consumer.position(partition) is not None:
                consumer.seek(partition, Offset.oldest())

    def __repr__(self) -> str:
        return f"the database that {self._consumer.name!r} stores stream {self.stream.name!r} in"

    def _save_beginning(self, database: Database, partitions: list[int]) -> None:
        """What "newest" was is known only now: whoever begins again must begin there too."""
        positions = {}
        for partition in partitions:
            if self._start.anchor is Anchor.FROM_ID:
                positions[partition] = max(0, self._start.id - 1)
            else:
                last = self._consumer.last(partition)
                positions[partition] = 0 if last is None else last.id
        database.begin()
        self.store.save(database.connection, self.claim, positions)
        database.commit()


class Batches:
    """What is here, up to a batch; waits for the first."""

    def __init__(
        self,
        consumer: Consumer,
        transactions_max: int,
        max_wait_s: float | None,
        stop: threading.Event | None,
    ) -> None:
        self._consumer = consumer
        self._transactions_max = transactions_max
        self._max_wait_s = max_wait_s
        self.stop = stop

    def next(self) -> list[ReadTransaction]:
        """The next batch; empty when it is over."""
        first = self._first()
        if first is None:
            return []
        found = [first]
        size = _size(first)
        if self._transactions_max > 1 and size < SINK_BATCH_BYTES:
            for txn in self._consumer.read(max_wait=0):
                found.append(txn)
                size += _size(txn)
                if len(found) == self._transactions_max or size >= SINK_BATCH_BYTES:
                    break
        return found

    def _first(self) -> ReadTransaction | None:
        since = time.monotonic()
        while self.stop is None or not self.stop.is_set():
            left_s = self._max_wait_s
            if left_s is not None:
                left_s = max(0.0, left_s - (time.monotonic() - since))
            wait_s = left_s
            if self.stop is not None:  # nobody wakes us for this: we look at it now and then
                wait_s = SINK_STOP_S if left_s is None else min(left_s, SINK_STOP_S)
            found = next(self._consumer.read(max_wait=wait_s), None)
            if found is not None or wait_s == left_s:
                return found
        return None


def _size(txn: ReadTransaction) -> int:
    """What it holds in memory. One that comes bit by bit counts as much: nobody knows what will be loaded."""
    size = getattr(txn.items, "nbytes", None)
    return SINK_BATCH_BYTES if size is None else int(size)


class Loading:
    """Stores batch after batch, and begins again when the database has failed.

    Invariant: `_in_doubt` is what was being committed when nobody heard whether it worked.
    """

    def __init__(
        self, places: Places, batches: Batches, connect: Any, fn: Store, retry_for_s: float
    ) -> None:
        self._places = places
        self._batches = batches
        self._connect = connect
        self._fn = fn
        self._retry_for_s = retry_for_s
        self._failing_since: float | None = None
        self._pause_s = SINK_RETRY_S_MIN
        self._in_doubt: list[ReadTransaction] = []
        self._done = Loaded()

    def run(self) -> Loaded:
        """Until it is over."""
        while True:
            try:
                with self._opened() as database:
                    self._places.take(database)
                    self._resolve()
                    while transactions := self._batches.next():
                        self._store(database, transactions)
                    return self._done
            except Exception as error:
                if not is_passing(error):
                    raise
                if not self._wait(error):
                    return self._done

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Database]:
        given = self._connect.connect() if is_engine(self._connect) else self._connect()
        database = database_of(given, self._places.store.paramstyle)
        try:
            yield database
        except BaseException:
            # It may be dead: then there is nothing to undo, and nothing that it could add to the error.
            with contextlib.suppress(Exception):
                database.rollback()
            with contextlib.suppress(Exception):
                database.close()
            raise
        database.close()

    def _store(self, database: Database, transactions: list[ReadTransaction]) -> None:
        database.begin()
        try:
            self._fn(database.connection, transactions)
        except Exception as error:
            first, last = transactions[0], transactions[-1]
            error.add_note(
                f"while {len(transactions)} transactions of {first.stream!r} were stored, "
                f"from {first.id} in partition {first.partition} to {last.id} in {last.partition}"
            )
            raise
        database.check_begun()
        self._places.store.save(database.connection, self._places.claim, transactions)
        self._in_doubt = transactions
        database.commit()
        self._count()

    def _count(self) -> None:
        self._done.transactions += len(self._in_doubt)
        self._done.items += sum(map(len, self._in_doubt))
        self._done.commits += 1
        self._in_doubt = []
        self._failing_since = None
        self._pause_s = SINK_RETRY_S_MIN

    def _resolve(self) -> None:
        """A commit that was not answered: the positions say whether it worked."""
        if self._in_doubt:
            last = self._in_doubt[-1]
            if self._places.claim.positions.get(last.partition) == last.id:
                self._count()
            self._in_doubt = []

    def _wait(self, error: Exception) -> bool:
        """Before a new attempt; False if it was stopped meanwhile. Raises what failed if it took too long."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now + self._pause_s > self._failing_since + self._retry_for_s:
            error.add_note(f"the database has failed for {self._retry_for_s:g} s: given up")
            raise error
        self._done.retries += 1
        log.warning("%s failed, once more in %.2g s: %s", self._places, self._pause_s, error)
        if self._batches.stop is None:
            time.sleep(self._pause_s)
        elif self._batches.stop.wait(self._pause_s):
            return False
        self._pause_s = min(2 * self._pause_s, SINK_RETRY_S_MAX)
        return True
