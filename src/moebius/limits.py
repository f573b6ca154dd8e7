"""Every limit of moebius, with its reason. A peer can cost at most what stands here."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server or client allows. Build one to change a value: `Limits(clients_max=100)`."""

    frame_bytes_max: int = 16 * MIB + 64 * KIB
    """One message, parts and header together. 16 MiB of payload and room for what describes it:
    large enough that batches amortise, small enough that a hundred of them fit in memory."""

    header_bytes_max: int = 8 * KIB
    """One header. It holds a command name and a few numbers (and, in HELLO, a token)."""

    parts_max: int = 64
    """Payload parts of one message: a part is a buffer, not an item."""

    clients_max: int = 20_000
    """Connections of one server. Past it a new one is told `overloaded` and closed."""

    inflight_max: int = 1024
    """Requests of one client that are running or queued. Past it: `overloaded`."""

    inflight_bytes_max: int = 64 * MIB
    """Payload of one client's requests that are running or queued. Past it: `too_large`."""

    gated_bytes_max: int = 1 * MIB
    """Payload that a client may send before the `authenticate` hook has accepted it."""

    authenticate_timeout_s: float = 10.0
    """How long an async `authenticate` hook may take."""

    command_chars_max: int = 255
    """The name of a command."""

    stream_window_bytes: int = 1 * MIB
    """Credit that our client gives a streaming response. Twice the bandwidth-delay product of a
    local link; what a reader that stops reading costs its own memory."""

    unpaced_stream_bytes_max: int = 16 * MIB
    """ZeroMQ only: what a stream may send to a client that gives no credit. TCP holds a sender back
    by itself; ZeroMQ queues in memory until a count of messages, whatever their size. Past it the
    stream fails with `overloaded`."""

    write_buffer_bytes: int = 1 * MIB
    """Bytes waiting for a peer's socket before its streams and its requests are held back."""

    push_buffer_bytes: int = 4 * MIB
    """Bytes waiting for a peer before `client.send` and broadcasts to it are refused."""

    read_buffer_bytes: int = 256 * KIB
    """One read from a socket. Shared by all connections of a loop, so idle ones cost none."""

    first_frame_timeout_s: float = 30.0
    """A connection that never says anything is closed after this."""

    frame_timeout_s: float = 30.0
    """A frame that was begun must arrive whole within this (slow senders)."""

    stall_timeout_s: float = 60.0
    """A peer that takes none of the bytes waiting for it is closed after this (half-open links)."""

    close_timeout_s: float = 5.0
    """How long a connection that we close may take to accept the last bytes."""

    heartbeat_s: float = 5.0
    """How often our client pings. A peer that promised heartbeats and misses three is dead."""

    heartbeats_missed_max: int = 3
    """How many in a row mean dead: one may be lost to a pause, three are not an accident."""

    silence_s: float = 1.0
    """How often a client that wants to know of silence looks whether a server to which something is under way
    still says anything. A server that stands still is noticed after two or three of these."""

    idle_timeout_s: float = 600.0
    """A peer that promised no heartbeats is forgotten after this long without a message, unless
    one of its requests is running. ZeroMQ tells us of no disconnect: without it the table of
    clients would only grow."""

    sweep_s: float = 0.5
    """How often the clocks above are looked at: one pass over the clients, not a timer each."""

    drain_max: int = 256
    """ZeroMQ messages taken per wake-up before other sockets get their turn."""

    zmq_queue_messages: int = 1000
    """ZeroMQ's high-water mark per peer, each way."""

    zmq_retry_s: float = 0.005
    """How soon a send that ZeroMQ refused (peer's queue full) is tried again: ROUTER sockets do
    not signal when one peer has room."""

    worker_start_timeout_s: float = 60.0
    """How long a worker process may take to import what it needs."""

    backlog: int = 1024
    """Connections the kernel may hold for us while a burst arrives."""

    stop_grace_s: float = 5.0
    """How long a graceful stop waits for running requests before it cancels them."""

    connect_timeout_s: float = 5.0
    """One attempt to connect, until the server's welcome."""

    reconnect_delay_s_min: float = 0.02
    """First pause before connecting again; it doubles with each failure, with jitter."""

    reconnect_delay_s_max: float = 2.0
    """Longest pause before connecting again."""

    waiting_max: int = 65_536
    """Client side: requests waiting for a connection or for a place in flight."""
