"""Every limit of tstreams, with its reason."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

NAME_BYTES_MAX = 255
"""The name of a stream or an agent, in UTF-8. It is part of keys: long names cost every lookup."""

DESCRIPTION_BYTES_MAX = 4 * KIB
"""A stream's description. It is read with every listing."""

SCHEMA_BYTES_MAX = 1 * MIB
"""A stream's Arrow schema, serialised. Thousands of columns fit."""

PARTITIONS_MAX = 65_536
"""Partitions of one stream. Two bytes; more order than anyone needs from one stream."""

ITEM_BYTES_MAX = 64 * MIB
"""One item. What is larger belongs into an object store, with its address in the item."""

FRAME_BYTES_MAX = 16 * MIB
"""One item batch on the wire and in the ledger. Larger transactions go in chunks of this."""

BATCH_ITEMS_MAX = 1_000_000
"""Items in one batch: bounds the offsets that a reader has to make room for (4 MB)."""

HEADERS_MAX = 64
"""Headers of one transaction. They say what it is; what it holds are its items."""

HEADERS_BYTES_MAX = 16 * KIB
"""Headers of one transaction, with three bytes for each beside its name and its value: two browsers' worth of
baggage. They are never compressed, and travel with every read of the first batch."""

STREAM_TTL_MS_MIN = 1_000
"""A stream's shortest ttl. Shorter would be gone before a reader could come."""

LEASE_MS_MIN = 500
"""A transaction's shortest lease: the keepalive needs a few round trips within it."""

LEASE_MS_MAX = 24 * 3600 * 1000
"""A transaction's longest lease between two keepalives: it bounds how long readers may wait for a
producer that vanished."""

SESSION_TTL_MS = 15 * 60 * 1000
"""How long a session is remembered without a word from its client. Requests that a client repeats
after a longer silence are refused, because nobody knows any more whether they took effect."""

SESSIONS_MAX = 100_000
"""Sessions of one shard. A session costs a few hundred bytes of memory."""

SESSION_REPLIES_MAX = 4096
"""Answers of one session that its client has not acknowledged: four times what one connection may have
under way. They are written to the index with each change."""

OPEN_TRANSACTIONS_MAX = 1_000_000
"""Open transactions of one shard, held in memory: some 300 bytes each."""

SHARDS_MAX = 1024
"""Shards of one cluster: more than it will have processor cores. What spans shards is told to each of them; every
node watches the leader of each."""

PREPARED_MAX = 100_000
"""Groups of one shard that wait for a decision elsewhere. They are held in memory."""

REFUSED_MAX = 256
"""Refused groups of one session that are remembered one by one. Of more, all up to the last that is forgotten count as
refused: a client that has so many begins anew with each of them."""

DELETED_KEPT_MS = 3_600_000
"""How long a shard remembers that a stream of another shard was deleted: longer than an answer can be under way."""

DELETED_KEPT_MAX = 100_000
"""How many deleted streams of other shards are remembered."""

DELETED_FORGOTTEN_MAX = 10_000
"""How many of them are forgotten at a time: a record of that has 90 KB at most."""

CLOCKS_DIFFER_MS_MAX = 1_000
"""By how much the clocks of two nodes may differ for a purge of everything to take all that the other shards have written
by then. What is written after such a purge has ids that are so much ahead of the clock, for so long."""

DOUBT_WAIT_S = 10.0
"""How long a request waits for the decision of a group, or for what another shard has to say, if its caller has not said
how long it waits. Then it is refused with `Unavailable`, and can be sent again."""

PARKED_MAX = 10_000
"""Requests of one shard that wait for other shards. Those beyond are refused with `Unavailable`."""

PARKED_BYTES_MAX = 64 * MIB
"""Item batches that come with such requests: as much as one connection may have under way."""

KIN_RETRY_S_MIN = 0.05
"""The pause before another shard that could not answer is asked or told again; it doubles each time."""

KIN_RETRY_S_MAX = 2.0
"""The longest pause before another shard is asked or told again: as long as that a decision may come late."""

KIN_ASK_S = 5.0
"""How long another shard may take to answer. It writes down what it is told, and no more; who asks for longer asks again,
perhaps another node."""

