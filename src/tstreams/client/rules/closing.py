"""How transactions end: checkpoints and cancels, of one or of many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...errors import Error, Expired, Fenced, InvalidState, NotFound, Unavailable
from ...limits import COMMIT_BROUGHT_MAX
from ...model import TransactionState
from ...protocol import Brought, CancelTransactions, Commit, Done, ReadPosition
from .draft import Draft
from .failures import is_session_end, transaction_in
from .session import Session
from .ticket import Steps, Ticket, answer
from .turns import Hold, Turns


def prepare(drafts: Sequence[Draft]) -> Steps[None]:
    """Before a checkpoint of sealed transactions: send what was gathered. If it is little it is only made
    ready, and comes along with the commit: one round trip, and one sync, for all of it."""
    try:
        for number, draft in enumerate(drafts):
            yield from draft.finish(may_bring=number < COMMIT_BROUGHT_MAX)
        yield from _take_room(drafts)
    except BaseException as error:
        _refused(drafts, error)
        raise


def _take_room(drafts: Sequence[Draft]) -> Steps[None]:
    """Room in the window for what comes along, for all of it at once: of those who held some and waited for
    more nobody might get it."""
    bringing = [(draft, len(draft.last)) for draft in drafts if draft.last is not None]
    if not bringing:
        return
    link = bringing[0][0].producer.agent.session.link
    size = sum(it for _, it in bringing)
    if not link.window.enter(size):
        yield from link.window.wait(size, link.timeout_s)
    link.window.split(len(bringing))
    for draft, it in bringing:
        draft.give_room(it)


def commit(
    session: Session, turns: Sequence[Turns], agents: list[int], drafts: Sequence[Draft]
) -> Steps[None]:
    """Checkpoint prepared transactions, all or nothing."""
    ticket = yield from send(session, turns, agents, drafts)
    yield from conclude(ticket, drafts)


def send(
    session: Session,
    turns: Sequence[Turns],
    agents: list[int],
    drafts: Sequence[Draft],
    positions: Sequence[ReadPosition] = (),
) -> Steps[Ticket]:
    """The first half of a commit of prepared transactions and readers' positions: it is on its way.

    Nothing is checkpointed before all its batches have arrived. What the producers begin meanwhile waits
    for its turn, so that things take effect in the order in which they were asked for. Whoever is
    interrupted in here leaves the transactions open.
    """
    hold = Hold()
    try:
        try:
            for turn in turns:
                yield from hold.enter(turn)
            for draft in drafts:
                yield from draft.settle()
            bringing = [draft for draft in drafts if draft.last is not None]
            return _send(session, agents, drafts, bringing, list(positions))
        finally:
            hold.leave()
    except BaseException as error:
        _refused(drafts, error)
        raise


def conclude(
    ticket: Ticket, drafts: Sequence[Draft], on_saved: Callable[[], None] = lambda: None
) -> Steps[None]:
    """The second half: the answer ends the transactions, also if whoever waits for it is interrupted.

    `on_saved` is called if it worked.
    """
    try:
        yield from answer(ticket, Done)
    except Error as error:
        _refused(drafts, error, sent=True)
        raise
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


def _send(
    session: Session,
    agents: list[int],
    drafts: Sequence[Draft],
    bringing: list[Draft],
    positions: list[ReadPosition],
) -> Ticket:
    ids = [draft.id for draft in drafts if draft.id]
    if not bringing:
        return session.start(Commit, agents, ids, positions)
    brought = [Brought(it.producer.agent.id, it.partition, it.id) for it in bringing]
    batches = tuple(it.hand_over() for it in bringing)
    session.link.window.join(len(batches))
    return session.start_commit(agents, ids, positions, brought, batches=batches)


def _answered(drafts: Sequence[Draft], on_saved: Callable[[], None], ticket: Ticket) -> None:
    """The answer to a commit for which nobody waits any more."""
    if ticket.error is not None:
        _refused(drafts, ticket.error, sent=True)
    else:
        _worked(drafts, on_saved)


def _worked(drafts: Sequence[Draft], on_saved: Callable[[], None]) -> None:
    for draft in drafts:
        draft.checkpointed()
    on_saved()


def _refused(drafts: Sequence[Draft], error: BaseException, sent: bool = False) -> None:
    """A checkpoint failed: what has become of its transactions?"""
    if not isinstance(error, Error) or isinstance(error, Unavailable):
        for draft in drafts:
            draft.doubt() if sent else draft.unseal()
        return
    if is_session_end(error):
        for draft in drafts:
            draft.close(TransactionState.INVALID)
    elif isinstance(error, Fenced | NotFound):
        for draft in drafts:
            if _has_ended(draft, error):
                draft.close(TransactionState.CANCELLED)
            else:
                draft.unseal()
    else:
        guilty = drafts[0].id if len(drafts) == 1 else transaction_in(error)
        for draft in drafts:
            draft.unseal()
            if draft.id == guilty and isinstance(error, Expired):
                draft.close(TransactionState.INVALID)
            elif draft.id == guilty and isinstance(error, InvalidState):
                draft.vanished()


def _has_ended(draft: Draft, error: Error) -> bool:
    """Whether a transaction ended when its producer lost its name or its stream."""
    return error.message.startswith(draft.producer.agent.title) or draft.id == transaction_in(error)


def cancel(session: Session, agent: int, drafts: Sequence[Draft]) -> Steps[None]:
    """Drop sealed transactions. Of many, those that have expired meanwhile are no error."""
    try:
        yield from _cancel(session, agent, drafts)
    except InvalidState as error:
        if len(drafts) == 1 or is_session_end(error):
            raise
        for draft in drafts:
            if draft.state is TransactionState.OPENED:
                try:
                    yield from _cancel(session, agent, [draft])
                except InvalidState:
                    continue  # it has ended, which is what was asked for


def _cancel(session: Session, agent: int, drafts: Sequence[Draft]) -> Steps[None]:
    try:
        ids = [draft.id for draft in drafts if draft.id]
        if ids:
            yield from answer(session.start(CancelTransactions, [agent], ids), Done)
    except BaseException as error:
        _refused(drafts, error)
        raise
    for draft in drafts:
        draft.close(TransactionState.CANCELLED)
