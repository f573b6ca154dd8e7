"""The turn that a shard is in: what was decided since the last one ended, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from moebius import LATER, Request

from ..core.facts import Session
from ..core.records import AnyRecord, encode_record
from ..errors import Error
from ..items import Buffer
from ..limits import MIB
from ..protocol import AnyReply, Done, encode
from .kin import Caller
from .kinship import Held
from .turn import Answer, Keeper, Pending, Read, Turn, Written
from .wire import wire_error

Schedule = Callable[[Callable[[], None]], object]
"""How the end of a turn is asked for."""

GROUP_BYTES_MAX = 8 * MIB
"""A group that has grown to this is written without waiting for the end of the turn."""


class Turns:
    """Collects records, answers and readers until the turn ends: with the present turn of the loop, or because it has
    grown large.

    Invariants: `pending`, answers and readers are empty outside of a turn; there are no answers and no readers without
    something pending, since they need not wait for anything then. While a group is under way (`writing`) nothing is added.
    """

    def __init__(
        self, keeper: Keeper, finish: Callable[[], None], schedule: Schedule | None
    ) -> None:
        """`finish` is called for turns in which nothing was decided."""
        self._keeper = keeper
        self._finish = finish
        self._schedule = schedule or asyncio.get_running_loop().call_soon
        self._scheduled = False
        self.writing = False
        """Whether a group is under way to the log; said by whoever writes it."""
        self.pending: Pending = []
        self.pending_bytes = 0
        self.touched: dict[int, Session] = {}
        """The sessions that the records belong to."""
        self.decided_ms = 0
        """When the last change was decided on; 0 if there was none."""
        self._begun_ns = 0
        self._answers: list[Answer] = []
        self._reads: list[Read] = []
        self._settled: list[Callable[[], None]] = []

    def add(
        self, record: AnyRecord, batch: Buffer | None = None, written: Written | None = None
    ) -> None:
        """A record that the core has decided on, and knows; and who wants to hear that it is durable."""
        self.pending.append((record, encode_record(record, batch), batch))
        if written is not None:
            self._answers.append((written, Done()))
        if batch is not None:
            self.pending_bytes += len(batch)
        if not self._scheduled:
            self._scheduled = True
            self._begun_ns = time.perf_counter_ns()
            self._schedule(self.commit)

    def answer(self, request: Request | Caller | Held, answer: AnyReply | Error) -> object:
        """Let an answer out when what came before it is durable: at once, if all is."""
        if not self.pending:
            if isinstance(answer, Error):
                raise wire_error(answer)
            return encode(answer)
        self._answers.append((request, answer))
        if self.pending_bytes > GROUP_BYTES_MAX:
            self.commit()
        return LATER

    def read(self, request: Request | Caller, answer: Callable[[Any], Any]) -> None:
        """Somebody reads when what is pending is durable."""
        self._reads.append((request, answer))

    def __len__(self) -> int:
        """How many wait for the end of the turn."""
        return len(self._answers)

    # What is durable.

    @property
    def are_settled(self) -> bool:
        """Whether all that was decided is durable."""
        return not self.pending and not self.writing

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call this when everything decided so far is durable: now, if it is."""
        if self.pending or self.writing:
            self._settled.append(callback)
        else:
            callback()

    def call_settled(self) -> None:
        """Everything is durable."""
        settled, self._settled = self._settled, []
        for callback in settled:
            callback()

    def forget_settled(self) -> None:
        """Those who wanted to be called have ended: they were subscriptions and errands."""
        self._settled.clear()

    # The end.

    def commit(self) -> None:
        """Have what was decided in this turn made durable."""
        self._scheduled = False
        if self.writing:
            return
        if self.pending:
            self._keeper.write(self.gather())
        else:
            self._finish()

    def postpone(self) -> None:
        """Its end, which was asked for, is asked for again with what is added next."""
        self._scheduled = False

    def gather(self) -> Turn:
        """End a turn: what was decided in it is for the caller to make durable, or to refuse."""
        turn = Turn(
            self.pending,
            self.pending_bytes,
            self._answers,
            self._reads,
            self.touched,
            self._begun_ns,
            self.decided_ms,
        )
        self.pending, self._answers, self._reads, self.touched = [], [], [], {}
        self.pending_bytes = self.decided_ms = 0
        return turn
