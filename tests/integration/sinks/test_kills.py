"""The program that stores is killed at any moment, hangs, and wakes up when another has taken over.

The table has no key that could refuse a duplicate: it has to equal the stream, row for row.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tstreams import Client
from tstreams.server import Node

from ..tstreams.collecting import client_process, line_of
from ..tstreams.conftest import eventually
from ..tstreams.forked import Forked
from .databases import EmptyDatabase, content, fill

SINK = """
import sqlite3, sys
import tstreams
from tstreams.sinks import into_database

url, kind, where = sys.argv[1:]

def connect():
    if kind == "sqlite":
        return sqlite3.connect(where, timeout=30)
    import psycopg
    return psycopg.connect(where)

def store(connection, transactions):
    mark = "?" if kind == "sqlite" else "%s"
    print("storing", flush=True)
    cursor = connection.cursor()
    for txn in transactions:
        rows = [(txn.partition, txn.id, n, item.decode()) for n, item in enumerate(txn.items)]
        cursor.executemany(f"insert into stored values ({mark}, {mark}, {mark}, {mark})", rows)

with tstreams.connect(url) as ts:
    print("ready", flush=True)
    try:
        into_database(ts, "clicks", "loader", connect, store, batch=4, max_wait=2.0)
        print("done", flush=True)
    except tstreams.Fenced:
        print("fenced", flush=True)
"""
KILLS = 25


class Writer:
    """Writes into the stream all the time, until it is told to stop."""

    def __init__(self, ts: Client) -> None:
        self._ts = ts
        self._full = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(self._write)

    def _write(self) -> None:
        while not self._full.is_set():
            fill(self._ts, "clicks", 4)
            time.sleep(0.02)

    def stop(self) -> None:
        self._full.set()
        self._future.result(60)
        self._pool.shutdown()


def last_line_of(process: Forked) -> str:
    """What it says in the end."""
    return process.stdout.read().split()[-1]


def finish(*arguments: str) -> None:
    """Let one run to its end."""
    with client_process(SINK, *arguments) as sink:
        assert last_line_of(sink) == "done"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_again_and_again(
    node: Node, ts: Client, clicks: str, database: EmptyDatabase
) -> None:
    rng = random.Random(11)
    arguments = (node.addresses[0], database.kind, database.where)
    writer = Writer(ts)
    counts = []
    try:
        for _ in range(KILLS):
            with client_process(SINK, *arguments) as sink:
                assert line_of(sink) == "ready"
                if rng.random() < 0.8:  # else it hardly got up
                    for _ in range(rng.randrange(1, 10)):
                        assert line_of(sink) == "storing"
                time.sleep(rng.uniform(0, 0.03))
                sink.send_signal(signal.SIGKILL)
                assert sink.wait(30) == -signal.SIGKILL
            counts.append(len(database.stored()))
    finally:
        writer.stop()
    finish(*arguments)
    assert database.stored() == content(ts, clicks)
    assert len(set(counts)) > KILLS / 2, f"most were killed before they did anything: {counts}"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_zombies(node: Node, ts: Client, clicks: str, database: EmptyDatabase) -> None:
    """One hangs, another takes over, the first wakes up: it is fenced, whatever it was doing."""
    rng = random.Random(12)
    arguments = (node.addresses[0], database.kind, database.where)
    writer = Writer(ts)
    outcomes = []
    try:
        for _ in range(8):
            with (
                client_process(SINK, *arguments) as older,
                client_process(SINK, *arguments) as newer,
            ):
                assert line_of(older) == "ready"
                assert line_of(newer) == "ready"
                time.sleep(rng.uniform(0.0, 0.2))
                for _ in range(5):
                    older.send_signal(signal.SIGSTOP)
                    time.sleep(rng.uniform(0, 0.05))
                    older.send_signal(signal.SIGCONT)
                    time.sleep(rng.uniform(0, 0.02))
                eventually(lambda o=older, n=newer: {o.poll(), n.poll()} != {None})
                first, second = (older, newer) if older.poll() is not None else (newer, older)
                outcomes.append(last_line_of(first))
                second.kill()
                second.wait(30)
    finally:
        writer.stop()
    assert outcomes == ["fenced"] * 8
    finish(*arguments)
    assert database.stored() == content(ts, clicks)


def test_one_that_hangs_in_a_transaction_is_waited_for(
    node: Node, ts: Client, clicks: str, database: EmptyDatabase
) -> None:
    """It may still commit, so the next cannot know where to begin: only when it is gone."""
    fill(ts, clicks, 8)
    hang = """
import tstreams.sinks.offsets
plain = tstreams.sinks.OffsetStore.save
def save(self, *given):
    plain(self, *given)
    print("saved", flush=True)
    sys.stdin.readline()
tstreams.sinks.OffsetStore.save = save
"""
    code = SINK.replace("url, kind, where", hang + "url, kind, where")
    arguments = (node.addresses[0], database.kind, database.where)
    with client_process(code, *arguments) as older:
        assert [line_of(older) for _ in range(3)] == ["ready", "storing", "saved"]
        with client_process(SINK, *arguments) as newer:
            assert line_of(newer) == "ready"
            time.sleep(0.3)
            assert database.stored() == []
            older.kill()
            older.wait(30)
            assert last_line_of(newer) == "done"
    assert database.stored() == content(ts, clicks)
