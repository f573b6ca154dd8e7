"""A shard whose log is a local one: it is opened, its turns are written, and it recovers."""

from __future__ import annotations

import logging
from operator import itemgetter

from ..core.facts import Session
from ..core.records import decode_record
from ..errors import Error
from ..index import Index, IndexFailed
from ..ledger.local import LEDGER_AGE_MS, LEDGER_BYTES, LocalLog
from ..ledger.port import LogFailed
from ..limits import PAYLOAD_CACHE_BYTES
from . import contents
from .contents import Entry
from .shard import Clock, Shard, system_clock
from .storage import Storage
from .turn import Turn
from .turns import Schedule

log = logging.getLogger("tstreams.server")

ENCODED = itemgetter(1)
"""Of what is pending: what goes to the log."""


class LocalShard:
    """Opens a shard, and keeps its log. `append` blocks until a group is on the disk, and the loop with it.

    After a sync that failed it does nothing any more until the server is started again: what the disk holds is not
    known. If only the index could not be written, it recovers as soon as there is room for it.
    """

    log: LocalLog

    def __init__(
        self,
        number: int,
        storage: Storage,
        *,
        clock: Clock = system_clock,
        ledger_bytes: int = LEDGER_BYTES,
        ledger_age_ms: int = LEDGER_AGE_MS,
        cache_bytes: int = PAYLOAD_CACHE_BYTES,
        fsync: bool = True,
        schedule: Schedule | None = None,
        shards: int = 1,
    ) -> None:
        self._storage = storage
        self._ledger_bytes = ledger_bytes
        self._ledger_age_ms = ledger_age_ms
        self._fsync = fsync
        self._log_failed = False
        self.records_replayed = 0
        self.shard = Shard(
            number,
            self,
            storage.room(),
            clock=clock,
            cache_bytes=cache_bytes,
            schedule=schedule,
            shards=shards,
        )
        self._contents = self.shard.contents
        self._condition = self.shard.condition
        self._open()

    # Opening, and recovery.

    def _open(self) -> None:
        index = Index(self._storage.store())
        try:
            self.log = LocalLog(
                self._storage.folder(),
                applied=index.applied,
                ledger_bytes=self._ledger_bytes,
                ledger_age_ms=self._ledger_age_ms,
                fsync=self._fsync,
            )
        except BaseException:
            index.store.close()
            raise
        try:
            self._contents.adopt(index, self.log)
            self._replay()
            self.shard.epoch = self.log.epoch + 1
            self.log.take_over(self.shard.epoch, self.shard.clock())
        except BaseException:
            self.log.close()
            index.store.close()
            raise

    def _replay(self) -> None:
        """Take what the log has and the index has not."""
        core, now_ms = self._contents.core, self.shard.clock()
        entries: list[Entry] = []
        sessions: dict[int, Session] = {}
        replayed = 0
        for end, group in self.log.scan(self._contents.index.applied):
            for position, data in group:
                record, _ = decode_record(data)
                core.replay(now_ms, record)
                if record.session in core.state.sessions:
                    sessions[record.session] = core.state.sessions[record.session]
                entries.append((record, position, len(data)))
            replayed += len(group)
            if len(entries) >= contents.REPLAY_RECORDS:
                self._contents.apply(entries, end, sessions)
                entries = []
                sessions.clear()
        if entries:
            self._contents.apply(entries, end, sessions)
        self._contents.settle_replayed()
        self.records_replayed = self._contents.records_since_flush = replayed

    def reopen(self) -> None:
        """Forget what is in memory and recover from the disk, as after a restart."""
        self._contents.index.store.close()
        self.log.close()
        try:
            self._open()
        except Error as error:
            log.error("recovery failed: %s", error)  # it will be tried again
        else:
            self._condition.failed = None

    def look_at_disk(self) -> None:
        """See whether there is room, and whether there is enough again to recover."""
        if self._condition.failed is None:
            self._condition.look_at_room()
        elif not self._log_failed and self._condition.room.is_ample():
            log.info("trying to recover", extra={"tstreams": {"shard": self.shard.number}})
            self.reopen()

    def close(self) -> None:
        """Stop: flush the index and close the files."""
        self.shard.commit()
        self.shard.end_waits()
        store = self._contents.index.store
        try:
            if self._condition.failed is None and self._condition.can_flush():
                self.log.sync()
                store.flush()
        except (IndexFailed, LogFailed) as error:
            log.warning("the log will be replayed: %s", error)
        finally:
            store.close()
            self.log.close()

    # What its shard asks for.

    def write(self, turn: Turn) -> None:
        """See `Keeper.write`: it is done when this returns."""
        answers = turn.answers
        try:
            self._condition.check_room(turn.pending_bytes)
            now_ms = turn.decided_ms or self.shard.clock()
            positions = self.log.append(list(map(ENCODED, turn.pending)), now_ms)
            self._contents.take(
                turn.pending,
                positions,
                self.log.end,
                turn.touched,
                turn.begun_ns,
                self.log.synced_ns,
            )
        except Exception as error:
            self.shard.refuse(answers, error)
            answers = []
        self.shard.finish(answers, turn.reads)

    def take_back(self) -> None:
        """See `Keeper.take_back`. Ids that were given out are not given out again."""
        last_id = self._contents.core.state.last_id
        self._contents.make_core()
        state = self._contents.core.state
        state.last_id = max(last_id, state.last_id)

    def stopped(self, error: Error) -> None:
        """See `Keeper.stopped`."""
        if not isinstance(error, IndexFailed):
            self._log_failed = True
