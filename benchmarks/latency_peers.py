"""How `latency` sends to and receives from Kafka, PostgreSQL and RabbitMQ's streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from .latency_talk import HOST, WITHIN_S, Heard, send_paced
from .rabbitmq_streams import StreamConnection

_GREETING = b"greeting"
"""Not counted: Kafka's clients connect to a topic when there is something to send or to receive."""


class KafkaTalker:
    """An idempotent producer that does not linger; a consumer in a thread of its own."""

    def __init__(self, port: int) -> None:
        import confluent_kafka
        import confluent_kafka.admin

        self._kafka: Any = confluent_kafka
        # It would log each attempt to reach a broker that has been stopped.
        self._servers: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{port}", "log_level": 0}
        self._servers["socket.nagle.disable"] = True
        self._admin = confluent_kafka.admin.AdminClient(self._servers)

    def create(self, job: str) -> None:
        """A topic with one partition."""
        new = self._kafka.admin.NewTopic(job, 1, 1)
        for future in self._admin.create_topics([new]).values():
            future.result(WITHIN_S)

    def send(self, job: str, count: int, rate: int) -> float:
        """Each message is acknowledged before the next."""
        send = self._sender(job)
        send(_GREETING)
        return send_paced(send, count, rate)

    def _sender(self, job: str) -> Callable[[bytes], None]:
        settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 0}
        producer = self._kafka.Producer(self._servers | settings)
        acknowledged: list[Any] = []

        def note(error: Any, _: Any) -> None:
            acknowledged.append(error)

        def send(item: bytes) -> None:
            acknowledged.clear()
            producer.produce(job, item, partition=0, on_delivery=note)
            until = time.monotonic() + WITHIN_S
            while not acknowledged:
                producer.poll(1.0)
                if time.monotonic() > until:
                    raise RuntimeError("kafka does not acknowledge")
            if acknowledged[0] is not None:
                raise RuntimeError(f"kafka: {acknowledged[0]}")

        return send

    def listen(self, job: str, count: int) -> None:
        """A thread that does nothing else, once the first message has come."""
        self._heard = Heard(count)
        settings = {"group.id": f"{job}-group", "enable.auto.commit": False}
        consumer = self._kafka.Consumer(self._servers | settings)
        consumer.assign([self._kafka.TopicPartition(job, 0, self._kafka.OFFSET_BEGINNING)])
        self._sender(job)(_GREETING)
        first = consumer.poll(WITHIN_S)
        if first is None or first.error() is not None:
            raise RuntimeError(f"kafka: nothing came, {first and first.error()}")
        threading.Thread(target=self._read, args=(consumer, self._heard), daemon=True).start()

    def _read(self, consumer: Any, heard: Heard) -> None:
        ended = False
        while not ended:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                raise RuntimeError(f"kafka: {message.error()}")
            if message.value() != _GREETING:
                ended = heard.note(message.value())
        consumer.close()

    def heard(self) -> list[float]:
        """Wait for the last message."""
        return self._heard.wait()

    def close(self) -> None:
        """Its connections are closed when it is collected."""


class PostgresTalker:
    """INSERT and NOTIFY in one transaction; LISTEN, and a SELECT of what is new."""

    def __init__(self, port: int) -> None:
        import psycopg

        self._connection = psycopg.connect(
            f"host={HOST} port={port} user=postgres dbname=postgres", autocommit=True
        )

    def create(self, job: str) -> None:
        """A table."""
        self._connection.execute(
            f'CREATE TABLE "{job}" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item bytea)'
        )

    def send(self, job: str, count: int, rate: int) -> float:
        """One statement does both, so it is one transaction and one round trip."""
        put = f'WITH put AS (INSERT INTO "{job}" (item) VALUES (%b)) SELECT pg_notify(%s, %s)'
        with self._connection.cursor(binary=True) as cursor:
            return send_paced(lambda item: cursor.execute(put, (item, job, "")), count, rate)

    def listen(self, job: str, count: int) -> None:
        """A thread that does nothing else."""
        self._heard = Heard(count)
        self._connection.execute(f'LISTEN "{job}"')
        self._reader = threading.Thread(target=self._read, args=(job, self._heard), daemon=True)
        self._reader.start()

    def _read(self, job: str, heard: Heard) -> None:
        take = f'SELECT id, item FROM "{job}" WHERE id > %b ORDER BY id'
        after, ended = 0, False
        with self._connection.cursor(binary=True) as cursor:
            while not ended:
                list(self._connection.notifies(timeout=1.0, stop_after=1))
                rows = cursor.execute(take, (after,)).fetchall()
                for number, item in rows:
                    after, ended = number, heard.note(item)

    def heard(self) -> list[float]:
        """Wait for the last message."""
        found = self._heard.wait()
        self._reader.join()
        self._connection.execute("UNLISTEN *")
        return found

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class RabbitTalker:
    """Publish and wait for the confirm; a subscription, read by a thread of its own."""

    def __init__(self, port: int) -> None:
        self._connection = StreamConnection(port)

    def create(self, job: str) -> None:
        """A stream."""
        self._connection.create(job)

    def send(self, job: str, count: int, rate: int) -> float:
        """Each message is confirmed before the next."""
        connection = self._connection
        connection.declare_publisher(job)

        def send(item: bytes) -> None:
            connection.publish([item])
            connection.wait_confirmed(connection.published)

        took_s = send_paced(send, count, rate)
        connection.delete_publisher()
        return took_s

    def listen(self, job: str, count: int) -> None:
        """A thread that does nothing else."""
        self._heard = Heard(count)
        self._connection.subscribe(job)
        self._reader = threading.Thread(target=self._read, args=(self._heard,), daemon=True)
        self._reader.start()

    def _read(self, heard: Heard) -> None:
        notes: list[bool] = [False]
        while not notes[-1]:
            self._connection.receive(lambda item: notes.append(heard.note(item)))

    def heard(self) -> list[float]:
        """Wait for the last message."""
        found = self._heard.wait()
        self._reader.join()
        self._connection.unsubscribe()
        return found

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
