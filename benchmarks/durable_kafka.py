"""How `durable` speaks to Kafka: confluent-kafka, with transactions, and without them for what they cost."""

from __future__ import annotations

import time
import uuid
from typing import Any

from .window import keep_window

HOST = "127.0.0.1"
_WITHIN_S = 30.0
_COMMIT_WITHIN_S = 100.0
"""Much longer than a commit takes, but for those that hang."""
_HURRY = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 10}
"""A transaction that follows another closely is told to come again. With the defaults that takes 100 ms."""


class KafkaWriter:
    """A Kafka transaction for each of ours. A producer has one at a time under way, so there is no window.

    Now and then a commit takes half a minute, and with several producers on one partition all of theirs do, and more
    often: so each client has one. The cause is not known.
    """

    def __init__(self, *ports: int, replicas: int = 1) -> None:
        import confluent_kafka
        import confluent_kafka.admin

        self._kafka: Any = confluent_kafka
        # It would log each attempt to reach a broker that has been stopped.
        brokers = ",".join(f"{HOST}:{port}" for port in ports)
        self._servers: dict[str, Any] = {"bootstrap.servers": brokers, "log_level": 0}
        self._replicas = replicas
        self._admin = confluent_kafka.admin.AdminClient(self._servers)
        self._topic, self._partition = "", 0
        self._producer = self._make_producer()

    def _make_producer(self) -> Any:
        # A commit sends what lingers, so that a transaction travels as one batch.
        settings = {"transactional.id": uuid.uuid4().hex, "linger.ms": 1000, **_HURRY}
        producer = self._kafka.Producer(self._servers | settings)
        producer.init_transactions(_WITHIN_S)
        return producer

    def create(self, stream: str, partitions: int) -> None:
        """One topic; each client has a partition."""
        new = self._kafka.admin.NewTopic(stream, partitions, self._replicas)
        for future in self._admin.create_topics([new]).values():
            future.result(_WITHIN_S)

    def open(self, stream: str, partition: int) -> None:
        """When the producer has heard of the topic."""
        self._topic, self._partition = stream, partition
        until = time.monotonic() + _WITHIN_S
        while True:
            topic = self._producer.list_topics(stream, _WITHIN_S).topics[stream]
            if topic.error is None and all(it.leader >= 0 for it in topic.partitions.values()):
                return
            if time.monotonic() > until:
                raise RuntimeError(f"kafka does not show the topic {stream}: {topic.error}")
            time.sleep(0.01)

    def replicas_of(self, stream: str) -> list[Any]:
        """The partitions of a topic, with the brokers that have them (`replicas`) and those that are in sync (`isrs`)."""
        return list(self._admin.list_topics(stream, _WITHIN_S).topics[stream].partitions.values())

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """Begin, produce, commit."""
        producer, topic, partition = self._producer, self._topic, self._partition
        deadline = time.perf_counter() + seconds
        done = 0
        while done < count_max and time.perf_counter() < deadline:
            producer.begin_transaction()
            for item in items:
                producer.produce(topic, item, partition=partition)
            producer.commit_transaction(_COMMIT_WITHIN_S)
            done += 1
        return done

    def drop(self, stream: str, partition: int) -> None:
        """The first client deletes the topic for all."""
        if partition == 0:
            for future in self._admin.delete_topics([stream]).values():
                future.result(_WITHIN_S)

    def close(self) -> None:
        """Its connections are closed when it is collected."""


class KafkaIdempotentWriter(KafkaWriter):
    """No transactions: an idempotent producer, in batches as it makes them, and a window over them.

    Nothing is lost, repeated or out of order, but readers may see a part of what belongs together.
    """

    def _make_producer(self) -> Any:
        # With less to linger each small batch would be synced by itself.
        settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 5}
        return self._kafka.Producer(self._servers | settings)

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """A transaction is done when its last item is: they are stored in order."""
        producer, topic, partition = self._producer, self._topic, self._partition
        *first, last = items
        came = done = 0

        def acknowledged(error: Any, _: Any) -> None:
            nonlocal came
            if error is not None:
                raise RuntimeError(f"kafka: {error}")
            came += 1

        def send() -> None:
            for item in first:
                producer.produce(topic, item, partition=partition)
            producer.produce(topic, last, partition=partition, on_delivery=acknowledged)

        def receive() -> None:
            nonlocal done
            done += 1
            until = time.monotonic() + _WITHIN_S
            while came < done:
                producer.poll(1.0)
                if time.monotonic() > until:
                    raise RuntimeError("kafka does not acknowledge")

        return keep_window(send, receive, window, seconds, count_max)
