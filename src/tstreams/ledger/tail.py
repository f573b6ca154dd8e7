"""The end of an engine's sequence, as one node knows it: where the next entry goes, if it is ours."""

from __future__ import annotations

import asyncio
import logging
import secrets

from ..items import Buffer
from .engine import Draft, EndMoved, Engine, EngineFull, EngineUnavailable, Entry, Place
from .port import DiskFull, LogFenced

log = logging.getLogger("tstreams.ledger")

PAUSE_S_MIN, PAUSE_S_MAX = 0.01, 0.2
"""Between two attempts, while the engine does not answer. An engine without a leader needs seconds to find one."""


class Tail:
    """Adds entries at `place`, one at a time. Invariant: all entries up to `place` are known here."""

    def __init__(self, engine: Engine, place: Place) -> None:
        self._engine = engine
        self.place = place
        self._writer = secrets.token_hex(8)
        """Marks are unique: an entry of the same bytes may be somebody else's."""
        self._number = 0

    async def add(self, ledger_id: int, offset: int, data: Buffer) -> None:
        """Have an entry in the sequence. What has no answer is sent again with the same condition; if that is
        refused, the entry that is found there says whether it was our own.

        `LogFenced`: it is somebody else's. `DiskFull`: the engine has no room, and the entry is not there.
        `LedgerEnded`: it is not there, and this ledger takes no more. If this is cancelled, nothing is known.
        """
        self._number += 1
        draft = Draft(ledger_id, offset, f"{self._writer}-{self._number}", data)
        pause_s, unknown = PAUSE_S_MIN, False
        while True:
            try:
                self.place = await self._engine.append(draft, self.place)
                return
            except EngineFull as error:
                if not unknown:
                    raise DiskFull(error.message) from error
            except EndMoved:
                if (found := await self._next()) is not None:
                    if found.mark != draft.mark:
                        raise fenced_by(found) from None
                    self.place = found.place
                    return
            except EngineUnavailable as error:
                if not unknown:
                    log.warning("the engine does not answer; trying again: %s", error)
                unknown = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _next(self) -> Entry | None:
        """What follows on `place`; None if it is not confirmed yet, or if the engine does not answer."""
        try:
            found = await self._engine.read(self.place, 1)
        except EngineUnavailable:
            return None
        return found[0] if found else None


def fenced_by(entry: Entry) -> LogFenced:
    """This entry is not ours: whoever wrote it is the writer now."""
    return LogFenced(
        f"another writer has taken the log over: what lies in ledger {entry.ledger_id:x} at offset "
        f"{entry.offset} is not ours"
    )
