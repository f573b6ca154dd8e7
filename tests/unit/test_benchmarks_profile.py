"""Folded stacks become shares of functions, and a picture of them."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from benchmarks.profile_flame import SHARE_MIN, flame
from benchmarks.profile_stacks import NATIVE, PYTHON, SYNC, SYSTEM, kind_of, parse, tidy

START = "0x7fc8c2b1d8ec (libc.so.6);main (tstreams/cli/main.py:58)"
COMMIT = f"{START};Shard.commit (tstreams/server/shard.py:353)"
SYNCED = "RealFile.sync (tstreams/ledger/files.py:109);os_fdatasync (libpython3.11.so.1.0);fdatasync (libc.so.6)"
FOLDED = f"""\
{COMMIT};{SYNCED} 50
{COMMIT};Peer.flush (moebius/peer.py:169);uv_write (stream.c:35);write (libc.so.6) 20
{COMMIT};Peer.flush (moebius/peer.py:170) 5
{COMMIT};Shard._write (tstreams/server/shard.py:402) 14
{COMMIT};Shard._write (tstreams/server/shard.py:408);rocksdb::Put(a, b) (rocksdict/rocksdict.cpython-311.so);0x9 (?) 10
{START};rare (tstreams/rare.py:1) 1
{START};uv__io_poll (linux.c:1452);epoll_pwait (libc.so.6) 900
worker (thread.py:81);PyThread_acquire_lock_timed (libpython3.11.so.1.0);0x1 (libc.so.6);0x2 (libc.so.6) 1000
"""


def test_samples_that_wait_are_counted_apart() -> None:
    profile = parse(FOLDED)
    assert (profile.working, profile.waiting) == (100, 1900)


def test_shares_of_what_a_thread_was_at() -> None:
    assert parse(FOLDED).shares() == {PYTHON: 0.20, NATIVE: 0.10, SYSTEM: 0.20, SYNC: 0.50}


def test_functions_by_own_and_total_time() -> None:
    lines = {line.function: line for line in parse(FOLDED).lines()}
    written = lines["Shard._write (tstreams/server/shard.py)"]
    assert (written.own, written.outside, written.callees) == (0.24, 0.10, ("rocksdict",))
    flushed = lines["Peer.flush (moebius/peer.py)"]
    assert (flushed.own, flushed.outside, flushed.callees) == (0.25, 0.20, ("write",))
    commit = lines["Shard.commit (tstreams/server/shard.py)"]
    assert (commit.own, commit.total) == (0.0, 0.99)
    assert next(iter(lines)) == "RealFile.sync (tstreams/ledger/files.py)"


def test_a_function_that_calls_itself_is_counted_once() -> None:
    [line] = parse(
        "walk (tstreams/a.py:1);walk (tstreams/a.py:2);walk (tstreams/a.py:1) 7\n"
    ).lines()
    assert (line.own, line.total) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("frames", "tidied"),
    [
        (["f (tstreams/a.py:12)", "0xf16 (libc.so.6)"], ("f (tstreams/a.py)", "libc")),
        (["f (a.py:1)", "Encoder_encode (msgspec/_core.cpython-311.so)"], ("f (a.py)", "_core")),
        (['process 12:"python -m x"', "f (a.py:1)", "0x9 (?)"], ("f (a.py)",)),
        (
            ["f (a.py:1)", "clock_gettime (libc.so.6)", "0x1 ([vdso])"],
            ("f (a.py)", "clock_gettime (libc)"),
        ),
    ],
)
def test_frames_are_tidied(frames: list[str], tidied: tuple[str, ...]) -> None:
    assert tidy(frames) == tidied


def test_a_worker_of_spark_waits_for_its_java() -> None:
    profile = parse(
        "ArrowStreamSerializer.load_stream (serializers.py:87);read (libc.so.6) 3\n"
        "ArrowStreamSerializer.dump_stream (serializers.py:73);write (libc.so.6) 4\n"
        "ArrowStreamSerializer.dump_stream (serializers.py:73);read (tstreams/spark/slices.py:9) 1\n"
        "DialledLink.send_now (moebius/transports/tcp.py:399);write (libc.so.6) 1\n"
    )
    assert (profile.working, profile.waiting) == (2, 7)
    assert [kind_of(stack) for stack in profile.stacks] == [PYTHON, SYSTEM]


def test_the_picture_has_wide_frames_and_no_narrow_ones() -> None:
    picture = flame("write: server", parse(FOLDED * 5 + f"{START};narrow (tstreams/b.py:1) 1\n"))
    root = ET.fromstring(picture)
    boxes = root.findall(".//{*}g")
    titles = [box.findtext("{*}title") or "" for box in boxes]
    assert "RealFile.sync (tstreams/ledger/files.py): 49.9 %" in titles
    assert "rare (tstreams/rare.py): 1.0 %" in titles
    assert not any("narrow" in title for title in titles)
    assert all(float(title.split()[-2]) >= 100 * SHARE_MIN for title in titles)
    assert "<script" not in picture
    assert not re.search(r"(href|src)=", picture)


def test_the_picture_of_nothing_is_a_picture() -> None:
    assert ET.fromstring(flame("read: client", parse(""))).tag.endswith("svg")
