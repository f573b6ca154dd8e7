"""Disks of nodes that fill up, and copies of ledgers that are damaged."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import tstreams
from tests.integration.replicas.sites import Site
from tests.integration.tstreams.conftest import eventually
from tstreams import Offset
from tstreams.errors import Unavailable
from tstreams.items import Buffer
from tstreams.ledger.files import RealFile, RealFolder
from tstreams.limits import MIB
from tstreams.server.storage import LocalStorage


class Disk:
    """A disk of a node, which the test fills."""

    full = False

    def storage(self, path: Path, reserve_bytes: int) -> LocalStorage:
        return FillingStorage(self, path, reserve_bytes)


class FillingStorage(LocalStorage):
    def __init__(self, disk: Disk, path: Path, reserve_bytes: int) -> None:
        super().__init__(path, reserve_bytes)
        self._disk = disk

    def folder(self) -> RealFolder:
        return FillingFolder(self._disk, self._path / "ledgers")


class FillingFolder(RealFolder):
    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(path)
        self._disk = disk

    def open(self, name: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return FillingFile(self._disk, os.open(self.path / name, flags, 0o640))


class FillingFile(RealFile):
    def __init__(self, disk: Disk, descriptor: int) -> None:
        super().__init__(descriptor)
        self._disk = disk

    def allocate(self, size: int) -> None:
        if self._disk.full and size > self.size():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(size)

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        if self._disk.full and offset + sum(map(len, buffers)) > self.size():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(buffers, offset)


def test_a_leader_without_room_refuses_and_goes_on_when_there_is_some(site: Site) -> None:
    disk = Disk()
    site.start("a", storage=disk.storage)
    site.start("b")
    site.lead("a")
    with tstreams.connect(site.nodes["a"].addresses[0]) as ts:
        ts.create_stream("clicks")
        with ts.producer("clicks", name="p") as producer:
            producer.instant([b"before"], partition=0)
            disk.full = True
            with pytest.raises(Unavailable, match="no room"):
                producer.instant([bytes(2 * MIB)], partition=0)
            assert site.nodes["a"].replicas[0].leading
            disk.full = False
            eventually(lambda: site.nodes["a"].replicas[0].shard.full is None)
            producer.instant([b"after"], partition=0)
        with ts.consumer("clicks", name="c", start=Offset.oldest()) as consumer:
            found = [txn.items[0] for txn in consumer.read(max_wait=0.2)]
    assert found == [b"before", b"after"]
    site.agreed_facts("a", "b")


def test_a_follower_without_room_catches_up_when_there_is_some(site: Site) -> None:
    disk = Disk()
    site.start("a")
    follower = site.start("b", storage=disk.storage)
    site.lead("a")
    with tstreams.connect(site.nodes["a"].addresses[0]) as ts:
        ts.create_stream("clicks")
        with ts.producer("clicks", name="p") as producer:
            producer.instant([b"before"], partition=0)
            site.caught_up("a", "b")
            disk.full = True
            for _ in range(3):
                producer.instant([bytes(2 * MIB)], partition=0)
            eventually(lambda: not follower.is_open)
            disk.full = False
            eventually(lambda: follower.is_open)
            producer.instant([b"after"], partition=0)
    site.agreed_facts("a", "b")


def test_a_damaged_copy_is_mended_and_read(site: Site) -> None:
    site.start("a")
    site.lead("a")
    with tstreams.connect(site.nodes["a"].addresses[0]) as ts:
        ts.create_stream("clicks")
        with ts.producer("clicks", name="p") as producer:
            for number in range(5):
                producer.instant([b"item %d" % number * 100], partition=0)
    site.stop("a")
    (ledger,) = (site.path / "a" / "shard-0" / "ledgers").glob("*.ledger")
    site.start("a")
    site.lead("a")
    data = ledger.read_bytes()
    at = data.index(b"item 3item 3")
    with ledger.open("r+b") as file:
        file.seek(at)
        file.write(b"#")

    def read() -> list[bytes] | None:
        try:
            with (
                tstreams.connect(site.nodes["a"].addresses[0], timeout=5.0) as ts,
                ts.consumer("clicks", name="c", start=Offset.oldest()) as consumer,
            ):
                return [txn.items[0][:6] for txn in consumer.read(max_wait=0.2)]
        except Unavailable as error:
            assert "damaged" in error.message
            return None

    assert eventually(read) == [b"item %d" % number for number in range(5)]
    assert ledger.read_bytes()[at : at + 1] == b"i"
