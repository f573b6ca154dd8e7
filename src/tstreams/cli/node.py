"""`tstreams node`: what a server is, how it is, and what is in it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..discovery import cluster_resources as c
from ..discovery import resources as r
from . import output
from .output import say, whole
from .rest import Door, add_door, add_limit, door, limit_of
from .tables import (
    BAD,
    DIM,
    GOOD,
    Cell,
    age,
    bytes_rate,
    latency,
    left,
    more,
    number,
    rate,
    right,
    say_resource,
    show_facts,
    show_table,
    when,
)


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams node",
        "See what a server is, how it is, and what is in it.",
        """
        tstreams node status
        tstreams node health
        tstreams node ledgers
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add(actions, "status", "show all nodes, and what they do now")
    _add(
        actions,
        "health",
        "say whether the server works; the exit code is 1 if it does not",
        example="tstreams node health || systemctl restart tstreams",
    )
    for name, summary in (
        ("sessions", "list the sessions of clients"),
        ("ledgers", "list the files of the log, and how much of them is alive"),
    ):
        add_limit(_add(actions, name, summary))
    config = _add(actions, "config", "show the settings in force")
    config.add_argument(
        "--changed", action="store_true", help="only those that are not the default"
    )
    lookup = _add(
        actions,
        "lookup",
        "say which node serves a stream, and at which addresses",
        example="tstreams node lookup clicks --partition 3",
    )
    lookup.add_argument("stream", metavar="STREAM", help="the stream's name")
    lookup.add_argument(
        "--partition", type=whole(0), default=None, metavar="N", help="only where this one is"
    )
    return parser


def _add(actions: Any, name: str, summary: str, example: str = "") -> ArgumentParser:
    parser = output.add_action(
        actions, name, summary, "", example or f"tstreams node {name} --json"
    )
    add_door(parser)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    front = door(arguments)
    act = {
        "status": _status,
        "health": _health,
        "sessions": _sessions,
        "ledgers": _ledgers,
        "config": _config,
        "lookup": _lookup,
    }
    return act[arguments.action](front, arguments)


def _status(front: Door, arguments: Namespace) -> int:
    nodes = front.get(c.NodePage, "/v1/nodes").items
    now = front.get(r.Statistics, "/v1/statistics")
    if arguments.json:
        said = msgspec.to_builtins({"nodes": nodes, "statistics": now})
        output.say_json(said)
        return output.OK
    for node in nodes:
        say(f"node {node.id}, version {node.version}")
        show_facts(
            {
                "up": uptime(node),
                "clients": ", ".join(node.addresses),
                "http": node.http,
                "shards": ", ".join(
                    f"{it.shard} ({it.role}, epoch {it.epoch})" for it in node.shards
                ),
            }
        )
    say("now")
    show_facts(_now(now))
    return output.OK


def uptime(node: c.Node) -> str:
    """How long a node has been running."""
    if node.started is None:
        return ""
    return age(max(0.0, (datetime.now(UTC) - node.started).total_seconds()))


def _now(now: r.Statistics) -> dict[str, str | Cell]:
    if not now.available:
        return {"state": Cell("the storage server does not answer", BAD)}
    values = now.values
    full = values.get("disk_full", 0)
    facts: dict[str, str | Cell] = {
        "state": state_of(now),
        "written": rates(now.written),
        "read": rates(now.read),
        "commit": f"p50 {latency(now.commit.p50)}, p99 {latency(now.commit.p99)}",
        "sync": f"p50 {latency(now.sync.p50)}, p99 {latency(now.sync.p99)}",
        "streams": number(now.streams),
        "open": output.counted(now.open_transactions, "transaction")
        + (f", the oldest for {age(now.oldest_open_seconds)}" if now.open_transactions else ""),
        "clients": f"{output.counted(now.connections, 'connection')}, "
        f"{output.counted(int(values.get('sessions', 0)), 'session')}, "
        f"{output.counted(now.readers_waiting, 'reader')} waiting, "
        f"{output.counted(now.subscriptions, 'subscription')}",
        "disk": f"{output.size(now.disk_free_bytes)} free{', full' if full else ''}, "
        f"{output.size(now.ledger_bytes)} in {output.counted(int(values.get('ledgers', 0)), 'ledger')}",
    }
    return facts


