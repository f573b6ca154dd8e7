"""Routes of transactions: browsing, looking inside, writing one, and those that are open."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from ...client.asynchronous.inspection import Inspection
from ...client.asynchronous.received import ReadTransaction
from ...errors import BadRequest, InvalidState, NotFound, TooLarge
from ...limits import INSPECT_MAX, MIB
from ...model import ID_MAX, time_of
from ...protocol import OpenInfo, StreamInfo
from .. import resources as r
from ..calls import Answer, Call
from ..front import Front, id_of_time, read_id, shown_ms, shown_time
from ..limits import HELD_BACK_NAMES_MAX
from ..problems import Refused
from ..viewing import show_items, show_rows
from ..whole import WholeStream
from .paging import decode_cursor, decode_number, encode_cursor, page_in_order
from .streams import check_partition

ROWS_BYTES_MAX = 64 * MIB
"""A transaction of rows is loaded whole to be shown; a larger one is not."""
HELD_BACK_STREAMS_MAX = 50
"""Open transactions on a page for which is found out whom they hold back."""


class Transactions:
    """Transactions of a partition, their items, and the open ones."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def transactions(self, call: Call) -> r.TransactionPage:
        """A page of visible transactions."""
        query = call.query
        descending = query["order"] == "desc"
        low = _point(query["from"], "from", last=False)
        high = ID_MAX if query["to"] is None else _point(query["to"], "to", last=True)
        if query["after"] is not None:
            at = decode_number(decode_cursor(query["after"])[1])
            low, high = (low, min(high, at - 1)) if descending else (max(low, at + 1), high)
        async with self._front.storage.turn() as inspect:
            whole = await WholeStream.named(inspect, call.path["stream"])
            partition = call.path["partition"]
            check_partition(whole.info, partition)
            items: list[r.Transaction] = []
            more = low <= high
            while more and len(items) < query["limit"]:
                found = await whole.browse(
                    partition, low, high, query["limit"] - len(items), descending
                )
                items += [
                    _visible(whole.info.name, partition, it.id, it.items, it.batches, it.bytes)
                    for it in found.transactions
                ]
                more = found.more and bool(found.transactions)
                if more:
                    last = found.transactions[-1].id
                    low, high = (low, last - 1) if descending else (last + 1, high)
                    more = low <= high
        cursor = encode_cursor(0, items[-1].id.encode()) if more and items else None
        return r.TransactionPage(items=items, next=cursor)

    async def transaction(self, call: Call) -> r.Transaction:
        """One transaction, visible or open."""
        async with self._front.storage.turn() as inspect:
            whole, partition, number = await self._named(inspect, call)
            status = await whole.transaction(partition, number)
        stream = whole.info.name
        if status.state == "unknown":
            raise NotFound(
                f"partition {partition} of stream {stream!r} has no transaction {number}: "
                "it never was, or is long gone"
            )
        return r.Transaction(
            id=str(number),
            stream=stream,
            partition=partition,
            time=time_of(number),
            state=status.state,  # type: ignore[arg-type]
            items=status.items,
            batches=status.batches,
            bytes=status.bytes,
        )

    async def items(self, call: Call) -> r.ItemPage:
        """Its items, a page of them."""
        first, limit, view = (call.query[it] for it in ("first", "limit", "view"))
        async with self._front.storage.turn() as inspect:
            whole, partition, number = await self._named(inspect, call)
            info = whole.info
            client = self._front.storage.client
            found = None
            async for txn in client.scan(
                info.name, partition, after=max(number - 1, 0), up_to=number
            ):
                found = txn
            if found is None or found.id != number:
                raise await self._invisible(whole, partition, number)
            if info.schema is not None and view in ("auto", "arrow"):
                shown = await self._rows(whole, found, first, limit)
            else:
                shown = show_items(await _slice(found, first, limit), first, view)
        following = first + len(shown)
        return r.ItemPage(
            items=shown,
            next=str(following) if shown and following < len(found) else None,
            total=len(found),
        )

    async def _invisible(
        self, whole: WholeStream, partition: int, number: int
    ) -> NotFound | InvalidState:
        status = await whole.transaction(partition, number)
        if status.state == "opened":
            return InvalidState(f"transaction {number} is open: nobody can read it yet")
        if status.state == "checkpointed" and not status.visible:
            return InvalidState(
                f"transaction {number} is held back by {status.first_open}, which is open"
            )
        return NotFound(f"there is no transaction {number} that can be read: it is {status.state}")

    async def _rows(
        self, whole: WholeStream, txn: ReadTransaction, first: int, limit: int
    ) -> list[r.Item]:
        status = await whole.transaction(txn.partition, txn.id)
        if status.bytes > ROWS_BYTES_MAX:
            raise TooLarge(f"{status.bytes} bytes of rows are too many to be shown")
        try:
            table = await txn.to_arrow()
        except ImportError:
            raise Refused(
                422, "bad_request", "view: rows need pyarrow on the server; hex shows their bytes"
            ) from None
        return show_rows(table.slice(first, limit).to_pylist(), first)

    async def write_transaction(self, call: Call) -> Answer:
        """Write one, whole."""
        body: r.NewTransaction = call.body
        if body.partition is not None and body.key is not None:
            raise BadRequest("give one of partition and key")
        async with self._front.storage.turn() as inspect:
            whole = await WholeStream.named(inspect, call.path["stream"])
            info = whole.info
            if body.partition is not None and body.partition >= info.partitions:
                raise BadRequest(
                    f"stream {info.name!r} has {info.partitions} partitions, from 0 on"
                )
            items = _table(info, body.items) if info.schema else list(map(_bytes, body.items))
            partition = 0 if body.partition is None and body.key is None else body.partition
            key = None if body.key is None else body.key.encode()
            async with self._front.storage.client.producer(info.name) as producer:
                number = await producer.instant(items, partition=partition, key=key)
            assert number is not None
            written = await self._written(whole, partition, number)
        path = (
            f"/v1/streams/{quote(info.name, safe='')}/partitions/{written.partition}"
            f"/transactions/{number}"
        )
        return Answer(written, {"Location": path})

    async def _written(
        self, whole: WholeStream, partition: int | None, number: int
    ) -> r.Transaction:
        """What was written: by its key it may have gone anywhere."""
        for at in range(whole.info.partitions) if partition is None else [partition]:
            status = await whole.transaction(at, number)
            if status.state != "unknown":
                return _visible(
                    whole.info.name, at, number, status.items, status.batches, status.bytes
                )
        raise NotFound(f"transaction {number} was written, and is gone already")

    # Open ones.

    async def open_transactions(self, call: Call) -> r.OpenPage:
        """Open transactions of all streams, or of one."""
        name = call.query["stream"]
        async with self._front.storage.turn() as inspect:
            stream, shards = 0, inspect.shards
            if name is not None:
                whole = await WholeStream.named(inspect, name)
                stream, shards = whole.info.id, sorted(whole.shards)

            async def fetch(
                shard: int, after: int, limit: int
            ) -> tuple[Sequence[OpenInfo], int | None]:
                found = await inspect.open_transactions(shard, stream, after, limit)
                return found.transactions, found.next if found.more else None

            query = call.query
            rows, following = await page_in_order(
                shards, query["after"], query["limit"], fetch, lambda it: it.id
            )
            held_back = await self._held_back(inspect, rows)
        items = [_open(it, held_back.get((shard, it.id), [])) for shard, it in rows]
        return r.OpenPage(items=items, next=following)

    async def _held_back(
        self, inspect: Inspection, rows: list[tuple[int, OpenInfo]]
    ) -> dict[tuple[int, int], list[str]]:
        """Which readers have read all that is before each of these transactions, by shard and id."""
        found = {}
        for shard, it in [row for row in rows if row[1].first][:HELD_BACK_STREAMS_MAX]:
            last = await inspect.browse(shard, it.stream, it.partition, 0, it.id, 1, True)
            visible = last.transactions[0].id if last.transactions else 0
            readers = await inspect.readers(shard, it.stream, b"", INSPECT_MAX)
            names = [
                reader.name
                for reader in readers.readers
                if dict(reader.positions).get(it.partition, 0) >= visible
            ]
            found[shard, it.id] = names[:HELD_BACK_NAMES_MAX]
        return found

    async def cancel_transaction(self, call: Call) -> r.Cancelled:
        """Cancel one, whoever owns it."""
        number = read_id(call.path["transaction"], "transaction")
        async with self._front.storage.turn() as inspect:
            where = await self._where_open(inspect, number, call.query)
            if len(where) > 1:
                named = ", ".join(f"{it.stream_name!r} {it.partition}" for it in where.values())
                raise InvalidState(
                    f"more than one partition has an open transaction {number} ({named}): say which stream "
                    "and partition is meant"
                )
            for shard in where:
                await inspect.end_transactions(shard, [number])
                return r.Cancelled(id=str(number), state="cancelled")
        raise NotFound(f"transaction {number} is not open: it has ended, or never was")

    async def _where_open(
        self, inspect: Inspection, number: int, query: dict[str, Any]
    ) -> dict[int, OpenInfo]:
        """The shards in which such a transaction is open: each gives out its own ids."""
        stream, partition = query["stream"], query["partition"]
        shards = inspect.shards
        if stream is not None:
            shards = (await WholeStream.named(inspect, stream)).shards
        found = {}
        for shard in shards:
            open_ones = await inspect.open_transactions(shard, 0, max(number - 1, 0), 1)
            for it in open_ones.transactions:
                meant = stream in (None, it.stream_name) and partition in (None, it.partition)
                if it.id == number and meant:
                    found[shard] = it
        return found

    async def _named(self, inspect: Inspection, call: Call) -> tuple[WholeStream, int, int]:
        whole = await WholeStream.named(inspect, call.path["stream"])
        partition = call.path["partition"]
        check_partition(whole.info, partition)
        number = int(call.path["transaction"])
        if not 0 < number <= ID_MAX or shown_time(number) is None:
            raise NotFound(f"no transaction can have the id {number}")
        return whole, partition, number


