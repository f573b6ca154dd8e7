"""Streams with what the front door knows of them: sizes, rates, lag, partitions."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import timedelta

from ..discovery import resources as r
from . import output
from .consumer import lag_cells
from .output import say
from .rest import Door, door, stream_path
from .tables import (
    WARN,
    Cell,
    bytes_rate,
    left,
    number,
    rate,
    right,
    say_resource,
    show_facts,
    show_table,
    when,
)

LISTED = 50
"""How many are listed unless it is said: each is counted for it."""


def list_long(arguments: Namespace) -> None:
    """List streams with sizes, rates and lag, in the order of their names or as a search finds them."""
    limit = LISTED if arguments.limit is None else arguments.limit
    found, goes_on = door(arguments).page(
        r.StreamPage,
        "/v1/streams",
        limit,
        prefix=arguments.prefix or None,
        search=arguments.search or None,
    )
    if arguments.json:
        for it in found:
            say_resource(it)
        return
    columns = (
        left("NAME"),
        right("PARTITIONS", spare=True),
        right("TTL", spare=True),
        right("TRANSACTIONS", spare=True),
        right("ITEMS"),
        right("SIZE", spare=True),
        right("WRITTEN"),
        left("LAST (UTC)", keep=True, spare=True),
        left("SLOWEST", spare=True),
        right("LAG"),
        right("BEHIND"),
    )
    show_table(columns, [_row(it) for it in found], "there are no such streams")
    if goes_on:
        output.remark("there are more: --limit N shows more of them")


def _row(it: r.Stream) -> Sequence[str | Cell]:
    size = it.size
    exact = size is not None and size.exact
    lag: tuple[str | Cell, ...] = ("-", "-", "-")
    if it.slowest is not None:
        transactions, _, behind = lag_cells(it.slowest.lag)
        lag = (it.slowest.consumer, transactions, behind)
    return (
        it.name,
        str(it.partitions),
        ttl(it),
        "-" if size is None else number(size.transactions, exact),
        "-" if size is None else number(size.items, exact),
        "-" if size is None else output.size(size.bytes) + ("" if exact else "+"),
        rate(None if it.rates is None else it.rates.items),
        when(it.last_transaction),
        *lag,
    )


def ttl(it: r.Stream) -> str:
    """How long data lives in a stream."""
    return output.duration(timedelta(seconds=it.ttl_seconds))


def show_long(arguments: Namespace) -> None:
    """Show all that is known of a stream."""
    front = door(arguments)
    path = stream_path(arguments.name)
    stream = front.get(r.StreamDetail, path)
    partitions, goes_on = front.page(r.PartitionPage, f"{path}/partitions", 64)
    if arguments.json:
        output.say_json(_as_json(stream, partitions))
        return
    say(f"stream {stream.name}")
    show_facts(_facts(stream))
    say("")
    _show_partitions(partitions)
    if goes_on:
        output.remark(f"there are {stream.partitions} partitions: these are the first")
    _show_consumers(front, stream)


def _as_json(stream: r.StreamDetail, partitions: Sequence[r.PartitionInfo]) -> object:
    import msgspec

    return {**msgspec.to_builtins(stream), "partition_list": msgspec.to_builtins(partitions)}


def _facts(it: r.StreamDetail) -> dict[str, str | Cell]:
    size, rates = it.size, it.rates
    columns = ", ".join(f"{one.name}: {one.type}" for one in it.columns or ())
    amount = ""
    if size is not None:
        amount = (
            f"{number(size.transactions, size.exact)} transactions, "
            f"{number(size.items, size.exact)} items, {output.size(size.bytes)}"
        )
    return {
        "description": it.description,
        "partitions": str(it.partitions),
        "ttl": ttl(it),
        "schema": columns or ("there is one" if it.typed else ""),
        "size": amount,
        "written": ""
        if rates is None
        else f"{rate(rates.transactions)} transactions, {rate(rates.items)} items, {bytes_rate(rates.bytes)}",
        "last": f"{when(it.last_transaction)} UTC" if it.last_transaction else "",
        "open": output.counted(it.open_transactions, "transaction") if it.open_transactions else "",
        "purged before": it.purged_before if it.purged_before != "0" else "",
    }


def _show_partitions(partitions: Sequence[r.PartitionInfo]) -> None:
    columns = (
        right("PARTITION"),
        right("TRANSACTIONS"),
        right("ITEMS"),
        right("SIZE"),
        left("OLDEST (UTC)", keep=True),
        left("LAST (UTC)", keep=True),
        left("HELD BACK BY"),
    )
    rows = [
        (
            str(it.partition),
            number(it.size.transactions, it.size.exact),
            number(it.size.items, it.size.exact),
            output.size(it.size.bytes),
            when(it.oldest),
            when(it.last_transaction),
            Cell(it.held_back_by or "", WARN),
        )
        for it in partitions
    ]
    show_table(columns, rows, "it has no partitions")


def _show_consumers(front: Door, stream: r.StreamDetail) -> None:
    if not stream.consumers:
        return
    found, goes_on = front.page(r.ConsumerPage, stream_path(stream.name, "consumers"), 20)
    rows = [
        (it.name, "yes" if it.live else "no", *lag_cells(it.lag), when(it.position_time))
        for it in found
    ]
    columns = (
        left("CONSUMER"),
        left("LIVE", keep=True),
        right("LAG"),
        right("ITEMS"),
        right("BEHIND"),
        left("POSITION (UTC)", keep=True),
    )
    say("")
    show_table(columns, rows, "")
    if goes_on:
        output.remark(f"there are more consumers: tstreams consumer list {stream.name} --all")
