"""How `durable` speaks to RabbitMQ's streams: publishing with confirms, over `benchmarks.rabbitmq_streams`."""

from __future__ import annotations

from .rabbitmq_streams import StreamConnection
from .window import keep_window


class RabbitWriter:
    """Each item is a message; the messages of a transaction travel in one frame, and are not atomic."""

    def __init__(self, port: int) -> None:
        self._connection = StreamConnection(port)

    def create(self, stream: str, partitions: int) -> None:
        """A stream of its own for each client."""
        for partition in range(partitions):
            self._connection.create(f"{stream}-{partition}")

    def open(self, stream: str, partition: int) -> None:
        """A publisher for this client's own stream."""
        self._connection.declare_publisher(f"{stream}-{partition}")

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """A transaction is done when each of its entries is confirmed. Confirms come in order."""
        connection, entries = self._connection, self._entries(items)
        done = connection.confirmed

        def receive() -> None:
            nonlocal done
            done += entries
            connection.wait_confirmed(done)

        return keep_window(lambda: self._publish(items), receive, window, seconds, count_max)

    def _entries(self, items: list[bytes]) -> int:
        return len(items)

    def _publish(self, items: list[bytes]) -> None:
        self._connection.publish(items)

    def drop(self, stream: str, partition: int) -> None:
        """Delete the stream."""
        self._connection.delete_publisher()
        self._connection.delete(f"{stream}-{partition}")

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class RabbitBatchWriter(RabbitWriter):
    """All items of a transaction are one entry, which is stored as a whole or not at all."""

    def _entries(self, items: list[bytes]) -> int:
        return 1

    def _publish(self, items: list[bytes]) -> None:
        self._connection.publish_as_one(items)
