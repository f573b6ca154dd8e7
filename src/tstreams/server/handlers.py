"""The commands of a shard: each request read, checked, and handed to the shard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, get_args

from moebius import Request, Router, Strategy

from ..core.rules import info_of
from ..core.waits import InDoubt
from ..errors import BadRequest, Error, Unavailable
from ..items import check
from ..limits import LIST_STREAMS_MAX
from ..protocol import (
    AlterStream,
    CancelStep,
    CancelTransactions,
    Change,
    CloseAgent,
    Commit,
    CommitStep,
    CreateStream,
    DeleteStream,
    EndTransactions,
    Fetch,
    FetchLast,
    GetJob,
    GetPositions,
    GetStream,
    Instant,
    JobInfo,
    KeepAlive,
    ListStreams,
    OpenAgent,
    OpenSession,
    OpenTransaction,
    Positions,
    Prepare,
    PrepareStep,
    PurgeStream,
    ResetReader,
    SendItems,
    Settle,
    Stage,
    StreamList,
    Subscribe,
    Survey,
    Surveyed,
    encode,
)
from .gate import Gate
from .inspection import Inspection
from .kin import KIN, KinMessage
from .shard import Shard
from .subscriptions import Answer
from .wire import wire_error

_CHANGES: tuple[type[Change], ...] = (
    CreateStream,
    AlterStream,
    DeleteStream,
    PurgeStream,
    OpenAgent,
    CloseAgent,
    OpenTransaction,
    CancelTransactions,
    Stage,
    CommitStep,
    CancelStep,
    ResetReader,
    EndTransactions,
    PrepareStep,
)


ANY = "any:"
"""What reads begin with that any node of a cluster may answer with what it has confirmed, which may be a little behind
(`0:any:Fetch`). Without it only the leader answers."""


class Handlers:
    """The commands of one shard. They are taken in the order in which they come, and answered later."""

    def __init__(self, shard: Shard, gate: Gate | None = None) -> None:
        self._shard = shard
        self._gate = gate or Gate()
        self.router = Router()
        for kind in _CHANGES:
            self._register(kind.__name__, self._change(kind))
        self._register(Commit.__name__, self._commit(Commit))
        self._register(Prepare.__name__, self._commit(Prepare))
        self._register(Settle.__name__, self._settle())
        for kind in (SendItems, Instant):
            self._register(kind.__name__, self._change_with_items(kind))
        self._register(OpenSession.__name__, self._open_session())
        self._register(KeepAlive.__name__, self._keep_alive())
        self._register_read(GetStream, self._get_stream)
        self._register_read(ListStreams, self._list_streams)
        self._register_read(GetPositions, self._get_positions)
        self._register_read(GetJob, self._get_job)
        self._register_read(Survey, self._survey)
        self._register_fetch("", shard.read)
        self._register_fetch(ANY, shard.read_any)
        self._register_read(FetchLast, self._fetch_last)
        for kind, inspect in Inspection(shard).by_type.items():
            self._register_read(kind, _encoded(inspect))
        for kin in get_args(KinMessage):
            self._register(KIN + kin.__name__, self._from_kin(kin))
        for prefix, any_node in (("", False), (ANY, True)):
            command = prefix + Subscribe.__name__
            self.router.command(command, strategy=Strategy.PARALLEL)(self._subscribe(any_node))

    def _register(self, name: str, handler: Callable[[Request], object]) -> None:
        # What is answered later holds nobody up, so the order of arrival is all that is needed.
        self.router.command(name, strategy=Strategy.QUEUE)(handler)

    def _change(self, kind: type[Change]) -> Callable[[Request], object]:
        read, shard = self._gate.reader(kind), self._shard
        return lambda request: shard.change(request, read(request))

    def _change_with_items(self, kind: type[Change]) -> Callable[[Request], object]:
        read, change = self._gate.reader_with_batch(kind), self._shard.change

        def handle(request: Request) -> object:
            message, items = read(request)
            return change(request, message, items, request.parts[1:])

        return handle

    def _commit(self, kind: type[Commit] | type[Prepare]) -> Callable[[Request], object]:
        read, shard = self._gate.reader(kind, None), self._shard

        def handle(request: Request) -> object:
            message = read(request)
            batches = request.parts[1:]
            if len(batches) != len(message.brought):
                text = f"a commit brings {len(message.brought)} batches, {len(batches)} came"
                raise wire_error(BadRequest(text))
            try:
                counts = list(map(check, batches))
            except Error as error:
                raise wire_error(error) from None
            return shard.change(request, message, 0, batches, counts)

        return handle

    def _settle(self) -> Callable[[Request], object]:
        read, shard = self._gate.reader(Settle), self._shard

        def handle(request: Request) -> object:
            message = read(request)
            if not message.session or message.committed:
                text = "a client can only give a checkpoint up that it has prepared in a session"
                raise wire_error(BadRequest(text))
            return shard.kinship.settle(request, message)

        return handle

    def _from_kin(self, kind: type[KinMessage]) -> Callable[[Request], object]:
        read, kinship = self._gate.kin_reader(kind), self._shard.kinship
        return lambda request: kinship.answer(request, read(request))

    def _open_session(self) -> Callable[[Request], object]:
        read, shard = self._gate.reader(OpenSession), self._shard

        def handle(request: Request) -> object:
            read(request)
            return shard.open_session(request)

        return handle

    def _keep_alive(self) -> Callable[[Request], object]:
        read, shard = self._gate.reader(KeepAlive), self._shard
        return lambda request: shard.keep_alive(request, read(request))

    def _register_read(self, kind: type[Any], answer: Callable[[Request, Any], Any]) -> None:
        read, shard = self._gate.reader(kind), self._shard

        def handle(request: Request) -> object:
            message = read(request)
            return shard.read(request, lambda request: answer(request, message))

        self._register(kind.__name__, handle)

        def handle_any(request: Request) -> object:
            message = read(request)
            return shard.read_any(request, lambda request: answer(request, message))

        self._register(ANY + kind.__name__, handle_any)

    def _register_fetch(
        self, prefix: str, reading: Callable[[Request, Callable[[Request], None]], object]
    ) -> None:
        """Of all reads this one waits, and is read again when its time is over."""
        read, shard = self._gate.reader(Fetch), self._shard

        def fetch(request: Request, message: Fetch, *, is_over: bool = False) -> object:
            def answer(request: Request) -> None:
                try:
                    shard.contents.reads.fetch(shard.clock(), request, message, over)
                except InDoubt as doubt:
                    if not is_over:
                        raise
                    raise Unavailable(
                        doubt.message
                    ) from None  # it has waited for as long as it wanted

            return reading(request, answer)

        over = partial(fetch, is_over=True)
        self._register(prefix + Fetch.__name__, lambda request: fetch(request, read(request)))

    # Reading.

    def _subscribe(self, any_node: bool) -> Callable[[Request], object]:
        read, shard = self._gate.reader(Subscribe), self._shard

        def handle(request: Request) -> object:
            message = read(request)
            shard.condition.check()
            return shard.subscriptions.serve(message, request.emit, shard.when_settled)

        async def handle_later(request: Request) -> AsyncIterator[Answer]:
            message = read(request)
            check = shard.condition.check if any_node else shard.check_usable
            if not any_node:
                await shard.admit()
            check()
            if shard.errands is not None:
                try:
                    await shard.errands.have(message.stream)
                except Error as error:
                    raise wire_error(error) from None
                check()  # it may have stopped leading meanwhile
            async for answer in shard.subscriptions.serve(
                message, request.emit, shard.when_settled
            ):
                yield answer

        return handle if shard.stands_alone else handle_later

    def _get_stream(self, request: Request, message: GetStream) -> bytes:
        return encode(self._shard.kinship.stream_info(message))

    def _list_streams(self, request: Request, message: ListStreams) -> bytes:
        limit = message.limit
        if not 0 < limit <= LIST_STREAMS_MAX:
            raise BadRequest(f"a listing has 1 to {LIST_STREAMS_MAX} streams, not {limit}")
        found = self._shard.index.facts.streams(message.prefix, message.after, limit + 1)
        return encode(StreamList([info_of(it) for it in found[:limit]], len(found) > limit))

    def _get_positions(self, request: Request, message: GetPositions) -> bytes:
        state = self._shard.core.state
        stream = state.stream(message.stream)
        if doubts := state.groups.of_reader(stream.id, message.reader):
            raise InDoubt(doubts)
        self._shard.contents.check_heads(stream)
        heads = [(partition, next(iter(ids))) for partition, ids in state.heads_of(stream)]
        saved = self._shard.index.facts.positions(stream.id, message.reader)
        return encode(Positions(state.last_id + 1, heads, saved))

    def _get_job(self, request: Request, message: GetJob) -> bytes:
        last = self._shard.index.facts.last_step(message.name)
        return encode(JobInfo(-1 if last is None else last))

    def _survey(self, request: Request, message: Survey) -> bytes:
        return encode(Surveyed(self._shard.contents.reads.survey(self._shard.clock(), message)))

    def _fetch_last(self, request: Request, message: FetchLast) -> Any:
        return self._shard.contents.reads.last(self._shard.clock(), message)


def _encoded(inspect: Callable[[Any], Any]) -> Callable[[Request, Any], bytes]:
    return lambda _, message: encode(inspect(message))
