"""A transaction in the hands of a callback."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

from .delivery import Delivery

if TYPE_CHECKING:
    from .place import Place
    from .subscriber import Subscriber

_at_hand: ContextVar[Handling | None] = ContextVar("tstreams_at_hand", default=None)


class Handling:
    """One call of a callback. What is opened inside the call belongs to it: a group commits it together
    with the transaction that it was made from, and not before.
    """

    __slots__ = ("delivery", "dropped", "id", "place", "returned_as", "subscriber")

    def __init__(self, subscriber: Subscriber, place: Place, delivery: Delivery) -> None:
        self.subscriber = subscriber
        self.place = place
        self.id = delivery.id
        """The transaction's."""
        self.delivery: Delivery | None = delivery
        """The transaction, as long as the call is under way."""
        self.returned_as = 0
        """Which of all calls was the so-manieth to return; 0 before it has."""
        self.dropped = False
        """It failed, or its subscriber was rewound: what it made must not be committed."""

    @property
    def under_way(self) -> bool:
        """Whether the callback has not returned yet, nor failed."""
        return self.delivery is not None

    def end(self) -> None:
        """Let go of the transaction: what was opened in the call may outlive it, and remembers us."""
        self.delivery = None

    def enter(self) -> Token[Handling | None]:
        """The callback is called from here on."""
        return _at_hand.set(self)

    def leave(self, token: Token[Handling | None]) -> None:
        """The callback has ended."""
        _at_hand.reset(token)


def step_out() -> None:
    """What follows in this context is in no call: it was copied from code that may have been in one."""
    _at_hand.set(None)


def at_hand() -> Handling | None:
    """The call that this code runs in, if it runs in one.

    Tasks that a callback starts are in its call too. They may outlive it: what they open then shares the
    fate of the call, because it was made from the same transaction.
    """
    return _at_hand.get()
