"""The Spark of the benchmark `spark`, in this process and its children."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def spark_session(cores: int, folder: Path, jars: list[Path]) -> Iterator[SparkSession]:
    """A session whose workers find this package; it ends with the block, and its Java with it."""
    from tstreams.spark import session

    from .spark_peers import Memory

    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *([path] if path else [])])
    settings = {
        "spark.local.dir": str(folder / "spark"),
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    spark = session("benchmarks", f"local[{cores}]", settings)
    gateway = spark.sparkContext._gateway
    try:
        spark.dataSource.register(Memory)
        yield spark
    finally:
        spark.stop()
        if gateway is not None:
            gateway.shutdown()
            # Spark leaves its Java to the end of this process, and others may follow in it.
            process = gateway.proc
            process.stdin.close()
            process.wait(30)
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path
