"""Tasks that fail and are tried again, and what is left of those that were given up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as fn

from tstreams import Client, InvalidState
from tstreams.spark import writing
from tstreams.spark.options import WriteOptions

from .conftest import Pipe
from .test_source import fill

Make = Callable[..., str]

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""


def test_a_task_that_fails_is_tried_again_and_writes_once(
    pipe: Pipe, ts: Client, make: Make, tmp_path: Path
) -> None:
    source, sink = make(2), make(2)
    fill(ts, source, 2, 20_000)
    mark = str(tmp_path / "failed")

    def stumble(columns: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for number, column in enumerate(columns):
            if number == 1:  # what came before has been written already
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    raise RuntimeError("on purpose")
            yield column

    stumble.__annotations__ = {"columns": Iterator[pd.Series], "return": Iterator[pd.Series]}
    stumbling = fn.pandas_udf(stumble, "binary")  # type: ignore[attr-defined]
    pipe.run(pipe.stream(source).select(stumbling("item").alias("item")), sink)
    assert Path(mark).exists()
    assert Counter(pipe.items(sink)) == Counter(pipe.items(source))


def test_what_nobody_commits_expires(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(1)
    given = {"url": pipe.url, "stream": stream, "stagingTtl": "1s"}
    options = WriteOptions.parse(given)
    rows = pa.record_batch({"item": [b"orphan"]})
    done = writing._write(options, "spark/orphaned", 0, [rows])  # a task, whose driver dies now
    with ts.producer(stream) as producer:
        behind = producer.instant([b"behind it"], 0)
    with ts.consumer(stream) as consumer:
        found = consumer.get(0, timeout=60)
        assert found is not None
        assert found.id == behind
    with pytest.raises(InvalidState):
        writing.StreamWriter(options).commit([done], 0)
    assert pipe.items(stream) == [b"behind it"]
