"""The network: who listens where, which machines reach each other, and how long that takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.simulation.system.scheduler import Process, Scheduler
from tests.simulation.system.transport import SimulatedEnd, Wire

Factory = Callable[[], asyncio.BufferedProtocol]
Way = tuple[str, str]

SYN_AGAIN_US = 250_000
"""How soon an attempt to connect is repeated where nobody answers."""


class _Socket:
    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return "simulated", self._port


class Listener:
    """What `create_server` gives."""

    def __init__(self, network: Network, process: Process, factory: Factory, port: int) -> None:
        self._network = network
        self.process = process
        self.factory = factory
        self.sockets = [_Socket(port)]

    def close(self) -> None:
        self._network.close(self)


class Network:
    """All connections, and all that is wrong with them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        scheduler.network = self
        self._random = scheduler.random_for("network")
        self._listeners: dict[int, Listener] = {}
        self._ends: dict[SimulatedEnd, None] = {}
        self._wires: list[Wire] = []
        self._connections = 0
        self._cuts: Counter[Way] = Counter()
        self._slow: Counter[str] = Counter()
        self._down: set[str] = set()
        self._traps: dict[str, int] = {}
        self.dials = 0

    # What is wrong.

    def cut(self, ways: list[Way]) -> None:
        """Nothing goes this way any more, until it is healed."""
        self._cuts.update(ways)

    def heal(self, ways: list[Way]) -> None:
        """It goes again; what was held back comes first."""
        self._cuts.subtract(ways)
        self._wires = [wire for wire in self._wires if wire.is_used]
        for wire in self._wires:
            if not self.is_cut(wire.way):
                wire.release()

    def is_cut(self, way: Way) -> bool:
        return self._cuts[way] > 0

    def slow(self, machine: str, by: int) -> None:
        """More (1) or less (-1) of a bad connection."""
        self._slow[machine] += by

    def power(self, machine: str, on: bool) -> None:
        """A machine without power answers nobody."""
        if on:
            self._down.discard(machine)
        else:
            self._down.add(machine)

    def is_up(self, machine: str) -> bool:
        return machine not in self._down

    def reset(self, machine: str) -> None:
        """All connections of a machine break, on both sides."""
        for end in [it for it in self._ends if machine in it.outward.way]:
            end.break_off()

    def set_trap(self, machine: str, messages: int) -> None:
        """After so many more messages of the server to a machine the next is lost, with its connection."""
        self._traps[machine] = messages

    def is_trapped(self, way: Way) -> bool:
        """Whether this message is the one that is lost."""
        if way[1] not in self._traps:
            return False
        self._traps[way[1]] -= 1
        if self._traps[way[1]] >= 0:
            return False
        del self._traps[way[1]]
        return True

    def clear_traps(self) -> None:
        """Nothing is lost any more."""
        self._traps.clear()

    def delay_us(self, way: Way) -> int:
        """How long something takes to get there."""
        random = self._random
        delay_us = random.randrange(80, 600)
        if random.random() < 0.05:
            delay_us += random.randrange(20_000)
        if self._slow[way[0]] or self._slow[way[1]]:
            delay_us += random.randrange(800_000)
        return delay_us

    def pieces(self, data: bytes) -> list[bytes]:
        """How the bytes of one write arrive."""
        if len(data) < 2 or self._random.random() > 0.1:
            return [data]
        cut = self._random.randrange(1, len(data))
        return [data[:cut], data[cut:]]

    # Connections.

    def listen(self, process: Process, factory: Factory, host: str, port: int) -> Listener:
        """Take connections."""
        assert port not in self._listeners, "the address is in use"
        listener = self._listeners[port] = Listener(self, process, factory, port)
        return listener

    def close(self, listener: Listener) -> None:
        """Take no more of them."""
        for port, it in list(self._listeners.items()):
            if it is listener:
                del self._listeners[port]

    async def dial(
        self, process: Process, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        """Connect. Where nobody answers it is tried again, until the caller gives up."""
        self.dials += 1
        answered: asyncio.Future[SimulatedEnd] = process.loop.create_future()
        way = (process.machine, host)

        def knock() -> None:
            if answered.done() or not process.alive:
                return
            if self.is_cut(way) or self.is_cut(way[::-1]) or not self.is_up(host):
                self.scheduler.after(SYN_AGAIN_US, knock)
                return
            listener = self._listeners.get(port)
            if listener is None or not listener.process.alive:
                self.scheduler.after(self.delay_us(way), refuse)
                return
            near, far = self._connect(process, listener.process)
            listener.process.loop.call_soon(far.connect, listener.factory())
            self.scheduler.after(self.delay_us(way), lambda: welcome(near))

        def refuse() -> None:
            if not answered.done() and process.alive:
                answered.set_exception(ConnectionRefusedError("connection refused"))

        def welcome(near: SimulatedEnd) -> None:
            if answered.done() or not process.alive:
                near.abort()
            else:
                answered.set_result(near)

        self.scheduler.after(self.delay_us(way), knock)
        near = await answered
        protocol = factory()
        near.connect(protocol)
        return near, protocol

    def _connect(self, client: Process, server: Process) -> tuple[SimulatedEnd, SimulatedEnd]:
        self._connections += 1
        near = SimulatedEnd(self, client, self._connections)
        far = SimulatedEnd(self, server, self._connections)
        near.outward, far.outward = Wire(self, near, far), Wire(self, far, near)
        self._wires += [near.outward, far.outward]
        self._ends[near] = self._ends[far] = None
        return near, far

    def forget(self, end: SimulatedEnd) -> None:
        """An end was closed."""
        self._ends.pop(end, None)

    def process_died(self, process: Process, loudly: bool) -> None:
        """The connections of a dead process end; the others hear of it if its system lives."""
        for listener in list(self._listeners.values()):
            if listener.process is process:
                listener.close()
        for end in [it for it in self._ends if it.process is process]:
            self.forget(end)
            end.vanish(loudly)

    def statistics(self) -> dict[str, Any]:
        """What there was of it."""
        return {"connections": self._connections, "dials": self.dials}
