"""Keeps a reader's place on the server: only what was written, whatever ends the command."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import Consumer

INTERVAL_S = 1.0
"""How often what was written is checkpointed: what may come again after a crash."""


class Keeper:
    """Checkpoints what was written, about once a second and at the end.

    While it is entered, SIGINT and SIGTERM only set `stopped`: an exception in the middle of a transaction
    would leave nobody knowing whether it was written. A second signal does what it always does.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.stopped = 0
        """The signal that came, or 0."""
        self._consumer = consumer
        self._kept_at = time.monotonic()
        self._due = False
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        # A signal that is ignored stays so: a shell does that for what runs in the background.
        self._before = {
            number: handler for number, handler in before.items() if handler != signal.SIG_IGN
        }

    def __enter__(self) -> Keeper:
        for number in self._before:
            signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.stopped = number
        self.__exit__()

    def written(self) -> None:
        """Another transaction was given to standard output, whole."""
        self._due = True
        if time.monotonic() - self._kept_at >= INTERVAL_S:
            self.keep()

    def keep(self) -> None:
        """Checkpoint, if there is anything new."""
        if self._due:
            sys.stdout.flush()
            self._consumer.checkpoint()
            self._due = False
        self._kept_at = time.monotonic()
