"""The history of a run: what each client did and what came of it, for the checker.

Everything is written down when it begins, with an unknown outcome: that is what stays of it if its client dies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable
from typing import Any, TypeVar

from tests.checker.digest import content_of
from tests.checker.history import (
    OK,
    UNKNOWN,
    AnyOperation,
    Clock,
    Created,
    Empty,
    Instant,
    Open,
    Read,
    Stand,
)
from tests.checker.recording import outcome_of
from tests.simulation.system.scheduler import Process, Scheduler

T = TypeVar("T")


class Recorder:
    """Writes the history. What the dead do is not written down."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.operations: list[AnyOperation] = []
        self._under_way: dict[int, tuple[AnyOperation, Process]] = {}
        self._known: set[str] = set()
        self.given: defaultdict[str, list[int]] = defaultdict(list)
        """By stream: the ids that clients were told, in that order."""

    def now(self) -> int:
        return self._scheduler.moment_us()

    def clock(self, wall_ms: int) -> None:
        """What the server's clock says now."""
        now = self.now()
        self.operations.append(Clock(now, now, wall_ms=wall_ms))

    def add(self, operation: AnyOperation) -> None:
        """Something that is over."""
        if self._is_alive():
            self.operations.append(operation)
            self._note(operation)

    def _is_alive(self) -> bool:
        process = self._scheduler.current
        return process is not None and process.alive

    def _note(self, it: AnyOperation) -> None:
        process = self._scheduler.current
        what = " ".join(
            f"{name}={value}"
            for name in ("stream", "partition", "id", "after", "count", "transactions", "offsets")
            if (value := getattr(it, name, None))
        )
        self._scheduler.note(f"{process}: {type(it).__name__} {what} {it.outcome}")

    def begin(self, operation: AnyOperation) -> AnyOperation:
        """It begins; nobody knows how it will end."""
        operation.start = operation.end = self.now()
        operation.outcome = UNKNOWN
        process = self._scheduler.current
        assert process is not None
        self.operations.append(operation)
        self._under_way[id(operation)] = (operation, process)
        return operation

    def end(self, operation: AnyOperation, outcome: str) -> None:
        """It is over."""
        if self._is_alive() and self._under_way.pop(id(operation), None) is not None:
            operation.end = self.now()
            operation.outcome = outcome
            self._note(operation)

    async def during(self, operation: AnyOperation, call: Awaitable[T]) -> T:
        """Do it, and write down what came of it. Errors are passed on."""
        self.begin(operation)
        try:
            result = await call
        except BaseException as error:
            self.end(operation, outcome_of(error))
            raise
        if isinstance(operation, Open):
            operation.id = result.id  # type: ignore[attr-defined]
            self.given[operation.stream].append(operation.id)
        elif isinstance(operation, Instant):
            operation.id = result  # type: ignore[assignment]
            self.given[operation.stream].append(operation.id)
        self.end(operation, OK)
        return result

    def conclude(self) -> list[AnyOperation]:
        """The history. What was under way stays unknown, up to now."""
        now = self.now()
        for operation, _ in self._under_way.values():
            operation.end = now
        return self.operations

    # Streams and readers.

    def label(self, agent: Any) -> str:
        """What the history calls the stream of an agent; its ttl is written down."""
        stream = agent._rules.agent.stream
        label = f"{stream.name}#{agent._rules.agent.stream_id}"
        if label not in self._known:
            self._known.add(label)
            now = self.now()
            ttl_ms = round(stream.ttl.total_seconds() * 1000)
            self.add(Created(now, now, stream=label, ttl_ms=ttl_ms))
        return label

    def saw(
        self, who: tuple[str, int], label: str, start: int, it: Any, items: Any, moves: bool
    ) -> None:
        """A reader was handed a transaction."""
        count, digest = content_of(map(bytes, items))
        now, (partition, number) = self.now(), (it.partition, it.id)
        self.add(Read(start, now, OK, *who, label, partition, number, count, digest, moves))

    def saw_nothing(
        self, who: tuple[str, int], label: str, start: int, where: tuple[int, int, int], moves: bool
    ) -> None:
        """A reader found nothing: partition, after, up to."""
        self.add(Empty(start, self.now(), OK, *who, label, *where, moves))

    def stands(
        self, who: tuple[str, int], label: str, start: int, where: dict[int, int], resumed: bool
    ) -> None:
        """Where a reader stands, by partition."""
        for partition, after in where.items():
            self.add(Stand(start, self.now(), OK, *who, label, partition, after, resumed))
