"""A shard on a simulated disk, and beside it the model that says what must come of everything."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.client import Answer, Refused, SimulatedRequest
from tests.simulation.disk import PowerCut
from tests.simulation.model import Model, Refusal
from tests.simulation.storage import SimulatedStorage
from tstreams.items import Items, pack
from tstreams.ledger.port import split_position
from tstreams.protocol import (
    Change,
    Commit,
    Fetch,
    KeepAlive,
    OpenSession,
    Reply,
    SessionOpened,
    Want,
)
from tstreams.server.handlers import Handlers
from tstreams.server.housekeeping import Housekeeping
from tstreams.server.local import LocalShard

LEDGER_BYTES = 4096
CACHE_BYTES = 600
"""Small, so that ledgers roll often, and reads go to the cache as well as to the disk."""


@dataclass
class Client:
    """A session, as its client sees it."""

    session: int
    sequence: int = 0
    acked: int = 0
    sent: dict[int, tuple[Change, tuple[bytes, ...]]] = field(default_factory=dict)
    """Every request that is not acknowledged, with its items."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """The first answer to each."""


@dataclass
class Asked:
    """A request of the current turn, and the answer it must get."""

    request: SimulatedRequest
    expected: Reply | Refusal | None
    client: Client | None
    items: tuple[bytes, ...] = ()


class World:
    """Everything there is in a simulation.

    A turn begins with the first request and ends with `end_turn`; `before` is the model as it was when the
    turn began. A crash in a turn leaves the one or the other, never a mixture.
    """

    def __init__(self) -> None:
        self.storage = SimulatedStorage()
        self.now_ms = 1_000_000
        self.model = Model(self.now_ms)
        self.before = self.model
        self.turn: list[Asked] = []
        self.unanswered: list[Asked] = []
        """Requests of a turn that was cut short."""
        self.waiting: list[tuple[SimulatedRequest, Fetch]] = []
        self.clients: list[Client] = []
        self.durable_end = 0
        """Where the log ended when the last turn did."""
        self.flushing: tuple[list[int], int, Any] | None = None
        self.crashes = 0
        self.open_shard()

    def open_shard(self) -> None:
        self.flushing = None
        self.waiting = []
        self.local = LocalShard(
            0,
            self.storage,
            clock=lambda: self.now_ms,
            ledger_bytes=LEDGER_BYTES,
            cache_bytes=CACHE_BYTES,
            schedule=lambda commit: None,
        )
        self.shard = self.local.shard
        self.handlers = Handlers(self.shard)
        self.keeper = Housekeeping(self.local)

    # Asking.

    def ask(
        self, client: Client, kind: type[Change], *fields: Any, items: Sequence[bytes] = ()
    ) -> None:
        """A new request of a client. The answer is checked when it comes."""
        client.sequence += 1
        message = kind(client.session, client.sequence, client.acked, *fields)
        client.sent[client.sequence] = (message, tuple(items))
        self.send(client, message, tuple(items))

    def send(self, client: Client, message: Change, items: tuple[bytes, ...]) -> None:
        """A request, whether new or sent before."""
        self.begin_turn()
        expected = self.model.handle(message, items)
        if isinstance(expected, Refusal) and "expired" in expected.codes:
            self.model.tick()  # who is told so must not find it open later
        brought = len(message.brought) if isinstance(message, Commit) else 1
        batches = [pack(list(items))] * brought if items else []
        request = SimulatedRequest(message, *batches).send(self.handlers)
        self._take(Asked(request, expected, client, items))

    def open_session(self) -> None:
        self.begin_turn()
        expected = self.model.open_session()
        self._take(Asked(SimulatedRequest(OpenSession()).send(self.handlers), expected, None))

    def keep_alive(self, client: Client) -> None:
        self.begin_turn()
        message = KeepAlive(client.session, client.acked)
        expected = self.model.keep_alive(message)
        self._take(Asked(SimulatedRequest(message).send(self.handlers), expected, None))

    def read(self, message: Any) -> SimulatedRequest:
        """A request that changes nothing, between two turns."""
        request = SimulatedRequest(message).send(self.handlers)
        assert request.reply is not None, "nothing is under way, so it is answered at once"
        return request

    def wait_for(self, fetch: Fetch) -> None:
        """A reader that waits for something to become visible."""
        request = SimulatedRequest(fetch).send(self.handlers)
        self.waiting.append((request, fetch))

    def _take(self, asked: Asked) -> None:
        if asked.request.unanswered:
            self.turn.append(asked)
        else:
            self._check(asked)

    def _check(self, asked: Asked) -> None:
        reply, expected, message = asked.request.reply, asked.expected, asked.request.message
        assert reply is not None, f"{message} was not answered"
        if isinstance(expected, Refusal):
            assert isinstance(reply, Refused), f"{message} should be refused, and got {reply}"
            assert reply.code in expected.codes, f"{message}: {reply}, not {set(expected.codes)}"
        else:
            assert reply == expected, f"{message} got {reply}, not {expected}"
        if isinstance(message, OpenSession):
            assert isinstance(reply, SessionOpened)
            self.clients.append(Client(reply.session))
        if asked.client is not None and isinstance(message, Change):
            first = asked.client.answers.setdefault(message.sequence, reply)
            known = asked.client.session in self.model.sessions
            if known and not isinstance(first, Refused):
                assert reply == first, "sent again, a request gets the same answer"

    # Turns.

    def begin_turn(self) -> None:
        if not self.turn and not self.shard.turns.pending:
            self.before = deepcopy(self.model)

    def tick(self) -> None:
        self.begin_turn()
        self.model.now_ms = self.now_ms
        self.model.tick()
        self.shard.tick()

    def end_turn(self) -> None:
        """What a server does at the end of a turn of its loop; then all must be answered, and rightly."""
        too_large = bool(self.shard.turns.pending_bytes) and self.storage.room().full
        self.shard.commit()
        self.durable_end = self.local.log.end
        turn, self.turn = self.turn, []
        before, self.before = self.before, self.model
        if too_large:
            self.before = before
            self.turn_was_refused(turn)
            return
        for asked in turn:
            self._check(asked)
        self._check_waiting()

    def _check_waiting(self) -> None:
        """Readers that wait are told, once, as soon as there is something for them."""
        for request, fetch in list(self.waiting):
            stream = self.model.streams.get(fetch.stream)
            wanted = [
                (want.partition, it.id, it.batches)
                for want in fetch.wants
                for it in (self.model.visible(stream, want.partition) if stream else [])
                if it.id >= want.from_id
            ]
            if request.unanswered:
                assert stream is not None, "a reader waits for a stream that is gone"
                assert not wanted, "a reader waits for what is there"
                continue
            self.waiting.remove((request, fetch))
            if isinstance(request.reply, Refused):
                assert (stream, request.reply.code) == (None, "not_found")
            else:
                seen = unpacked(request)
                assert seen == [it for it in wanted if it in seen]
                assert seen or not wanted

    def turn_was_refused(self, turn: list[Asked]) -> None:
        """There was no room for the turn: it has not taken place."""
        for asked in turn:
            reply = asked.request.reply
            assert isinstance(reply, Refused)
            assert reply.code == "unavailable"
            assert "Make room" in reply.message
        self.model = self.before
        self.model.now_ms = self.now_ms
        self.model.full = True
        self._read_memory()

    def look_at_disk(self) -> None:
        self.local.look_at_disk()
        self.model.full = self.storage.room().full

    # Crashes.

    def crash(self, seed: int, again_after: int | None, resend: bool) -> None:
        """The power fails; the shard is opened again, maybe losing power once more meanwhile."""
        self.crashes += 1
        self.storage.lose_power(seed)
        self.storage.steps_left = again_after
        try:
            self.open_shard()
        except PowerCut:
            self.storage.lose_power(seed + 1)
            self.open_shard()
        self.storage.steps_left = None
        self.recovered(resend)

    def recovered(self, resend: bool) -> None:
        """The shard has been opened again. The turn that was under way took effect, or it did not."""
        for _ in self.local.log.scan(0):
            pass  # no ledger is damaged, whatever was torn
        took_effect = any(True for _ in self.local.log.scan(self.durable_end))
        turn, self.turn = self.turn, []
        lasts = self._lasts()
        for asked in turn:
            message = asked.request.message
            if isinstance(message, Change) and not isinstance(asked.expected, Refusal):
                is_new = message.sequence > self.before.sessions[message.session].last
                if is_new and message.session in lasts:
                    done = lasts[message.session] >= message.sequence
                    assert done == took_effect, f"{message} took effect by half"
        if not took_effect:
            self.model = self.before
        self.model.now_ms = self.now_ms
        self.model.full = self.shard.full is not None
        self.durable_end = self.local.log.end
        self._read_memory()
        unanswered = [it for it in turn if it.client is not None]
        for asked in unanswered if resend else ():
            assert asked.client is not None
            self.send(asked.client, asked.request.message, asked.items)  # type: ignore[arg-type]
        self.end_turn()

    def _read_memory(self) -> None:
        state = self.shard.core.state
        self.model.forgot_memory(state.last_id, state.last_number, self._lasts())
        self.before = self.model

    def _lasts(self) -> dict[int, int]:
        return {it.id: it.last for it in self.shard.core.state.sessions.values()}

    def restart(self) -> None:
        """Stop as one should, and start again."""
        self.finish_flush()
        self.end_turn()
        self.local.close()
        self.open_shard()
        self.recovered(resend=False)

    # Housekeeping.

    def begin_flush(self) -> None:
        """A flush begins, in a thread of its own: what comes meanwhile need not be in it."""
        if self.flushing is None:
            self.shard.index.reach(self.local.log.end)
            contents = self.shard.index.store.contents  # type: ignore[attr-defined]
            self.flushing = (self.keeper._dead_ledgers(), self.shard.index.applied, contents)

    def finish_flush(self) -> None:
        """The flush is done; ledgers that were dead in it can go."""
        if self.flushing is None:
            return
        dead, applied, contents = self.flushing
        self.storage.database.step()
        self.storage.database.flushed(contents)
        self.flushing = None
        self.keeper._trim([it for it in dead if it < split_position(applied)[0]])

    def sweep(self, budget: int = 100) -> int:
        return self.shard.index.sweeper.sweep(self.now_ms, budget)

    def roll(self) -> None:
        self.local.log.roll(self.now_ms)

    def prepare(self) -> None:
        self.local.log.prepare()

    def relax(self) -> None:
        self.local.log.relax(self.now_ms)

    def compact(self) -> bool:
        self.begin_turn()
        return self.keeper._compactor.step()

    def tidy_up(self) -> None:
        """Remove what is dead, until only what lives is left."""
        while self.sweep() >= 100:
            pass
        self.prepare()
        self.roll()
        for _ in range(1000):
            if not self.compact():
                break
            self.end_turn()
        else:
            raise AssertionError("the compactor does not come to an end")
        self.prepare()
        self.roll()
        self.finish_flush()
        self.begin_flush()
        self.finish_flush()

    # What can be seen.

    def everything(self, stream: int, partitions: int, bytes_max: int = 1 << 22) -> list[Any]:
        """All that a reader gets of a stream: (partition, id, batches of items)."""
        wants = [Want(partition, 0) for partition in range(partitions)]
        request = self.read(Fetch(stream, wants, bytes_max))
        return unpacked(request)


def unpacked(request: SimulatedRequest) -> list[tuple[int, int, list[list[bytes]]]]:
    """What a `Fetch` brought, as items."""
    return [
        (partition, transaction, [[bytes(item) for item in Items(batch)] for batch in batches])
        for partition, transaction, batches in request.transactions()
    ]
