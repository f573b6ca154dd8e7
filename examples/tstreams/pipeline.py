"""From stream to stream, each input once, although the worker is killed again and again.

A checkpoint group, which will do this for any number of streams in one call, does not exist yet. For one
partition into one other there is a way without it: each output carries the id of its input, and a worker
that starts looks at the last output to know where to go on.

Why nothing is done twice: opening the producer takes its name away from a worker that may still be alive
somewhere. From then on nobody but us can write, so the last output stays the last.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass

import tstreams
from tstreams import Offset
from tstreams.server import Node

INPUTS = 600
KILL_AFTER = (100, 250, 400)
"""The worker is killed when there are so many outputs."""


def work(url: str) -> None:
    """What the worker does: squares."""
    with (
        tstreams.connect(url) as ts,
        ts.producer("squares", name="squarer") as producer,
        ts.consumer("squares") as outputs,
        ts.consumer("numbers", name="squarer") as inputs,
    ):
        done = outputs.last(0)
        if done is not None:
            inputs.seek(0, Offset.after(int(done.items[0])))
        for txn in inputs.read():
            squares = [b"%d" % int(item) ** 2 for item in txn.items]
            producer.instant([b"%d" % txn.id, *squares])


@dataclass
class Result:
    """What came out."""

    workers: int
    outputs: list[int]


def run() -> Result:
    """Feed the worker, kill it a few times, and read what it has written."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Node(folder, listen=["tcp://127.0.0.1:0"]).in_thread() as node,
        tstreams.connect(node.addresses[0]) as ts,
    ):
        ts.create_stream("numbers")
        ts.create_stream("squares")
        with ts.producer("numbers") as producer:
            sent = [producer.instant([b"%d" % n], wait=False) for n in range(INPUTS)]
            for future in sent:
                future.result()
        found: list[int] = []
        with ts.consumer("squares") as consumer:
            for limit in (*KILL_AFTER, INPUTS):
                worker = subprocess.Popen([sys.executable, __file__, "work", node.addresses[0]])
                try:
                    while len(found) < limit:
                        txn = consumer.get(0, timeout=30)
                        assert txn is not None, "the worker does nothing"
                        found += [int(item) for item in txn.items[1:]]
                finally:
                    worker.kill()
                    worker.wait()
            found += [int(item) for txn in consumer.read(max_wait=0.5) for item in txn.items[1:]]
        return Result(len(KILL_AFTER) + 1, found)


def main() -> None:
    """Tell what happened."""
    result = run()
    exact = result.outputs == [n**2 for n in range(INPUTS)]
    print(f"{result.workers} workers, each killed with SIGKILL")
    print(f"{len(result.outputs)} outputs for {INPUTS} inputs: {'exact' if exact else 'WRONG'}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    else:
        main()