def _point(text: str | None, what: str, *, last: bool) -> int:
    """The first id of a range, or its last one."""
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 19:
        return read_id(text, what)
    try:
        when = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise Refused(
            422,
            "bad_request",
            f"{what}: {text!r} is neither an id nor a time such as 2026-01-01T12:00:00Z",
        ) from None
    if last:
        try:
            return max(id_of_time(when + timedelta(milliseconds=1), what) - 1, 0)
        except OverflowError:
            return ID_MAX
    return id_of_time(when, what)


def _visible(
    stream: str, partition: int, number: int, items: int, batches: int, size: int
) -> r.Transaction:
    return r.Transaction(
        id=str(number),
        stream=stream,
        partition=partition,
        time=time_of(number),
        state="checkpointed",
        items=items,
        batches=batches,
        bytes=size,
    )


def _open(it: OpenInfo, held_back: list[str]) -> r.OpenTransaction:
    opened = time_of(it.id)
    owner = r.Holder(
        kind="job" if it.job else "producer",
        name=it.job or it.agent_name,
        session=str(it.session),
        seen=shown_ms(it.last_seen_ms),
    )
    return r.OpenTransaction(
        id=str(it.id),
        stream=it.stream_name,
        partition=it.partition,
        time=opened,
        age_seconds=max(0.0, (datetime.now(UTC) - opened).total_seconds()),
        expires=shown_ms(it.expires_at_ms),
        items=it.items,
        owner=owner,
        staged=bool(it.job),
        first=it.first,
        held_back=held_back,
    )


