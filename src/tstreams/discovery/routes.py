"""The table of routes: each with its parameters, what it is sent, and what it answers with.

Requests are routed by this table, checked against it, and the OpenAPI document is made of it: so they
cannot disagree. What a route does is the function of `handlers/` that is registered under its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from . import cluster_resources as c
from . import resources as r

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Minutes = Annotated[int, msgspec.Meta(ge=1, le=60)]
Cursor = Annotated[str, msgspec.Meta(max_length=2000)]
PointText = Annotated[str, msgspec.Meta(max_length=64)]
"""A transaction id, or a time (RFC 3339)."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter behind the question mark."""

    name: str
    type: Any
    default: Any = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    name: str
    """What the function that answers it is called."""
    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    """Segments in braces are parameters: their types are in `PATH_PARAMETERS`."""
    result: type[msgspec.Struct] | None
    """What it answers with; None: nothing, or no JSON (`media`)."""
    summary: str
    query: tuple[Query, ...] = ()
    body: type[msgspec.Struct] | None = None
    status: int = 200
    etag: bool = False
    """Whether it has an entity tag: reads heed If-None-Match, and changes If-Match. That of a read whose
    handler gives none is made of what is answered."""
    media: str = "application/json"
    problems: tuple[int, ...] = field(default=())
    """Further statuses that it may fail with, beside those that every route has."""


PATH_PARAMETERS: dict[str, tuple[Any, str]] = {
    "stream": (r.Name, "The name of a stream, percent-encoded, `/` too."),
    "partition": (r.Partition, "The number of a partition."),
    "transaction": (r.Id, "The id of a transaction."),
    "consumer": (r.Name, "The name of a consumer, percent-encoded, `/` too."),
    "node": (c.NodeId, "The id of a node."),
    "shard": (c.ShardNumber, "The number of a shard."),
}

_PAGE = (
    Query("limit", Limit, 50, "How many at most."),
    Query("after", Cursor, None, "The `next` of the page before."),
)
_STREAM = "/v1/streams/{stream}"
_TRANSACTIONS = f"{_STREAM}/partitions/{{partition}}/transactions"
_CONSUMER = f"{_STREAM}/consumers/{{consumer}}"

