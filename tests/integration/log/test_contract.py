"""What every log promises, in local files or kept by an engine: the same tests for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.log.sites import Site, contents, entries, images
from tstreams.errors import Corrupt, InvalidState
from tstreams.ledger.files import RealFolder
from tstreams.ledger.local import LocalLog
from tstreams.ledger.port import position_of, split_position

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("log"), pytest.mark.core]

SMALL = 16 * 1024
"""Ledgers of this size make the tests roll often."""


async def test_an_empty_log(site: Site) -> None:
    log = await site.open()
    assert (log.end, log.epoch, log.ledgers(), contents(log)) == (0, 0, [], [])
    await log.close()


async def test_what_goes_in_comes_out(site: Site) -> None:
    log = await site.open()
    await log.take_over(1, 0)
    records = [[b"one"], [b"two ", b"halves"], [b""], [bytes(100_000)], [b"x" * 3_000_000]]
    positions = await log.append(records, 0)
    assert positions == sorted(positions)
    for position, record in zip(positions, records, strict=True):
        joined = b"".join(record)
        assert bytes(log.read_many([(position, len(joined))])[0]) == joined
    assert contents(log) == [b"".join(record) for record in records]
    assert [position for position, _ in entries(log)] == positions
    end = log.end
    await log.close()
    again = await site.open()
    assert contents(again) == [b"".join(record) for record in records]
    assert again.end == end
    await again.close()


async def test_records_are_read_together_and_apart(site: Site) -> None:
    log = await site.open(ledger_bytes=SMALL)
    await log.take_over(1, 0)
    written = {}
    for n in range(12):
        first, second = await log.append([[b"a%d" % n, bytes(3000)], [b"b%d" % n]], 0)
        written[first, 3000 + len(b"a%d" % n)] = b"a%d" % n + bytes(3000)
        written[second, len(b"b%d" % n)] = b"b%d" % n
    wanted = list(written)
    assert [bytes(it) for it in log.read_many(wanted)] == list(written.values())
    assert [bytes(it) for it in log.read_many(wanted[::-5])] == list(written.values())[::-5]
    position, size = wanted[0]
    for wrong in (size - 1, size + 1):
        with pytest.raises(Corrupt, match="ledger 1"):
            log.read_many([(position, wrong)])
    with pytest.raises(Corrupt, match="ledger 99 is not there"):
        log.read_many([(position_of(0x99, 528), 8)])
    await log.close()


async def test_nobody_writes_without_taking_over(site: Site) -> None:
    log = await site.open()
    with pytest.raises(InvalidState, match="take the log over"):
        await log.append([[b"x"]], 0)
    with pytest.raises(InvalidState, match="take the log over"):
        await log.roll(0)
    await log.take_over(5, 0)
    for epoch in (4, 5):
        with pytest.raises(InvalidState, match="not above 5"):
            await log.take_over(epoch, 0)
    await log.append([[b"still the writer"]], 0)
    await log.take_over(6, 0)
    assert [ledger.epoch for ledger in log.ledgers()] == [5, 6]
    await log.close()
    again = await site.open()
    assert again.epoch == 6
    with pytest.raises(InvalidState, match="not above 6"):
        await again.take_over(6, 0)
    await again.take_over(7, 0)
    assert [(it.id, it.epoch) for it in again.ledgers()] == [(1, 5), (2, 6), (3, 7)]
    await again.close()


async def test_ledgers_roll_by_size_and_age_and_are_trimmed_whole(site: Site) -> None:
    log = await site.open(ledger_bytes=SMALL)
    await log.take_over(1, 0)
    for n in range(20):
        await log.append([[b"%d" % n, bytes(4000)]], 0)
    by_size = len(log.ledgers())
    assert by_size > 4
    await log.append([[b"late"]], 11 * 60 * 1000)
    assert len(log.ledgers()) == by_size + 1
    ids = [ledger.id for ledger in log.ledgers()]
    doomed = [ids[0], ids[2]]
    kept = [bytes(it) for at, it in entries(log) if split_position(at)[0] not in doomed]
    assert len(kept) < 21
    await log.trim(doomed)
    await log.trim(doomed)
    assert contents(log) == kept
    with pytest.raises(InvalidState, match="being written"):
        await log.trim([ids[-1]])
    with pytest.raises(Corrupt, match="is not there"):
        log.read_many([(ids[0] << 40 | 528, 1)])
    await log.close()
    again = await site.open(ledger_bytes=SMALL)
    assert contents(again) == kept
    assert [it.id for it in again.ledgers()] == [it for it in ids if it not in doomed]
    await again.close()


async def test_scanning_begins_and_ends_where_it_is_told_to(site: Site) -> None:
    log = await site.open(ledger_bytes=SMALL)
    await log.take_over(1, 0)
    ends = [log.end]
    for n in range(10):
        await log.append([[b"%d" % n, bytes(4000)]], 0)
        ends.append(log.end)
    everything = entries(log)
    for n, end in enumerate(ends[1:], 1):
        assert entries(log, end) == everything[n:]
    stop = position_of(split_position(everything[5][0])[0], 0)
    found = [entry for _, group in log.scan(0, stop) for entry in group]
    assert found == [entry for entry in everything if entry[0] < stop]
    assert [end for end, _ in log.scan(0)] == ends[1:]
    await log.close()


async def test_lists_of_ledgers_come_in_pieces(site: Site) -> None:
    log = await site.open()
    for epoch in range(1, 6):
        await log.take_over(epoch, epoch * 10)
        await log.append([[b"x"]], 0)
    infos = log.ledgers()
    assert [(it.id, it.epoch, it.created_ms) for it in infos] == [
        (n, n, 10 * n) for n in range(1, 6)
    ]
    assert [it.closed for it in infos] == [True] * 4 + [False]
    assert [it.id for it in log.ledgers(after=2)] == [3, 4, 5]
    assert [it.id for it in log.ledgers(after=2, limit=2)] == [3, 4]
    await log.close()


async def test_the_bytes_are_those_of_a_local_log(site: Site, tmp_path: Path) -> None:
    """So positions mean the same everywhere, and so does what an index says of them."""
    local = LocalLog(RealFolder(tmp_path / "model"), ledger_bytes=SMALL)
    log = await site.open(ledger_bytes=SMALL)
    for epoch in (3, 8):
        local.take_over(epoch, epoch)
        await log.take_over(epoch, epoch)
        for n in range(12):
            records = [[b"%d" % n, bytes(n * 300)] for n in range(n + 1)]
            assert await log.append(records, n) == local.append(records, n)
        local.roll(99)
        await log.roll(99)
    assert log.ledgers() == local.ledgers()
    assert log.end == local.end
    assert len(log.ledgers()) > 6
    model = {
        it.id: (tmp_path / "model" / f"{it.id:012x}.ledger").read_bytes()[: it.size_bytes]
        for it in local.ledgers()
    }
    assert images(site.folder(), log) == model
    local.close()
    await log.close()
