"""How `pipeline` handles batches with PostgreSQL: psycopg 3, in binary, a queue in a table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .interface import BenchmarkFailed
from .postgres import PostgresServer, postgres_server
from .servers import cpu_s_of

HOST = "127.0.0.1"
SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
"""Room for what is written here; all else, and what makes it durable, is as PostgreSQL has it."""


class WatchedPostgres:
    """A server, and what it costs."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.port = server.port

    def check(self) -> None:
        """Raise if it has ended."""
        process = self._server.process
        if process is None or process.poll() is not None:
            raise BenchmarkFailed(f"PostgreSQL has ended; its log:\n{self._server.log_tail()}")

    def cpu_s(self) -> float:
        """Processor time of all its processes."""
        return cpu_s_of(self._server.pids())


@contextlib.contextmanager
def serve_postgres(folder: Path, fsync: bool = True) -> Iterator[WatchedPostgres]:
    """A PostgreSQL server with its data in `folder`, that syncs each commit before it answers, or a little later."""
    settings = SETTINGS if fsync else SETTINGS | {"synchronous_commit": "off"}
    with postgres_server(folder, settings) as server:
        yield WatchedPostgres(server)


class PostgresWorker:
    """A batch is locked, then its results are inserted and it is deleted, in one transaction.

    The second round trip holds the rest of the transaction, as a pipeline. Rows travel as arrays: with a
    statement for each it is slower.
    """

    def __init__(self, port: int) -> None:
        import psycopg

        self._connection = psycopg.connect(
            f"host={HOST} port={port} user=postgres dbname=postgres", autocommit=True
        )
        self._psycopg = psycopg

    def create(self, job: str, partitions: int) -> None:
        """Two tables; each worker has rows of its own in both."""
        for table in (f"{job}-in", f"{job}-out"):
            self._connection.execute(
                f'CREATE TABLE "{table}" (part int, id bigint GENERATED ALWAYS AS IDENTITY, '
                "item bytea, PRIMARY KEY (part, id))"
            )

    def fill(self, job: str, partition: int, batches: int, items: list[bytes]) -> None:
        """COPY."""
        statement = f'COPY "{job}-in" (part, item) FROM STDIN (FORMAT BINARY)'
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["int4", "bytea"])
            for _ in range(batches):
                for item in items:
                    copy.write_row((partition, item))

    def work(
        self, job: str, partition: int, batches: int, count: int
    ) -> tuple[float, float, list[float]]:
        """Two round trips: BEGIN and the batch, then the rest."""
        from .pipeline_workers import transform

        take = (
            f'SELECT id, item FROM "{job}-in" WHERE part = %b ORDER BY id LIMIT %b '
            "FOR UPDATE SKIP LOCKED"
        )
        put = f'INSERT INTO "{job}-out" (part, item) SELECT %b, unnest(%b::bytea[])'
        drop = f'DELETE FROM "{job}-in" WHERE part = %b AND id = ANY(%b)'
        connection = self._connection
        took: list[float] = []
        begun = time.perf_counter()
        with connection.cursor(binary=True) as cursor, connection.pipeline() as pipeline:
            for _ in range(batches):
                cursor.execute("BEGIN")
                cursor.execute(take, (partition, count))
                rows = cursor.fetchall()
                results = transform([item for _, item in rows])
                before = time.perf_counter()
                cursor.execute(put, (partition, results))
                cursor.execute(drop, (partition, [number for number, _ in rows]))
                cursor.execute("COMMIT")
                pipeline.sync()
                took.append(time.perf_counter() - before)
        return begun, time.perf_counter(), took

    def output(self, job: str, partition: int) -> tuple[int, bytes]:
        """The number of rows, and the last one; and nothing may be left of the input."""
        left = self._one(f'SELECT count(*) FROM "{job}-in" WHERE part = %s', partition)
        number = self._one(f'SELECT count(*) FROM "{job}-out" WHERE part = %s', partition)
        last = f'SELECT item FROM "{job}-out" WHERE part = %s ORDER BY id DESC LIMIT 1'
        return number - left, bytes(self._one(last, partition))

    def _one(self, statement: str, *values: Any) -> Any:
        row = self._connection.execute(statement, values).fetchone()
        assert row is not None
        return row[0]

    def drop(self, job: str, partition: int) -> None:
        """The first worker drops the tables for all."""
        if partition == 0:
            self._connection.execute(f'DROP TABLE "{job}-in", "{job}-out"')

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