ROUTES: tuple[Route, ...] = (
    # The node.
    Route("live", "GET", "/health/live", r.Health, "Whether this process answers."),
    Route(
        "ready",
        "GET",
        "/health/ready",
        r.Health,
        "Whether the storage server answers, and all its shards work.",
        problems=(503,),
    ),
    Route(
        "lookup",
        "GET",
        "/v1/lookup/{stream}",
        r.Lookup,
        "Which nodes serve the partitions of a stream, at which addresses.",
        (Query("partition", r.Partition, None, "Only the range that this one is in."),),
        etag=True,
        problems=(404,),
    ),
    # The cluster.
    Route(
        "cluster", "GET", "/v1/cluster", c.Cluster, "The cluster that this node is of.", etag=True
    ),
    Route(
        "cluster_health",
        "GET",
        "/v1/cluster/health",
        c.ClusterHealth,
        "How the cluster is, and the servers that it stands on.",
    ),
    Route(
        "rebalance",
        "POST",
        "/v1/cluster/rebalance",
        c.Cluster,
        "Spread leaders and followers evenly, at once; leaders that were chosen are so no longer.",
        etag=True,
        problems=(409,),
    ),
    Route(
        "nodes",
        "GET",
        "/v1/nodes",
        c.NodePage,
        "All nodes, and where they are reached.",
        _PAGE,
        etag=True,
    ),
    Route("node", "GET", "/v1/nodes/{node}", c.Node, "A node.", etag=True, problems=(404,)),
    Route(
        "change_node",
        "PATCH",
        "/v1/nodes/{node}",
        c.Node,
        "Let a node give its shards to others, or let it have some again.",
        body=c.NodeChange,
        etag=True,
        problems=(404, 409),
    ),
    Route(
        "forget_node",
        "DELETE",
        "/v1/nodes/{node}",
        None,
        "Forget a node that is gone and will not come back. Refused while it is there.",
        status=204,
        etag=True,
        problems=(404, 409),
    ),
    Route(
        "shards",
        "GET",
        "/v1/shards",
        c.ShardPage,
        "All shards: who leads them, who follows, and how far behind.",
        _PAGE,
        etag=True,
    ),
    Route(
        "shard", "GET", "/v1/shards/{shard}", c.ShardDetail, "A shard.", etag=True, problems=(404,)
    ),
    Route(
        "change_shard",
        "PATCH",
        "/v1/shards/{shard}",
        c.ShardDetail,
        "Choose who leads a shard. It moves when that node has it.",
        body=c.ShardChange,
        etag=True,
        problems=(404, 409),
    ),
    Route("config", "GET", "/v1/config", r.Configuration, "The settings in force.", etag=True),
    # Streams.
    Route(
        "streams",
        "GET",
        "/v1/streams",
        r.StreamPage,
        "Streams, in the order of their names, or those whose names hold a text.",
        (
            *_PAGE,
            Query("prefix", Annotated[str, msgspec.Meta(max_length=255)], "", "How names begin."),
            Query(
                "search",
                Annotated[str, msgspec.Meta(max_length=255)],
                "",
                "What names hold, anywhere, in this case or another.",
            ),
            Query("details", bool, True, "Whether to count sizes and lags."),
        ),
    ),
    Route(
        "create_stream",
        "POST",
        "/v1/streams",
        r.StreamDetail,
        "Make a stream.",
        body=r.NewStream,
        status=201,
        problems=(409,),
    ),
    Route("stream", "GET", _STREAM, r.StreamDetail, "A stream.", etag=True, problems=(404,)),
    Route(
        "alter_stream",
        "PATCH",
        _STREAM,
        r.StreamDetail,
        "Change the ttl or the description of a stream.",
        body=r.StreamChange,
        etag=True,
        problems=(404,),
    ),
    Route(
        "delete_stream",
        "DELETE",
        _STREAM,
        None,
        "Delete a stream with all it holds, and the positions of its consumers.",
        status=204,
        etag=True,
        problems=(404,),
    ),
    Route(
        "purge_stream",
        "POST",
        f"{_STREAM}/purge",
        r.Purged,
        "Drop the transactions that were opened before a time, or before one of them.",
        body=r.Purge,
        etag=True,
        problems=(404,),
    ),
    Route(
        "partitions",
        "GET",
        f"{_STREAM}/partitions",
        r.PartitionPage,
        "The partitions of a stream.",
        _PAGE,
        problems=(404,),
    ),
    Route(
        "partition",
        "GET",
        f"{_STREAM}/partitions/{{partition}}",
        r.PartitionInfo,
        "A partition.",
        problems=(404,),
    ),
    # Transactions.
    Route(
        "transactions",
        "GET",
        _TRANSACTIONS,
        r.TransactionPage,
        "The visible transactions of a partition, without their items.",
        (
            *_PAGE,
            Query("from", PointText, None, "The first: a time (RFC 3339) or an id."),
            Query("to", PointText, None, "The last: a time (RFC 3339) or an id."),
            Query("order", Literal["asc", "desc"], "asc", "The oldest or the newest first."),
        ),
        problems=(404,),
    ),
    Route(
        "transaction",
        "GET",
        f"{_TRANSACTIONS}/{{transaction}}",
        r.Transaction,
        "A transaction that is visible or open.",
        problems=(404,),
    ),
    Route(
        "items",
        "GET",
        f"{_TRANSACTIONS}/{{transaction}}/items",
        r.ItemPage,
        "The items of a visible transaction, as text, JSON, hexadecimal digits or rows.",
        (
            Query("limit", Limit, 50, "How many at most."),
            Query("first", Annotated[int, msgspec.Meta(ge=0)], 0, "The index of the first."),
            Query("view", r.View, "auto", "How to show them; auto finds out what they are."),
        ),
        problems=(404, 409),
    ),
    Route(
        "write_transaction",
        "POST",
        f"{_STREAM}/transactions",
        r.Transaction,
        "Write a transaction: for trying things out.",
        body=r.NewTransaction,
        status=201,
        problems=(404,),
    ),
    Route(
        "open_transactions",
        "GET",
        "/v1/transactions/open",
        r.OpenPage,
        "Open transactions, the oldest first: whose they are, and whom they hold back.",
        (*_PAGE, Query("stream", r.Name, None, "Only those of a stream.")),
        problems=(404,),
    ),
    Route(
        "cancel_transaction",
        "POST",
        "/v1/transactions/open/{transaction}/cancel",
        r.Cancelled,
        "Cancel an open transaction, whoever owns it; the owner is told so.",
        (
            Query("stream", r.Name, None, "The stream it is in: ids are unique in a partition."),
            Query("partition", r.Partition, None, "The partition it is in."),
        ),
        problems=(404, 409),
    ),
    # Consumers.
    Route(
        "consumers", "GET", "/v1/consumers", r.ConsumerPage, "The consumers of all streams.", _PAGE
    ),
    Route(
        "stream_consumers",
        "GET",
        f"{_STREAM}/consumers",
        r.ConsumerPage,
        "The consumers of a stream.",
        _PAGE,
        problems=(404,),
    ),
    Route(
        "consumer",
        "GET",
        _CONSUMER,
        r.ConsumerDetail,
        "A consumer, with its positions and its lag.",
        etag=True,
        problems=(404,),
    ),
    Route(
        "consumer_lag",
        "GET",
        f"{_CONSUMER}/lag",
        r.LagHistory,
        "The lag of a consumer over time. Only those that are far behind, or were looked at, are watched.",
        (Query("minutes", Minutes, 15, "How far back."),),
        problems=(404,),
    ),
    Route(
        "reset_consumer",
        "POST",
        f"{_CONSUMER}/reset",
        r.ResetResult,
        "Let a consumer go on elsewhere, or see what that would mean (`dry_run`).",
        body=r.Reset,
        etag=True,
        problems=(404, 409),
    ),
    Route(
        "forget_consumer",
        "DELETE",
        _CONSUMER,
        None,
        "Forget the positions of a consumer. Refused while it is live.",
        status=204,
        etag=True,
        problems=(404, 409),
    ),
    # What else there is.
    Route("sessions", "GET", "/v1/sessions", r.SessionPage, "The sessions of clients.", _PAGE),
    Route("ledgers", "GET", "/v1/ledgers", r.LedgerPage, "The files of the log.", _PAGE),
    Route(
        "jobs",
        "GET",
        "/v1/jobs",
        r.JobPage,
        "Jobs and their last steps: Spark queries are such.",
        _PAGE,
    ),
    Route("statistics", "GET", "/v1/statistics", r.Statistics, "What the node does now."),
    Route(
        "history",
        "GET",
        "/v1/statistics/history",
        r.History,
        "What the node did in the last minutes.",
        (Query("minutes", Minutes, 15, "How far back."),),
    ),
    Route(
        "events",
        "GET",
        "/v1/events",
        None,
        "Server-sent events: `statistics` each second, and `stream` each second if one is named.",
        (Query("stream", r.Name, None, "A stream to watch closely."),),
        media="text/event-stream",
        problems=(404, 503),
    ),
    Route(
        "metrics",
        "GET",
        "/metrics",
        None,
        "Everything measured, for Prometheus.",
        media="text/plain",
    ),
    Route("openapi", "GET", "/v1/openapi.json", None, "This document.", etag=True),
)

CONSOLE = Route("console", "GET", "/", None, "The console, and its files.", media="text/html")
"""What stands for all files of the console; it is in no document."""
