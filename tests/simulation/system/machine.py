"""The machine of the server: its disk, its clock, and the process on it, which may die at any step."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import PowerCut, SimulatedFolder
from tests.simulation.storage import SimulatedStorage
from tests.simulation.system.scheduler import Process, Scheduler
from tstreams.config import Config
from tstreams.ledger.port import DiskFull, LogFailed
from tstreams.server.node import Node

if TYPE_CHECKING:
    from tstreams.server.shard import Shard

PORT = 7070
URL = f"tcp://server:{PORT}"
BASE_MS = 1_700_000_000_000


class MachineDisk(SimulatedFolder):
    """The disk of a shard. Only the process that runs on the machine can write to it: the dead cannot."""

    def __init__(self, machine: ServerMachine) -> None:
        super().__init__()
        self._machine = machine

    def step(self) -> None:
        """Before each change: the power may fail here, and it may take a while."""
        machine = self._machine
        current = machine.scheduler.current
        if current is None or current is not machine.process:
            raise PowerCut
        if machine.steps_left is not None and machine.steps_left <= 0:
            machine.lose_power("at a step of its disk")
            raise PowerCut
        if machine.steps_left is not None:
            machine.steps_left -= 1
        random = machine.disk_random
        current.rest(random.randrange(200_000 if machine.slow_disk else 300))


class SimulatedLock:
    """The lock on the data directory: a process that has died holds nothing."""

    holder: Process | None = None

    def __init__(self, machine: ServerMachine) -> None:
        assert self.holder is None or not self.holder.alive, "two servers in one directory"
        type(self).holder = machine.process

    def release(self) -> None:
        type(self).holder = None


class ServerMachine:
    """Starts the server, ends it in all ways there are, and starts it again."""

    def __init__(self, scheduler: Scheduler, shards: int = 1) -> None:
        self.scheduler = scheduler
        self.disks = [MachineDisk(self) for _ in range(shards)]
        self.slow_disk = False
        self.steps_left: int | None = None
        """The power fails before that many more changes of the disks or the databases."""
        self.disk_random = scheduler.random_for("disk")
        self._crash_random = scheduler.random_for("crashes")
        self.storages = [SimulatedStorage(disk) for disk in self.disks]
        self.process: Process | None = None
        self.node: Node | None = None
        self.offset_ms = 0
        """How far the server's clock was set."""
        self.starts = 0
        self.down_us = 500_000
        """How long it takes until somebody starts it again."""

    def clock(self) -> int:
        """The time of day, by this machine's clock."""
        self.scheduler.look_at_clock()
        return BASE_MS + self.scheduler.now_us // 1000 + self.offset_ms

    @property
    def serves(self) -> bool:
        """Whether the server is there and works."""
        return self.node is not None and self.node.ready

    @property
    def shards(self) -> list[Shard]:
        assert self.node is not None
        return list(self.node.shards.values())

    # Beginning.

    def start(self) -> None:
        """Start the server."""
        self.starts += 1
        self.scheduler.network.power("server", on=True)
        self.process = self.scheduler.start("server", "server")
        self.process.spawn(self._serve(self.process))
        self.scheduler.note("server: starts")

    async def _serve(self, process: Process) -> None:
        config = Config(
            data=Path("/simulated"), ledger_bytes=64 * 1024, insecure=True, shards=len(self.disks)
        )
        object.__setattr__(config, "ledger_bytes", 8 * 1024)
        object.__setattr__(config, "payload_cache_bytes", 4 * 1024)
        node = Node(config, [URL], clock=self.clock, storage=self._storage)
        try:
            await node.start()
        except (DiskFull, LogFailed) as error:
            self._end(f"cannot start: {error}", loudly=True)
            self._start_later()
            return
        except Exception as error:
            self.scheduler.complain(f"the server cannot start: {error!r}", error)
            return
        if process.alive:
            self.node = node
            replayed = sum(shard.records_replayed for shard in node.local)
            self.scheduler.note(f"server: serves, {replayed} replayed")

    def _storage(self, path: Path, reserve_bytes: int) -> Any:
        return self.storages[int(path.name.rpartition("-")[2])]

    # Ending.

    def kill(self) -> None:
        """SIGKILL: what the system has of its writes stays, what it had in memory is gone."""
        if self._end("is killed", loudly=True):
            for storage in self.storages:
                storage.database.lose_power(self._crash_random)
            self._start_later()

    def lose_power(self, where: str) -> None:
        """What was not synced is lost, or torn. Nobody is told."""
        if self._end(f"loses its power {where}", loudly=False):
            self.scheduler.network.power("server", on=False)
            for storage in self.storages:
                storage.lose_power(self._crash_random.randrange(1 << 32))
            self._start_later()

    def stop(self) -> None:
        """SIGTERM: it stops by itself, and is started again."""
        process, node = self.process, self.node
        if process is None or node is None:
            return
        self.scheduler.note("server: is told to stop")

        async def stop() -> None:
            await node.stop()
            if process.alive and self._end("has stopped", loudly=True):
                self._start_later()

        self.node = None
        process.spawn(stop())

    def _end(self, how: str, loudly: bool) -> bool:
        process, self.process, self.node = self.process, None, None
        if process is None:
            return False
        self.scheduler.note(f"server: {how}")
        self.scheduler.network.process_died(process, loudly)
        self.scheduler.end(process)
        self.steps_left = None
        for disk in self.disks:
            disk.sync_error = None
        return True

    def _start_later(self) -> None:
        def start() -> None:
            if self.process is None:
                self.start()

        self.scheduler.after(self.down_us, start)

    # The disk.

    def fail_syncs(self) -> None:
        """From now on syncs fail, until the server is started again."""
        for disk in self.disks:
            disk.sync_error = OSError(errno.EIO, "Input/output error")

    def fill(self, full: bool, suddenly: bool) -> None:
        """Somebody else takes all the room, or gives it back. Suddenly: the server has not seen it coming."""
        for storage in self.storages:
            if suddenly:
                storage.disk.write_error = OSError(errno.ENOSPC, "No space left") if full else None
            else:
                storage.room().full = full
            if not full:
                storage.disk.write_error = None
                storage.room().full = False

    def rot(self) -> str | None:
        """Flip a bit in a ledger that lies on the disk; which one."""
        random = self._crash_random
        sized = [
            (disk, it)
            for disk in self.disks
            for it in disk.names()
            if it.endswith(".ledger") and disk.files[it].size() > 1024
        ]
        if not sized:
            return None
        disk, name = random.choice(sized)
        file = disk.files[name]
        at = random.randrange(512, file.size())
        file.now[at] ^= 1 << random.randrange(8)
        file.durable = bytes(file.now)
        self.scheduler.note(f"server: a bit rots in {name} at {at}")
        return f"{name} at {at}"
