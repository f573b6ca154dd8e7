"""How a subscriber is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import BadRequest
from ...limits import SUBSCRIBER_ENGINES_MAX
from ...model import Offset
from .link import Link
from .reader import open_at
from .subscriber import Subscriber
from .ticket import Steps


def open_subscriber(
    link: Link,
    stream: str,
    name: str | None,
    start: Offset,
    resume: bool,
    partitions: Iterable[int] | None,
    engines: int,
    roams: bool | None = None,
) -> Steps[Subscriber]:
    """Make a subscriber: where it was checkpointed last, or at `start`. `roams`: see `Source`."""
    if isinstance(engines, bool) or not isinstance(engines, int):
        raise BadRequest(f"engines are a number, not {engines!r}")
    if not 1 <= engines <= SUBSCRIBER_ENGINES_MAX:
        raise BadRequest(f"a subscriber has 1 to {SUBSCRIBER_ENGINES_MAX} engines, not {engines}")
    agent, starts = yield from open_at(link, stream, name, start, resume, partitions)
    return Subscriber(agent, starts, engines, roams)


def check_callbacks(on_transaction: Any, on_failure: Any) -> None:
    """Refuse what cannot be called, before a name is taken for it."""
    if not callable(on_transaction):
        raise BadRequest(f"on_transaction is a function, not {on_transaction!r}")
    if on_failure is not None and not callable(on_failure):
        raise BadRequest(f"on_failure is a function, not {on_failure!r}")
