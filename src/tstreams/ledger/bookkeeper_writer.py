"""Writes one ledger of BookKeeper, which nobody else can write: from its creation until it fails or is closed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..limits import MIB
from .bookkeeper_link import BookKeeperLink, Code, code_of, unavailable
from .bookkeeper_parts import PARTS_MAX, place_of, split_draft
from .engine import Draft, EndMoved, EngineUnavailable, EngineUnfit, Place
from .jvm import java_bytes, java_class
from .jvm_bridge import JavaFailed

log = logging.getLogger("tstreams.ledger")

ANSWER_S = 3.0
"""How long one attempt to append waits. What is under way goes on, and the next attempt waits for it too."""
_SLOW_BYTES_PER_S = 4 * MIB
"""A large entry is waited for as if the bookies wrote no faster than this."""


class LedgerWriter:
    """Invariants: `entries` of BookKeeper are confirmed; at most one entry of the log is under way, `_adding`. Once an
    append has failed, nothing more is appended: BookKeeper has closed the ledger, or another has shut us out."""

    def __init__(self, link: BookKeeperLink, number: int, handle: Any) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self.number = number
        self.handle = handle
        self.bookkeeper_id = int(handle.getId())
        self.entries = 0
        self.failed_s: float | None = None
        """When an append has failed, by the clock of the loop."""
        self.fenced = False
        self._adding: asyncio.Task[Place] | None = None
        self._mark = ""

    @property
    def at_rest(self) -> bool:
        """Whether it can be written to, and nothing is under way."""
        return self.failed_s is None and (self._adding is None or self._adding.done())

    async def append(self, draft: Draft, at: int) -> Place:
        """Add an entry of the log behind `at` entries of BookKeeper. `EngineUnavailable`: not known, it may be under way; if
        `failed_s` is set, the ledger ends here."""
        if self._adding is not None and not self._adding.done() and self._mark != draft.mark:
            await asyncio.wait([self._adding], timeout=ANSWER_S)
            raise EndMoved("an earlier append is under way, or was")
        if self._adding is None or self._mark != draft.mark:
            if at != self.entries:
                raise EndMoved(f"ledger {self.number:x} has {self.entries} entries, not {at}")
            self._mark = draft.mark
            self._adding = self._loop.create_task(self._add(draft))
            self._adding.add_done_callback(_heard)
        wait_s = ANSWER_S + len(draft.data) / _SLOW_BYTES_PER_S
        done, _ = await asyncio.wait([self._adding], timeout=wait_s)
        if not done:
            raise EngineUnavailable(f"BookKeeper has not confirmed a group within {wait_s:g} s")
        return self._adding.result()

    async def _add(self, draft: Draft) -> Place:
        parts = split_draft(draft)
        if len(parts) > PARTS_MAX:
            raise EngineUnfit(
                f"a group of {len(draft.data)} bytes is larger than a ledger takes at once"
            )
        expected = self.entries
        try:
            async with self._link.room.hold(len(draft.data)):
                ids = await self._send(parts)
        except JavaFailed as error:
            self.failed_s = self._loop.time()
            self.fenced = code_of(error) == Code.FENCED
            log.warning("ledger %x takes no more entries: %s", self.number, error)
            raise unavailable(f"ledger {self.number:x} takes no more entries", error) from error
        except BaseException:
            self.failed_s = self._loop.time()
            raise
        if ids != list(range(expected, expected + len(parts))):
            self.failed_s = self._loop.time()
            raise EngineUnfit(f"BookKeeper has put entries {expected} and on at {ids}")
        self.entries += len(parts)
        return place_of(self.number, self.entries)

    async def _send(self, parts: list[tuple[bytes, memoryview]]) -> list[int]:
        """Send all parts at once; BookKeeper keeps them in order."""
        wrap = java_class("io.netty.buffer.Unpooled").wrappedBuffer

        def sent(before: bytes, data: memoryview) -> Any:
            buffer = wrap(java_bytes(before), java_bytes(data))
            return self._link.ask(lambda: self.handle.appendAsync(buffer))

        if len(parts) == 1:
            return [int(await sent(*parts[0]))]
        found = await asyncio.gather(*(sent(*it) for it in parts), return_exceptions=True)
        for failed in found:
            if isinstance(failed, BaseException):
                raise failed  # when all have answered: nothing is under way any more
        return [int(str(it)) for it in found]

    async def close(self) -> None:
        """Close it: where it ends is fixed. If that fails, whoever comes next recovers it."""
        try:
            await self._link.ask(self.handle.closeAsync)
        except (JavaFailed, EngineUnavailable) as error:
            log.info("ledger %x is left to be recovered: %s", self.number, error)


def _heard(task: asyncio.Task[Place]) -> None:
    if not task.cancelled():
        task.exception()  # told to whoever waits, if anybody does
