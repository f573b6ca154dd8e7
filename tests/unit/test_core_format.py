"""Records as they lie in logs: what was written once must be read by whatever comes later."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.unit.core_client import Client
from tstreams.core.records import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    Committed,
    CopiesForgotten,
    CopyDropped,
    Decided,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    LedgersDropped,
    Moved,
    Opened,
    OpenedWith,
    Overruled,
    Prepared,
    ReaderReset,
    Refused,
    SessionBegun,
    SessionsEnded,
    SessionsNoted,
    Settled,
    SnapshotBegun,
    SnapshotEnded,
    SnapshotPiece,
    Staged,
    StepCommitted,
    StepPrepared,
    StreamAltered,
    StreamCopied,
    StreamCreated,
    StreamDeleted,
    StreamPurged,
    Swept,
    Told,
    ToTell,
    decode_record,
    encode_record,
)
from tstreams.errors import Corrupt
from tstreams.protocol import Group

WRITTEN: list[tuple[AnyRecord, str]] = [
    (SessionBegun(7, 0), "0400000093010700"),
    (SessionsEnded(0, 0, [7], [9], [300]), "0c000000960200009107910991cd012c"),
    (SessionsNoted(0, 0, [(7, 15, 14)]), "09000000942800009193070f0e"),
    (Swept(0, 0, 1_000, 50, 3, b"J"), "0c00000097290000cd03e83203c4014a"),
    (Swept(0, 0, 1_000, 50, 3, None), "0a00000097290000cd03e83203c0"),
    (LedgersDropped(0, 0, [3, 4]), "07000000942a0000920304"),
    (SnapshotBegun(0, 0), "04000000932b0000"),
    (SnapshotPiece(0, 0, 300, 1), "08000000952c0000cd012c01"),
    (SnapshotEnded(0, 0, 300, 2, 40, 5_000), "0c000000972d0000cd012c0228cd1388"),
    (StreamCreated(7, 1, 8, "a", 2, 60_000, "d", b"s"), "100000009903070108a16102cdea60a164c40173"),
    (StreamAltered(7, 2, 8, 5_000, "e", 4, None), "0c0000009804070208cd1388a16504c0"),
    (StreamDeleted(7, 3, 8, [300]), "09000000950507030891cd012c"),
    (StreamPurged(7, 4, 8, 300), "080000009506070408cd012c"),
    (
        AgentBegun(7, 5, 9, "producer", 8, "p", 6, [300]),
        "170000009a07070509a870726f647563657208a1700691cd012c00",
    ),
    (AgentEnded(7, 6, 9, [300]), "09000000950807060991cd012c"),
    (Opened(7, 7, 300, 8, 1, 9, 1_000), "0d00000098090707cd012c080109cd03e8"),
    (ItemsSent(7, 8, 300, 8, 1, 5), "0a000000970a0708cd012c080105"),
    (InstantMade(7, 9, 301, 8, 1, 5), "0b000000980b0709cd012d08010590"),
    (
        InstantMade(7, 9, 301, 8, 1, 5, [(8, "r", 0, 299)]),
        "13000000980b0709cd012d080105919408a17200cd012b",
    ),
    (
        Committed(7, 10, [300], [302], [(8, "r", 0, 299)]),
        "15000000960c070a91cd012c91cd012e919408a17200cd012b",
    ),
    (Ended(7, 11, [300], True), "09000000950d070b91cd012cc3"),
    (Moved(0, 0, 300, 8, 1, 2), "0a000000970e0000cd012c080102"),
    (Filled(0, 0, 303, 8, 1, 9, 5), "0b000000980f0000cd012f08010905"),
    (Staged(7, 12, "job", 3, 1_000, [300]), "100000009710070ca36a6f6203cd03e891cd012c"),
    (
        StepCommitted(7, 13, "job", 3, [300], [302], [304], [(8, 300)], False, 1_000),
        "1f0000009b11070da36a6f620391cd012c91cd012e91cd0130919208cd012cc2cd03e8",
    ),
    (
        ReaderReset(7, 14, 8, "r", [(0, 299), (1, 0)], 9),
        "110000009712070e08a172929200cd012b92010009",
    ),
    (Overruled(7, 15, [300]), "080000009413070f91cd012c"),
    (OpenedWith(0, 0, 305, 8, 1, 9, 1_000, 5), "0e00000099140000cd0131080109cd03e805"),
    (
        Prepared(
            7,
            16,
            Group(2, 7, 5),
            1_000,
            [9],
            [300],
            [302],
            [(8, "r", 0, 299)],
            [300],
            [(300, 5, False)],
        ),
        "290000009b15071093020705cd03e8910991cd012c91cd012e919408a17200cd012b91cd012c9193cd012c05c2",
    ),
    (
        StepPrepared(
            7, 17, Group(2, 7, 5), 1_000, "job", 3, [300], [302], [304], [(8, 300)], False
        ),
        "230000009c16071193020705cd03e8a36a6f620391cd012c91cd012e91cd0130919208cd012cc2",
    ),
    (Settled(0, 0, Group(2, 7, 5), True, 1_000), "0c0000009617000093020705c3cd03e8"),
    (Decided(7, 0, 5, [1, 3]), "080000009518070005920103"),
    (Refused(7, 0, 5, "expired", [1]), "0f0000009619070005a7657870697265649101"),
    (ToTell(7, 0, 8, 2, [1, 3]), "09000000961a07000802920103"),
    (Told(0, 0, [(7, 5, 1)], [(8, 2, 3)]), "0e000000951b000091930705019193080203"),
    (
        StreamCopied(0, 0, 8, "a", 2, 60_000, "d", b"s", 4, 2),
        "120000009b1c000008a16102cdea60a164c401730402",
    ),
    (CopyDropped(0, 0, 8, [300], 1_000), "0c000000961d00000891cd012ccd03e8"),
    (CopiesForgotten(0, 0, [8, 300]), "09000000941e00009208cd012c"),
]
"""As they were written first. These lines are never changed; fields are only added, at the end of a record."""


@pytest.mark.parametrize(("record", "written"), WRITTEN, ids=lambda it: type(it).__name__)
def test_a_record_lies_in_the_log_as_ever(record: AnyRecord, written: str) -> None:
    data = bytes.fromhex(written)
    assert b"".join(encode_record(record, None)) == data
    assert decode_record(memoryview(data)) == (record, len(data))
    assert b"".join(encode_record(record, b"items")) == data + b"items"
    assert decode_record(memoryview(data + b"items")) == (record, len(data))


def test_all_records_are_here() -> None:
    assert {type(it) for it, _ in WRITTEN} == set(get_args(AnyRecord))


def test_what_earlier_versions_wrote_has_the_defaults() -> None:
    """Fields that were added at the end."""
    altered = bytes.fromhex("0a0000009604070208cd1388a165")
    assert decode_record(memoryview(altered)) == (
        StreamAltered(7, 2, 8, 5_000, "e", 0, None),
        len(altered),
    )
    instant = bytes.fromhex("0a000000970b0709cd012d080105")
    assert decode_record(memoryview(instant)) == (InstantMade(7, 9, 301, 8, 1, 5, []), len(instant))
    begun = bytes.fromhex("160000009907070509a870726f647563657208a1700691cd012c")
    agent = AgentBegun(7, 5, 9, "producer", 8, "p", 6, [300], 0)
    assert decode_record(memoryview(begun)) == (agent, len(begun))
    data = bytes.fromhex("1e0000009915071093020705cd03e8910991cd012c91cd012e919408a17200cd012b")
    positions = [(8, "r", 0, 299)]
    prepared = Prepared(7, 16, Group(2, 7, 5), 1_000, [9], [300], [302], positions, [], [])
    assert decode_record(memoryview(data)) == (prepared, len(data))


@pytest.mark.parametrize("record", [it for it, _ in WRITTEN], ids=lambda it: type(it).__name__)
def test_what_has_happened_cannot_be_changed(record: AnyRecord) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        record.sequence = 5  # type: ignore[misc]


def test_a_record_that_is_cut_is_corrupt() -> None:
    data = bytes.fromhex(WRITTEN[0][1])
    for end in (4, len(data) - 1):
        with pytest.raises(Corrupt, match=f"record of {end} bytes is shorter than its header of 4"):
            decode_record(memoryview(data[:end]))


@pytest.mark.parametrize("header", ["", "c0", "93630700", "920107"])
def test_a_header_that_is_no_record_is_corrupt(header: str) -> None:
    data = bytes.fromhex(header)
    with pytest.raises(Corrupt, match="cannot be read"):
        decode_record(memoryview(len(data).to_bytes(4, "little") + data))


def test_a_log_without_anything_is_a_state_without_anything() -> None:
    state = Client().shard.state
    assert (state.last_id, state.last_number, state.open, state.heads) == (0, 1, {}, {})
