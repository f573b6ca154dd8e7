"""What has become of transactions whose checkpoint was refused, or is in doubt."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import Error, Expired, Fenced, InvalidState, NotFound, Unavailable
from ...model import TransactionState
from .draft import Draft
from .failures import is_session_end, transaction_in


def refused(
    drafts: Sequence[Draft], error: BaseException, shard: int | None = None, sent: bool = False
) -> None:
    """A checkpoint of transactions failed. `shard`: where, if there are several: ids are unique in one only."""
    if not isinstance(error, Error) or isinstance(error, Unavailable):
        for draft in drafts:
            draft.doubt() if sent else draft.unseal()
        return
    if is_session_end(error):
        for draft in drafts:
            draft.close(TransactionState.INVALID)
    elif isinstance(error, Fenced | NotFound):
        for draft in drafts:
            if _has_ended(draft, error, shard):
                draft.close(TransactionState.CANCELLED)
            else:
                draft.unseal()
    else:
        is_only = len(drafts) == 1 and shard is None
        for draft in drafts:
            draft.unseal()
            if is_only or _is_about(error, draft, shard):
                if isinstance(error, Expired):
                    draft.close(TransactionState.INVALID)
                elif isinstance(error, InvalidState):
                    draft.vanished()


def refused_by(shard: int, drafts: Sequence[Draft], error: BaseException) -> None:
    """A commit was sent to this shard, and failed. If it was refused, what had been prepared in other shards is open
    there as before, and what was new with it is still to be sent."""
    here = [it for it in drafts if it.seat.shard == shard]
    others = [it for it in drafts if it.seat.shard != shard]
    refused(here, error, shard if others else None, sent=True)
    if not isinstance(error, Error) or isinstance(error, Unavailable):
        refused(others, error, sent=True)
    else:
        for draft in others:
            draft.unseal()


def named(error: Error, drafts: Sequence[Draft]) -> Error:
    """An error of the shard of these transactions, with the producer of the one that it is about: ids are
    unique in a shard only, so nobody could find that out later."""
    for draft in drafts:
        title = draft.producer.agent.title
        if _is_about(error, draft) and not error.message.startswith(title):
            return type(error)(f"{title}: {error.message}")
    return error


def _has_ended(draft: Draft, error: Error, shard: int | None) -> bool:
    """Whether a transaction ended when its producer lost its name or its stream."""
    title = draft.producer.agent.title
    return error.message.startswith(title) or _is_about(error, draft, shard)


def _is_about(error: Error, draft: Draft, shard: int | None = None) -> bool:
    """Whether an error, of this shard if one is given, names a transaction."""
    return draft.id == transaction_in(error) and shard in (None, draft.seat.shard)
