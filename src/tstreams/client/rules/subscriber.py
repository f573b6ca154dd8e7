"""What a subscriber does: takes what the server pushes, and hands it to engines, each partition in order.

STOPPED --start--> RUNNING --stop, or a failure for good--> STOPPING --engines have ended--> STOPPED
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial

from ...errors import BadRequest, Error, Fenced, InvalidState
from ...limits import CLIENT_CLOSE_TIMEOUT_S, SUBSCRIBER_LAG_BYTES, SUBSCRIBER_WINDOW_BYTES
from . import closing
from .agent import Agent
from .cursor import Start
from .delivery import Source
from .handling import Handling
from .inflow import Inflow
from .partitioning import check_partition
from .parts import Moved
from .place import Mark, Places, wants_of
from .ticket import AnyOf, Steps, Ticket
from .turns import Hold, Turns


class Run(Enum):
    """What a subscriber is doing."""

    STOPPED = "stopped"
    RUNNING = "running"
    STOPPING = "stopping"


_RUNNING = Run.RUNNING
"""Bound once: looking up a member of an enum costs as much as a call."""

_NEVER = float("inf")


class Subscriber:
    """Hands the transactions of a stream to engines.

    An engine is whatever calls callbacks: a thread or a task. It calls `take`, the callback, and then
    `returned` or `failed`, again and again, and `engine_ended` when `take` gave None or raised.

    Invariants: a place's `next_id` moves only when a callback returned. `_fatal` is raised to one engine,
    once. A ticket in `_idle` belongs to an engine that waits, or is about to look once more.
    """

    def __init__(
        self, agent: Agent, starts: list[Start], engines: int, roams: bool | None = None
    ) -> None:
        self.agent = agent
        self.engines = engines
        self.saving = Turns()
        self.inside: Callable[[], bool] = lambda: False
        """Whether an engine asks: it cannot wait for its own end. For the face to say."""
        self._lock = threading.Lock()
        self._places = Places(starts)
        self._inflows = self._make_inflows(roams)
        self._handlings: set[Handling] = set()
        self._idle: deque[Ticket] = deque()
        self._run = Run.STOPPED
        self._alive = 0
        self._ended = Ticket()
        self._ended.end()
        self._doom: Error | None = None
        self._fatal: Error | None = None
        self._told = False
        self._ended_by_itself = False
        self._returns = 0

    def _make_inflows(self, roams: bool | None) -> list[Inflow]:
        """One for each shard. They share the window."""
        agent, places = self.agent, self._places.by_partition
        source = Source(agent.link, agent.stream, agent.stream_id, agent.name, roams)
        by_shard = source.by_shard(places)
        window_bytes = SUBSCRIBER_WINDOW_BYTES // len(by_shard)
        inflows = []
        for partitions in by_shard.values():
            mine, seat = [places[it] for it in partitions], agent.seat_of(partitions[0])
            inflow = Inflow(source, agent, seat, mine, window_bytes, self._stir)
            for place in mine:
                place.inflow = inflow
            inflows.append(inflow)
        return inflows

    # Starting and stopping.

    def start(self) -> Steps[None]:
        """Begin where callbacks have returned. Partitions that had failed try again."""
        self.agent.check()
        self._check_stopped()
        # The answer to an interrupted checkpoint may say that more has been done.
        yield from self.saving.enter()
        self.saving.leave()
        with self._lock:
            self._check_stopped()
            self._run = _RUNNING
            self._doom = self._fatal = None
            self._told = self._ended_by_itself = False
            self._alive, self._ended = self.engines, Ticket()
            for inflow in self._inflows:
                inflow.held = 0
                inflow.begins_at = 0.0
            self._places.restart()

    def _check_stopped(self) -> None:
        if self._run is not Run.STOPPED:
            raise InvalidState(f"{self.agent.title} is {self._run.value}: it cannot be started")

    def stop(self) -> Steps[None]:
        """Hand out nothing more, and wait for the callbacks to return; an engine does not wait."""
        self._check_here()
        with self._lock:
            if self._run is _RUNNING:
                self._finish()
            elif not self._ended_by_itself:
                raise InvalidState(f"{self.agent.title} is {self._run.value}, it cannot be stopped")
            self._ended_by_itself = False
        self._wake_all()
        yield from self.wait(None)

    def wind_down(self) -> None:
        """Hand out nothing more, if it runs."""
        with self._lock:
            if self._run is _RUNNING:
                self._finish()
        self._wake_all()

    def wait(self, timeout_s: float | None) -> Steps[bool]:
        """Wait until no engine runs. Whether it is so."""
        self._check_here()
        ended = self._ended
        if not ended.ended and not self.inside():
            yield AnyOf((ended,), timeout_s)
        return ended.ended

    def close(self, until: float | None = None) -> Steps[None]:
        """Stop, and give the name back."""
        if self.agent.closed:
            return
        until = until or time.monotonic() + CLIENT_CLOSE_TIMEOUT_S
        self.wind_down()
        yield from self.wait(max(0.0, until - time.monotonic()))
        self.agent.closed = True
        yield from self.agent.leave(until)

    def _check_here(self) -> None:
        """The engines are not in a child process: nobody would wake who waits for them there."""
        if self.agent.is_foreign:
            self.agent.check()

    @property
    def run(self) -> Run:
        """What it is doing."""
        return self._run

    def _finish(self) -> None:
        self._run = Run.STOPPING
        for inflow in self._inflows:
            inflow.cancel()

    # For engines.

    def try_take(self) -> Handling | None:
        """The next transaction, if one is here."""
        with self._lock:
            self._tend()
            places = self._places
            if self._run is not _RUNNING or not places.line:
                return None
            place = places.line.popleft()
            place.ready = False
            delivery, cost = place.queue.popleft()
            place.inflow.release(cost)
            handling = place.at_hand = Handling(self, place, delivery)
            self._handlings.add(handling)
        if places.line:
            self._stir()
        return handling

    def take(self) -> Steps[Handling | None]:
        """The next transaction; None when there will be no more, and the reason, to one engine only."""
        while True:
            if (handling := self.try_take()) is not None:
                return handling
            with self._lock:
                if self._fatal is not None and not self._told:
                    self._told = True
                    raise self._fatal
                if self._run is not _RUNNING:
                    return None
                self._relieve()
                wait_s = self._retry_s()
            ticket = Ticket()
            self._idle.append(ticket)
            try:
                # Whoever brings news after this look wakes us; what came before it is seen here.
                if not self._places.line and not self._has_news() and self._run is _RUNNING:
                    yield AnyOf((ticket,), wait_s)
            except BaseException:
                if ticket.ended:
                    self._stir()  # what this engine was woken for, another one must see
                raise
            finally:
                if not ticket.ended:
                    with suppress(ValueError):  # somebody is just about to wake it
                        self._idle.remove(ticket)

    def returned(self, handling: Handling) -> None:
        """The callback has returned: a checkpoint covers it from now on."""
        place = handling.place
        with self._lock:
            self._release(handling)
            if not handling.dropped:
                self._returns += 1
                handling.returned_as = self._returns
                place.advance(handling.id)
            if place.lagging and not place.queue:
                place.lagging = False
                place.inflow.stale = True  # it can keep up again

    def failed(self, handling: Handling, error: BaseException) -> bool:
        """The callback raised: its partition stops. Whether its user should be told now."""
        place = handling.place
        with self._lock:
            self._release(handling)
            handling.dropped = True
            if self._is_fatal(error):  # the engines will be told of it, one of them
                return False
            place.failure = error
            place.next_id = max(place.next_id, place.rewind_id)  # a group may have covered it
            place.inflow.release(place.clear(place.next_id))
            self._places.step_out(place)
            return True

    def _is_fatal(self, error: BaseException) -> bool:
        """Whether a callback let through what ends this subscriber: several of them may, at once."""
        fatal = self._fatal
        return fatal is not None and type(error) is type(fatal) and error.args == fatal.args

    def engine_ended(self) -> None:
        """An engine calls no more, and neither should the others."""
        with self._lock:
            self._alive -= 1
            if self._run is _RUNNING:  # it was interrupted
                self._ended_by_itself = True
                self._finish()
            if is_last := not self._alive:
                self._run = Run.STOPPED
        self._wake_all()
        if is_last:
            self._ended.end()

    def _release(self, handling: Handling) -> None:
        place = handling.place
        handling.end()
        self._handlings.discard(handling)
        place.at_hand = None
        self._places.line_up(place)

    # What comes.

    def _tend(self) -> None:
        """Take in what has come, and ask for more where that has ended."""
        if self._run is not _RUNNING:
            return
        for inflow in self._inflows:
            feed = inflow.feed
            if feed is not None and feed.arrived:
                places = self._places
                for delivery, cost in inflow.receive():
                    place = places.by_partition[delivery.entry.partition]
                    if place.failure is not None or place.lagging or delivery.id < place.fetch_id:
                        inflow.release(cost)
                        inflow.wasted += cost
                        continue
                    places.put(place, delivery, cost)
            if feed is not None and feed.failure is not None:
                self._doom = inflow.failure() or self._doom
        if self._doom is not None:
            # Who is fenced stops at once; else what came before the end is still handed out.
            if isinstance(self._doom, Fenced) or not self._has_queued():
                self._end_by(self._doom)
            return
        for inflow in self._inflows:
            if inflow.wasted > inflow.window_bytes:
                inflow.stale = True
            if inflow.stale or (inflow.feed is None and time.monotonic() >= inflow.begins_at):
                _subscribe(inflow)

    def _has_news(self) -> bool:
        return any(inflow.has_news for inflow in self._inflows)

    def _has_queued(self) -> bool:
        return bool(self._places.line) or any(it.place.queue for it in self._handlings)

    def _retry_s(self) -> float | None:
        """When to look again without having been woken."""
        begins_at = min(
            (inflow.begins_at for inflow in self._inflows if inflow.feed is None), default=_NEVER
        )
        if self._doom is not None or begins_at == _NEVER:
            return None
        return max(0.0, begins_at - time.monotonic())

    def _relieve(self) -> None:
        """Slow callbacks must not take all the room while an engine has nothing to do."""
        if self._places.line:
            return
        for inflow in self._inflows:
            if inflow.is_full:
                for handling in self._handlings:
                    place = handling.place
                    if place.queue and place.inflow is inflow:
                        inflow.forget(place.lag(SUBSCRIBER_LAG_BYTES))
                _subscribe(inflow)

    def _end_by(self, error: Error) -> None:
        """It cannot go on."""
        if self._run is _RUNNING:
            self._fatal = error
            self._ended_by_itself = True
            self._finish()

    def _stir(self) -> None:
        """Wake an engine. Comes from the connection too, which must not wait for a lock."""
        try:
            ticket = self._idle.popleft()
        except IndexError:
            return
        ticket.end()

    def _wake_all(self) -> None:
        while self._idle:
            self._stir()

    # Positions.

    def look(self, at_hand: Handling | None = None) -> tuple[list[Mark], int]:
        """What a checkpoint has to save, and how many callbacks had returned then.

        `at_hand`: a call that is still under way, and counts as if it had returned.
        """
        with self._lock:
            return self._places.marks(at_hand), self._returns

    def positions_of(self, marks: list[Mark]) -> list[Moved]:
        """The same, for the server: the last id that is not wanted again."""
        return [
            Moved(self.agent.seat_of(place.partition), place.partition, max(0, next_id - 1))
            for place, next_id, _ in marks
        ]

    def saved(self, marks: list[Mark]) -> None:
        """A checkpoint has worked."""
        with self._lock:
            for place, next_id, position in marks:
                place.saved(next_id, position)

    def checkpoint(self) -> Steps[None]:
        """Save durably for which transactions the callbacks have returned."""
        self.agent.check()
        hold = Hold()
        try:
            yield from hold.enter(self.saving)
            marks, _ = self.look()
            ticket = yield from closing.send((), [self.agent], (), self.positions_of(marks))
            hold.until(ticket)
            yield from closing.conclude(ticket, (), partial(self.saved, marks))
        except Fenced as error:
            self.fenced(error)
            raise
        finally:
            hold.leave()

    def fenced(self, error: Error) -> None:
        """A checkpoint was refused because another holds the name now."""
        with self._lock:
            self._end_by(error)
        self._wake_all()

    def rewind(self) -> None:
        """Back to the last checkpoint. What is at hand will come again."""
        with self._lock:
            for handling in self._handlings:
                handling.dropped = True
            self._places.rewind()
        self._stir()

    # Looking at it.

    def position(self, partition: int) -> int | None:
        """The transaction whose callback returned last."""
        self.agent.check()
        check_partition(self.agent.stream, partition)
        if partition not in self._places:
            raise BadRequest(f"partition {partition} is none that this subscriber reads")
        return self._places[partition].position

    @property
    def partitions(self) -> list[int]:
        """The partitions that it reads."""
        return [place.partition for place in self._places]

    def failures(self) -> dict[int, BaseException]:
        """The partitions that have stopped, and why."""
        with self._lock:
            return {it.partition: it.failure for it in self._places if it.failure is not None}

    def counts(self) -> tuple[int, int, int, int]:
        """Transactions queued, their bytes, callbacks under way, callbacks that have returned."""
        with self._lock:
            queued = sum(len(place.queue) for place in self._places)
            held = sum(inflow.held for inflow in self._inflows)
            return queued, held, len(self._handlings), self._returns


def _subscribe(inflow: Inflow) -> None:
    """Ask a shard for what comes next in each of its partitions that takes something."""
    inflow.stale = False
    inflow.wasted = 0
    if wants := wants_of(inflow.places):
        inflow.begin(wants)
    else:
        inflow.cancel()
        inflow.begins_at = _NEVER
