"""The name of every number that a server keeps of itself, and what it counts.

Counters end with `_total` and only grow while the server runs. Names end with their unit. What a server
answers to `Measure` has all of these, and nothing else.
"""

from __future__ import annotations

COUNTERS = {
    "commits_total": "Transactions that were checkpointed.",
    "items_total": "Items that were written, also into transactions that were cancelled later.",
    "append_bytes_total": "Bytes of records that were appended to the log, payload and all.",
    "records_total": "Records that were appended to the log.",
    "groups_total": "Groups of records that were appended to the log, each with one sync.",
    "opened_total": "Transactions that were opened, instant ones not counted.",
    "cancelled_total": "Transactions that were cancelled by their owners, or had no items.",
    "expired_total": "Transactions whose lease ran out.",
    "overruled_total": "Transactions that were cancelled by an operator.",
    "fenced_total": "Agents that lost their names to newer ones.",
    "answers_read_total": "Answers to readers that had something in them, subscriptions included.",
    "transactions_read_total": "Transactions that were sent to readers, for each of them.",
    "items_read_total": "Items that were sent to readers, for each of them.",
    "bytes_read_total": "Bytes of item batches that were sent to readers, for each of them.",
    "cache_hits_total": "Item batches that a reader wanted and that were still in memory.",
    "cache_misses_total": "Item batches that had to be read from the log.",
    "requests_total": "Requests that came in.",
    "failures_total": "Requests that were answered with an error.",
    "refused_total": "Requests that were refused because a client had too many under way.",
    "rejected_total": "Messages that broke the protocol.",
    "unauthorized_total": "Clients whose credentials were refused.",
    "connections_total": "Clients that connected.",
    "connections_refused_total": "Clients that were refused because there were too many.",
    "connections_expired_total": "Clients that were closed because they were dead, idle, or too slow.",
    "errors_total": "Mistakes in the program: exceptions that nobody foresaw.",
}

GAUGES = {
    "connections": "Clients that are connected.",
    "requests_in_flight": "Requests that are being answered or wait for their turn, readers that wait included.",
    "send_buffer_bytes": "Answers that clients have not taken yet.",
    "sessions": "Sessions that have not ended.",
    "open_transactions": "Transactions that are open.",
    "groups_prepared": "Checkpoints that wait for the decision of another shard.",
    "groups_untold": "Checkpoints that were decided and of which not all shards know yet.",
    "requests_parked": "Requests that wait for what another shard has to say.",
    "oldest_open_age_seconds": "How long ago the oldest open transaction was opened.",
    "readers_waiting": "Readers that wait for something to become visible.",
    "subscriptions": "Subscriptions.",
    "ledgers": "Ledgers of the log.",
    "ledger_bytes": "The size of all ledgers.",
    "live_bytes": "Payload in them that is alive.",
    "cache_bytes": "Item batches in memory.",
    "disk_free_bytes": "Room on the disk.",
    "disk_reserve_bytes": "Room on the disk that is kept free.",
    "disk_full": "1 while writing is refused for want of room.",
    "failed": "How many shards have stopped, or have no process at the moment.",
    "records_since_flush": "Records that would be replayed after a crash.",
    "streams_measured": "Streams whose traffic is counted.",
    "rocksdb_keys": "Keys in the index, estimated.",
    "rocksdb_memtable_bytes": "What the index holds in memory and has not flushed.",
    "rocksdb_files_bytes": "The size of the files of the index.",
    "rocksdb_block_cache_bytes": "Blocks of the index that are kept in memory.",
    "rocksdb_compaction_pending_bytes": "What is still to be compacted.",
}

HISTOGRAMS = {
    "commit_seconds": "From the decision on a change until it is durable and in the index, for each record.",
    "sync_seconds": "How long the disk took to make a group durable.",
    "read_seconds": "From looking for what a reader asked for until the answer was handed over, if there was something.",
    "group_records": "Records in a group.",
    "group_bytes": "Bytes in a group.",
}
