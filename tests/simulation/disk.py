"""A disk that forgets what was not synced, tears what was under way, and can be made to fail."""

from __future__ import annotations

import random
from collections.abc import Sequence

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The machine stops here. Not an Exception: nothing may catch it and go on."""


class SimulatedFile:
    def __init__(self, disk: SimulatedFolder) -> None:
        self.disk = disk
        self.now = bytearray()
        self.durable = b""
        self.dirty: set[int] = set()
        self.forgotten: set[int] = set()
        """Sectors that could not be synced: the system shows them, and will never write them again."""

    def write(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        self.disk.step()
        data = b"".join(buffers)
        if self.disk.write_error is not None:
            data = data[: len(data) // 2]
        if len(self.now) < offset + len(data):
            self.now.extend(bytes(offset + len(data) - len(self.now)))
        self.now[offset : offset + len(data)] = data
        last = offset + max(0, len(data) - 1)
        sectors = range(offset // SECTOR_BYTES, last // SECTOR_BYTES + 1)
        self.dirty.update(sectors)
        self.forgotten.difference_update(sectors)
        if self.disk.write_error is not None:
            raise self.disk.write_error
        return len(data)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.now[offset : offset + size])

    def sync(self) -> None:
        self.disk.step()
        if self.disk.sync_error is not None:
            self.forgotten |= self.dirty
            self.dirty.clear()
            raise self.disk.sync_error
        durable = bytearray(self.now)
        for sector in sorted(self.forgotten):
            start = sector * SECTOR_BYTES
            end = min(start + SECTOR_BYTES, len(durable))
            durable[start:end] = self.durable[start:end].ljust(max(0, end - start), b"\0")
        self.durable = bytes(durable)
        self.dirty.clear()

    def truncate(self, size: int) -> None:
        self.disk.step()
        del self.now[size:]
        self.now.extend(bytes(size - len(self.now)))

    def allocate(self, size: int) -> None:
        self.write([bytes(max(0, size - self.size()))], self.size())

    def size(self) -> int:
        return len(self.now)

    def close(self) -> None:
        pass

    def lose_power(self, rng: random.Random) -> None:
        """Keep what was synced, and of the rest any sectors at all."""
        survived = bytearray(self.durable)
        for sector in sorted(self.dirty):
            if rng.random() < 0.5:
                start = sector * SECTOR_BYTES
                data = self.now[start : start + SECTOR_BYTES]
                if len(survived) < start + len(data):
                    survived.extend(bytes(start + len(data) - len(survived)))
                survived[start : start + len(data)] = data
        self.now = survived
        self.durable = bytes(survived)
        self.dirty.clear()
        self.forgotten.clear()


class SimulatedFolder:
    """Set `steps_left` to cut the power before that many more writes, syncs and renames."""

    def __init__(self) -> None:
        self.files: dict[str, SimulatedFile] = {}
        self.steps_left: int | None = None
        self.sync_error: OSError | None = None
        self.write_error: OSError | None = None
        """What writing fails with, after half of it was written."""

    def step(self) -> None:
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise PowerCut
            self.steps_left -= 1

    def names(self) -> list[str]:
        return sorted(self.files)

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        if name not in self.files:
            if not create:
                raise FileNotFoundError(name)
            self.files[name] = SimulatedFile(self)
        return self.files[name]

    def rename(self, old: str, new: str) -> None:
        self.step()
        self.files[new] = self.files.pop(old)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            self.step()
            self.files.pop(name, None)

    def lose_power(self, seed: int) -> None:
        rng = random.Random(seed)
        self.steps_left = None
        self.sync_error = None
        self.write_error = None
        for file in self.files.values():
            file.lose_power(rng)
