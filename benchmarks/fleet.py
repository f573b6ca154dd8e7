"""Many client processes that do the same thing at the same moment."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from .interface import BenchmarkFailed

PHASE_WITHIN_S = 120.0
"""Longer than any phase that went well: past it something hangs."""
_LOOK_EVERY_S = 0.25
_START_WITHIN_S = 60.0


class Session(Protocol):
    """What a client process holds between phases: usually a connection."""

    def close(self) -> None:
        """Let go of it."""


class Fleet:
    """Client processes, each waiting for the word to begin the next phase.

    They are started once, before anything is timed. Each holds one session at a time; a phase is a
    call of one of its methods, in all clients together.
    """

    def __init__(self, processes: list[BaseProcess], pipes: list[Connection]) -> None:
        self.count = len(processes)
        self._processes = processes
        self._pipes = pipes

    @contextlib.contextmanager
    def sessions(
        self, check: Callable[[], None], make: Callable[..., Session], *arguments: Any
    ) -> Iterator[None]:
        """Every client makes a session of its own. `check` raises when the server is gone."""
        self._check = check
        self._all(("open", make, arguments))
        yield
        self._all(("close",))

    def time(self, method: str, *arguments: Any) -> float:
        """Seconds from the word to begin until the last client is done."""
        begun = time.perf_counter()
        self._all(("call", method, arguments))
        return time.perf_counter() - begun

    def each(
        self, method: str, arguments: Sequence[tuple[Any, ...]], within_s: float = PHASE_WITHIN_S
    ) -> list[Any]:
        """What the method returns in each client, called with arguments of its own.

        If there are fewer tuples of arguments than clients, the last clients stay idle.
        """
        return self._send([("call", method, own) for own in arguments], within_s)

    def one(self, number: int, method: str, *arguments: Any) -> Any:
        """What the method returns in this client, the first of which is 0; the others stay idle."""
        pipe = self._pipes[number]
        return self._exchange({pipe: number + 1}, [("call", method, arguments)], PHASE_WITHIN_S)[0]

    def wait_ready(self) -> None:
        """Until every process runs and listens."""
        self._check = lambda: None
        self._send([("noop",)] * self.count, _START_WITHIN_S)

    def _all(self, message: tuple[Any, ...]) -> None:
        self._send([message] * self.count, PHASE_WITHIN_S)

    def _send(self, messages: Sequence[tuple[Any, ...]], within_s: float) -> list[Any]:
        """Send the first clients a message each, and take what they answer."""
        chosen = {pipe: number for number, pipe in enumerate(self._pipes[: len(messages)], 1)}
        return self._exchange(chosen, messages, within_s)

    def _exchange(
        self, chosen: dict[Connection, int], messages: Sequence[tuple[Any, ...]], within_s: float
    ) -> list[Any]:
        """Send each of these clients its message, and take what they answer."""
        for (pipe, number), message in zip(chosen.items(), messages, strict=True):
            try:
                pipe.send(message)
            except OSError:
                raise self._death(number) from None
        results: dict[Connection, Any] = dict.fromkeys(chosen)
        waiting = set(chosen)
        deadline = time.monotonic() + within_s
        while waiting:
            for answered in wait(list(waiting), _LOOK_EVERY_S):
                assert isinstance(answered, Connection)
                waiting.remove(answered)
                results[answered] = self._take(answered, chosen[answered])
            self._check()
            if waiting and time.monotonic() > deadline:
                count = len(waiting)
                raise BenchmarkFailed(f"{count} clients were not done within {within_s:g} s")
        return list(results.values())

    def _take(self, pipe: Connection, number: int) -> Any:
        try:
            failure, result = pipe.recv()
        except (EOFError, OSError):
            raise self._death(number) from None
        if failure is not None:
            self._check()  # a dead server is the better explanation
            raise BenchmarkFailed(f"client {number} failed:\n{failure}")
        return result

    def _death(self, number: int) -> BenchmarkFailed:
        process = self._processes[number - 1]
        process.join(1)
        return BenchmarkFailed(f"client {number} died (code {process.exitcode})")


@contextlib.contextmanager
def fleet(count: int) -> Iterator[Fleet]:
    """A fleet of that many processes; they are gone when the block ends, however it ends."""
    # Not forked: a fork would hold its siblings' pipes open, and nobody would see an end.
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            pipes.append(ours)
            process = context.Process(target=_client, args=(theirs,), daemon=True)
            process.start()
            processes.append(process)
            theirs.close()
        clients = Fleet(processes, pipes)
        clients.wait_ready()
        yield clients
    finally:
        for pipe in pipes:
            pipe.close()
        _end(processes)


def _end(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _client(pipe: Connection) -> None:
    """A client process: do what the pipe says, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends us
    session: Any = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            action, *rest = pipe.recv()
            result: Any = None
            try:
                if action == "open":
                    make, arguments = rest
                    session = make(*arguments)
                elif action == "call":
                    method, arguments = rest
                    result = getattr(session, method)(*arguments)
                elif action == "close":
                    session.close()
            except Exception:
                pipe.send((traceback.format_exc(limit=-3), None))
            else:
                pipe.send((None, result))
