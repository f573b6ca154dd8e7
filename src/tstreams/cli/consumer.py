"""`tstreams consumer`: where consumers stand, how far behind they are, and how to put them elsewhere."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from ..discovery import resources as r
from ..errors import InvalidState
from . import output
from .asking import add_yes, agreed
from .output import checked, remark, say, whole
from .points import POINT_HELP, place_of
from .rest import Door, add_door, add_limit, door, limit_of, stream_path
from .tables import (
    BAD,
    DIM,
    GOOD,
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

LATE_S = 60.0
"""A lag of more is worth a look."""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams consumer",
        "See where consumers stand and how far behind they are, put them elsewhere, and forget them. "
        "Consumers, subscribers and Spark queries that read are all consumers here.",
        """
        tstreams consumer list
        tstreams consumer show clicks billing
        tstreams consumer reset clicks billing --to 1h --dry-run
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = output.add_action(
        actions,
        "list",
        "list consumers with their lag",
        "",
        """
        tstreams consumer list
        tstreams consumer list clicks --all --json | jq 'select(.lag.seconds > 60)'
        """,
    )
    listing.add_argument("stream", nargs="?", metavar="STREAM", help="only those of this stream")
    add_limit(listing)
    add_door(listing)
    _add(actions, "show", "show a consumer, partition by partition", "consumer show clicks billing")
    _add_reset(actions)
    forget = _add(
        actions,
        "forget",
        "forget the positions of a consumer; refused while it is live",
        "consumer forget clicks billing --yes",
    )
    add_yes(forget)
    return parser


def _add_reset(actions: Any) -> None:
    parser = _add(
        actions,
        "reset",
        "let a consumer go on elsewhere",
        "consumer reset clicks billing --to oldest --dry-run\n"
        "tstreams consumer reset clicks billing --to 2026-01-01T12:00Z --partition 3 --yes\n"
        "tstreams consumer reset clicks billing --to id:176745600000000001 --force",
        "Let a consumer go on elsewhere. Shows what that means, and asks. A consumer that is live is left "
        "alone, unless --force is given: then it is fenced, and must be started anew.",
    )
    parser.add_argument(
        "--to",
        required=True,
        type=checked(place_of),
        metavar="POINT",
        help=f"oldest, newest, or {POINT_HELP}: the first that it reads then",
    )
    parser.add_argument(
        "--partition",
        type=whole(0),
        action="append",
        metavar="N",
        help="only this one; may be given several times",
    )
    parser.add_argument("--force", action="store_true", help="also if it is live: it is fenced")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    add_yes(parser)


def _add(
    actions: Any, name: str, summary: str, example: str, description: str = ""
) -> ArgumentParser:
    parser = output.add_action(actions, name, summary, description, f"tstreams {example}")
    parser.add_argument("stream", metavar="STREAM", help="the stream's name")
    parser.add_argument("name", metavar="NAME", help="the consumer's name")
    add_door(parser)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    front = door(arguments)
    match arguments.action:
        case "list":
            return _list(front, arguments)
        case "show":
            return _show(front, arguments)
        case "reset":
            return _reset(front, arguments)
        case _:
            return _forget(front, arguments)


def _path(arguments: Namespace, *rest: str) -> str:
    return stream_path(arguments.stream, "consumers", arguments.name, *rest)


def _list(front: Door, arguments: Namespace) -> int:
    named = arguments.stream
    path = stream_path(named, "consumers") if named else "/v1/consumers"
    found, goes_on = front.page(r.ConsumerPage, path, limit_of(arguments))
    if arguments.json:
        for it in found:
            say_resource(it)
        return output.OK
    columns = (
        left("STREAM"),
        left("CONSUMER"),
        left("LIVE", keep=True),
        right("LAG"),
        right("ITEMS", spare=True),
        right("BEHIND"),
        left("POSITION (UTC)", keep=True, spare=True),
    )
    rows = [
        (it.stream, it.name, live(it.live), *lag_cells(it.lag), when(it.position_time))
        for it in found
    ]
    of = f"stream {named!r} has" if named else "there are"
    show_table(columns, rows, f"{of} no consumers that have saved a position or are live")
    more(goes_on, "consumers")
    return output.OK


