"""Arrow: a stream with a schema holds rows, and a transaction becomes a table without a copy per row.

Needs pyarrow: pip install 'tstreams[arrow]'
"""

import tempfile

import pyarrow as pa
import pyarrow.compute as pc

import tstreams

SCHEMA = pa.schema([("city", pa.string()), ("degrees", pa.float64())])


def run() -> list[tuple[str, float]]:
    """Write a table and single batches, read them, and average."""
    with tempfile.TemporaryDirectory() as folder, tstreams.embedded(folder) as ts:
        ts.create_stream("weather", schema=SCHEMA)
        with ts.producer("weather", compression="zstd") as producer:
            table = pa.table({"city": ["Oslo", "Rome"] * 500, "degrees": [4.0, 20.0] * 500}, SCHEMA)
            producer.instant(table)
            with producer.transaction() as txn:
                for degrees in (6.0, 8.0):
                    batch = pa.RecordBatch.from_pylist(
                        [{"city": "Oslo", "degrees": degrees}], SCHEMA
                    )
                    txn.send_many(batch)
        with ts.consumer("weather") as consumer:
            rows = pa.concat_tables(txn.to_arrow() for txn in consumer.read(max_wait=0.1))
    found = rows.group_by("city").aggregate([("degrees", "mean")]).sort_by("city")
    means = pc.round(found["degrees_mean"], 3).to_pylist()
    return list(zip(found["city"].to_pylist(), means, strict=True))


def main() -> None:
    """Tell what happened."""
    for city, degrees in run():
        print(f"{city}: {degrees} degrees on average")


if __name__ == "__main__":
    main()
