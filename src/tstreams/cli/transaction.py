"""`tstreams transaction`: browse transactions, look inside, and see and cancel those that are open."""

from __future__ import annotations

import heapq
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ..discovery import resources as r
from ..errors import NotFound
from . import output
from .asking import add_yes, agreed
from .output import BadUsage, checked, remark, say, whole
from .points import POINT_HELP, bound_of
from .rest import Door, add_door, add_limit, door, limit_of, stream_path
from .tables import (
    DIM,
    WARN,
    Cell,
    age,
    left,
    more,
    number,
    right,
    say_resource,
    show_facts,
    show_table,
    when,
)

PARTITIONS_MAX = 64
"""Partitions that are looked at together. Of a stream with more one must be named."""
VIEWS = ("auto", "text", "json", "hex", "arrow")


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams transaction",
        "Browse the transactions of a stream, look inside, and see and cancel those that are open.",
        """
        tstreams transaction list clicks --from 1h
        tstreams transaction items clicks 176745600000000001
        tstreams transaction open
        tstreams transaction cancel 176745600000000001
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list(actions)
    show = output.add_action(
        actions, "show", "show a transaction", "", "tstreams transaction show clicks 1767456000..."
    )
    _add_named(show)
    add_door(show)
    _add_items(actions)
    listing = output.add_action(
        actions,
        "open",
        "list open transactions, the oldest first: whose they are, and whom they hold back",
        "",
        """
        tstreams transaction open
        tstreams transaction open --stream clicks --json
        """,
    )
    listing.add_argument("--stream", default=None, metavar="NAME", help="only those of this stream")
    add_limit(listing)
    add_door(listing)
    cancel = output.add_action(
        actions,
        "cancel",
        "cancel an open transaction, whoever owns it",
        "Cancel an open transaction, whoever owns it. What was written into it is dropped; its owner is told "
        "when it goes on with it; readers that it held back go on.",
        "tstreams transaction cancel 176745600000000001 --yes",
    )
    cancel.add_argument("id", type=checked(_id), metavar="ID", help="the transaction's id")
    cancel.add_argument("--stream", help="the stream it is in: ids are unique in a partition only")
    cancel.add_argument("--partition", type=int, help="the partition it is in")
    add_yes(cancel)
    add_door(cancel)
    return parser


def _add_list(actions: Any) -> None:
    parser = output.add_action(
        actions,
        "list",
        "list the visible transactions of a stream",
        "List the visible transactions of a stream in the order of their ids, without their items.",
        """
        tstreams transaction list clicks --newest --limit 10
        tstreams transaction list clicks --partition 3 --from 2026-01-01T12:00Z --to 2026-01-01T13:00Z
        """,
    )
    parser.add_argument("stream", metavar="STREAM", help="the stream's name")
    _add_partition(parser)
    parser.add_argument(
        "--from",
        dest="low",
        type=checked(bound_of),
        metavar="POINT",
        help=f"the first: {POINT_HELP}",
    )
    parser.add_argument(
        "--to", dest="high", type=checked(bound_of), metavar="POINT", help="the last: the same"
    )
    parser.add_argument("--newest", action="store_true", help="the newest first")
    add_limit(parser)
    add_door(parser)


def _add_items(actions: Any) -> None:
    parser = output.add_action(
        actions,
        "items",
        "show the items of a transaction",
        "Show the items of a transaction that is visible: as text or JSON if they are, else as hexadecimal "
        "digits; the rows of a stream with a schema as JSON.",
        """
        tstreams transaction items clicks 176745600000000001
        tstreams transaction items clicks 176745600000000001 --view hex --first 100 --limit 10
        """,
    )
    _add_named(parser)
    parser.add_argument("--view", choices=VIEWS, default="auto", help="how to show them [auto]")
    parser.add_argument(
        "--first", type=whole(0), default=0, metavar="N", help="begin with this one [0]"
    )
    add_limit(parser)
    add_door(parser)


def _add_named(parser: ArgumentParser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="the stream's name")
    parser.add_argument("id", type=checked(_id), metavar="ID", help="the transaction's id")
    _add_partition(parser)


def _add_partition(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--partition",
        type=whole(0),
        default=None,
        metavar="N",
        help=f"only in this one; needed for streams of more than {PARTITIONS_MAX}",
    )


def _id(text: str) -> str:
    digits = text.removeprefix("id:")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        raise ValueError(f"{text!r} is no transaction's id, which is a number")
    return digits


def run(arguments: Namespace) -> int:
    """Do it."""
    front = door(arguments)
    match arguments.action:
        case "list":
            return _list(front, arguments)
        case "show":
            return _show(_find(front, arguments), arguments)
        case "items":
            return _items(front, arguments)
        case "open":
            return _open(front, arguments)
        case _:
            return _cancel(front, arguments)


# Browsing.


def _list(front: Door, arguments: Namespace) -> int:
    partitions = _partitions(front, arguments)
    limit = limit_of(arguments)
    parts = [_transactions(front, arguments, partition, limit) for partition in partitions]
    merged = heapq.merge(*parts, key=lambda it: int(it.id), reverse=arguments.newest)
    if arguments.json:
        for it in islice(merged, limit):
            say_resource(it)
        return output.OK
    found = list(islice(merged, None if limit is None else limit + 1))
    columns = (
        left("ID", keep=True),
        left("OPENED (UTC)", keep=True),
        right("PARTITION"),
        right("ITEMS"),
        right("BATCHES"),
        right("SIZE"),
    )
    rows = [
        (
            it.id,
            f"{when(it.time)}.{it.time.microsecond // 1000:03}",
            str(it.partition),
            number(it.items),
            number(it.batches),
            output.size(it.bytes),
        )
        for it in found[:limit]
    ]
    show_table(columns, rows, f"stream {arguments.stream!r} has no visible transactions there")
    more(limit is not None and len(found) > limit, "transactions")
    return output.OK


def _transactions(
    front: Door, arguments: Namespace, partition: int, limit: int | None
) -> Iterator[r.Transaction]:
    return front.each(
        r.TransactionPage,
        stream_path(arguments.stream, "partitions", str(partition), "transactions"),
        limit,
        order="desc" if arguments.newest else "asc",
        **{"from": arguments.low, "to": arguments.high},
    )


def _partitions(front: Door, arguments: Namespace) -> Sequence[int]:
    if arguments.partition is not None:
        return [arguments.partition]
    count = front.get(r.StreamDetail, stream_path(arguments.stream)).partitions
    if count > PARTITIONS_MAX:
        raise BadUsage(
            f"stream {arguments.stream!r} has {count} partitions: name one, --partition N"
        )
    return range(count)


def _find(front: Door, arguments: Namespace) -> r.Transaction:
    """The transaction that is named, in whichever partition it is."""
    last: NotFound | None = None
    for partition in _partitions(front, arguments):
        path = stream_path(
            arguments.stream, "partitions", str(partition), "transactions", arguments.id
        )
        try:
            return front.get(r.Transaction, path)
        except NotFound as error:
            last = error
    if arguments.partition is not None and last is not None:
        raise last
    raise NotFound(
        f"stream {arguments.stream!r} has no transaction {arguments.id}: it never was, or is long gone"
    )


def _show(it: r.Transaction, arguments: Namespace) -> int:
    if arguments.json:
        say_resource(it)
        return output.OK
    say(f"transaction {it.id}")
    show_facts(
        {
            "stream": it.stream,
            "partition": str(it.partition),
            "opened": f"{when(it.time)} UTC",
            "state": it.state,
            "items": f"{number(it.items)} in {output.counted(it.batches, 'batch').replace('batchs', 'batches')}",
            "size": output.size(it.bytes),
        }
    )
    return output.OK


def _items(front: Door, arguments: Namespace) -> int:
    found = _find(front, arguments)
    path = stream_path(
        found.stream, "partitions", str(found.partition), "transactions", found.id, "items"
    )
    left_over = limit_of(arguments)
    first: int | None = arguments.first
    while first is not None and (left_over is None or left_over > 0):
        wanted = 200 if left_over is None else min(200, left_over)
        page = front.get(r.ItemPage, path, first=first, limit=wanted, view=arguments.view)
        for it in page.items:
            say_resource(it) if arguments.json else say(_item(it, page.total))
        first = None if page.next is None else int(page.next)
        left_over = None if left_over is None else left_over - len(page.items)
    if not arguments.json:
        more(first is not None, "items")
    return output.OK


def _item(it: r.Item, total: int) -> str:
    text = it.value if isinstance(it.value, str) else json.dumps(it.value, ensure_ascii=False)
    shown = text + ("… (cut)" if it.truncated else "")
    return f"{it.index:>{len(str(total))}}  {shown}"


# Open ones.


def _open(front: Door, arguments: Namespace) -> int:
    found, goes_on = front.page(
        r.OpenPage, "/v1/transactions/open", limit_of(arguments), stream=arguments.stream
    )
    if arguments.json:
        for it in found:
            say_resource(it)
        return output.OK
    show_table(OPEN_COLUMNS, [open_row(it) for it in found], "no transaction is open")
    more(goes_on, "open transactions")
    return output.OK


OPEN_COLUMNS = (
    left("ID", keep=True),
    left("STREAM"),
    right("PARTITION", spare=True),
    right("AGE"),
    left("EXPIRES (UTC)", keep=True, spare=True),
    right("ITEMS", spare=True),
    left("OWNER"),
    left("HOLDS BACK"),
)


def open_row(it: r.OpenTransaction) -> Sequence[str | Cell]:
    """A row of the table of open transactions."""
    names = ", ".join(it.held_back) or "nobody yet"
    holds = Cell(names, WARN if it.held_back else "") if it.first else Cell("waits itself", DIM)
    return (
        it.id,
        it.stream,
        str(it.partition),
        age(it.age_seconds),
        when(it.expires),
        number(it.items),
        f"{it.owner.kind} {it.owner.name}".rstrip(),
        holds,
    )


def _cancel(front: Door, arguments: Namespace) -> int:
    what = f"cancel transaction {arguments.id}, and drop what was written into it"
    if not agreed(arguments, what):
        remark("nothing was done")
        return output.FAILED
    done = front.post(
        r.Cancelled,
        f"/v1/transactions/open/{arguments.id}/cancel",
        stream=arguments.stream,
        partition=arguments.partition,
    )
    if arguments.json:
        say_resource(done)
    else:
        say(f"cancelled transaction {done.id}")
    return output.OK