async def _slice(txn: ReadTransaction, first: int, limit: int) -> list[bytes]:
    if first >= len(txn):
        return []
    found: list[bytes] = []
    index = 0
    async for item in txn.items:
        if index >= first:
            found.append(item)
            if len(found) == limit:
                break
        index += 1
    return found


def _bytes(item: r.NewItem) -> bytes:
    _check_one(item)
    if isinstance(item.text, str):
        try:
            return item.text.encode()
        except UnicodeEncodeError:
            raise BadRequest("items: a text is not valid Unicode") from None
    if isinstance(item.base64, str):
        try:
            return base64.b64decode(item.base64, validate=True)
        except (ValueError, binascii.Error) as error:
            raise BadRequest(f"items: this is no base64: {error}") from None
    return msgspec.json.encode(item.json)


def _check_one(item: r.NewItem) -> None:
    if len(r.given(item)) != 1:
        raise BadRequest("items: each has exactly one of text, json and base64")


def _table(info: StreamInfo, items: list[r.NewItem]) -> Any:
    """Rows for a typed stream."""
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError:
        raise BadRequest("rows need pyarrow on the server") from None
    rows = []
    for item in items:
        _check_one(item)
        if not isinstance(item.json, dict):
            raise BadRequest("items: the stream has a schema, so each is a JSON object, a row")
        rows.append(item.json)
    schema = pa.ipc.read_schema(pa.py_buffer(info.schema))
    unknown = {name for row in rows for name in row} - set(schema.names)
    if unknown:
        raise BadRequest(f"items: {', '.join(sorted(unknown))}: no such column in the schema")
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"items: they do not fit the schema: {error}") from None