def state_of(now: r.Statistics) -> Cell:
    """How a node is, in few words."""
    if not now.available:
        return Cell("the storage server does not answer", BAD)
    if now.values.get("failed"):
        return Cell("a shard has stopped: see the log", BAD)
    if now.values.get("disk_full"):
        return Cell("the disk is full: writing is refused", BAD)
    return Cell("working", GOOD)


def rates(it: r.Rates) -> str:
    """Rates in words."""
    return f"{rate(it.transactions)} transactions, {rate(it.items)} items, {bytes_rate(it.bytes)}"


def _health(front: Door, arguments: Namespace) -> int:
    answer = front.request("GET", "/health/ready", accepted=(503,))
    found = msgspec.json.decode(answer.body, type=r.Health)
    well = found.status == "ok"
    if arguments.json:
        say_resource(found)
    else:
        checks = "; ".join(f"{name}: {text}" for name, text in found.checks.items())
        say(f"{found.status}: {checks}")
    return output.OK if well else output.FAILED


def _sessions(front: Door, arguments: Namespace) -> int:
    found, goes_on = front.page(r.SessionPage, "/v1/sessions", limit_of(arguments))
    if arguments.json:
        for it in found:
            say_resource(it)
        return output.OK
    columns = (
        left("SESSION", keep=True),
        left("SEEN (UTC)", keep=True),
        left("EXPIRES (UTC)", keep=True),
        right("AGENTS"),
        right("REQUESTS"),
        right("UNACKNOWLEDGED"),
    )
    rows = [
        (
            it.id,
            when(it.seen),
            when(it.expires),
            number(it.agents),
            number(it.requests),
            number(it.unacknowledged),
        )
        for it in found
    ]
    show_table(columns, rows, "there are no sessions: nobody has written anything lately")
    more(goes_on, "sessions")
    return output.OK


def _ledgers(front: Door, arguments: Namespace) -> int:
    found, goes_on = front.page(r.LedgerPage, "/v1/ledgers", limit_of(arguments))
    if arguments.json:
        for it in found:
            say_resource(it)
        return output.OK
    columns = (
        right("SHARD"),
        right("LEDGER"),
        left("CREATED (UTC)", keep=True),
        left("STATE", keep=True),
        right("SIZE"),
        right("ALIVE"),
        right("DEAD"),
    )
    rows = [
        (
            str(it.shard),
            it.id,
            when(it.created),
            Cell("closed", DIM) if it.closed else Cell("written to", GOOD),
            output.size(it.bytes),
            "-" if it.live_bytes is None else output.size(it.live_bytes),
            "-" if it.dead_bytes is None else output.size(it.dead_bytes),
        )
        for it in found
    ]
    show_table(columns, rows, "there are no ledgers")
    more(goes_on, "ledgers")
    return output.OK


def _config(front: Door, arguments: Namespace) -> int:
    found = front.get(r.Configuration, "/v1/config").items
    if arguments.changed:
        found = [it for it in found if not it.default]
    if arguments.json:
        for it in found:
            say_resource(it)
        return output.OK
    rows = [
        (it.name, it.value or "(none)", Cell("default", DIM) if it.default else "set")
        for it in found
    ]
    columns = (left("SETTING", keep=True), left("VALUE"), left("FROM", keep=True))
    show_table(columns, rows, "every setting has its default")
    return output.OK


def _lookup(front: Door, arguments: Namespace) -> int:
    from urllib.parse import quote

    path = f"/v1/lookup/{quote(arguments.stream, safe='')}"
    found = front.get(r.Lookup, path, partition=arguments.partition)
    if arguments.json:
        say_resource(found)
        return output.OK
    columns = (
        left("PARTITIONS", keep=True),
        left("NODE", keep=True),
        right("SHARD"),
        right("EPOCH"),
        left("ADDRESSES"),
    )
    rows = [
        (
            _partitions(it),
            it.node,
            str(it.shard),
            str(it.epoch),
            ", ".join(it.addresses),
        )
        for it in found.ranges
    ]
    show_table(columns, rows, f"nobody serves stream {arguments.stream!r}")
    return output.OK


def _partitions(some: r.Range) -> str:
    if some.first == some.last:
        return str(some.first)
    every = "" if some.step == 1 else f", every {some.step}"
    return f"{some.first} to {some.last}{every}"
