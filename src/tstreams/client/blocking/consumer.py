"""A consumer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ...model import Offset
from ..pickling import refuse_to_pickle
from ..rules import lookups
from ..rules.delivery import Delivery
from ..rules.reader import Reader, check_wait
from .driver import Driver
from .received import ReadTransaction


class Consumer:
    """Reads transactions from a stream, under a name that nobody else may use at the same time.

    Threads may share it: each transaction goes to one of them. Made by `client.consumer(...)`; close it,
    or `with` it. Where it stands is saved by `checkpoint` only: what was read after the last one is read
    again by the next consumer of the name.
    """

    def __init__(
        self, driver: Driver, reader: Reader, on_close: Callable[[Consumer], None]
    ) -> None:
        self._driver = driver
        self._rules = reader
        self._on_close = on_close
        self._tracing = reader.source.link.tracing

    @property
    def name(self) -> str:
        """Its name: unique among the readers of its stream."""
        return self._rules.agent.name

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._rules.agent.stream.name

    @property
    def partitions(self) -> list[int]:
        """The partitions that it reads."""
        return self._rules.partitions

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._rules.agent.closed

    # Reading on.

    def get(self, partition: int, timeout: float | None = 0.0) -> ReadTransaction | None:
        """The next transaction of a partition; None if none is visible within `timeout` seconds."""
        seconds = check_wait(timeout, "timeout")
        wait_s = math.inf if seconds is None else seconds
        found = self._driver.run(self._rules.get(partition, wait_s))
        if found is not None and self._tracing is not None:
            self._tracing.receive(found)
        return self._wrap(found)

    def read(self, max_wait: float | None = None) -> Iterator[ReadTransaction]:
        """The transactions of all partitions, each partition in its order, as they become visible.

        Ends when it has waited for `max_wait` seconds in vain; never, if that is None. Whoever leaves
        early loses nothing. While you work on one, the next are fetched.
        """
        wait_s = check_wait(max_wait, "max_wait")
        self._rules.agent.check()
        return self._read(wait_s)

    def _read(self, max_wait_s: float | None) -> Iterator[ReadTransaction]:
        reader, driver, tracing = self._rules, self._driver, self._tracing
        while True:
            reader.agent.check()
            found = reader.take_any()
            if found is None:
                found = driver.run(reader.next(max_wait_s))
                if found is None:
                    return
            if tracing is not None:
                tracing.receive(found)
            yield ReadTransaction(driver, found)

    # Looking, without moving.

    def last(self, partition: int) -> ReadTransaction | None:
        """The last visible transaction of a partition, whatever is open behind it."""
        source = self._rules.source_of(partition)
        return self._wrap(self._driver.run(lookups.last(source, partition)))

    def by_id(self, partition: int, transaction_id: int) -> ReadTransaction | None:
        """A transaction; None if it is not visible."""
        source = self._rules.source_of(partition)
        return self._wrap(self._driver.run(lookups.by_id(source, partition, transaction_id)))

    def between(self, partition: int, from_id: int, to_id: int) -> list[ReadTransaction]:
        """The visible transactions after `from_id`, up to and with `to_id`.

        Stops before the first that is open. `TooLarge` above a gigabyte: seek and read instead.
        """
        source = self._rules.source_of(partition)
        found = self._driver.run(lookups.between(source, partition, from_id, to_id))
        return [ReadTransaction(self._driver, delivery) for delivery in found]

    # Where it stands.

    def seek(self, partition: int, offset: Offset) -> None:
        """Go on elsewhere. Durable only after a checkpoint."""
        self._driver.run(self._rules.seek(partition, offset))

    def position(self, partition: int) -> int | None:
        """The id of the last transaction read in a partition, or None.

        After a resume it is the one that was checkpointed, after a seek to an id that id.
        """
        return self._rules.position(partition)

    def checkpoint(self) -> None:
        """Save where it stands in all partitions: the next consumer of this name goes on there."""
        self._driver.run(self._rules.checkpoint())

    # The end.

    def close(self) -> None:
        """Give the name back. May be called again."""
        if not self._rules.agent.is_foreign:
            self._driver.run(self._rules.close())
            self._on_close(self)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<consumer {self.name!r} of {self.stream!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a consumer")

    def _wrap(self, delivery: Delivery | None) -> ReadTransaction | None:
        return None if delivery is None else ReadTransaction(self._driver, delivery)
