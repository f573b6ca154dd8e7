"""`tstreams stream`: create, show, list, alter, purge and delete streams."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest
from ..model import milliseconds, time_of
from . import output, stream_details
from .asking import add_yes, agreed
from .connection import add_connection, connection
from .output import BadUsage, checked, say, say_json, table, whole
from .points import POINT_HELP, id_of
from .schemas import SCHEMA_HELP, schema_of, text_of

if TYPE_CHECKING:
    from .. import Client
    from ..model import Stream

PAGE = 1000
"""Streams asked for at a time: a listing of millions begins at once, and is never in memory whole."""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams stream",
        "Create, show, list, alter, purge and delete streams.",
        """
        tstreams stream create clicks --partitions 4 --ttl 7d
        tstreams stream list --prefix c
        tstreams stream alter clicks --ttl 30d
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_create(actions)
    _add_show(actions)
    _add_list(actions)
    _add_alter(actions)
    _add_purge(actions)
    _add_delete(actions)
    return parser


def _add_create(actions: Any) -> None:
    parser = _add(
        actions, "create", "make a stream", "tstreams stream create clicks --partitions 4"
    )
    parser.add_argument(
        "--partitions", type=int, default=1, metavar="N", help="how many partitions it has [1]"
    )
    parser.add_argument(
        "--ttl",
        type=checked(_ttl),
        default="7d",
        help="how long data lives: 90s, 15m, 12h, 7d, 4w [7d]",
    )
    parser.add_argument("--description", default="", metavar="TEXT", help="what it is for")
    parser.add_argument(
        "--schema",
        default=None,
        metavar="COLUMNS",
        help=f"hold rows of Arrow data instead of items: {SCHEMA_HELP}",
    )


def _add_show(actions: Any) -> None:
    parser = _add(
        actions,
        "show",
        "show a stream",
        """
        tstreams stream show clicks --json
        tstreams stream show clicks --long
        """,
    )
    _add_long(parser, "with its size, its rates, its partitions and its consumers")


