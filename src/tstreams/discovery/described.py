"""What each metric means: those of the storage server, and those of the front door."""

from __future__ import annotations

from ..measures import COUNTERS, GAUGES, HISTOGRAMS

OURS = {
    "up": "Whether the storage server answers.",
    "build_info": "The version of the server.",
    "consumer_lag_transactions": "Transactions that a consumer has not checkpointed yet, of those who are watched.",
    "consumer_lag_items": "Items that a consumer has not checkpointed yet, of those who are watched.",
    "consumer_lag_seconds": "The age of the oldest transaction that a consumer has not checkpointed yet.",
    "stream_transactions_total": "Transactions that were checkpointed in a stream, of the busiest ones.",
    "stream_items_total": "Items that were written to a stream, of the busiest ones.",
    "stream_written_bytes_total": "Bytes that were written to a stream, of the busiest ones.",
    "stream_transactions_read_total": "Transactions that were read from a stream, of the busiest ones.",
    "stream_items_read_total": "Items that were read from a stream, of the busiest ones.",
    "stream_read_bytes_total": "Bytes that were read from a stream, of the busiest ones.",
    "http_requests_total": "Requests that the front door has answered.",
    "http_request_seconds": "How long the front door took for an answer; events are not counted.",
    "http_event_clients": "Clients that get server-sent events.",
    "catalogue_streams": "Streams whose names the front door knows.",
    "milestones": "Sums of transactions that the front door remembers, to count sizes and lags.",
}

DESCRIBED: dict[str, str] = {**COUNTERS, **GAUGES, **HISTOGRAMS, **OURS}
"""Every metric by its name, without the `tstreams_` before it."""


def describe(name: str) -> str:
    """What a metric means; one that a newer server has measured has no more than its name."""
    return DESCRIBED.get(name, name.replace("_", " ") + ".")
