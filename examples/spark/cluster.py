"""A pipeline on a cluster: the driver plans and commits, executors read and write.

    tstreams pipeline run examples/spark/word_count.py --master spark://host:7077

As it is, `python examples/spark/cluster.py`, it runs on `local-cluster`: a master, a worker and executors in
processes of their own on this machine, which talk as those of a real cluster do.
"""

import os
import tempfile
from pathlib import Path

from word_count import run

from tstreams.server import Node
from tstreams.spark import session

MASTER = "local-cluster[1,2,1024]"
"""One worker with two cores, and 1024 MiB for its executor."""


def main() -> None:
    """Tell what happened."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {"spark.log.level": "OFF", "spark.executor.memory": "512m"}
    spark = session("cluster", MASTER, settings)
    with tempfile.TemporaryDirectory() as name:
        with Node(Path(name) / "data", ["tcp://127.0.0.1:0"]).in_thread() as node:
            counts = run(spark, node.addresses[0], Path(name) / "checkpoints")
        spark.stop()
    print(f"on {MASTER}:", *counts, sep="\n")


if __name__ == "__main__":
    main()
