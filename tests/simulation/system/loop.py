"""An event loop without a clock and without sockets: a simulated process has one of its own.

It is asyncio's own loop. What is missing is what would reach outside: time is the scheduler's, connections
are the network's, and what is to run in a thread runs later, at once, on this one.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import contextlib
import heapq
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.system.scheduler import Process


@contextmanager
def running() -> Iterator[None]:
    """Loops may be entered here, one after the other; at the end none runs."""
    hooks = sys.get_asyncgen_hooks()
    try:
        yield
    finally:
        asyncio.events._set_running_loop(None)
        sys.set_asyncgen_hooks(*hooks)


class _NothingToSelect:
    def select(self, timeout: float | None) -> list[Any]:
        return []


class ProcessLoop(asyncio.BaseEventLoop):
    """The loop of one process. `turn` runs what is ready, once.

    Every task is remembered, so that none is collected as garbage: when that happened would depend on
    everything else in the program.
    """

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._selector = _NothingToSelect()
        self._clock_resolution = 1e-9
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        self._tasks.append(task)
        if len(self._tasks) > 1000:
            self._tasks = [it for it in self._tasks if not it.done()]
        return task

    def time(self) -> float:
        return self._process.scheduler.now_us / 1e6

    # Turns.

    def due_us(self, now_us: int) -> int | None:
        """When it has something to do: now, or when its next timer is due."""
        if self._ready:  # type: ignore[attr-defined]
            return now_us
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:  # as a turn does before it begins
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(scheduled)._scheduled = False
        return -int(-scheduled[0]._when * 1e6 // 1) if scheduled else None

    def turn(self) -> None:
        """Run what is ready, and the timers that are due. It must have been entered."""
        self._run_once()  # type: ignore[attr-defined]

    def enter(self) -> None:
        """From now on this loop is the one that runs. Costly: only when another one has its turn."""
        asyncio.events._set_running_loop(self)
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook,  # type: ignore[attr-defined]
            finalizer=self._asyncgen_finalizer_hook,  # type: ignore[attr-defined]
        )

    def bury(self) -> None:
        """The process is dead: unwind what it left. None of it can reach anything any more."""
        with running():
            self.enter()
            self._unwind()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self._asyncgens.clear()  # type: ignore[attr-defined]
        self.close()

    def _unwind(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if not task.done() and isinstance(coroutine, Coroutine):
                with contextlib.suppress(BaseException):
                    coroutine.close()
            elif task.done() and not task.cancelled():
                task.exception()  # nobody asked for it, and nobody will

    # What reaches outside.

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.alive:
            error = context.get("exception")
            self._process.scheduler.complain(
                f"{self._process.name}: {context.get('message')}: {error!r}", error
            )

    def _write_to_self(self) -> None:
        """There is no other thread to wake this one up."""

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        """As if a thread did it: begun a little later, and known to be done later still."""
        process, future = self._process, self.create_future()
        random = process.scheduler.random

        def begin() -> None:
            try:
                result = function(*arguments)
            except BaseException as error:
                end(future.set_exception, error)
            else:
                end(future.set_result, result)

        def end(tell: Callable[[Any], None], what: Any) -> None:
            self.call_later(random.choice((0.0, 0.001, 0.05)), tell, what)

        self.call_later(random.choice((0.0, 0.001, 0.2, 1.5)), begin)
        return future

    async def create_server(self, protocol_factory: Any, *where: Any, **options: Any) -> Any:
        return self._process.scheduler.network.listen(self._process, protocol_factory, *where)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: str, port: int, **options: Any
    ) -> Any:
        network = self._process.scheduler.network
        return await network.dial(self._process, protocol_factory, host, port)
