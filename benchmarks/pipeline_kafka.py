"""How `pipeline` handles batches with Kafka: confluent-kafka, and a transaction for each batch."""

from __future__ import annotations

import time
from typing import Any

HOST = "127.0.0.1"
_WITHIN_S = 30.0
_HURRY = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 10}
"""A transaction that follows another closely is told to come again. With the defaults that takes 100 ms, and
four times as long as all the rest."""


class KafkaWorker:
    """A consumer of one partition, and a producer whose transactions take its offsets along."""

    def __init__(self, port: int) -> None:
        import confluent_kafka
        import confluent_kafka.admin

        self._kafka: Any = confluent_kafka
        # It would log each attempt to reach a broker that has been stopped.
        self._servers: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{port}", "log_level": 0}
        self._admin = confluent_kafka.admin.AdminClient(self._servers)

    def create(self, job: str, partitions: int) -> None:
        """Two topics; each worker has a partition of both."""
        topic = self._kafka.admin.NewTopic
        names = (f"{job}-in", f"{job}-out")
        made = self._admin.create_topics([topic(name, partitions, 1) for name in names])
        for future in made.values():
            future.result(_WITHIN_S)

    def fill(self, job: str, partition: int, batches: int, items: list[bytes]) -> None:
        """Large batches."""
        settings = {"linger.ms": 50, "batch.size": 1_000_000, "enable.idempotence": True}
        producer = self._kafka.Producer(self._servers | settings)
        for _ in range(batches):
            for item in items:
                while True:
                    try:
                        producer.produce(f"{job}-in", item, partition=partition)
                    except BufferError:
                        producer.poll(0.01)
                    else:
                        break
        if producer.flush(_WITHIN_S):
            raise RuntimeError("kafka did not take the input")

    def work(
        self, job: str, partition: int, batches: int, count: int
    ) -> tuple[float, float, list[float]]:
        """Consume, produce, and commit both with one transaction."""
        from .pipeline_workers import transform

        consumer = self._consumer(f"{job}-group-{partition}", f"{job}-in", partition)
        settings = {"transactional.id": f"{job}-{partition}", "linger.ms": 0, **_HURRY}
        producer = self._kafka.Producer(self._servers | settings)
        producer.init_transactions(_WITHIN_S)
        took: list[float] = []
        begun = time.perf_counter()
        for _ in range(batches):
            messages = self._take(consumer, count)
            results = transform([message.value() for message in messages])
            before = time.perf_counter()
            producer.begin_transaction()
            for item in results:
                producer.produce(f"{job}-out", item, partition=partition)
            place = self._kafka.TopicPartition(f"{job}-in", partition, messages[-1].offset() + 1)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata())
            producer.commit_transaction(_WITHIN_S)
            took.append(time.perf_counter() - before)
        ended = time.perf_counter()
        consumer.close()
        return begun, ended, took

    def _consumer(self, group: str, topic: str, partition: int) -> Any:
        settings = {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        consumer = self._kafka.Consumer(self._servers | settings)
        begin = self._kafka.OFFSET_BEGINNING
        consumer.assign([self._kafka.TopicPartition(topic, partition, begin)])
        return consumer

    def _take(self, consumer: Any, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            more = consumer.consume(count - len(found), _WITHIN_S)
            if not more:
                raise RuntimeError(f"kafka gave {len(found)} of {count} messages")
            for message in more:
                if message.error() is not None:
                    raise RuntimeError(f"kafka: {message.error()}")
            found += more
        return found

    def output(self, job: str, partition: int) -> tuple[int, bytes]:
        """Read what was committed; there are markers between the items, so offsets say nothing."""
        consumer = self._consumer("check", f"{job}-out", partition)
        items, last = 0, b""
        while more := consumer.consume(10_000, 1.0):
            items += len(more)
            last = more[-1].value()
        consumer.close()
        return items, last

    def drop(self, job: str, partition: int) -> None:
        """The first worker deletes the topics for all."""
        if partition == 0:
            for future in self._admin.delete_topics([f"{job}-in", f"{job}-out"]).values():
                future.result(_WITHIN_S)

    def close(self) -> None:
        """Its connections are closed when it is collected."""
