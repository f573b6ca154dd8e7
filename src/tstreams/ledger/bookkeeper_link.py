"""A client of BookKeeper, for the logs of all shards of a process: Java in this process, and a connection to ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kazoo import exceptions as zk

from ..errors import BadRequest
from ..jars import bookkeeper_jars
from ..limits import JAVA_BYTES_UNDER_WAY_MAX
from . import jvm
from .budget import Budget
from .engine import EngineUnavailable, EngineUnfit
from .jvm_bridge import Bridge, JavaFailed
from .zookeeper_link import ZooKeeperLink

log = logging.getLogger("tstreams.ledger")

CONNECT_S = 30.0
CLOSE_S = 5.0
TOLD_MS = 50
"""How soon readers hear that the last entry is confirmed, if no other follows it."""


class Code(IntEnum):
    """What BookKeeper says went wrong, as far as it matters here."""

    NOT_ENOUGH_BOOKIES = -6
    NO_SUCH_LEDGER = -7
    NO_SUCH_ENTRY = -13
    NO_SUCH_LEDGER_LISTED = -25
    FENCED = -101


@dataclass(frozen=True)
class BookKeeperSettings:
    """Where BookKeeper is, and how many copies it makes. `zookeeper` is `host:port,host:port`, with a path behind it if
    all of it begins there."""

    zookeeper: str
    ledgers: str = "/ledgers"
    """Where BookKeeper keeps what it knows of its ledgers, in ZooKeeper."""
    lists: str = "/tstreams-logs"
    """Where the lists of our ledgers are, in ZooKeeper."""
    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    """A group is confirmed when so many bookies have it on their disks."""
    password: str = ""
    heap_mib: int = jvm.HEAP_MIB
    client: Mapping[str, str] = field(default_factory=dict)
    """More settings of BookKeeper's own client, by the names that it has for them."""

    def __post_init__(self) -> None:
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.ensemble:
            raise BadRequest(
                f"BookKeeper needs 1 <= ack quorum <= write quorum <= ensemble, not {self.ack_quorum}, "
                f"{self.write_quorum}, {self.ensemble}"
            )
        for path in (self.ledgers, self.lists):
            if not path.startswith("/") or path.endswith("/"):
                raise BadRequest(f"{path!r} is not a path of ZooKeeper: /like/this")

    @property
    def sizes(self) -> list[tuple[int, int, int]]:
        """Ensemble, write and ack quorum of a new ledger: as it should be, and what is tried if bookies are missing. A
        confirmed group has as many copies in any case."""
        return [
            (size, min(self.write_quorum, size), self.ack_quorum)
            for size in range(self.ensemble, self.ack_quorum - 1, -1)
        ]

    def client_settings(self) -> dict[str, str]:
        """What BookKeeper's client is told."""
        hosts, slash, path = self.zookeeper.partition("/")
        own = {
            "metadataServiceUri": f"zk+hierarchical://{hosts.replace(',', ';')}{slash}{path}{self.ledgers}",
            # A bookie that is gone is done without as long as the ack quorum is there: with three
            # bookies there is none to replace it, and the ledger would be closed.
            "delayEnsembleChange": "true",
            "explicitLacInterval": str(TOLD_MS),
            "numWorkerThreads": "2",
            "numIOThreads": "2",
            "addEntryTimeoutSec": "5",
            "readEntryTimeoutSec": "5",
        }
        return own | dict(self.client)


