"""A pipeline on a Spark Connect server: the session runs there, and nothing here needs Java.

    $SPARK_HOME/sbin/start-connect-server.sh     (where PySpark is installed, and tstreams too)
    tstreams pipeline run examples/spark/word_count.py --remote sc://host:15002

As it is, `python examples/spark/connect.py`, it starts both servers on this machine. Needs `tstreams[connect]`.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
from word_count import run

from tstreams.server import Node
from tstreams.spark import session
from tstreams.spark.java import find_java

READY_WITHIN_S = 90


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on loopback, from PySpark's own programs. Its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin/spark-submit"), "--master", "local[2]"]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command += [
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    java = find_java()
    variables = {
        **os.environ,
        **({"JAVA_HOME": str(java)} if java is not None else {}),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (folder / "connect.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
    try:
        _wait_for(port, server, folder / "connect.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"the Spark Connect server did not start:\n{log.read_text()[-2000:]}")


def main() -> None:
    """Tell what happened. Where SPARK_REMOTE names a server, it runs there."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        node = stack.enter_context(Node(folder / "data", ["tcp://127.0.0.1:0"]).in_thread())
        remote = os.environ.get("SPARK_REMOTE") or stack.enter_context(connect_server(folder))
        spark = session(remote=remote)
        counts = run(spark, node.addresses[0], folder / "checkpoints")
        spark.stop()
    print("with Spark Connect:", *counts, sep="\n")


if __name__ == "__main__":
    main()