def _add_list(actions: Any) -> None:
    parser = output.add_action(
        actions,
        "list",
        "list streams in the order of their names",
        "",
        """
        tstreams stream list --prefix c
        tstreams stream list --json | jq -r .name
        tstreams stream list --search click --long
        """,
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--prefix", default="", help="only names that begin with this")
    chosen.add_argument(
        "--search",
        default="",
        metavar="TEXT",
        help="only names that hold this, anywhere; as with --long, 50 unless --limit says so",
    )
    parser.add_argument("--after", default=None, metavar="NAME", help="only names behind this one")
    parser.add_argument("--limit", type=whole(1), default=None, metavar="N", help="at most so many")
    _add_long(parser, "with their sizes, rates, and the lag of their slowest consumers")
    add_connection(parser)


def _add_long(parser: ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--long", action="store_true", help=f"{what}. Asks the server's front door, over HTTP"
    )


def _add_alter(actions: Any) -> None:
    parser = _add(
        actions,
        "alter",
        "change a stream's ttl or description, or add columns to its schema",
        """
        tstreams stream alter clicks --ttl 30d
        tstreams stream alter payments --schema "card: string, cents: int64, shop: string"
        """,
    )
    parser.add_argument(
        "--ttl", type=checked(_ttl), default=None, help="how long data lives: 90s, 15m, 12h, 7d, 4w"
    )
    parser.add_argument("--description", default=None, metavar="TEXT", help="what it is for")
    parser.add_argument(
        "--schema",
        default=None,
        metavar="COLUMNS",
        help="all columns that it has, and nullable new ones behind them, written as for `create`",
    )


def _add_purge(actions: Any) -> None:
    parser = _add(
        actions,
        "purge",
        "drop everything that was opened before a point",
        "tstreams stream purge clicks --before 2026-01-01T12:00Z --yes",
    )
    parser.add_argument(
        "--before", required=True, type=checked(id_of), metavar="POINT", help=POINT_HELP
    )
    add_yes(parser)


def _add_delete(actions: Any) -> None:
    parser = _add(
        actions,
        "delete",
        "delete a stream with all it holds, and its readers' offsets",
        "tstreams stream delete clicks --yes",
    )
    add_yes(parser)


def _add(actions: Any, name: str, summary: str, examples: str) -> ArgumentParser:
    parser = output.add_action(actions, name, summary, "", examples)
    parser.add_argument("name", metavar="NAME", help="the stream's name")
    add_connection(parser)
    return parser


def _ttl(text: str) -> str:
    milliseconds(text)
    return text


def run(arguments: Namespace) -> int:
    """Do it."""
    changes = ("ttl", "description", "schema")
    if arguments.action == "alter" and all(getattr(arguments, it) is None for it in changes):
        raise BadUsage("nothing to change: give --ttl, --description or --schema")
    if arguments.action == "list" and (arguments.long or arguments.search):
        if arguments.after is not None:
            raise BadUsage("--after goes with neither --long nor --search")
        stream_details.list_long(arguments)
        return output.OK
    if arguments.action == "show" and arguments.long:
        stream_details.show_long(arguments)
        return output.OK
    given = getattr(arguments, "schema", None)
    schema = None if given is None else _parsed(given)
    if not _agreed(arguments):
        output.remark("nothing was done")
        return output.FAILED
    with connection(arguments) as client:
        match arguments.action:
            case "list":
                _list(client, arguments)
            case "create":
                stream = client.create_stream(
                    arguments.name,
                    partitions=arguments.partitions,
                    ttl=arguments.ttl,
                    description=arguments.description,
                    schema=schema,
                )
                _show(stream, arguments, "created")
            case "show":
                _show(client.stream(arguments.name), arguments)
            case "alter":
                stream = client.alter_stream(
                    arguments.name,
                    ttl=arguments.ttl,
                    description=arguments.description,
                    schema=schema,
                )
                _show(stream, arguments, "altered")
            case "purge":
                client.purge_stream(arguments.name, before=arguments.before)
                _done(arguments, "purged", before_id=arguments.before)
            case "delete":
                client.delete_stream(arguments.name)
                _done(arguments, "deleted")
    return output.OK


def _parsed(text: str) -> Any:
    try:
        return schema_of(text)
    except BadRequest as error:
        raise BadUsage(f"--schema: {error.message}") from None
    except ImportError:
        raise BadUsage("--schema needs pyarrow: pip install 'tstreams[arrow]'") from None


def _agreed(arguments: Namespace) -> bool:
    """Whether the user wants to lose what this would drop."""
    if arguments.action not in ("delete", "purge"):
        return True
    what = f"{arguments.action} the stream {arguments.name!r}"
    what += (
        f" before {time_of(arguments.before):%Y-%m-%d %H:%M:%S} UTC"
        if arguments.action == "purge"
        else " with all it holds"
    )
    return agreed(arguments, what)


def _list(client: Client, arguments: Namespace) -> None:
    shown = 0
    for page in _pages(client, arguments):
        if arguments.json:
            for stream in page:
                say_json(as_json(stream))
        else:
            rows = [
                (one.name, str(one.partitions), output.duration(one.ttl), one.description)
                for one in page
            ]
            text = table(("NAME", "PARTITIONS", "TTL", "DESCRIPTION"), rows)
            say(text if not shown else text.partition("\n")[2])
        shown += len(page)
    if not shown and not arguments.json:
        named = f" whose name begins with {arguments.prefix!r}" if arguments.prefix else ""
        output.remark(f"there are no streams{named}")


def _pages(client: Client, arguments: Namespace) -> Iterator[Sequence[Stream]]:
    left, after = arguments.limit, arguments.after
    while left is None or left > 0:
        wanted = PAGE if left is None else min(PAGE, left)
        page = list(client.streams(arguments.prefix, limit=wanted, after=after))
        if page:
            yield page
        if len(page) < wanted:
            return
        after = page[-1].name
        left = None if left is None else left - len(page)


def _show(stream: Stream, arguments: Namespace, done: str = "") -> None:
    if arguments.json:
        say_json(as_json(stream))
        return
    if done:
        say(f"{done} stream {stream.name}")
    lines = {
        "name": stream.name,
        "partitions": str(stream.partitions),
        "ttl": output.duration(stream.ttl),
        "description": stream.description,
        "schema": _schema(stream),
    }
    for key, value in lines.items():
        if value:
            say(f"  {key:12} {value}")


def _schema(stream: Stream) -> str:
    if stream.schema_bytes is None:
        return ""
    try:
        return text_of(stream.schema)
    except ImportError:
        return "there is one; with pyarrow installed it could be shown"


def _done(arguments: Namespace, done: str, **details: object) -> None:
    if arguments.json:
        say_json({"name": arguments.name, done: True, **details})
    else:
        say(f"{done} stream {arguments.name}")


def as_json(stream: Stream) -> dict[str, object]:
    """A stream as one JSON object."""
    return {
        "name": stream.name,
        "partitions": stream.partitions,
        "ttl_s": stream.ttl.total_seconds(),
        "description": stream.description,
        "schema": stream.schema_bytes is not None,
    }