class BookKeeperLink:
    """One client. `await BookKeeperLink.connect(settings)`, in the loop that it is used in."""

    def __init__(
        self, settings: BookKeeperSettings, client: Any, bridge: Bridge, zookeeper: ZooKeeperLink
    ) -> None:
        self.settings = settings
        self.zookeeper = zookeeper
        self._client = client
        self._bridge = bridge
        self.room = Budget(JAVA_BYTES_UNDER_WAY_MAX)
        """What lies in the heap of Java for the time of a request."""
        self._closed = False

    @classmethod
    async def connect(cls, settings: BookKeeperSettings) -> BookKeeperLink:
        """Start Java if it does not run, and connect. `EngineUnfit` if something is not installed; `EngineUnavailable`
        if nobody answers, or there is no BookKeeper."""
        jars = bookkeeper_jars().find()
        await asyncio.to_thread(jvm.start, jars, heap_mib=settings.heap_mib)
        zookeeper = ZooKeeperLink(settings.zookeeper)
        await zookeeper.connect()
        bridge = Bridge()
        try:
            if (
                await zookeeper.ask(lambda it: it.exists_async(f"{settings.ledgers}/LAYOUT"))
                is None
            ):
                raise EngineUnfit(
                    f"there is no BookKeeper at {settings.ledgers} of the ZooKeeper {settings.zookeeper}: start its "
                    f"bookies, or say where it is"
                )
            async with asyncio.timeout(CONNECT_S):
                client = await asyncio.to_thread(_build, settings)
        except TimeoutError:
            bridge.close()
            await zookeeper.close()
            raise EngineUnavailable(
                f"BookKeeper's client is not ready within {CONNECT_S:g} s"
            ) from None
        except BaseException:
            bridge.close()
            await zookeeper.close()
            raise
        return cls(settings, client, bridge, zookeeper)

    def statistics(self) -> dict[str, int]:
        """Requests under way, and the bytes that they hold in Java."""
        return self._bridge.statistics() | {
            "under_way_bytes": self.room.held_bytes,
            "waiting_for_room": self.room.waiting,
        }

    async def close(self) -> None:
        """Disconnect. What is under way ends with `EngineUnavailable`."""
        if self._closed:
            return
        self._closed = True
        self._bridge.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.to_thread(_close, self._client)
        await self.zookeeper.close()

    # Ledgers of BookKeeper.

    async def ask(self, what: Callable[[], Any]) -> Any:
        """Begin something in Java, and wait for it. `JavaFailed` if it fails."""
        return await self._bridge.wait(what)

    async def create(self, sizes: tuple[int, int, int], about: Mapping[str, str]) -> Any:
        """A new ledger, open for writing."""
        ensemble, write_quorum, ack_quorum = sizes
        told = jvm.java_class("java.util.HashMap")()
        for key, value in about.items():
            told.put(_text(key), jvm.java_bytes(value.encode()))
        operation = (
            self._client.newCreateLedgerOp()
            .withEnsembleSize(ensemble)
            .withWriteQuorumSize(write_quorum)
            .withAckQuorumSize(ack_quorum)
            .withPassword(jvm.java_bytes(self.settings.password.encode()))
            .withDigestType(_digest())
            .withCustomMetadata(told)
        )
        return await self.ask(operation.execute)

    async def open(self, bookkeeper_id: int, *, recover: bool = False) -> Any:
        """A ledger for reading. To recover it is to shut its writer out, and to fix for ever where it ends."""
        operation = (
            self._client.newOpenLedgerOp()
            .withLedgerId(bookkeeper_id)
            .withPassword(jvm.java_bytes(self.settings.password.encode()))
            .withDigestType(_digest())
            .withRecovery(recover)
        )
        return await self.ask(operation.execute)

    async def delete(self, bookkeeper_id: int) -> None:
        """One that is gone already is no error."""
        operation = self._client.newDeleteLedgerOp().withLedgerId(bookkeeper_id)
        try:
            await self.ask(operation.execute)
        except JavaFailed as error:
            if code_of(error) not in (Code.NO_SUCH_LEDGER, Code.NO_SUCH_LEDGER_LISTED):
                raise unavailable(f"ledger {bookkeeper_id} cannot be deleted", error) from error

    async def bookies(self) -> dict[str, bool]:
        """The bookies that are there, and whether they can be written to: those whose disks are full cannot."""
        path = f"{self.settings.ledgers}/available"
        found = dict.fromkeys(await self._children(path), True)
        found.pop("readonly", None)
        return found | dict.fromkeys(await self._children(f"{path}/readonly"), False)

    async def _children(self, path: str) -> list[str]:
        try:
            names: list[str] = await self.zookeeper.ask(lambda it: it.get_children_async(path))
        except zk.NoNodeError:
            return []
        return names


def _build(settings: BookKeeperSettings) -> Any:  # in a thread
    import jpype

    conf = jvm.java_class("org.apache.bookkeeper.conf.ClientConfiguration")()
    for key, value in settings.client_settings().items():
        conf.setProperty(_text(key), _text(value))
    builder = jvm.java_class("org.apache.bookkeeper.client.api.BookKeeper").newBuilder(conf)
    try:
        return builder.build()
    except jpype.JException as error:
        raise EngineUnavailable(f"BookKeeper's client cannot be made: {error}") from error


def _close(client: Any) -> None:  # in a thread
    import jpype

    try:
        client.close()
    except jpype.JException as error:
        log.warning("BookKeeper's client was not closed properly: %s", error)


def _text(value: str) -> Any:
    return jvm.java_class("java.lang.String")(value)


def _digest() -> Any:
    return jvm.java_class("org.apache.bookkeeper.client.api.DigestType").CRC32C


def code_of(failed: JavaFailed) -> int:
    """BookKeeper's number for what went wrong; 0 if it is something else."""
    error = failed.error
    while error is not None:
        if hasattr(error, "getCode"):
            return int(error.getCode())
        error = error.getCause()
    return 0


def unavailable(what: str, failed: JavaFailed) -> EngineUnavailable:
    """What Java said, as an error of the engine."""
    return EngineUnavailable(f"{what}: {failed}")
