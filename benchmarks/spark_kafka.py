"""Kafka in the benchmark `spark`: Spark's own connector, from and to a broker on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .interface import BenchmarkFailed
from .kafka import CONNECTOR, find_kafka
from .servers import HOST
from .spark_plan import Plan
from .spark_subjects import memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WITHIN_S = 30.0
_BATCHING = {
    "kafka.linger.ms": "50",
    "kafka.batch.size": "1000000",
    "kafka.max.request.size": "8000000",
}
"""Large batches. With the defaults every 16 KiB are synced."""


def find_connector() -> list[Path] | str:
    """The jars that Spark needs to speak with Kafka; if there are none, why."""
    kafka = find_kafka()
    if isinstance(kafka, str):
        return kafka
    jars = sorted(CONNECTOR.glob("*.jar"))
    if not jars:
        return "no connector of Spark for Kafka here: `make kafka` fetches it, with Maven"
    return jars


class Kafka:
    """A broker. It has no types: only items."""

    kinds = ("binary",)

    def __init__(self, spark: SparkSession, plan: Plan, port: int) -> None:
        import confluent_kafka.admin

        self._spark = spark
        self._plan = plan
        self._address = f"{HOST}:{port}"
        self._module: Any = confluent_kafka.admin
        settings: dict[str, Any] = {"bootstrap.servers": self._address, "log_level": 0}
        self._admin = confluent_kafka.admin.AdminClient(settings)

    def fill(self, kind: str) -> None:
        """By its own sink."""
        self._save(memory(self._spark, self._plan, kind), f"{kind}-in")

    def read(self, kind: str) -> DataFrame:
        """All columns of its source."""
        return self._load(f"{kind}-in")

    def _load(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("kafka").option("subscribe", topic)
        return reader.option("kafka.bootstrap.servers", self._address).load()

    def write(self, rows: DataFrame, kind: str) -> None:
        """Into a new topic."""
        self._save(rows, f"{kind}-out")

    def _save(self, rows: DataFrame, topic: str) -> None:
        made = self._admin.create_topics([self._module.NewTopic(topic, self._plan.partitions, 1)])
        made[topic].result(_WITHIN_S)
        values = (
            rows.select("value") if "value" in rows.columns else rows.selectExpr("item as value")
        )
        writer = values.write.format("kafka").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", self._address)
        for name, value in _BATCHING.items():
            writer = writer.option(name, value)
        writer.save()

    def check(self, kind: str) -> None:
        """Count what is there."""
        topic = f"{kind}-out"
        found = self._load(topic).count()
        if found < self._plan.rows:  # its sink may write more, if a task is tried again
            raise BenchmarkFailed(f"Kafka has {found} rows, not {self._plan.rows}")
        self._admin.delete_topics([topic])[topic].result(_WITHIN_S)
