"""How what spans shards changes the index: groups that are prepared and decided, copies of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.records import (
    CopiesForgotten,
    CopyDropped,
    Decided,
    OpenedWith,
    Prepared,
    Refused,
    Settled,
    StepPrepared,
    StreamCopied,
    Told,
    ToTell,
)
from ..protocol import Group
from . import keys
from .facts import (
    StoredDecided,
    StoredOpen,
    StoredPrepared,
    StoredStream,
    StoredUntold,
    decode_decided,
    decode_prepared,
    decode_stream,
    decode_untold,
    encode,
)
from .keys import Place

if TYPE_CHECKING:
    from .applier import Applier


class Spanning:
    """Turns records into changes of the batch that an `Applier` is making. `by_type` has what to call for each."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier
        self.by_type: dict[type, Callable[[Any, int, int], None]] = {
            OpenedWith: self._opened_with,
            Prepared: self._prepared,
            StepPrepared: self._step_prepared,
            Settled: self._settled,
            Decided: self._decided,
            Refused: self._refused,
            ToTell: self._to_tell,
            Told: self._told,
            StreamCopied: self._stream_copied,
            CopyDropped: self._copy_dropped,
            CopiesForgotten: self._copies_forgotten,
        }

    def _opened_with(self, record: OpenedWith, position: int, size: int) -> None:
        stored = StoredOpen(record.stream, record.partition, record.agent, record.lease_ms)
        self._applier.put(keys.open_key(record.transaction), encode(stored))
        value = keys.PLACE_AND_COUNT.pack(position, size, record.count)
        self._applier.put(keys.batch_key(record.transaction, 0), value)
        self._applier.hold(record, Place(position, size))

    def _prepared(self, record: Prepared, position: int, size: int) -> None:
        stored = StoredPrepared(
            record.group,
            record.session,
            record.lease_ms,
            record.agents,
            record.transactions,
            record.empty,
            record.positions,
            kept=record.kept,
            cut=record.cut,
        )
        self._applier.put(_prepared_key(record.group), encode(stored))

    def _step_prepared(self, record: StepPrepared, position: int, size: int) -> None:
        stored = StoredPrepared(
            record.group,
            record.session,
            record.lease_ms,
            [],
            record.transactions,
            record.empty,
            [],
            record.job,
            record.step,
            record.dropped,
            record.replaced,
            record.final,
        )
        self._applier.put(_prepared_key(record.group), encode(stored))

    def _settled(self, record: Settled, position: int, size: int) -> None:
        key = _prepared_key(record.group)
        value = self._applier.get(key)
        assert value is not None, f"{record.group} is settled and was not prepared"
        it = decode_prepared(value)
        self._applier.delete(key)
        if not record.committed:
            kept = set(it.kept)
            for number, count, _ in it.cut:
                self._applier.cut(number, count)
            self._applier.drop_open([n for n in (*it.empty, *it.transactions) if n not in kept])
            return
        self._applier.drop_open(it.empty)
        self._applier.show(it.transactions)
        self._applier.move(it.positions)
        if it.job:
            self._applier.drop_open(it.dropped)
            self._applier.step_over(it, record.now_ms)

    def _decided(self, record: Decided, position: int, size: int) -> None:
        key = keys.decided_key(record.session, record.number)
        self._applier.put(key, encode(StoredDecided(True, record.others)))

    def _refused(self, record: Refused, position: int, size: int) -> None:
        """That it was refused is kept with its session."""
        if record.others:
            key = keys.decided_key(record.session, record.number)
            self._applier.put(key, encode(StoredDecided(False, record.others)))

    def _to_tell(self, record: ToTell, position: int, size: int) -> None:
        stored = StoredUntold(record.version, record.shards)
        self._applier.put(keys.untold_key(record.stream), encode(stored))

    def _told(self, record: Told, position: int, size: int) -> None:
        for session, number, shard in record.groups:
            key = keys.decided_key(session, number)
            if (value := self._applier.get(key)) is None:
                continue
            decided = decode_decided(value)
            left = [it for it in decided.others if it != shard]
            self._put_or_delete(key, StoredDecided(decided.committed, left) if left else None)
        for stream, version, shard in record.streams:
            key = keys.untold_key(stream)
            if (value := self._applier.get(key)) is None:
                continue
            untold = decode_untold(value)
            if untold.version == version:
                left = [it for it in untold.shards if it != shard]
                self._put_or_delete(key, StoredUntold(version, left) if left else None)

    def _stream_copied(self, record: StreamCopied, position: int, size: int) -> None:
        value = self._applier.get(keys.stream_key(record.stream))
        old = None if value is None else decode_stream(value)
        new = StoredStream(
            record.name,
            record.partitions,
            record.ttl_ms,
            record.description,
            record.schema,
            max(record.purged_before, old.purged_before if old else 0),
            record.version,
        )
        self._applier.put(keys.copy_name_key(record.name), record.stream.to_bytes(8, "big"))
        self._applier.put_stream(record.stream, new)
        if old is not None and (new.ttl_ms < old.ttl_ms or new.purged_before > old.purged_before):
            self._applier.look_soon(record.stream, old.partitions)

    def _copy_dropped(self, record: CopyDropped, position: int, size: int) -> None:
        self._applier.drop_open(record.cancelled)
        value = self._applier.get(keys.stream_key(record.stream))
        if value is not None:
            self._applier.forget_stream(
                record.stream, keys.copy_name_key(decode_stream(value).name)
            )
        self._applier.put(keys.dropped_key(record.stream), record.now_ms.to_bytes(8, "big"))

    def _copies_forgotten(self, record: CopiesForgotten, position: int, size: int) -> None:
        for stream in record.streams:
            self._applier.delete(keys.dropped_key(stream))

    def _put_or_delete(self, key: bytes, stored: msgspec.Struct | None) -> None:
        if stored is None:
            self._applier.delete(key)
        else:
            self._applier.put(key, encode(stored))


def _prepared_key(group: Group) -> bytes:
    return keys.prepared_key(group.shard, group.session, group.number)
