"""`tstreams consume`: read a stream from any point, and follow it."""

from __future__ import annotations

import base64
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from . import output
from .connection import add_connection, connection
from .framing import join_length_prefixed, join_lines
from .keeper import Keeper
from .output import BadUsage, checked, whole
from .points import POINT_HELP, offset_of

if TYPE_CHECKING:
    from .. import Consumer, ReadTransaction

CHUNK_ITEMS = 10_000
"""Items written at a time."""

POLL_S = 0.5
"""How often a reader that follows and checkpoints looks up from waiting."""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams consume",
        "Write the items of a stream to standard output, those of a partition in order. Ends at the "
        "stream's end, or with --follow never.\n\n"
        "With --name and --checkpoint the reader's place is kept on the server, and the next reader of "
        "that name goes on there. It is kept only after the output was written: items may come twice if "
        "the command is killed, but none is lost.",
        """
        tstreams consume clicks
        tstreams consume clicks --from 15m --follow --format json
        tstreams consume clicks --from 2026-01-01T12:00:00Z --limit 10
        tstreams consume orders --name billing --checkpoint >> orders.txt
        """,
    )
    parser.add_argument("stream", metavar="STREAM", help="the stream's name")
    parser.add_argument("--partition", type=whole(0), metavar="N", help="only this partition [all]")
    parser.add_argument(
        "--from",
        dest="start",
        type=checked(offset_of),
        default="oldest",
        metavar="POINT",
        help=f"where to start: oldest, newest, {POINT_HELP} [oldest]",
    )
    parser.add_argument("--follow", action="store_true", help="wait for what comes")
    parser.add_argument(
        "--name", help="the reader's name; an older one of that name is shut out [a new name]"
    )
    parser.add_argument(
        "--checkpoint",
        action="store_true",
        help="go on where the reader of this name was, and keep its place; needs --name",
    )
    parser.add_argument(
        "--limit",
        type=whole(1),
        metavar="N",
        help="stop after so many items; with --checkpoint the last transaction is written whole",
    )
    parser.add_argument(
        "--format",
        choices=sorted(WRITERS),
        default=None,
        help="what the output is; json is one object per item [lines]",
    )
    add_connection(parser)
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    if arguments.checkpoint and not arguments.name:
        raise BadUsage("--checkpoint needs --name: the place is kept under the reader's name")
    with (
        connection(arguments) as client,
        client.consumer(
            arguments.stream,
            name=arguments.name,
            partitions=None if arguments.partition is None else {arguments.partition},
            start=arguments.start,
            resume=arguments.checkpoint,
        ) as consumer,
    ):
        has_rows = client.stream(arguments.stream).schema_bytes is not None
        copier = Copier(arguments, has_rows)
        if arguments.checkpoint:
            return _copy_and_keep(consumer, copier, arguments.follow)
        for transaction in consumer.read(max_wait=None if arguments.follow else 0):
            copier.copy(transaction)
            if copier.full:
                break
    return output.OK


def _copy_and_keep(consumer: Consumer, copier: Copier, follow: bool) -> int:
    """Copy, and checkpoint what was copied. After an exception nothing is: who knows what was written."""
    with Keeper(consumer) as keeper:
        while True:
            for transaction in consumer.read(max_wait=POLL_S if follow else 0):
                copier.copy(transaction)
                keeper.written()
                if copier.full or keeper.stopped:
                    break
            keeper.keep()
            if keeper.stopped:
                return 128 + keeper.stopped
            if copier.full or not follow:
                return output.OK


class Copier:
    """Writes transactions to standard output, up to the limit."""

    def __init__(self, arguments: Namespace, has_rows: bool) -> None:
        self._has_rows = has_rows
        form = arguments.format or ("json" if arguments.json else "lines")
        self._write = _json_rows if has_rows and form == "json" else WRITERS[form]
        self._left: int | None = arguments.limit
        self._cuts = not arguments.checkpoint
        """Whether the limit may cut a transaction: what is checkpointed is whole ones."""
        self._flushes = arguments.follow

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._left is not None and self._left <= 0

    def copy(self, transaction: ReadTransaction) -> None:
        """Write one transaction, in chunks: it may be larger than the memory."""
        out = sys.stdout.buffer
        every = _rows(transaction) if self._has_rows else transaction.items
        items = islice(every, self._left if self._cuts else None)
        while chunk := list(islice(items, CHUNK_ITEMS)):
            out.write(self._write(transaction, chunk))
        if self._flushes:
            out.flush()
        if self._left is not None:
            self._left -= len(transaction)


def _rows(transaction: ReadTransaction) -> list[bytes]:
    """The rows of a stream with a schema, as JSON."""
    rows = transaction.to_arrow().to_pylist()
    return [json.dumps(row, default=_plain, ensure_ascii=False).encode() for row in rows]


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _lines(_: ReadTransaction, items: Sequence[bytes]) -> bytes:
    return join_lines(items)


def _length_prefixed(_: ReadTransaction, items: Sequence[bytes]) -> bytes:
    return join_length_prefixed(items)


def _json(transaction: ReadTransaction, items: Sequence[bytes]) -> bytes:
    start = _json_start(transaction)
    return b"".join([start + _json_item(item) for item in items])


def _json_rows(transaction: ReadTransaction, rows: Sequence[bytes]) -> bytes:
    start = _json_start(transaction)
    return b"".join([b'%b, "row": %b}\n' % (start, row) for row in rows])


def _json_start(transaction: ReadTransaction) -> bytes:
    head = {
        "partition": transaction.partition,
        "id": transaction.id,
        "time": transaction.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return json.dumps(head)[:-1].encode()


def _json_item(item: bytes) -> bytes:
    """The end of an item's line: text as text, other bytes in base 64."""
    try:
        return b', "item": %b}\n' % msgspec.json.encode(item.decode())
    except UnicodeDecodeError:
        return b', "item_base64": "%b"}\n' % base64.b64encode(item)


Writer: TypeAlias = "Callable[[ReadTransaction, Sequence[bytes]], bytes]"
WRITERS: dict[str, Writer] = {
    "lines": _lines,
    "length-prefixed": _length_prefixed,
    "json": _json,
}
