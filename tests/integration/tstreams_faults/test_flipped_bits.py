"""One flipped bit anywhere in a ledger: `verify` finds it, a reader is told where, and it is never served."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import tstreams
from tests.crash.server import KilledServer
from tstreams import Offset
from tstreams.ledger.files import RealFolder
from tstreams.ledger.format import GROUP_OVERHEAD_BYTES, SECTOR_BYTES, Head
from tstreams.ledger.local import LocalLog
from tstreams.ledger.port import split_position
from tstreams.server.verify import verify

LEDGER_BYTES = 64 * 1024
FLIPS = 40
LEDGERS = Path("shard-0") / "ledgers"
NAMES_THE_PLACE = re.compile(r"ledger (file )?[0-9a-f]+")


@dataclass
class Stored:
    """A data directory that nobody serves, and what is in it."""

    data: Path
    written: dict[int, list[bytes]]

    def ledgers(self) -> list[Path]:
        """Its files, oldest first."""
        return sorted((self.data / LEDGERS).glob("*.ledger"))

    @contextmanager
    def copy_with(self, ledger: Path, bit: int) -> Iterator[Path]:
        """A copy in which one bit is not what it was."""
        copy = self.data.with_name("damaged")
        shutil.copytree(self.data, copy)
        flip(copy / LEDGERS / ledger.name, bit)
        try:
            yield copy
        finally:
            shutil.rmtree(copy)


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def write(ts: tstreams.Client) -> dict[int, list[bytes]]:
    """Transactions of all sizes, some long, over several ledgers."""
    rng = random.Random(5)
    ts.create_stream("s", ttl="1d")
    written = {}
    with ts.producer("s", name="p") as producer:
        for number in range(60):
            items = [rng.randbytes(rng.randrange(3000)) for _ in range(rng.randint(1, 8))]
            if number % 10 == 0:
                with producer.transaction() as transaction:
                    for item in items:
                        transaction.send(item)
                written[transaction.id] = items
            else:
                written[producer.instant(items)] = items
    return written


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """What a server leaves that was told to stop."""
    data = tmp_path_factory.mktemp("stopped") / "data"
    with tstreams.embedded(data, ledger_bytes=LEDGER_BYTES) as ts:
        written = write(ts)
    return Stored(data, written)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """What a server leaves that was killed: much of the log is still to be taken into the index."""
    data = tmp_path_factory.mktemp("killed") / "data"
    server = KilledServer(data, "--ledger-bytes", str(LEDGER_BYTES))
    try:
        server.start()
        with tstreams.connect(server.url) as ts:
            written = write(ts)
            server.kill()
    finally:
        server.close()
    return Stored(data, written)


def bits_to_flip(path: Path, end: int, rng: random.Random) -> Iterator[int]:
    """Bits of every kind of byte, and some anywhere."""
    first_record = SECTOR_BYTES + GROUP_OVERHEAD_BYTES
    for offset in (0, 8, 12, 16, 40, Head.SIZE - 1, SECTOR_BYTES - 1, SECTOR_BYTES, first_record):
        yield offset * 8 + rng.randrange(8)
    while True:
        yield rng.randrange(end * 8)


def seen_in(data: Path, written: dict[int, list[bytes]]) -> int:
    """Read every transaction: right, or refused with its place. How many were refused; -1: all."""
    try:
        ts = tstreams.embedded(data, ledger_bytes=LEDGER_BYTES, payload_cache_bytes=0)
    except tstreams.Corrupt as error:
        assert NAMES_THE_PLACE.search(error.message), error.message
        return -1
    refused = 0
    with ts, ts.consumer("s", name="r", start=Offset.oldest()) as consumer:
        for transaction_id, items in written.items():
            try:
                found = consumer.by_id(0, transaction_id)
                assert found is not None, "an acknowledged transaction is gone without a word"
                assert list(found.items) == items, "damaged bytes were served"
            except tstreams.Corrupt as error:
                assert re.search(r"ledger [0-9a-f]+: .* offset \d+", error.message), error.message
                refused += 1
    return refused


@pytest.mark.parametrize("ledger_number", [0, 1, -1], ids=["first", "second", "last"])
def test_a_stopped_server(stopped: Stored, ledger_number: int) -> None:
    ledger = stopped.ledgers()[ledger_number]
    rng = random.Random(ledger_number)
    bits = bits_to_flip(ledger, ledger.stat().st_size, rng)
    outcomes = set()
    for bit, _ in zip(bits, range(FLIPS), strict=False):
        with stopped.copy_with(ledger, bit) as data:
            problems = verify(data).problems
            assert problems, f"bit {bit} of {ledger.name} was flipped, and verify found nothing"
            name = ledger.name.removesuffix(".ledger").lstrip("0")
            assert any(re.search(rf"ledger (file )?0*{name}\b", it) for it in problems), problems
            outcomes.add(seen_in(data, stopped.written))
    if ledger.stat().st_size > LEDGER_BYTES // 2:
        assert outcomes - {0, -1}, "not one flip hit a record that is served"


def test_a_killed_server(killed: Stored) -> None:
    """Damage to the very last group, which looks like a torn tail, is the one exception."""
    log = LocalLog(RealFolder(killed.data / LEDGERS))
    last_group = [group[0][0] for _, group in log.scan(0) if group][-1]
    log.close()
    ledger_id, offset = split_position(last_group)
    rng = random.Random(3)
    for ledger in killed.ledgers()[-2:]:
        number = int(ledger.name.removesuffix(".ledger"), 16)
        end = offset - GROUP_OVERHEAD_BYTES if number == ledger_id else SECTOR_BYTES
        if number < ledger_id:
            end = ledger.stat().st_size
        for bit, _ in zip(bits_to_flip(ledger, end, rng), range(FLIPS), strict=False):
            if bit < end * 8:
                with killed.copy_with(ledger, bit) as data:
                    assert verify(data).problems, f"bit {bit} of {ledger.name}"
                    seen_in(data, killed.written)


def test_bits_that_flip_while_the_server_runs(stopped: Stored, tmp_path: Path) -> None:
    """A reader is told which ledger and where; what lies before it is still read, in order."""
    data = tmp_path / "data"
    shutil.copytree(stopped.data, data)
    ledger = data / LEDGERS / stopped.ledgers()[1].name
    with tstreams.embedded(data, payload_cache_bytes=0) as ts:
        with ts.consumer("s", name="before") as consumer:
            assert len(list(consumer.read(max_wait=0.2))) == len(stopped.written)
        flip(ledger, ledger.stat().st_size * 4)
        seen: list[tuple[int, list[bytes]]] = []

        def read_on(consumer: tstreams.Consumer) -> None:
            seen.extend((it.id, list(it.items)) for it in consumer.read(max_wait=0.2))

        with ts.consumer("s", name="after") as consumer:
            for _ in range(2):  # however often one asks
                with pytest.raises(tstreams.Corrupt, match=r"ledger 2: .* offset \d+"):
                    read_on(consumer)
    assert 0 < len(seen) < len(stopped.written)
    assert seen == list(stopped.written.items())[: len(seen)]


def test_nothing_is_found_where_nothing_is_wrong(stopped: Stored, killed: Stored) -> None:
    for stored in (stopped, killed):
        report = verify(stored.data)
        assert report.problems == []
        assert report.ledgers >= 3
        assert seen_in(stored.data, stored.written) == 0


@pytest.mark.parametrize("ledger_number", [1, -1], ids=["in-the-middle", "the-last"])
def test_a_ledger_that_is_missing(stopped: Stored, tmp_path: Path, ledger_number: int) -> None:
    """Somebody has deleted a file: that is found, named, and no reader is told that there is nothing."""
    data = tmp_path / "data"
    shutil.copytree(stopped.data, data)
    missing = data / LEDGERS / stopped.ledgers()[ledger_number].name
    missing.unlink()
    problems = verify(data).problems
    assert problems
    assert all(NAMES_THE_PLACE.search(it) for it in problems), problems
    try:
        ts = tstreams.embedded(data, payload_cache_bytes=0)
    except tstreams.Corrupt as error:
        assert "is not there" in error.message
        assert ledger_number == -1
        return
    assert ledger_number == 1, (
        "what the index has taken is gone, and the server starts as if it were not"
    )
    with ts, ts.consumer("s", name="r") as consumer:
        refused = 0
        for transaction_id, items in stopped.written.items():
            try:
                found = consumer.by_id(0, transaction_id)
                assert found is not None
                assert list(found.items) == items
            except tstreams.Corrupt as error:
                assert "ledger 2 is not there" in error.message
                refused += 1
        assert 0 < refused < len(stopped.written)