def live(it: bool) -> Cell:
    """Whether somebody holds the name."""
    return Cell("yes", GOOD) if it else Cell("no", DIM)


def lag_cells(lag: r.Lag) -> tuple[str, str, Cell]:
    """A lag in transactions, items and time."""
    style = "" if lag.seconds < LATE_S else WARN if lag.seconds < 60 * LATE_S else BAD
    return (
        number(lag.transactions, lag.exact),
        number(lag.items, lag.exact),
        Cell(age(lag.seconds) if lag.transactions else "-", style),
    )


def _show(front: Door, arguments: Namespace) -> int:
    found = front.get(r.ConsumerDetail, _path(arguments))
    if arguments.json:
        say_resource(found)
        return output.OK
    holder = found.holder
    held = "" if holder is None else f"session {holder.session}, last seen {when(holder.seen)} UTC"
    transactions, items, behind = lag_cells(found.lag)
    say(f"consumer {found.name} of stream {found.stream}")
    show_facts(
        {
            "live": f"yes: {held}" if found.live else "no",
            "lag": f"{transactions} transactions, {items} items, {output.size(found.lag.bytes)}",
            "behind": behind,
        }
    )
    columns = (
        right("PARTITION"),
        left("POSITION", keep=True),
        left("TIME (UTC)", keep=True),
        right("LAG"),
        right("ITEMS"),
        right("BEHIND"),
        left("HELD BACK BY"),
    )
    rows = [
        (
            str(it.partition),
            it.position or "-",
            when(it.time),
            *lag_cells(it.lag),
            Cell(it.held_back_by or "", WARN),
        )
        for it in found.positions
    ]
    say("")
    show_table(columns, rows, "it has saved no position")
    return output.OK


def _reset(front: Door, arguments: Namespace) -> int:
    body: dict[str, object] = {"to": arguments.to, "force": arguments.force}
    if arguments.partition:
        body["partitions"] = sorted(set(arguments.partition))
    path = _path(arguments, "reset")
    foreseen = front.post(r.ResetResult, path, {**body, "dry_run": True})
    if not arguments.json:
        _show_reset(foreseen)
    if arguments.dry_run:
        if arguments.json:
            say_resource(foreseen)
        return output.OK
    if foreseen.live and not arguments.force:
        raise InvalidState(
            f"consumer {foreseen.consumer!r} is live: stop it first, or reset it with --force, which "
            "fences it. Nothing was done"
        )
    if not agreed(arguments, f"reset consumer {foreseen.consumer!r} of {foreseen.stream!r}"):
        remark("nothing was done")
        return output.FAILED
    done = front.post(r.ResetResult, path, body)
    if arguments.json:
        say_resource(done)
    else:
        say(f"done: {done.summary}")
    return output.OK


def _show_reset(it: r.ResetResult) -> None:
    columns = (
        right("PARTITION"),
        left("FROM", keep=True),
        left("TO", keep=True),
        left("WHAT HAPPENS"),
    )
    meaning = {"back": ("reads", "again"), "forward": ("skips", "for good")}
    rows = []
    for row in it.partitions:
        what = Cell("nothing changes", DIM)
        if row.direction != "none":
            verb, how = meaning[row.direction]
            count = f"{number(row.transactions, row.exact)} transactions"
            items = f"{number(row.items, row.exact)} items"
            what = Cell(f"{verb} {count}, {items}, {how}", BAD if verb == "skips" else WARN)
        rows.append((str(row.partition), row.before or "-", row.after, what))
    show_table(columns, rows, "it has no partitions")
    say(it.summary)


def _forget(front: Door, arguments: Namespace) -> int:
    what = f"forget where consumer {arguments.name!r} of stream {arguments.stream!r} stands"
    if not agreed(arguments, what):
        remark("nothing was done")
        return output.FAILED
    front.delete(_path(arguments))
    if arguments.json:
        output.say_json({"stream": arguments.stream, "name": arguments.name, "forgotten": True})
    else:
        say(f"forgotten: consumer {arguments.name} of stream {arguments.stream}")
    return output.OK
