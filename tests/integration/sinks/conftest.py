"""A storage server, a PostgreSQL server, and empty databases."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tstreams
from benchmarks.postgres import PostgresServer, find_postgres, postgres_server
from tstreams import Client
from tstreams.server import Node

from .databases import EmptyDatabase, postgres_database, sqlite_database

_numbers = itertools.count()

NewDatabase = Callable[[], EmptyDatabase]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "data", listen=["tcp://127.0.0.1:0"]).in_thread() as node:
        yield node


@pytest.fixture
def ts(node: Node) -> Iterator[Client]:
    with tstreams.connect(node.addresses[0]) as client:
        yield client


@pytest.fixture
def clicks(ts: Client) -> str:
    return ts.create_stream("clicks", partitions=4).name


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One for all tests that do not harm it."""
    if find_postgres() is None:
        pytest.skip("there is no PostgreSQL on this machine")
    with (
        tempfile.TemporaryDirectory() as name,
        postgres_server(Path(name), {"fsync": "off"}) as server,
    ):
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    """Makes empty databases."""
    if request.param == "sqlite":
        return lambda: sqlite_database(tmp_path / f"{next(_numbers)}.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return lambda: postgres_database(server.dsn, f"test_{os.getpid()}_{next(_numbers)}")


@pytest.fixture
def database(new_database: NewDatabase) -> EmptyDatabase:
    return new_database()
