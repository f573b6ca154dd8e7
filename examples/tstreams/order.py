"""Long transactions: readers see the order of opening, whoever closes first.

Three imports begin one after the other and take their time. The first one is the slowest, and one fails.
"""

import tempfile
from dataclasses import dataclass, field

import tstreams
from tstreams import Consumer, TransactionState


@dataclass
class Story:
    """What happened, and what the reader got after it."""

    steps: list[tuple[str, list[str]]] = field(default_factory=list)
    states: dict[str, TransactionState] = field(default_factory=dict)

    def note(self, event: str, consumer: Consumer) -> None:
        found = [b"".join(txn.items).decode() for txn in consumer.read(max_wait=0.05)]
        self.steps.append((event, found))


def run() -> Story:
    """Play it."""
    story = Story()
    with tempfile.TemporaryDirectory() as folder, tstreams.embedded(folder) as ts:
        ts.create_stream("imports")
        with ts.producer("imports", name="importer") as producer, ts.consumer("imports") as reader:
            january = producer.open()
            february = producer.open()
            march = producer.open()
            story.note("all three are open", reader)

            march.send(b"March")
            march.checkpoint()
            story.note("March is done", reader)

            producer.instant([b"April"])
            story.note("April was written in one call", reader)

            february.send(b"Febru")
            february.cancel()
            story.note("February was cancelled", reader)

            january.send_many([b"Janu", b"ary"])
            january.checkpoint()
            story.note("January is done at last", reader)
            opened = {"January": january, "February": february, "March": march}
            story.states = {name: txn.state for name, txn in opened.items()}
    return story


def main() -> None:
    """Tell what happened."""
    story = run()
    for event, found in story.steps:
        print(f"{event + ':':32} the reader gets {', '.join(found) or 'nothing'}")
    for name, state in story.states.items():
        print(f"{name:9} is {state.name}")


if __name__ == "__main__":
    main()
