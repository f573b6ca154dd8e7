"""Commits that span shards: all but one prepare, and that one decides.

PREPARING --all have answered--> the decisive commit is sent --its answer--> it has happened, or it has not
          --one refused, or nobody waits--> given up: those that have prepared are told

If the answer of the decider does not come, nobody here knows; the shards find out among themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ...errors import Error, Unavailable
from ...limits import LEASE_MS_MAX, LEASE_MS_MIN
from ...protocol import Group, Settle
from .ending import named, refused
from .link import Link
from .parts import Part
from .session import Session
from .ticket import Steps, Ticket


def send(parts: Sequence[Part]) -> Steps[Ticket]:
    """Let all others prepare, side by side, and then send what decides; its answer is that of the whole.

    Whoever is interrupted before that, or is refused, has committed nothing, and all is open as before: what was
    prepared the servers give back, and what was new with it they drop. It is still here, and can be sent again.
    """
    decider = max(parts, key=lambda it: (it.weight, -it.shard))
    others = [part for part in parts if part is not decider]
    group = decider.session.name_group()
    lease_ms = patience_ms(decider.session.link)
    asked: dict[Part, Ticket] = {}
    try:
        for part in others:
            asked[part] = part.prepare(group, lease_ms)
        for ticket in asked.values():
            if not ticket.ended:
                yield ticket
        _check(asked)
        ticket = decider.commit([part.shard for part in others], group.number)
    except BaseException:
        for part in parts:
            _give_up(group, part, asked.get(part))
        raise
    ticket.add_callback(partial(_decided, group, [part.session for part in others]))
    return ticket


def patience_ms(link: Link) -> int:
    """How long a shard that has prepared waits until it asks what has become of the rest: as long as this
    client may try to reach the others."""
    return max(LEASE_MS_MIN, min(int(link.timeout_s * 1000), LEASE_MS_MAX))


def settle(link: Link, group: Group, session: Session) -> None:
    """Tell a shard that may have prepared that the group will not be. If that gets lost, it asks."""
    with suppress(Error):
        link.ask(Settle(session.id, group), shard=session.shard)


def settle_asked(link: Link, group: Group, session: Session, asked: Ticket | None) -> None:
    """The same for a shard that was asked to prepare, whether it has answered or not. What it was asked may wait there for
    something else, and be prepared when we have given up: then it is told once more."""
    settle(link, group, session)
    if asked is not None and not asked.ended:
        asked.add_callback(partial(_settle_late, link, group, session))


def _settle_late(link: Link, group: Group, session: Session, asked: Ticket) -> None:
    if asked.error is None or isinstance(asked.error, Unavailable):
        settle(link, group, session)


def _check(asked: dict[Part, Ticket]) -> None:
    """Raise why one has not prepared. A refusal says more than an answer that did not come."""
    failed = [(ticket.error, part) for part, ticket in asked.items() if ticket.error is not None]
    failed.sort(key=lambda it: isinstance(it[0], Unavailable))
    for error, part in failed:
        raise named(error, part.drafts)


def _give_up(group: Group, part: Part, ticket: Ticket | None) -> None:
    """There will be no commit: what has become of a part of it?"""
    if ticket is None:  # it was not asked, or was to decide
        part.drop()
    elif ticket.ended and ticket.error is not None and not isinstance(ticket.error, Unavailable):
        refused(part.drafts, ticket.error, part.shard)
    else:  # it is prepared, or may be: until it is given back, whoever wants something of it has to wait
        settle_asked(part.session.link, group, part.session, ticket)
        for draft in part.drafts:
            draft.unseal()


def _decided(group: Group, others: list[Session], ticket: Ticket) -> None:
    """The decider has answered. If it has committed, it tells the others itself."""
    if ticket.error is not None and not isinstance(ticket.error, Unavailable):
        for session in others:
            settle(session.link, group, session)
