"""The smallest whole program: a stream, a producer, a consumer, and the same data after a restart.

`tstreams.embedded(folder)` runs a server inside of this process. With a server of its own it would be
`tstreams.connect("tcp://127.0.0.1:7070")`, and nothing else would change.
"""

import tempfile
from pathlib import Path

import tstreams


def write(folder: Path) -> None:
    """Make a stream, and write two transactions into it."""
    with tstreams.embedded(folder) as ts:
        ts.create_stream("greetings", ttl="7d")
        with ts.producer("greetings", name="writer") as producer:
            with producer.transaction() as txn:
                txn.send(b"hello")
                txn.send(b"world")
            producer.instant([b"a whole transaction in one call"])


def read(folder: Path) -> list[list[bytes]]:
    """What the reader of this name has not seen yet."""
    with (
        tstreams.embedded(folder) as ts,
        ts.consumer("greetings", name="reader") as consumer,
    ):
        found = [list(txn.items) for txn in consumer.read(max_wait=0.1)]
        consumer.checkpoint()
        return found


def run() -> list[list[list[bytes]]]:
    """Write once, read twice. Each opens the folder anew, as after a restart."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        return [read(folder), read(folder)]


def main() -> None:
    """Tell what happened."""
    first, second = run()
    print("the first time:")
    for items in first:
        print("  a transaction of", items)
    print("the second time:", second or "nothing, for it was checkpointed")


if __name__ == "__main__":
    main()
