"""The blocks of the guide that need servers of others: they run against real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from benchmarks.machine import find_redis
from benchmarks.postgres import PostgresServer
from benchmarks.servers import redis_server
from tests.e2e.doc_blocks import ROOT, blocks_of
from tstreams import Client
from tstreams.server import Node
from tstreams.sinks import ItemKey

from .databases import content, fill, postgres_database

GUIDE = ROOT / "docs" / "guides" / "into-your-database.md"


def run_block(title: str, folder: Path, replaced: dict[str, str], **environment: str) -> str:
    """What a block of the guide prints."""
    (text,) = (block.text for block in blocks_of(GUIDE) if block.title == title)
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    (folder / title).write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "error", title],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def payments(ts: Client) -> str:
    return ts.create_stream("payments", partitions=2).name


def connecting(node: Node) -> dict[str, str]:
    """The block connects to this server. Its own port is another one whenever the page is looked at."""
    return {'tstreams.connect("tcp://127.0.0.1:': f'tstreams.connect("{node.addresses[0]}" or "'}


def test_postgres(
    node: Node, ts: Client, payments: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    database = postgres_database(postgres.dsn, "shop")
    database.run("create table payment (transaction_id bigint, text text)")
    fill(ts, payments, 50, partitions=2)
    environment = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "postgres"}
    replaced = connecting(node) | {"max_wait=5": "max_wait=0"}
    printed = run_block("postgres.py", tmp_path, replaced, **environment)
    expected = sorted((row[1], row[3]) for row in content(ts, payments))
    assert printed == f"stored {len(expected)} items\n"
    assert run_block("postgres.py", tmp_path, replaced, **environment) == "stored 0 items\n"
    with psycopg.connect(database.where) as connection:
        found = connection.execute("select * from payment order by 1, 2").fetchall()
    assert found == expected


def test_redis(node: Node, ts: Client, payments: str, tmp_path: Path) -> None:
    """Also if the program had died after the work, and before its checkpoint."""
    binary = find_redis()
    if binary is None:
        pytest.skip("there is no redis-server on this machine")
    fill(ts, payments, 250, partitions=2)
    with redis_server(binary, {}) as server:
        replaced = connecting(node) | {"6379": str(server.port), "max_wait=1": "max_wait=0"}
        run_block("into_redis.py", tmp_path, replaced | {"consumer.checkpoint()": "pass"})
        run_block("into_redis.py", tmp_path, replaced)
        with redis.Redis(port=server.port) as store:
            found = {ItemKey.parse(key.decode()): store.get(key) for key in store.scan_iter()}
    expected = {
        ItemKey(payments, partition, txn_id, number): item.encode()
        for partition, txn_id, number, item in content(ts, payments)
    }
    assert found == expected
    with ts.consumer(payments, "redis") as consumer:
        assert list(consumer.read(max_wait=0)) == []
