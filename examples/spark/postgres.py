"""From a stream into PostgreSQL, exactly once.

Spark calls a function with each micro-batch, and after a crash it may call it with the same one again. So the
function keeps the number of the last micro-batch in the database, in the transaction that stores the rows:
both are there, or neither; and one that is there already is passed over. The number alone would not do, as
another query, or this one with a fresh checkpoint location, counts from 0 too: it goes with the query's id.

    export DATABASE="host=127.0.0.1 user=postgres dbname=shop"
    tstreams pipeline run examples/spark/postgres.py

The rows go through the driver, in portions. That is right for micro-batches of up to some 100 000 rows;
`maxTransactionsPerTrigger` keeps them so.
"""

import os
from collections.abc import Iterator

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tstreams.spark import pipeline

SCHEMA = """
create table if not exists orders (id bigint, customer text, cents bigint);
create table if not exists micro_batches (query text primary key, batch bigint not null)
"""
CLAIM = """
insert into micro_batches values (%(query)s, %(batch)s)
on conflict (query) do update set batch = excluded.batch where micro_batches.batch < excluded.batch
"""


@pipeline("orders-into-postgres", source={"stream": "orders", "maxTransactionsPerTrigger": 1000})
def orders_into_postgres(items: DataFrame) -> DataStreamWriter:
    orders = items.selectExpr(
        "from_json(cast(item as string), 'id bigint, customer string, cents bigint') as it"
    )
    return orders.select("it.*").writeStream.foreachBatch(store)


def store(orders: DataFrame, batch: int) -> None:
    """Store a micro-batch, unless it is stored."""
    query = orders.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    with psycopg.connect(os.environ["DATABASE"]) as database:  # one transaction, until the end
        database.execute(SCHEMA)
        claimed = database.execute(CLAIM, {"query": query, "batch": batch})
        if claimed.rowcount == 0:
            return
        cursor = database.cursor()
        with cursor.copy("copy orders from stdin") as copy:
            for row in _rows(orders):
                copy.write_row(row)


def _rows(orders: DataFrame) -> Iterator[tuple[object, ...]]:
    yield from map(tuple, orders.toLocalIterator())
