"""The loop of `client.process`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..rules.delivery import Delivery
from ..rules.processing import Processed, Processing
from .driver import Driver
from .received import ReadTransaction

if TYPE_CHECKING:
    from ..tracing.spans import Tracing


def process(
    driver: Driver,
    processing: Processing,
    fn: Callable[[ReadTransaction], Any],
    max_wait_s: float | None,
    stop: threading.Event | None,
    on_commit: Callable[[Processed], object] | None,
) -> Processed:
    """Read, call, write and commit, until it is over."""
    is_stopped = (lambda: False) if stop is None else stop.is_set
    tracing = processing.producer.tracing
    told = 0
    try:
        while True:
            delivery = driver.run(processing.next(max_wait_s, is_stopped))
            if on_commit is not None and processing.done.commits > told:
                told = processing.done.commits
                on_commit(processing.done.copy())
            if delivery is None:
                return processing.done
            try:
                if tracing is not None:
                    _trace(tracing, driver, processing, fn, delivery)
                    continue
                results = fn(ReadTransaction(driver, delivery))
                if not processing.write_now(delivery, results):
                    driver.run(processing.write(delivery, results))
            except Exception as error:
                where = f"{processing.reader.agent.stream.name!r}/{delivery.entry.partition}"
                error.add_note(f"while transaction {delivery.id} of {where} was processed")
                raise
    finally:
        driver.run(processing.close())


def _trace(
    tracing: Tracing,
    driver: Driver,
    processing: Processing,
    fn: Callable[[ReadTransaction], Any],
    delivery: Delivery,
) -> None:
    """Call and write, in a span: what is written leads on from it."""
    with tracing.handling(delivery):
        driver.run(processing.write(delivery, fn(ReadTransaction(driver, delivery))))
