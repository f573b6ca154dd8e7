"""Every limit of the front door, with its reason."""

from __future__ import annotations

from ..limits import KIB, MIB

HEADERS_BYTES_MAX = 64 * KIB
"""The first line and the headers of a request: a path with two long names, percent-encoded, has 3 KiB."""

BODY_BYTES_MAX = 4 * MIB
"""The body of a request. Only a test transaction is ever large."""

BODY_TIMEOUT_S = 10.0
"""How long a body may take to come."""

HEADERS_TIMEOUT_S = 10.0
"""How long a connection may take to send its first line and headers, and be idle between two requests."""

WRITE_TIMEOUT_S = 20.0
"""How long a client may take nothing of an answer that waits for it. Then its connection is cut."""

REQUEST_TIMEOUT_S = 15.0
"""How long a request may take in all, but for events: longer than a storage server needs to start again."""

SERVER_TIMEOUT_S = 5.0
"""How long the storage server may take for one answer."""

READY_TIMEOUT_S = 2.0
"""How long it may take to show that it is ready: whoever probes that waits no longer."""

CONNECTIONS_MAX = 1024
"""Connections at a time. Browsers use up to six each; idle ones are closed soon."""

EVENT_CLIENTS_MAX = 128
"""Clients of server-sent events. Each gets some kilobytes per second."""

WORK_MAX = 16
"""Requests that ask the storage server at a time; the others wait for their turn, up to their deadline. So
a crowd in front of the door is not a crowd in front of the server."""

SHUTDOWN_S = 3
"""How long requests under way may take to end when the front door is told to stop."""

STRIDE_TRANSACTIONS = 2000
"""How many transactions the server counts at a time for us: some 2 ms during which it does nothing else."""

COUNT_STRIDES_LIST = 40
"""Strides for all rows of one page of a list. What is not counted by then is shown as inexact, and the next
request counts on."""

COUNT_STRIDES_DETAIL = 100
"""Strides for one stream or consumer."""

MARKS_MAX = 200_000
"""Milestones that are remembered: some 200 bytes each."""

MARKS_PER_PARTITION_MAX = 4096
"""Milestones of one partition: beyond that every second one is dropped."""

ROW_PARTITIONS_MAX = 64
"""Partitions of a stream that are looked at for a row of a list."""

DETAIL_PARTITIONS_MAX = 1024
"""Partitions that are looked at for one stream or one consumer."""

HISTORY_S = 3600
"""How long the statistics of each second are kept: 200 bytes each."""

EVENTS_INTERVAL_S = 1.0
"""How often the storage server is measured, and events are sent."""

LAG_INTERVAL_S = 5.0
"""How often the lag of the watched consumers is counted."""

WATCHED_CONSUMERS_MAX = 50
"""Consumers whose lag is kept over time: those who were asked for last; room that is left is for any others."""

CATALOGUE_NAMES_MAX = 20_000_000
"""Names of streams that are kept for searching: some 50 bytes each."""

CATALOGUE_PAGE = 1000
"""Streams that are asked for at a time while the catalogue is filled."""

SEARCH_HITS_MAX = 10_000
"""Hits of a search that are counted; beyond that there are "more"."""

ITEM_SHOWN_BYTES = 16 * KIB
"""What is shown of one item."""

ITEMS_SHOWN_BYTES = 1 * MIB
"""What is shown of all items on a page."""

HELD_BACK_NAMES_MAX = 10
"""Consumers that are named as held back by an open transaction."""

PEER_TIMEOUT_S = 1.5
"""How long another node may take to say how far its shards have come. What does not come is shown as not known."""

PEERS_MAX = 100
"""Nodes that are asked at a time."""

IN_SYNC_BYTES = 1 * MIB
"""A follower that lacks no more of the log than this can lead at once: it is read in some milliseconds."""

CHANGES_TRIED = 5
"""How often a change of what operators want is tried again if others change it at the same moment."""