KIN_CONNECT_S = 2.0
"""How long it may take to connect to another shard: it is on the same machine, or in the next rack."""

KIN_HOPS_MAX = 3
"""How many nodes are asked for a shard that has moved, each of which names the next, before it is looked up anew."""

KIN_CONNECTIONS_MAX = 256
"""Connections to other shards. One leads to all shards of a node, or to one process of a shard."""

KIN_IDLE_S = 60.0
"""When a connection to another shard is closed that nobody uses: a busy shard has something to tell more often."""

HANDOVER_ASK_S = 1.5
"""How long a node that leads a shard may take to say that another may lead it, and to say that it has stopped. Then it is
asked again, or gives the shard up by itself."""

HANDOVER_STOP_S = 10.0
"""How long a node that leads by what the coordination service says waits for the word of the one before that it has
stopped, as long as that is there: longer than a session lasts of which nothing is heard."""

HANDOVERS_MAX = 4
"""Shards that a node takes from others at the same time: the more there are, the longer each of them stands still."""

SHARD_RESTART_S_MIN = 0.1
"""The pause before the process of a shard that has ended is started again; it doubles each time."""

SHARD_RESTART_S_MAX = 5.0
"""The longest such pause."""

SHARD_STEADY_S = 10.0
"""A process of a shard that has lived for so long is steady: if it ends, it is the first time."""

SHARD_RESTARTS_MAX = 20
"""How often in a row the process of a shard is started again, which takes more than a minute. Then the whole server ends, so
that somebody notices."""

SHARD_END_S = 60.0
"""How long the process of a shard may take to flush and to end, before it is killed. Nothing is lost then; it has more to
read when it is started again."""

SHARD_MEASURE_S = 2.0
"""How long the process of a shard may take to say what it has measured. Then what it said last is told."""

ERRANDS_MAX = 1000
"""Groups that one shard asks about at the same time. The others wait for their turn."""

TELL_MAX = 1000
"""Decisions and changes that one shard tells another before it writes down that they are known."""

COMMIT_MEMBERS_MAX = 100_000
"""Transactions and positions in one commit: it is one record in the log."""

STAGING_TTL_S = 600.0
"""How long staged transactions live after the last sign of life of their step, unless a job says otherwise:
long enough for the slowest task of a cluster, short enough for readers to outlive a job that died."""

JOB_TTL_MS = 90 * 24 * 3600 * 1000
"""How long the last step of a job is remembered after it was committed. A coordinator that comes back
later than that, and never heard of its commit, would write that step again."""

ENDED_KEPT_MAX = 100_000
"""How many ended transactions are remembered, to tell a late caller why its own has ended."""

STREAMS_CACHED_MAX = 50_000
"""Streams and agents kept in memory; the others are looked up in the index."""

TRANSACTION_BATCHES_MAX = 65_536
"""Batches of one transaction: a terabyte in full frames. Where they lie is one value of the index."""

FETCH_WANTS_MAX = 1024
"""Partitions in one request of a reader. Readers of more ask several times, side by side."""

FETCH_BYTES_MAX = 8 * MIB
"""One answer to a reader, unless a single batch is larger: half a frame, so that what describes the
batches always fits beside them."""

FETCH_BYTES = 1 * MIB
"""What a reader asks for at a time at most: so much that the round trip hardly counts, and so little that
it is still in the processor's cache when it is looked at. Four times as much was a third slower."""

FETCH_BYTES_FIRST = 64 * KIB
"""What a reader asks for first; four times more whenever an answer was full. A reader that jumps about, or
wants one transaction only, costs little."""

FETCH_BYTES_SINGLE = 8 * KIB
"""The same for a reader of a single partition (`get`): after a seek it often wants one transaction only."""

FETCH_TRANSACTIONS_MAX = 10_000
"""Transactions in one answer to a reader: bounds what small ones cost."""

FETCH_WAIT_MS_MAX = 30_000
"""How long the server holds back an empty answer."""

SURVEY_TRANSACTIONS_MAX = 20_000
"""How many transactions one survey looks at: some 20 ms of the server's time."""

WAITING_FETCHES_MAX = 100_000
"""Readers of one shard that wait for something to become visible."""

