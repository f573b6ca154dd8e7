"""What can be done with streams: make, look up, list, alter, purge, delete."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from ...errors import BadRequest, TooLarge
from ...items import grown, pack_schema, read_schema
from ...limits import LIST_STREAMS_MAX, SCHEMA_BYTES_MAX
from ...model import (
    ID_MAX,
    Stream,
    Ttl,
    check_description,
    check_name,
    check_partitions,
    check_stream_ttl,
    first_id_at,
)
from ...protocol import (
    AlterStream,
    CreateStream,
    DeleteStream,
    Done,
    GetStream,
    ListStreams,
    PurgeStream,
    StreamInfo,
    StreamList,
)
from .link import Link
from .ticket import Steps, Ticket, answer

if TYPE_CHECKING:
    import pyarrow as pa


def stream_of(info: StreamInfo) -> Stream:
    """A stream, as users see it."""
    ttl = timedelta(milliseconds=info.ttl_ms)
    return Stream(
        info.name,
        info.partitions,
        ttl,
        info.description,
        info.schema,
        info.id,
        info.purged_before,
    )


def create_stream(
    link: Link,
    name: str,
    partitions: int,
    ttl: Ttl,
    description: str,
    schema: pa.Schema | bytes | None,
) -> Steps[Stream]:
    """Make a stream."""
    check_name(name)
    check_partitions(partitions)
    ttl_ms = check_stream_ttl(ttl)
    check_description(description)
    packed = None if schema is None else _packed(schema)
    session = yield from link.session(link.shards.home_of(name))
    ticket = session.start(CreateStream, name, partitions, ttl_ms, description, packed)
    return stream_of((yield from answer(ticket, StreamInfo)))


def _packed(schema: pa.Schema | bytes) -> bytes:
    if not isinstance(schema, bytes):
        if not hasattr(schema, "serialize"):
            raise BadRequest(f"a schema is a pyarrow.Schema, not {type(schema).__name__}")
        return pack_schema(schema)
    if len(schema) > SCHEMA_BYTES_MAX:
        raise TooLarge(f"a schema of {len(schema)} bytes is over the limit of {SCHEMA_BYTES_MAX}")
    return schema


def find_stream(link: Link, name: str) -> Steps[StreamInfo]:
    """A stream by its name; `NotFound` if there is none."""
    check_name(name)
    ticket = link.ask(GetStream(name), shard=link.shards.home_of(name))
    return (yield from answer(ticket, StreamInfo))


def get_stream(link: Link, name: str) -> Steps[Stream]:
    """A stream by its name, as users see it."""
    return stream_of((yield from find_stream(link, name)))


def list_streams(
    link: Link, prefix: str, limit: int | None, after: str | None
) -> Steps[list[Stream]]:
    """Streams in the order of their names."""
    for text in (prefix, after or ""):
        if not isinstance(text, str):
            raise BadRequest(f"a prefix and a name are text, not {type(text).__name__}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise BadRequest(f"a limit is a number of streams, not {limit!r}")
    page = LIST_STREAMS_MAX if limit is None else min(LIST_STREAMS_MAX, limit)
    first = ListStreams(prefix, after or "", page)
    # Each shard lists the streams that it is the home of.
    tickets = [link.ask(first, shard=shard) for shard in link.shards.numbers] if page else []
    lists = []
    for shard, ticket in enumerate(tickets):
        lists.append((yield from _list_shard(link, shard, ticket, prefix, limit)))
    merged = heapq.merge(*lists, key=lambda info: info.name)
    return [stream_of(info) for info in islice(merged, limit)]


def _list_shard(
    link: Link, shard: int, ticket: Ticket, prefix: str, limit: int | None
) -> Steps[list[StreamInfo]]:
    """All of a shard, whose first page was asked for."""
    found: list[StreamInfo] = []
    while True:
        reply = yield from answer(ticket, StreamList)
        found += reply.streams
        if not reply.more or not reply.streams or (limit is not None and len(found) >= limit):
            return found
        page = LIST_STREAMS_MAX if limit is None else min(LIST_STREAMS_MAX, limit - len(found))
        ticket = link.ask(ListStreams(prefix, found[-1].name, page), shard=shard)


def alter_stream(
    link: Link,
    name: str,
    ttl: Ttl | None,
    description: str | None,
    schema: pa.Schema | None,
) -> Steps[Stream]:
    """Change what can be changed of a stream; None leaves it as it is."""
    check_name(name)
    ttl_ms = None if ttl is None else check_stream_ttl(ttl)
    if description is not None:
        check_description(description)
    old = new = None
    if schema is not None:
        if not hasattr(schema, "serialize"):
            raise BadRequest(f"a schema is a pyarrow.Schema, not {type(schema).__name__}")
        info = yield from find_stream(link, name)
        old = info.schema
        new = pack_schema(schema if old is None else grown(read_schema(old), schema))
    session = yield from link.session(link.shards.home_of(name))
    ticket = session.start(AlterStream, name, ttl_ms, description, new, old)
    return stream_of((yield from answer(ticket, StreamInfo)))


def delete_stream(link: Link, name: str) -> Steps[None]:
    """Delete a stream with all it holds."""
    check_name(name)
    session = yield from link.session(link.shards.home_of(name))
    yield from answer(session.start(DeleteStream, name), Done)


def purge_stream(link: Link, name: str, before: datetime | int) -> Steps[None]:
    """Drop what was opened before a time, or before a transaction."""
    check_name(name)
    if isinstance(before, datetime):
        before_id = first_id_at(before)
    elif isinstance(before, int) and not isinstance(before, bool) and 0 <= before <= ID_MAX:
        before_id = before
    else:
        raise BadRequest(f"purge before a datetime or a transaction id, not {before!r}")
    session = yield from link.session(link.shards.home_of(name))
    yield from answer(session.start(PurgeStream, name, before_id), Done)
