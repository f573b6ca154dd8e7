"""Mistakes of the client: its sessions, producers, readers and groups."""

from __future__ import annotations

from typing import Any

from tests.simulation.system.mistakes import Patches, mistake
from tstreams.client.rules import reader
from tstreams.client.rules.cursor import Cursor
from tstreams.client.rules.draft import Draft
from tstreams.client.rules.parts import Part
from tstreams.client.rules.producer import Producer
from tstreams.client.rules.reader import Reader
from tstreams.client.rules.session import Session
from tstreams.client.rules.ticket import Ticket
from tstreams.errors import Unavailable
from tstreams.protocol import Commit, Done, ReadPosition, encode


@mistake("timeout-is-success", "G1", "a client takes a lost connection for an answer")
def _(patches: Patches) -> None:
    def end(original: Any, ticket: Any, parts: Any, error: Any) -> None:
        if isinstance(error, Unavailable) and ticket.session is not None:
            parts, error = (encode(Done(1)),), None
        original(ticket, parts, error)

    patches.around(Ticket, "_end", end)


@mistake("acknowledge-too-much", "G5", "a client says that it has answers which it has not")
def _(patches: Patches) -> None:
    def send(original: Any, session: Any, *arguments: Any, **options: Any) -> None:
        session.acked = max(session.acked, session._sequence)
        original(session, *arguments, **options)

    patches.around(Session, "send", send)


@mistake("offsets-first", "G4", "a group sends its offsets, and then its transactions")
def _(patches: Patches) -> None:
    def commit(original: Any, part: Any, others: Any = (), number: int = 0) -> Any:
        if part.moved and part.drafts:
            positions = [
                ReadPosition(it.seat.number, it.partition, it.transaction) for it in part.moved
            ]
            part.session.start(Commit, part.agents, [], positions)
            part.moved = []
        return original(part, others, number)

    patches.around(Part, "commit", commit)


@mistake("forget-the-expired", "G4", "a checkpoint of all leaves out what has expired unnoticed")
def _(patches: Patches) -> None:
    patches.around(Producer, "own_up", lambda original, producer, is_wanted: None)


@mistake("forget-failed-batch", "G2", "a checkpoint is sent although a batch was refused")
def _(patches: Patches) -> None:
    def settle(original: Any, draft: Any) -> Any:
        for ticket in tuple(draft._sends):
            if not ticket.ended:
                yield ticket

    patches.around(Draft, "settle", settle)
    patches.around(Draft, "_sent", lambda original, draft, ticket: None)


@mistake("old-answers", "G3", "a reader takes in answers from before it was rewound")
def _(patches: Patches) -> None:
    def absorb(original: Any, it: Any, ask: Any) -> Any:
        ask.epoch = it._epoch
        return original(it, ask)

    def start_anew(original: Any, it: Any) -> None:
        it._epoch += 1

    patches.around(Reader, "_absorb", absorb)
    patches.around(Reader, "_start_anew", start_anew)


@mistake("skip-after-resume", "G3", "a reader that resumes begins one too late")
def _(patches: Patches) -> None:
    def init(
        original: Any, it: Any, partition: int, next_id: int, position: Any, *rest: Any
    ) -> None:
        later = next_id + 2_000_000 if position else next_id
        original(it, partition, later, position, *rest)

    patches.around(Cursor, "__init__", init)


@mistake(
    "save-what-was-fetched", "G4", "a checkpoint saves what was fetched, not what was handed out"
)
def _(patches: Patches) -> None:
    def positions_of(original: Any, it: Any, marks: Any) -> Any:
        ahead = [(cursor, cursor.fetch_id, position) for cursor, _, position in marks]
        return original(it, ahead)

    patches.around(reader.Reader, "positions_of", positions_of)


@mistake("rewind-too-little", "G4", "after a cancel a reader goes on with what it has not read")
def _(patches: Patches) -> None:
    patches.around(Cursor, "rewind", lambda original, cursor: None)
