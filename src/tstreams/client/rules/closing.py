"""How transactions end: checkpoints and cancels, of one or of many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...errors import Error, InvalidState
from ...limits import COMMIT_BROUGHT_MAX
from ...model import TransactionState
from ...protocol import CancelTransactions, Done
from . import spanning
from .agent import Agent, Seat
from .draft import Draft
from .ending import named, refused, refused_by
from .failures import is_session_end
from .parts import Moved, split
from .ticket import Steps, Ticket, answer
from .turns import Hold, Turns


def prepare(drafts: Sequence[Draft]) -> Steps[None]:
    """Before a checkpoint of sealed transactions: send what was gathered. If it is little it is only made
    ready, and comes along with the commit: one round trip, and one sync, for all of it."""
    at: Draft | None = None
    try:
        for number, at in enumerate(drafts):
            yield from at.finish(may_bring=number < COMMIT_BROUGHT_MAX)
        at = None
        yield from _take_room(drafts)
    except BaseException as error:
        if (failure := _stop(drafts, error, at)) is not error:
            raise failure from error
        raise


def _stop(drafts: Sequence[Draft], error: BaseException, at: Draft | None) -> BaseException:
    """A checkpoint failed before it was sent, at one of its transactions; the error to be told of."""
    if at is None or not isinstance(error, Error):
        refused(drafts, error)
        return error
    shard = at.seat.shard
    if all(draft.seat.shard == shard for draft in drafts):
        refused(drafts, error)
        return error
    refused(drafts, error, shard)
    return named(error, [at])


def _take_room(drafts: Sequence[Draft]) -> Steps[None]:
    """Room in the window for what comes along, for all of it at once: of those who held some and waited for
    more nobody might get it."""
    bringing = [(draft, len(draft.last)) for draft in drafts if draft.last is not None]
    if not bringing:
        return
    link = bringing[0][0].producer.agent.link
    size = sum(it for _, it in bringing)
    if not link.window.enter(size):
        yield from link.window.wait(size, link.timeout_s)
    link.window.split(len(bringing))
    for draft, it in bringing:
        draft.give_room(it)


def commit(turns: Sequence[Turns], agents: Sequence[Agent], drafts: Sequence[Draft]) -> Steps[None]:
    """Checkpoint prepared transactions, all or nothing."""
    ticket = yield from send(turns, agents, drafts)
    yield from conclude(ticket, drafts)


def send(
    turns: Sequence[Turns],
    agents: Sequence[Agent],
    drafts: Sequence[Draft],
    moved: Sequence[Moved] = (),
) -> Steps[Ticket]:
    """The first half of a commit of prepared transactions and readers' positions: it is on its way.

    Nothing is checkpointed before all its batches have arrived. What the producers begin meanwhile waits
    for its turn, so that things take effect in the order in which they were asked for. Whoever is
    interrupted in here leaves the transactions open; if they are in several shards, some may be cancelled.
    """
    hold = Hold()
    at: Draft | None = None
    try:
        try:
            for turn in turns:
                yield from hold.enter(turn)
            for at in drafts:
                yield from at.settle()
            at = None
            parts = split(agents, drafts, moved)
            if len(parts) == 1:
                return parts[0].commit()
        except BaseException as error:
            if (failure := _stop(drafts, error, at)) is not error:
                raise failure from error
            raise
        return (yield from spanning.send(parts))
    finally:
        hold.leave()


def conclude(
    ticket: Ticket, drafts: Sequence[Draft], on_saved: Callable[[], None] = lambda: None
) -> Steps[None]:
    """The second half: the answer ends the transactions, also if whoever waits for it is interrupted.

    `on_saved` is called if it worked.
    """
    try:
        yield from answer(ticket, Done)
    except Error as error:
        failure = failure_of(ticket, drafts, error)
        _failed(ticket, drafts, error)
        if failure is error:
            raise
        raise failure from error
    except BaseException:
        entrust(drafts, ticket, on_saved)
        raise
    _worked(drafts, on_saved)


def entrust(
    drafts: Sequence[Draft], ticket: Ticket, on_saved: Callable[[], None] = lambda: None
) -> None:
    """Nobody waits for this commit: its answer ends the transactions."""
    for draft in drafts:
        draft.entrust()
    ticket.add_callback(partial(_answered, drafts, on_saved))


def failure_of(ticket: Ticket, drafts: Sequence[Draft], error: Error) -> Error:
    """The error of a commit. If it spans shards it says which producer it is about."""
    here = _at(ticket, drafts)
    return error if len(here) == len(drafts) else named(error, here)


def _at(ticket: Ticket, drafts: Sequence[Draft]) -> list[Draft]:
    """Those in the shard that a commit was sent to."""
    assert ticket.session is not None
    return [draft for draft in drafts if draft.seat.shard == ticket.session.shard]


def _answered(drafts: Sequence[Draft], on_saved: Callable[[], None], ticket: Ticket) -> None:
    """The answer to a commit for which nobody waits any more."""
    if ticket.error is not None:
        _failed(ticket, drafts, ticket.error)
    else:
        _worked(drafts, on_saved)


def _failed(ticket: Ticket, drafts: Sequence[Draft], error: Error) -> None:
    assert ticket.session is not None
    refused_by(ticket.session.shard, drafts, error)


def _worked(drafts: Sequence[Draft], on_saved: Callable[[], None]) -> None:
    for draft in drafts:
        draft.checkpointed()
    on_saved()


def cancel(drafts: Sequence[Draft]) -> Steps[None]:
    """Drop sealed transactions of one producer. Of many, those that have expired meanwhile are no error.

    Shards are asked one after the other. All of them are; the first thing that failed is raised then.
    """
    by_seat: dict[Seat, list[Draft]] = {}
    for draft in drafts:
        by_seat.setdefault(draft.seat, []).append(draft)
    failure: Error | None = None
    try:
        for seat, some in by_seat.items():
            try:
                yield from _cancel_here(seat, some, is_only=len(drafts) == 1)
            except Error as error:
                failure = failure or error
    except BaseException as error:
        refused(drafts, error)
        raise
    if failure is not None:
        raise failure


def _cancel_here(seat: Seat, drafts: Sequence[Draft], is_only: bool) -> Steps[None]:
    try:
        yield from _cancel(seat, drafts)
    except InvalidState as error:
        if is_only or is_session_end(error):
            raise
        for draft in drafts:
            if draft.state is TransactionState.OPENED:
                try:
                    yield from _cancel(seat, [draft])
                except InvalidState:
                    continue  # it has ended, which is what was asked for


def _cancel(seat: Seat, drafts: Sequence[Draft]) -> Steps[None]:
    try:
        ids = [draft.id for draft in drafts if draft.id]
        if ids:
            ticket = seat.session.start(CancelTransactions, [seat.number], ids)
            yield from answer(ticket, Done)
    except BaseException as error:
        refused(drafts, error)
        raise
    for draft in drafts:
        draft.close(TransactionState.CANCELLED)
