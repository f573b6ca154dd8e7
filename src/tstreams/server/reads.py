"""What readers ask: visible transactions, now or when there are some."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import msgspec

from moebius import Request
from moebius.errors import Error as WireError

from ..core.transitions import WHOLE_STREAM
from ..errors import Error, TooLarge
from ..items import Buffer
from ..limits import FETCH_WAIT_MS_MAX, FETCH_WANTS_MAX, WAITING_FETCHES_MAX
from ..protocol import Fetch, FetchLast, StretchInfo, Survey, Want
from .visible import Chosen, Visible, go_as_parts, go_in_pieces
from .waiters import Again, Waiter, Waiters
from .wire import wire_error


class Reads:
    """Answers readers, at once or when there is something. The same times hold as for `Visible`."""

    def __init__(self, visible: Visible) -> None:
        self._visible = visible
        self._waiters = Waiters()
        self._last_waiter = 0

    @property
    def waiting(self) -> int:
        """Readers that wait."""
        return len(self._waiters)

    def fetch(self, now_ms: int, request: Request, fetch: Fetch, again: Again) -> None:
        """Answer, or wait for something to answer with. When the time of one that waits is over it is asked `again`, the
        way it came, without waiting: what was decided meanwhile may be under way to the log, or another may lead."""
        begun_ns = time.perf_counter_ns()
        _check_wants(fetch.wants)
        self._visible.check_replaced(fetch.stream)
        found = self._collect(now_ms, fetch, fetch.wants)
        if found or not fetch.wait_ms or not fetch.wants:
            if not found:
                self._visible.check_settled(fetch.stream, fetch.wants)
            self._answer(request, fetch.stream, found)
            if found:
                self._visible.metrics.read_seconds.add(time.perf_counter_ns() - begun_ns)
            return
        if len(self._waiters) >= WAITING_FETCHES_MAX:
            raise TooLarge(f"{len(self._waiters)} readers wait already")
        self._last_waiter += 1
        number, wait_s = self._last_waiter, min(fetch.wait_ms, FETCH_WAIT_MS_MAX) / 1000
        timer = request.client.loop.call_later(wait_s, self._give_up, number)
        self._waiters.add(Waiter(number, request, fetch, timer, again))

    def last(self, now_ms: int, request: FetchLast) -> tuple[Buffer, ...]:
        """The last visible transaction."""
        found = self._visible.last(now_ms, request.stream, request.partition, request.bytes_max)
        return self._visible.pack_for(request.stream, found)

    def survey(self, now_ms: int, survey: Survey) -> list[StretchInfo]:
        """How far can be read, and how much that is."""
        _check_wants(survey.wants)
        return self._visible.survey(now_ms, survey)

    def wake(self, now_ms: int) -> None:
        """Look again at the partitions in which something may have become visible."""
        if not self._waiters:
            return
        for waiter, partitions in self._waiters.concerned(self._visible.stirred()):
            self._look_again(now_ms, waiter, partitions)

    def end_waits(self, error: Error | None = None) -> None:
        """Answer all that wait: with nothing, or with this."""
        for waiter in self._waiters.all():
            request = self._dismiss(waiter)
            if error is None:
                request.answer(self._visible.pack([]))
            else:
                request.fail(wire_error(error))

    # Inside.

    def _collect(self, now_ms: int, fetch: Fetch, wants: list[Want]) -> list[Chosen]:
        shares = len(fetch.wants)
        return self._visible.collect(now_ms, fetch.stream, wants, fetch.bytes_max, shares)[0]

    def _answer(self, request: Request, stream_id: int, found: list[Chosen]) -> None:
        if not found:
            request.answer(self._visible.pack(found))
            return
        found, head, batches = self._visible.pack_apart(found)
        self._visible.metrics.read(stream_id, found, sum(map(len, batches)))
        if go_as_parts(batches, len(found)):
            request.answer((head, *batches))
        elif go_in_pieces(batches):
            request.answer_in_pieces(head, batches)
        else:
            request.answer((head, b"".join(batches)))

    def _look_again(self, now_ms: int, waiter: Waiter, partitions: Collection[int]) -> None:
        if waiter.request.client.gone:
            self._dismiss(waiter).answer()
            return
        everything = WHOLE_STREAM in partitions
        wants = [it for it in waiter.fetch.wants if everything or it.partition in partitions]
        try:
            found = self._collect(now_ms, waiter.fetch, wants) if wants else []
            answer = self._visible.pack_for(waiter.fetch.stream, found) if found else None
        except Error as error:
            self._dismiss(waiter).fail(wire_error(error))
            return
        if answer is not None:
            request = self._dismiss(waiter)
            request.answer(answer)
            request.client.flush()  # it has waited long enough

    def _give_up(self, number: int) -> None:
        waiter = self._waiters.get(number)
        if waiter is None:
            return
        request = self._dismiss(waiter)
        try:
            waiter.again(request, msgspec.structs.replace(waiter.fetch, wait_ms=0))
        except WireError as error:
            request.fail(error)

    def _dismiss(self, waiter: Waiter) -> Request:
        self._waiters.remove(waiter)
        waiter.timer.cancel()
        return waiter.request


def _check_wants(wants: Sequence[object]) -> None:
    if len(wants) > FETCH_WANTS_MAX:
        raise TooLarge(f"{len(wants)} partitions in one request are over {FETCH_WANTS_MAX}")
