"""A real Kafka broker from Maven Central, for the benchmarks: fetch it, find it, start it.

`make kafka` fetches it, and Spark's connector for it. `python -m benchmarks.kafka fetch` does the same, and `python -m
benchmarks.kafka check` starts it once to see that it works. `python -m benchmarks.kafka offer`, for `make bench`, fetches
it where it is lacking and can be had, and is content where it cannot.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .interface import BenchmarkFailed
from .servers import HOST, ServerProcess, connected, free_port, running

VERSION = "4.1.1"
CONNECTOR_VERSION = "4.0.0"
"""Of Spark's connector: the newest one that could be had. It works with the Spark that is used here."""
ROOT = Path(__file__).resolve().parent.parent
JARS = ROOT / ".engines" / "kafka"
CONNECTOR = ROOT / ".engines" / "kafka-for-spark"
"""Spark's connector and what it needs beside Spark's own jars."""
_OF_CONNECTOR = (
    "spark-sql-kafka-*",
    "spark-token-provider-kafka-*",
    "kafka-clients-*",
    "commons-pool2-*",
)
_FETCH_WITHIN_S = 1200
_FORMAT_WITHIN_S = 120

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tstreams</groupId>
  <artifactId>kafka-for-benchmarks</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.1</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-core</artifactId>
      <version>2.25.1</version>
    </dependency>
  </dependencies>
</project>
"""

CONNECTOR_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tstreams</groupId>
  <artifactId>kafka-for-spark</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
{flush}
"""
FLUSH = "log.flush.interval.messages=1"
"""What is acknowledged is on disk. By default Kafka leaves that to its replicas."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """What is needed to start a broker."""

    java: str
    jars: Path


def find_kafka() -> Kafka | str:
    """What there is of it; if something is lacking, what that is."""
    java = shutil.which("java")
    if java is None:
        return "no java on PATH: Kafka needs Java 17 or newer"
    if not list(JARS.glob("kafka_2.13-*.jar")):
        return "no Kafka here: `make kafka` fetches one, with Maven"
    if importlib.util.find_spec("confluent_kafka") is None:
        return "the package confluent-kafka is not installed"
    return Kafka(java, JARS)


def fetch() -> None:
    """Copy the jars of a broker from Maven Central into `.engines/kafka`."""
    with _fetched(POM.format(version=VERSION)) as made:
        shutil.rmtree(JARS, ignore_errors=True)
        shutil.copytree(made, JARS)


def fetch_connector() -> None:
    """Copy the jars of Spark's connector into `.engines/kafka-for-spark`."""
    with _fetched(CONNECTOR_POM.format(version=CONNECTOR_VERSION)) as made:
        shutil.rmtree(CONNECTOR, ignore_errors=True)
        CONNECTOR.mkdir()
        for pattern in _OF_CONNECTOR:
            for jar in made.glob(pattern):
                shutil.copy(jar, CONNECTOR)


@contextlib.contextmanager
def _fetched(text: str) -> Iterator[Path]:
    """A folder with the jars that this project needs."""
    maven = shutil.which("mvn")
    if maven is None:
        raise BenchmarkFailed("no mvn on PATH: install Maven to fetch Kafka")
    with tempfile.TemporaryDirectory() as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(text)
        made = Path(folder) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={made}", "-DincludeScope=runtime"]
        done = subprocess.run(command, timeout=_FETCH_WITHIN_S, check=False)
        if done.returncode:
            raise BenchmarkFailed(
                f"Maven ended with code {done.returncode}: see what it wrote above"
            )
        yield made


@contextlib.contextmanager
def kafka_server(kafka: Kafka, folder: Path, fsync: bool = True) -> Iterator[ServerProcess]:
    """A broker, which is its own controller, that syncs each write before it answers, or leaves that to the
    system, in `folder`."""
    port, controller_port = free_port(), free_port()
    settings = folder / "server.properties"
    text = SETTINGS.format(
        host=HOST,
        port=port,
        controller_port=controller_port,
        folder=folder / "data",
        flush=FLUSH if fsync else "",
    )
    settings.write_text(text)
    format_storage(kafka, settings, cluster_id())
    with running("kafka", broker_command(kafka, settings), folder) as server:
        server.port = port
        connected(server, within_s=60.0).close()
        yield server


def cluster_id() -> str:
    """A new name for a cluster of brokers, as Kafka wants them."""
    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")


def format_storage(kafka: Kafka, settings: Path, cluster: str) -> None:
    """Make the storage of a broker of this cluster."""
    # A name that begins with a dash would be taken for an option.
    words = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"]
    formatted = subprocess.run(
        [kafka.java, "-cp", f"{kafka.jars}/*", *words, "--config", str(settings)],
        cwd=settings.parent,
        capture_output=True,
        text=True,
        timeout=_FORMAT_WITHIN_S,
        check=False,
    )
    if formatted.returncode:
        raise BenchmarkFailed(f"Kafka's storage cannot be made:\n{formatted.stderr[-2000:]}")


def broker_command(kafka: Kafka, settings: Path) -> list[str]:
    """Starts a broker with these settings."""
    heap = ["-Xms512m", "-Xmx512m", "-XX:+UseG1GC"]
    return [kafka.java, *heap, "-cp", f"{kafka.jars}/*", "kafka.Kafka", str(settings)]


def _try_connector() -> None:
    """All else works without it."""
    try:
        fetch_connector()
    except BenchmarkFailed as error:
        print(f"the benchmark `spark` goes without Kafka: {error}", file=sys.stderr)


def _offer() -> None:
    """Have one if it can be had; say why if it cannot."""
    if list(JARS.glob("kafka_2.13-*.jar")):
        return
    print("== fetching Kafka with Maven (once; a minute or two)", file=sys.stderr)
    try:
        fetch()
        _try_connector()
    except (BenchmarkFailed, subprocess.TimeoutExpired) as error:
        print(f"the benchmarks go without Kafka: {error}", file=sys.stderr)


def main() -> int:
    """The exit code."""
    actions = sys.argv[1:]
    try:
        if "offer" in actions:
            _offer()
        if "fetch" in actions:
            fetch()
            _try_connector()
        if "check" in actions:
            kafka = find_kafka()
            if isinstance(kafka, str):
                raise BenchmarkFailed(kafka)
            with (
                tempfile.TemporaryDirectory() as folder,
                kafka_server(kafka, Path(folder)) as server,
            ):
                print(f"Kafka {VERSION} runs at {HOST}:{server.port}; it is stopped again")
    except BenchmarkFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
