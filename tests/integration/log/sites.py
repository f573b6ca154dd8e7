"""Logs of every kind, opened in the same way: in local files, and kept by an engine for several nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from tstreams.ledger.engine import Engine
from tstreams.ledger.files import RealFolder
from tstreams.ledger.local import LocalLog
from tstreams.ledger.port import NO_END, Group, LedgerInfo, Position, Record, SharedLog
from tstreams.ledger.replicated import ReplicatedLog


class LocalAsShared:
    """A local log, as if it answered later."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log

    @property
    def epoch(self) -> int:
        return self._log.epoch

    @property
    def end(self) -> Position:
        return self._log.end

    def read_many(self, wanted: Sequence[tuple[Position, int]]) -> list[memoryview]:
        return self._log.read_many(wanted)

    def scan(self, start: Position, stop: Position = NO_END) -> Iterator[Group]:
        return self._log.scan(start, stop)

    def ledgers(self, after: int = 0, limit: int | None = None) -> list[LedgerInfo]:
        return self._log.ledgers(after, limit)

    async def take_over(self, epoch: int, now_ms: int) -> None:
        self._log.take_over(epoch, now_ms)

    async def roll(self, now_ms: int) -> None:
        self._log.roll(now_ms)

    async def append(self, records: Sequence[Record], now_ms: int) -> list[Position]:
        return self._log.append(records, now_ms)

    async def trim(self, ledger_ids: Iterable[int]) -> None:
        self._log.trim(ledger_ids)

    async def close(self) -> None:
        self._log.close()


class Site(Protocol):
    """Where one log is."""

    def folder(self, node: str = "a") -> Path:
        """The ledger files on a node."""

    async def open(self, node: str = "a", **options: Any) -> SharedLog:
        """Open the log on a node."""

    async def close(self) -> None:
        """Close what was opened."""


class LocalSite:
    """There is only one node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def folder(self, node: str = "a") -> Path:
        assert node == "a"
        return self._path / node

    async def open(self, node: str = "a", **options: Any) -> SharedLog:
        return LocalAsShared(LocalLog(RealFolder(self.folder(node)), **options))

    async def close(self) -> None:
        pass


class EngineSite:
    """Every node has an engine of its own, a mirror, and one log at a time."""

    def __init__(self, path: Path, connect: Callable[[], Awaitable[Engine]]) -> None:
        self._path = path
        self._connect = connect
        self.engines: dict[str, Engine] = {}
        self._logs: list[ReplicatedLog] = []

    def folder(self, node: str = "a") -> Path:
        return self._path / node

    async def engine(self, node: str = "a") -> Engine:
        if node not in self.engines:
            self.engines[node] = await self._connect()
        return self.engines[node]

    async def open(self, node: str = "a", **options: Any) -> ReplicatedLog:
        engine = await self.engine(node)
        log = await ReplicatedLog.open(engine, RealFolder(self.folder(node)), **options)
        self._logs.append(log)
        return log

    async def close(self) -> None:
        for log in self._logs:
            await log.close()


def contents(log: SharedLog, start: int = 0) -> list[bytes]:
    return [bytes(record) for _, record in entries(log, start)]


def entries(log: SharedLog, start: int = 0) -> list[tuple[int, memoryview]]:
    return [entry for _, group in log.scan(start) for entry in group]


def images(folder: Path, log: SharedLog) -> dict[int, bytes]:
    """What the ledger files hold, as far as the list says that they do."""
    found = {}
    for ledger in log.ledgers():
        data = (folder / f"{ledger.id:012x}.ledger").read_bytes()
        found[ledger.id] = data[: ledger.size_bytes]
    return found
