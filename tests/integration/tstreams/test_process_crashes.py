"""Processing loops that are killed or interrupted, and what that leaves behind."""

from __future__ import annotations

import random
import signal
import time

import pytest

from tstreams import Client

from .collecting import client_process, line_of
from .faces import Face
from .test_process import DELIVERIES, fill, out, upper, written

__all__ = ["out"]

_JOB = """
import sys, tstreams
def fn(txn):
    if txn.items[0] in (b"100", b"300"):
        print("here", flush=True)
        sys.stdin.readline()
    return txn.items
with tstreams.connect(sys.argv[1]) as ts:
    ts.process("clicks", "job", "out", fn, delivery=sys.argv[2], max_wait=1, batch=30)
print("over", flush=True)
"""


_AIO_JOB = """
import asyncio, sys
from tstreams import aio
async def fn(txn):
    items = await txn.read_items()
    if items[0] in (b"100", b"300"):
        print("here", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    return items
async def main():
    async with aio.connect(sys.argv[1]) as ts:
        await ts.process("clicks", "job", "out", fn, delivery=sys.argv[2], max_wait=1, batch=30)
asyncio.run(main())
print("over", flush=True)
"""
JOBS = {"sync": _JOB, "async": _AIO_JOB}


@pytest.mark.over_tcp
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_killed_again_and_again(
    face: Face, ts: Client, clicks: str, out: str, delivery: str
) -> None:
    producer = ts.producer(clicks)
    for number in range(400):
        producer.instant([b"%d" % number], partition=0)
    for _ in range(2):
        with client_process(JOBS[face.name], ts.config.url, delivery) as job:
            if line_of(job) == "over":
                break
            job.send_signal(signal.SIGKILL)
            job.wait(30)
    while True:
        with client_process(JOBS[face.name], ts.config.url, delivery) as job:
            line = line_of(job)
            while line == "here":
                assert job.stdin is not None
                job.stdin.write("\n")
                job.stdin.flush()
                line = line_of(job)
            assert line == "over"
            break
    found = [int(item) for item in written(ts, out)]
    if delivery == "exactly-once":
        assert found == list(range(400))
    elif delivery == "at-least-once":
        assert sorted(set(found)) == list(range(400))
    else:
        assert found == sorted(set(found))
        assert 300 < len(found) < 400


_BUSY_JOB = """
import sys, tstreams
with tstreams.connect(sys.argv[1]) as ts:
    print("begun", flush=True)
    ts.process("clicks", "job", "out", lambda txn: txn.items, batch=3)
"""


_AIO_BUSY_JOB = """
import asyncio, sys
from tstreams import aio
async def main():
    async with aio.connect(sys.argv[1]) as ts:
        print("begun", flush=True)
        await ts.process("clicks", "job", "out", lambda txn: txn.items, batch=3)
asyncio.run(main())
"""
BUSY_JOBS = {"sync": _BUSY_JOB, "async": _AIO_BUSY_JOB}


@pytest.mark.slow
@pytest.mark.over_tcp
def test_killed_at_any_moment(face: Face, ts: Client, clicks: str, out: str) -> None:
    items = fill(ts, clicks, 4000)
    rng = random.Random(7)
    for _ in range(8):
        with client_process(BUSY_JOBS[face.name], ts.config.url) as job:
            assert line_of(job) == "begun"
            time.sleep(rng.uniform(0.05, 0.4))
            job.send_signal(signal.SIGKILL)
            job.wait(30)
    ts.process(clicks, "job", out, lambda txn: txn.items, max_wait=0)
    for partition in range(4):
        consumer = ts.consumer(out, partitions=[partition])
        found = [item for txn in consumer.read(max_wait=0) for item in txn.items]
        assert found == items[partition::4]


_INTERRUPTED = """
import sys, time, tstreams
def fn(txn):
    yield b"half"
    print("here", flush=True)
    time.sleep(60)
with tstreams.connect(sys.argv[1]) as ts:
    try:
        ts.process("clicks", "job", "out", fn)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


_AIO_INTERRUPTED = """
import asyncio, sys
from tstreams import aio
async def fn(txn):
    yield b"half"
    print("here", flush=True)
    await asyncio.sleep(60)
async def main():
    async with aio.connect(sys.argv[1]) as ts:
        await ts.process("clicks", "job", "out", fn)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
INTERRUPTED = {"sync": _INTERRUPTED, "async": _AIO_INTERRUPTED}


@pytest.mark.over_tcp
def test_ctrl_c_leaves_nothing_behind(face: Face, ts: Client, clicks: str, out: str) -> None:
    fill(ts, clicks, 1)
    with client_process(INTERRUPTED[face.name], ts.config.url) as job:
        assert line_of(job) == "here"
        job.send_signal(signal.SIGINT)
        assert line_of(job) == "interrupted"
    behind = ts.producer(out).instant([b"behind"], partition=0)
    read = ts.consumer(out).get(0, timeout=10)
    assert read is not None
    assert read.id == behind
    assert ts.process(clicks, "job", out, upper, max_wait=0).transactions == 1
