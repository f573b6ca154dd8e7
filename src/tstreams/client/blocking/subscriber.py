"""A subscriber."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from ...errors import InvalidState
from ..pickling import refuse_to_pickle
from ..rules import subscriber as rules
from ..rules.handling import Handling
from ..statistics import SubscriberStatistics
from .driver import Driver
from .received import ReadTransaction

log = logging.getLogger("tstreams.client")


class Subscriber:
    """Is called with the transactions of a stream, as they become visible.

    Callbacks run on `engines` threads of its own: partitions side by side, each of them strictly in order.
    It begins with what is there already and goes on with what comes, and outlives restarts of the server.

    An exception in a callback stops its partition there; the others go on. It reaches `on_failure`, and no
    later checkpoint passes over the transaction. `start` after `stop` tries again. What ends the whole
    subscriber (`Fenced`, a deleted stream) reaches `on_failure` once, and stops it.

    Made by `client.subscriber(...)`, which takes the name. `with` it, or `start`, `stop` and `close` it.
    Where it stands is saved by `checkpoint` only. A callback may take as long as it likes: the server sends
    some 4 MiB ahead and then waits, and partitions with slow callbacks do not hold up the others.
    """

    def __init__(
        self,
        driver: Driver,
        subscriber: rules.Subscriber,
        on_close: Callable[[Subscriber], None],
        on_transaction: Callable[[Subscriber, ReadTransaction], object],
        on_failure: Callable[[BaseException], object] | None,
    ) -> None:
        self._driver = driver
        self._rules = subscriber
        self._on_close = on_close
        self._on_transaction = on_transaction
        if subscriber.agent.link.tracing is not None:
            self._on_transaction = _traced(on_transaction)
        self._on_failure = on_failure
        self._threads: list[threading.Thread] = []
        subscriber.inside = lambda: threading.current_thread() in self._threads

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
    def running(self) -> bool:
        """Whether it hands out transactions."""
        return self._rules.run is rules.Run.RUNNING

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._rules.agent.closed

    @property
    def failures(self) -> dict[int, BaseException]:
        """The partitions that have stopped, each with what its callback raised."""
        return self._rules.failures()

    # Running.

    def start(self) -> Subscriber:
        """Begin, or go on after a `stop` where callbacks have returned. `InvalidState` if it runs."""
        self._driver.run(self._rules.start())
        self._threads = [
            threading.Thread(target=self._work, name=f"tstreams-{self.name}-{number}", daemon=True)
            for number in range(self._rules.engines)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Begin no more callbacks, and wait for those under way to return; inside a callback it does not
        wait. The name is kept: `checkpoint` and `start` work as before. `InvalidState` if it is stopped;
        but not if it had to stop by itself."""
        self._driver.run(self._rules.stop())
        self._join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped, by itself or because somebody stopped it. Whether it has."""
        return self._driver.run(self._rules.wait(timeout))

    def checkpoint(self) -> None:
        """Save for which transactions the callbacks have returned: the next reader of this name goes on
        there. Inside a callback it does not cover the transaction at hand, which may still fail."""
        self._driver.run(self._rules.checkpoint())

    def position(self, partition: int) -> int | None:
        """The id of the last transaction of a partition whose callback has returned, or None."""
        return self._rules.position(partition)

    def statistics(self) -> SubscriberStatistics:
        """What it is doing."""
        return SubscriberStatistics(*self._rules.counts(), len(self._rules.failures()))

    def close(self) -> None:
        """Stop, wait for callbacks, and give the name back. May be called again."""
        if self._rules.agent.is_foreign:
            return
        if self.running:
            try:
                self.stop()
            except InvalidState:
                log.debug("%s was stopped by somebody else", self._rules.agent.title)
        self._driver.run(self._rules.wait(None))
        self._driver.run(self._rules.close())
        self._join()
        self._on_close(self)

    def __enter__(self) -> Subscriber:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # The engines.

    def _work(self) -> None:
        subscriber = self._rules
        try:
            while True:
                handling = subscriber.try_take() or self._driver.run(subscriber.take())
                if handling is None:
                    return
                self._call(handling)
        except Exception as error:
            self._report(error)
        finally:
            subscriber.engine_ended()

    def _call(self, handling: Handling) -> None:
        token, delivery = handling.enter(), handling.delivery
        assert delivery is not None
        try:
            self._on_transaction(self, ReadTransaction(self._driver, delivery))
        except BaseException as error:
            handling.leave(token)
            if self._rules.failed(handling, error):
                error.add_note(
                    f"in the callback of {self._rules.agent.title}, for transaction "
                    f"{handling.id} of partition {handling.place.partition}"
                )
                self._report(error)
        else:
            handling.leave(token)
            self._rules.returned(handling)

    def _report(self, error: BaseException) -> None:
        if self._on_failure is None:
            log.error("%s: %s", self._rules.agent.title, error, exc_info=error)
            return
        try:
            self._on_failure(error)
        except BaseException:
            log.exception("on_failure of %s failed", self._rules.agent.title)

    def _join(self) -> None:
        """The engines are at their last line: let the threads end, so that none outlives its client."""
        if not self._rules.inside():
            for thread in self._threads:
                thread.join()

    def __repr__(self) -> str:
        state = "closed" if self.closed else self._rules.run.value
        return f"<subscriber {self.name!r} of {self.stream!r}, {state}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a subscriber")


def _traced(
    on_transaction: Callable[[Subscriber, ReadTransaction], object],
) -> Callable[[Subscriber, ReadTransaction], object]:
    """The same, each call in a span of its own."""

    def call(subscriber: Subscriber, transaction: ReadTransaction) -> None:
        with transaction.traced():
            on_transaction(subscriber, transaction)

    return call