CAUGHT_UP_MAX = 100_000
"""Partitions of which a shard remembers from where on there is nothing to read: more than one stream can have. Each
takes some 150 bytes. Beyond it all are forgotten, and the index is asked again."""

SUBSCRIPTIONS_MAX = 20_000
"""Subscriptions of one shard. Each keeps a few hundred bytes, and some more for each partition."""

SUBSCRIPTION_LOOKS_MAX = 256
"""Partitions that a subscription looks at in one go, so that others have their turn in between."""

LIST_STREAMS_MAX = 1000
"""Streams in one answer to a listing; clients page."""

LIST_NUMBERS_MAX = 5000
"""Streams in one answer to a listing by number, which has only their names: some 10 ms of the server's time. A
catalogue of a million of them asks 200 times."""

INSPECT_MAX = 1000
"""Entries in one answer to an operator: transactions, readers, agents, sessions, ledgers or jobs."""

INSPECT_LOOKS_MAX = 5000
"""Keys of the index that are looked at for one answer to an operator, whether they are shown or not: some 10 ms of
the server's time. A page may be short for it."""

READER_POSITIONS_SHOWN_MAX = 256
"""Positions of one reader in a list of readers. Few streams have more partitions."""

STREAMS_MEASURED_MAX = 4096
"""Streams whose traffic a shard counts, those that are the busiest: some 200 bytes each. With more of them the
busier half is kept, which takes a few milliseconds, once for some 2000 streams that come anew."""

BUSIEST_STREAMS = 50
"""Streams that are named in what a node has measured: as many as a monitoring system likes to keep apart."""

TURN_WAITING_MAX = 100_000
"""Requests that wait while a group is under way to the engine that keeps the log: what many clients send in the second
or two that such an engine takes to elect a leader. More are refused."""

TURN_WAITING_BYTES_MAX = 256 * MIB
"""Bytes of the batches of such requests. They are in memory."""

GROUP_PATIENCE_S_MAX = 0.005
"""How long a group for an engine that keeps the log waits at the most for others who are likely to come: about as long as
three copies on disks take to be synced. See `server.patience`."""

PAYLOAD_CACHE_BYTES = 64 * MIB
"""Item batches that a shard keeps in memory after they were written: readers that keep up never touch
the disk."""

# What a client keeps to.

CLIENT_TIMEOUT_S = 30.0
"""The deadline of a call if the user names none: longer than a server takes to start again."""

CLIENT_CLOSE_TIMEOUT_S = 5.0
"""How long closing waits for the server. What it was not told ends with its lease."""

CLIENT_WINDOW_BYTES = 32 * MIB
"""Batches that a client has under way. A server takes 64 MiB of one connection and refuses more."""

CLIENT_WINDOW_REQUESTS = 4096
"""Requests that a client has under way. What is begun later waits behind them, keepalives too."""

MAP_TIMEOUT_S_MIN, MAP_TIMEOUT_S_MAX = 0.5, 4.0
"""How long a client waits for a node to say where shards are, until it asks another one; it doubles each time, in case that
all of them are slow."""

MAP_DIAL_S = 0.5
"""The same if there is no connection to that node yet: it may be down."""

MAP_PAUSE_S_MIN, MAP_PAUSE_S_MAX = 0.02, 0.5
"""The pause before a client asks again where shards are, or a little less; it doubles each time. Another node takes over in
seconds, and thousands of clients may ask; but as long as the pause is, they learn of it late."""

MAP_CALM_S = 2.0
"""If all shards were where they should be for so long, the pauses begin anew."""

CLIENT_NODES_MAX = 1024
"""Nodes whose addresses a client remembers, so that it can ask them: more than a cluster has."""

FOLLOWER_RETRY_S = 5.0
"""A follower that did not answer is not asked again for so long, if there is anyone else."""

FOLLOWER_TRIES = 3
"""A subscription that followers have refused so often is begun at the leader."""

SEND_BATCH_BYTES = 256 * KIB
"""Items of a transaction that the client gathers before it sends them as one batch."""

COMMIT_BROUGHT_MAX = 32
"""Batches that come along with a commit. Those of more transactions are sent before it. All of them fit
into one message, because each is smaller than a batch that is due."""

