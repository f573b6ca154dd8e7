"""Reading from any point in time. A transaction's id is a time, so there is nothing to look up.

A sensor writes a value now and then. A reader asks what came since a moment, what came between two
moments, and what came last.
"""

import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import tstreams
from tstreams import Offset


@dataclass
class Answers:
    """What the reader was told."""

    since: list[bytes]
    between: list[bytes]
    last: bytes
    latency_s: float
    """From the moment to the first transaction after it, by the transaction's own time."""


def run() -> Answers:
    """Write, and ask."""
    with tempfile.TemporaryDirectory() as folder, tstreams.embedded(folder) as ts:
        ts.create_stream("sensor", ttl="30d")
        moments = []
        with ts.producer("sensor") as producer:
            for value in range(20, 26):
                moments.append(datetime.now(UTC))
                time.sleep(0.02)
                producer.instant([b"%d" % value])
        with ts.consumer("sensor", start=Offset.at(moments[3])) as consumer:
            since = list(consumer.read(max_wait=0.1))
            consumer.seek(0, Offset.at(moments[1]))
            first = consumer.get(0)
            assert first is not None
            early = [first, *consumer.between(0, first.id, since[0].id - 1)]
            last = consumer.last(0)
            assert last is not None
    return Answers(
        [txn.items[0] for txn in since],
        [txn.items[0] for txn in early],
        last.items[0],
        (since[0].time - moments[3]).total_seconds(),
    )


def main() -> None:
    """Tell what happened."""
    answers = run()
    print("since the fourth moment:             ", answers.since)
    print("between the second and the fourth:   ", answers.between)
    print("the last:                            ", answers.last)
    print(f"the first came {answers.latency_s * 1000:.0f} ms after the moment that was asked for")


if __name__ == "__main__":
    main()
