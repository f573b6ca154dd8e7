"""How `durable` speaks to PostgreSQL: psycopg 3, in binary, one INSERT for each transaction."""

from __future__ import annotations

import time

HOST = "127.0.0.1"


class PostgresWriter:
    """As many transactions as fit the window travel as one pipeline; each is committed by itself.

    Rows travel as an array: with a statement for each it is slower.
    """

    def __init__(self, port: int) -> None:
        import psycopg

        self._connection = psycopg.connect(
            f"host={HOST} port={port} user=postgres dbname=postgres", autocommit=True
        )
        self._table, self._partition = "", 0

    def create(self, stream: str, partitions: int) -> None:
        """One table; each client has rows of its own."""
        self._connection.execute(
            f'CREATE TABLE "{stream}" (part int, id bigint GENERATED ALWAYS AS IDENTITY, '
            "item bytea, PRIMARY KEY (part, id))"
        )

    def open(self, stream: str, partition: int) -> None:
        """The table is all there is."""
        self._table, self._partition = stream, partition

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """BEGIN, INSERT, COMMIT, as often as there is room in the window, then wait for all of them."""
        put = f'INSERT INTO "{self._table}" (part, item) SELECT %b, unnest(%b::bytea[])'
        values = (self._partition, items)
        deadline = time.perf_counter() + seconds
        done = 0
        with (
            self._connection.cursor(binary=True) as cursor,
            self._connection.pipeline() as pipeline,
        ):
            while done < count_max and time.perf_counter() < deadline:
                together = min(window, count_max - done)
                for _ in range(together):
                    cursor.execute("BEGIN")
                    cursor.execute(put, values)
                    cursor.execute("COMMIT")
                pipeline.sync()
                done += together
        return done

    def drop(self, stream: str, partition: int) -> None:
        """The first client drops the table for all."""
        if partition == 0:
            self._connection.execute(f'DROP TABLE "{stream}"')

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