TRANSACTION_SENDS_MAX = 16
"""Batches of one transaction under way: enough to fill the way to the server."""

LOST_TRANSACTIONS_MAX = 100
"""Transactions of a producer that have expired and whose user has not been told: one is enough to refuse the
next checkpoint."""

BETWEEN_BYTES_MAX = 1024 * MIB
"""What `between` puts into one list. Whoever wants more reads it bit by bit."""

KEEPALIVE_S_MAX = SESSION_TTL_MS / 1000 / 5
"""The longest pause between two keepalives, also if no transaction is open."""

SUBSCRIBER_WINDOW_BYTES = 4 * MIB
"""What the server may send to a subscriber ahead of its callbacks: so much waits in memory."""

SUBSCRIBER_ANSWER_BYTES = 512 * KIB
"""One push to a subscriber, unless a single batch is larger. The window is a few of them, so that one is
under way while another is worked on."""

SUBSCRIBER_LAG_BYTES = SUBSCRIBER_WINDOW_BYTES // 4
"""What is kept for a partition whose callback is slow, while others would go hungry because of it."""

SUBSCRIBER_ENGINES_MAX = 256
"""Engines of one subscriber. Each is a thread."""

SUBSCRIBER_RETRY_S_MIN = 0.05
"""The pause before a subscription that was refused twice is begun again; it doubles each time."""

SUBSCRIBER_RETRY_S_MAX = 5.0
"""The longest pause before a subscription is begun again."""

PROCESS_BATCH = 1000
"""Transactions that a processing loop commits together at most: enough that the commit does not count."""

PROCESS_COMMITS_MAX = 64
"""Commits of an exactly-once loop under way: while one is being made durable, the next are worked on."""

PROCESS_COMMIT_S = 1.0
"""How long a processing loop works before it commits, if the batch is not full before."""

TRACE_LINKS_MAX = 128
"""Transactions that the span of a whole range is linked to: what an SDK of OpenTelemetry keeps by default."""

# What writes into other stores keeps to.

SINK_BATCH = 1000
"""Transactions that are stored in one transaction of a database at most: enough that its commit does not
count."""

SINK_BATCH_BYTES = 8 * MIB
"""Items that are stored in one transaction of a database: they are all in memory at once. One transaction
may be larger."""

SINK_RETRY_FOR_S = 60.0
"""How long a database may fail before the loop that stores into it gives up: longer than most take to
start again."""

SINK_RETRY_S_MIN = 0.05
"""The pause before the first new attempt; it doubles each time."""

SINK_RETRY_S_MAX = 5.0
"""The longest pause before a new attempt."""

SINK_STOP_S = 0.1
"""How often a loop that waits for transactions looks whether it was told to stop."""

SINK_CLAIMS_MAX = 10
"""Attempts to take a name over in a database while others do the same."""

CLUSTER_NAME_BYTES_MAX = 64
"""The name of a cluster: part of paths in ZooKeeper, and of names in log engines."""

COORDINATION_DEADLINE_S = 10.0
"""How long a call to the coordination service may take, waiting for a connection included."""

COORDINATION_REQUESTS_MAX = 64
"""Requests to ZooKeeper that are under way from one node. kazoo wakes its thread with a byte per request, over a
socket that holds some 270: one more would block whoever asks, which is the loop of the server."""

NODE_ENTRY_BYTES_MAX = 256 * KIB
"""What a node tells the others of itself: a quarter of what ZooKeeper takes. All nodes read it with each change."""

REMOVED_NODES_MAX = 100
"""Nodes that operators have removed, of which the cluster remembers that nobody waits for them. After half a minute it makes
no difference any more."""
JAVA_REQUESTS_MAX = 1024
"""Requests to a client in Java under way at once, in a process: a few for each shard. The pipe that wakes us up holds sixty-four times as many bytes."""

JAVA_BYTES_UNDER_WAY_MAX = 64 * MIB
"""Groups on their way to BookKeeper, and entries that are being read from it, in a process: they lie in the heap of Java, which is four times as large."""

LEDGER_LIST_BYTES_MAX = 900 * KIB
"""The list of the ledgers of a log on BookKeeper: some 30 000 of them. ZooKeeper takes a mebibyte."""
