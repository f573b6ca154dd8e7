"""Who waits until a group that is under way is confirmed, in the order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from moebius import LATER, Request
from moebius.errors import Error as WireError

from ..errors import Unavailable
from ..limits import TURN_WAITING_BYTES_MAX, TURN_WAITING_MAX
from .kin import Caller
from .wire import wire_error


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """How much waits."""

    requests: int
    bytes: int


class Line:
    """Requests, and calls that nobody waits for, until it is their turn."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._waiting: deque[tuple[Request | Caller | None, Callable[[], object], int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def statistics(self) -> LineStatistics:
        """How much waits now."""
        return LineStatistics(len(self._waiting), self._bytes)

    def add(self, request: Request | Caller, again: Callable[[], object], size: int) -> None:
        """A request waits; `again` hands it in. `Unavailable` if too many do."""
        if len(self._waiting) >= TURN_WAITING_MAX or self._bytes + size > TURN_WAITING_BYTES_MAX:
            raise wire_error(
                Unavailable(
                    f"shard {self._number}: {len(self._waiting)} requests wait for the log already"
                )
            )
        self._waiting.append((request, again, size))
        self._bytes += size

    def add_call(self, call: Callable[[], object], *, first: bool = False) -> None:
        """Something of our own waits."""
        if first:
            self._waiting.appendleft((None, call, 0))
        else:
            self._waiting.append((None, call, 0))

    def let_in(self, is_open: Callable[[], bool]) -> None:
        """Hand in one after the other, as long as that is allowed."""
        while self._waiting and is_open():
            request, again, size = self._waiting.popleft()
            self._bytes -= size
            if request is None:
                again()
                continue
            try:
                result = again()
            except WireError as error:
                request.fail(error)
            else:
                if result is not LATER:
                    request.answer(result)
                    request.client.flush()
