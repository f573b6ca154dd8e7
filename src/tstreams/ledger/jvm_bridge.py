"""From completions in threads of Java to futures of an event loop, in batches.

A thread of Java that called Python would wait for the interpreter's lock, with all that it has to do for others. So none
does. What completes is put into a queue of Java, and a byte into a pipe that the loop reads: both by method handles,
which are Java from end to end. The loop wakes up, and takes from the queue what there is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from ..limits import JAVA_REQUESTS_MAX
from .engine import EngineUnavailable
from .jvm import java_class

_WAKES = 1 << 16


class JavaFailed(Exception):
    """A request failed in Java. `error` is the exception there."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error.toString()))
        self.error = error


class Bridge:
    """Turns completable futures of Java into results, for the loop that it is made in.

    Invariants: a slot is free, or belongs to one request; at most `JAVA_REQUESTS_MAX` are under way, so the pipe never
    fills up, and no thread of Java ever waits for us.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(JAVA_REQUESTS_MAX)
        self._queue = java_class("java.util.concurrent.ConcurrentLinkedQueue")()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        # A descriptor of its own for Java: the file system shows those of this process.
        self._wake = java_class("java.io.FileOutputStream")(f"/dev/fd/{self._writing}")
        self._slots: list[Any] = []
        self._free: list[int] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._closed = False
        self._completed = self._handle()
        self._loop.add_reader(self._reading, self._drain)

    def statistics(self) -> dict[str, int]:
        """How many requests are under way, and how many there were at most."""
        return {"under_way": len(self._waiting), "under_way_max": len(self._slots)}

    async def wait(self, ask: Callable[[], Any]) -> Any:
        """Begin something of Java, and wait for what it completes with. `JavaFailed` if it fails; `EngineUnavailable`
        if the bridge is closed meanwhile. Who is cancelled leaves it under way."""
        await self._room.acquire()
        if self._closed:
            self._room.release()
            raise EngineUnavailable("the connection to BookKeeper was closed")
        slot = self._free.pop() if self._free else self._new_slot()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[slot] = future
        try:
            ask().whenComplete(self._slots[slot])
        except BaseException:
            self._release(slot)
            raise
        return await future

    def _release(self, slot: int) -> asyncio.Future[Any] | None:
        self._free.append(slot)
        self._room.release()
        return self._waiting.pop(slot, None)

    def close(self) -> None:
        """Everything that is under way ends with `EngineUnavailable`."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._reading)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineUnavailable("the connection to BookKeeper was closed"))
        self._wake.close()
        os.close(self._reading)
        os.close(self._writing)

    # In threads of Java. No Python below runs there: it makes what does.

    def _handle(self) -> Any:
        """Of (slot, result, error): puts all three into the queue, and a byte into the pipe."""
        handles = java_class("java.lang.invoke.MethodHandles")
        types = java_class("java.lang.invoke.MethodType")
        base, whole = java_class("java.lang.Object"), java_class("java.lang.Integer").TYPE
        nothing, truth = java_class("java.lang.Void").TYPE, java_class("java.lang.Boolean").TYPE
        look = handles.publicLookup()
        add = look.findVirtual(self._queue.getClass(), "add", types.methodType(truth, base))
        add = add.bindTo(self._queue).asType(types.methodType(nothing, base))
        write = look.findVirtual(self._wake.getClass(), "write", types.methodType(nothing, whole))
        write = handles.insertArguments(write.bindTo(self._wake), 0, _number(1))
        # foldArguments runs its second part first.
        both = handles.foldArguments(handles.dropArguments(write, 0, base.class_), add)
        three = java_class("java.lang.reflect.Array").newInstance(base, 0).getClass()
        return both.asType(types.methodType(nothing, three)).asCollector(three, 3)

    def _new_slot(self) -> int:
        slot = len(self._slots)
        handles = java_class("java.lang.invoke.MethodHandles")
        handle = handles.insertArguments(self._completed, 0, _number(slot))
        proxies = java_class("java.lang.invoke.MethodHandleProxies")
        consumer = java_class("java.util.function.BiConsumer")
        self._slots.append(proxies.asInterfaceInstance(consumer, handle))
        return slot

    # In the loop.

    def _drain(self) -> None:
        try:
            os.read(self._reading, _WAKES)
        except BlockingIOError:
            return
        while (completed := self._queue.poll()) is not None:
            slot, result, error = completed
            future = self._release(int(slot))
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(JavaFailed(error))


def _number(value: int) -> Any:
    return java_class("java.lang.Integer").valueOf(value)
