"""The examples in examples/spark do what they say."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from pyspark.sql import SparkSession

import tstreams
from benchmarks.postgres import PostgresServer, find_postgres, postgres_server
from tstreams import Client
from tstreams.server import Node
from tstreams.spark import Place

EXAMPLES = Path(__file__).parents[3] / "examples" / "spark"
NAMES = tuple(path.stem for path in sorted(EXAMPLES.glob("*.py")))
COUNTS = [
    *("1 calm", "1 fair", "1 full", "1 lies", "1 moon", "1 night", "1 sea", "1 tide", "1 to"),
    *("2 is", "3 the"),
]

Load = Callable[[str], ModuleType]

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports an example under its own name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server of its own: examples choose the names of their streams."""
    with Node(tmp_path / "data", ["tcp://127.0.0.1:0"]).in_thread() as node:
        yield node.addresses[0]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    if find_postgres() is None:
        pytest.skip("there is no PostgreSQL on this machine")
    with (
        tempfile.TemporaryDirectory() as name,
        postgres_server(Path(name), {"fsync": "off"}) as server,
    ):
        yield server


def test_word_count(load: Load, spark: SparkSession, url: str, tmp_path: Path) -> None:
    assert load("word_count").run(spark, url, tmp_path / "checkpoints") == COUNTS


def test_fraud(load: Load, spark: SparkSession, url: str, tmp_path: Path) -> None:
    alerts = load("fraud").run(spark, url, tmp_path / "checkpoints")
    found = [(it["card"], it["minute"].minute, it["payments"], it["cents"]) for it in alerts]
    assert found == [("alice", 0, 3, 600), ("carol", 1, 4, 200)]


def orders(ts: Client, numbers: range) -> None:
    with ts.producer("orders") as producer:
        for number in numbers:
            producer.instant([b'{"id": %d, "customer": "c%d", "cents": 5}' % (number, number % 3)])


def test_postgres(
    load: Load,
    spark: SparkSession,
    url: str,
    tmp_path: Path,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE", postgres.dsn)
    pipeline = load("postgres").orders_into_postgres
    checkpoint = tmp_path / "checkpoints" / pipeline.name
    place = Place({"url": url}, str(tmp_path / "checkpoints"), once=True)

    def run() -> None:
        pipeline.prepare(spark, place).start().awaitTermination()

    def stored() -> list[tuple[int, int]]:
        with psycopg.connect(postgres.dsn) as database:
            found = database.execute("select id, count(*) from orders group by id order by id")
            return [(number, count) for number, count in found]

    with tstreams.connect(url) as ts:
        ts.create_stream("orders")
        orders(ts, range(10))
        run()
        assert stored() == [(number, 1) for number in range(10)]
        # Spark died after the database's commit, and before it could note that the micro-batch is done.
        for name in ("0", ".0.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
        orders(ts, range(10, 15))
        run()
        assert stored() == [(number, 1) for number in range(15)]
    with psycopg.connect(postgres.dsn) as database:
        ((query, batch),) = database.execute("select query, batch from micro_batches").fetchall()
    assert (query in (checkpoint / "metadata").read_text(), batch) == (True, 1)


@pytest.mark.slow
def test_cluster() -> None:
    """On executors in processes of their own."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "cluster.py")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == ["on local-cluster[1,2,1024]:", *COUNTS]


def test_every_example_is_in_the_list() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in NAMES if f"({name}.py)" not in text] == []
