"""`tstreams produce`: write lines or length-prefixed items into a stream."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..errors import BadRequest, Error
from ..limits import BATCH_ITEMS_MAX, MIB
from . import output
from .connection import add_connection, connection
from .framing import SPLITTERS, blocks
from .output import BadUsage, Progress, counted, say, say_json, size, whole

if TYPE_CHECKING:
    from .. import Client, Producer
    from ..client.rules.partitioning import Partitioner

BATCH_BYTES = 4 * MIB
"""A batch is sent when it has this many bytes, however few items: well below what a frame holds."""

WINDOW = 16
"""Transactions on their way at once: hides the round trip, and holds at most 64 MiB."""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams produce",
        "Write items from a file or from standard input into a stream. Each batch is one transaction: "
        "readers see it whole or not at all. A batch ends when it is full, or when the input pauses.\n\n"
        "formats:\n"
        "  lines            an item ends with a newline, which is not part of it\n"
        "  length-prefixed  4 bytes with the item's length, little-endian, then the item",
        """
        seq 1000000 | tstreams produce numbers
        tstreams produce clicks clicks.jsonl --batch 5000 --compression lz4
        tail -f access.log | tstreams produce log
        tstreams produce orders orders.tsv --key-separator '\\t'
        """,
    )
    parser.add_argument("stream", metavar="STREAM", help="the stream's name")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the input [standard input]")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--partition", type=whole(0), metavar="N", help="into this partition [all, in turn]"
    )
    where.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="what stands before this in an item is its key: it picks the partition, and is not "
        "written; \\t is a tab",
    )
    parser.add_argument(
        "--batch",
        type=whole(1, BATCH_ITEMS_MAX),
        default=1000,
        metavar="N",
        help="items in a transaction [1000]",
    )
    parser.add_argument(
        "--transaction", action="store_true", help="all input is one transaction: all or nothing"
    )
    parser.add_argument(
        "--format", choices=sorted(SPLITTERS), default="lines", help="what the input is [lines]"
    )
    parser.add_argument(
        "--compression",
        choices=("none", "lz4", "zstd"),
        default="none",
        help="how batches are compressed [none]",
    )
    parser.add_argument(
        "--name", help="the producer's name; an older one of that name is shut out [a new name]"
    )
    add_connection(parser)
    output.add_json(parser)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    if arguments.key_separator is not None and arguments.transaction:
        raise BadUsage("--transaction is in one partition: give no --key-separator")
    found = batches(_input(arguments.file), arguments.format, arguments.batch)
    tally = Tally()
    try:
        with (
            connection(arguments) as client,
            client.producer(
                arguments.stream,
                name=arguments.name,
                partitions=None if arguments.partition is None else {arguments.partition},
                compression=arguments.compression,
            ) as producer,
        ):
            if arguments.transaction:
                _one_transaction(producer, found, arguments.partition, tally)
            else:
                keys = _keys(client, arguments)
                _many_transactions(producer, found, arguments, keys, tally)
    except (Error, KeyboardInterrupt):
        if tally.items and arguments.json:
            output.remark_json({"written": tally.as_json(arguments.stream)})
        elif tally.items:
            output.remark(f"written for certain before it failed: {tally}")
        raise
    finally:
        tally.progress.clear()
    if arguments.json:
        say_json(tally.as_json(arguments.stream))
    else:
        say(f"wrote {tally}")
    return output.OK


def _input(file: str | None) -> int:
    if file is not None and file != "-":
        if os.path.isdir(file):
            raise BadRequest(f"{file} is a folder: name a file")
        return os.open(file, os.O_RDONLY)
    if sys.stdin.isatty():
        output.remark("reading lines from the terminal; Ctrl-D ends")
    return sys.stdin.fileno()


def batches(descriptor: int, form: str, items_max: int) -> Iterator[list[bytes]]:
    """The input in batches of at most so many items, fewer where it pauses or they are large."""
    splitter = SPLITTERS[form]()
    waiting: list[bytes] = []
    waiting_bytes = 0
    for block in blocks(descriptor):
        waiting += splitter.split(block)
        waiting_bytes += len(block)
        full = len(waiting) - len(waiting) % items_max
        for at in range(0, full, items_max):
            yield waiting[at : at + items_max]
        if full:
            del waiting[:full]
            waiting_bytes = sum(map(len, waiting))
        if waiting and (not block or waiting_bytes >= BATCH_BYTES):
            yield waiting
            waiting, waiting_bytes = [], 0
    waiting += splitter.rest()
    if waiting:
        yield waiting


def _one_transaction(
    producer: Producer, found: Iterator[list[bytes]], partition: int | None, tally: Tally
) -> None:
    items = size = 0
    with producer.transaction(partition=partition) as transaction:
        for batch in found:
            transaction.send_many(batch)
            items += len(batch)
            size += sum(map(len, batch))
            if tally.progress.due:
                tally.progress.show(f"{items:,} items ({output.size(size)}) sent, not checkpointed")
    tally.add(items, size)


def _many_transactions(
    producer: Producer,
    found: Iterator[list[bytes]],
    arguments: Namespace,
    keys: Partitioner | None,
    tally: Tally,
) -> None:
    """One transaction per batch, with a window of them on their way."""
    placed: Iterable[tuple[int | None, list[bytes]]]
    if keys is None:
        placed = ((arguments.partition, batch) for batch in found)
    else:
        placed = _by_key(found, arguments.key_separator, keys)
    window: deque[tuple[Future[int], int, int]] = deque()

    def settle(left: int) -> None:
        while len(window) > left:
            future, items, size = window.popleft()
            future.result()
            tally.add(items, size)

    for partition, batch in placed:
        settle(WINDOW - 1)
        future = producer.instant(batch, partition, wait=False)
        window.append((future, len(batch), sum(map(len, batch))))
    settle(0)


def _keys(client: Client, arguments: Namespace) -> Partitioner | None:
    """What knows the partition of a key: batches are made per partition, not per key."""
    if arguments.key_separator is None:
        return None
    from ..client.rules.partitioning import Partitioner

    return Partitioner(client.stream(arguments.stream), None, "")


def _by_key(
    found: Iterator[list[bytes]], separator: str, keys: Partitioner
) -> Iterator[tuple[int, list[bytes]]]:
    cut_at = separator.replace("\\t", "\t").encode()
    count = 0
    for batch in found:
        by_partition: dict[int, list[bytes]] = {}
        for line in batch:
            count += 1
            key, cut, item = line.partition(cut_at)
            if not cut:
                raise BadRequest(f"item {count} has no {separator!r} that ends its key")
            by_partition.setdefault(keys.pick(None, key), []).append(item)
        yield from by_partition.items()


class Tally:
    """What the server has acknowledged."""

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0
        self.transactions = 0
        self.progress = Progress()
        self._started_at = time.monotonic()

    def add(self, items: int, size: int, transactions: int = 1) -> None:
        """So much more was written."""
        self.items += items
        self.bytes += size
        self.transactions += transactions
        if self.progress.due:
            self.progress.show(str(self))

    def __str__(self) -> str:
        seconds = time.monotonic() - self._started_at
        rate = f", {self.items / seconds:,.0f}/s" if seconds > 0.1 else ""
        items, transactions = counted(self.items, "item"), counted(self.transactions, "transaction")
        return f"{items} ({size(self.bytes)}) in {transactions}, {seconds:.1f} s{rate}"

    def as_json(self, stream: str) -> dict[str, object]:
        """The same as one JSON object."""
        return {
            "stream": stream,
            "items": self.items,
            "bytes": self.bytes,
            "transactions": self.transactions,
            "seconds": round(time.monotonic() - self._started_at, 3),
        }
