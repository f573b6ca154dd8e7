"""Drivers and workers are killed at the worst moments: nothing is lost, nothing comes twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tstreams import Client

from . import driver
from .conftest import Pipe
from .driver import POINTS
from .test_source import fill

Make = Callable[..., str]

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""


def run_driver(*arguments: str) -> int:
    command = [sys.executable, "-m", "tests.integration.spark.driver", *arguments]
    with subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=240)
        finally:
            with contextlib.suppress(ProcessLookupError):  # its Java has outlived it
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(errors[-4000:])
    return process.returncode


def outcome(ts: Client, source: str) -> Counter[bytes]:
    """What the query must make of its source."""
    return Counter(
        b"%b of %d" % (bytes(item), txn.id)
        for partition in range(ts.stream(source).partitions)
        for txn in ts.scan(source, partition)
        for item in txn.items
    )


@pytest.mark.timeout(600)
def test_a_driver_dies_at_every_point_of_a_micro_batch(
    pipe: Pipe, ts: Client, make: Make, tmp_path: Path
) -> None:
    """Each driver goes on where the one before it was killed, and comes a little further."""
    source, sink = make(2), make(3)
    fill(ts, source, 80)
    expected = outcome(ts, source)
    for point in POINTS:
        arguments = (pipe.url, source, sink, str(tmp_path), point, "driver")
        assert run_driver(*arguments) == -signal.SIGKILL, point
        assert (tmp_path / f"killed {point}").exists()
        assert Counter(pipe.items(sink)) <= expected, point
    assert run_driver(*arguments) == 0
    assert Counter(pipe.items(sink)) == expected


@pytest.fixture(scope="module")
def fatal(spark: SparkSession) -> None:
    """`format("fatal")` in the session of all tests."""
    # The workers need not find the tests.
    cloudpickle.register_pickle_by_value(driver)  # type: ignore[no-untyped-call]
    spark.dataSource.register(driver.Fatal)


@pytest.mark.usefixtures("fatal")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_dies(pipe: Pipe, ts: Client, make: Make, tmp_path: Path, point: str) -> None:
    source, sink = make(2), make(3)
    fill(ts, source, 60)
    df = pipe.stream(source, maxTransactionsPerTrigger=20).selectExpr(
        "concat(cast(item as string), ' of ', transaction) as item", "item as key"
    )
    mark = tmp_path / "killed"
    options: dict[str, Any] = {"format": "fatal", "point": point, "victim": 0, "mark": mark}
    if point in POINTS[:2]:  # Spark tries a task again
        pipe.run(df, sink, **options)
    else:  # and gives up if a commit fails
        with pytest.raises(StreamingQueryException):
            pipe.run(df, sink, **options)
        assert Path(f"{mark}-aborted").exists()
        assert Counter(pipe.items(sink)) <= outcome(ts, source)
        pipe.run(df, sink, **options)
    assert mark.exists()
    assert Counter(pipe.items(sink)) == outcome(ts, source)
