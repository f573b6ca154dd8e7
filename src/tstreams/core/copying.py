"""What a shard knows of streams whose home is another one: copies, and what their homes tell of them."""

from __future__ import annotations

from ..errors import BadRequest, InvalidState
from ..protocol import StreamInfo, TellStream
from ..sharding import giver_of, home_of, partitions_in
from .records import AnyRecord, CopyDropped, StreamCopied
from .state import State
from .waits import InDoubt


class Copying:
    """Decides what becomes of copies. Nothing here changes the state.

    What comes late or twice does nothing: numbers of streams and their versions only rise.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def tell(self, now_ms: int, request: TellStream) -> tuple[AnyRecord, ...]:
        """A home says that a stream has changed or, if there is none, that it is gone."""
        if giver_of(request.number) == self._state.number:
            raise BadRequest(f"stream {request.number} is at home in this shard")
        if request.stream is not None:
            return self.copy(now_ms, request.stream)
        if request.number in self._state.deleted:
            return ()
        return (self._drop(now_ms, request.number),)

    def copy(self, now_ms: int, info: StreamInfo) -> tuple[AnyRecord, ...]:
        """A home has said how a stream is."""
        state = self._state
        home = home_of(info.name, state.shards)
        local = partitions_in(info.name, info.partitions, state.number, state.shards)
        if home == state.number or giver_of(info.id) != home or not local:
            raise BadRequest(f"shard {state.number} has no copy of stream {info.name!r:.80}")
        if info.id in state.deleted:
            return ()
        known = state.find_stream(info.name)
        if known is not None and (
            known.id > info.id or (known.id == info.id and known.version >= info.version)
        ):
            return ()
        copied = StreamCopied(
            0,
            0,
            info.id,
            info.name,
            info.partitions,
            info.ttl_ms,
            info.description,
            info.schema,
            info.purged_before,
            info.version,
        )
        if known is None or known.id == info.id:
            return (copied,)
        return self._drop(now_ms, known.id), copied

    def _drop(self, now_ms: int, stream_id: int) -> CopyDropped:
        state = self._state
        if doubts := state.groups_of_stream(stream_id):
            raise InDoubt(doubts, InvalidState.code)
        open_ones = sorted(
            it for (stream, _), head in state.heads.items() if stream == stream_id for it in head
        )
        return CopyDropped(0, 0, stream_id, open_ones, now_ms)
