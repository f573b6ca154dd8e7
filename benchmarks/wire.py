"""The bytes of requests and replies, made once before anything is timed.

Written from the documented wire format, not with moebius' own encoder: the clients stay the same
whatever happens inside the library, and a reply that is wrong on the wire is noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

COMMAND = "reply"
REQUEST_PAYLOAD = b"twenty bytes payload"
REPLY_PAYLOAD = b"sixteen  b reply"
REDIS_KEY = b"k"  # the shortest: GET of it is 20 bytes on the wire

CALL_TAG = 2
REPLY_TAG = 18
PREFIX = struct.Struct(">IHH")
"""Body length, header length, number of parts."""

Frames: TypeAlias = tuple[bytes, bytes]
"""A message over ZeroMQ: header, payload."""


@dataclass(frozen=True, slots=True)
class StreamScript:
    """The requests of one window over a byte stream, and the replies that must come back."""

    requests: tuple[bytes, ...]
    replies: tuple[bytes, ...]
    decode: Callable[[bytes], bytes]
    """The payload of a reply."""


@dataclass(frozen=True, slots=True)
class ZmqScript:
    """The same over ZeroMQ."""

    requests: tuple[Frames, ...]
    replies: tuple[Frames, ...]


def frame(header: bytes, payload: bytes) -> bytes:
    """One frame of moebius over a byte stream, with one part."""
    return PREFIX.pack(len(header) + len(payload), len(header), 1) + header + payload


def call_header(request_id: int) -> bytes:
    """The header of a request."""
    return msgspec.msgpack.encode((CALL_TAG, request_id, COMMAND))


def reply_header(request_id: int) -> bytes:
    """The header of the only reply to a request."""
    return msgspec.msgpack.encode((REPLY_TAG, request_id))


BARE_REPLY_HEADER = reply_header(1)
"""A bare server looks at no id, so that all its replies are the first one's."""


def moebius_stream(window: int) -> StreamScript:
    """Requests for moebius; ids are unique within a window."""
    ids = range(1, window + 1)
    return StreamScript(
        tuple(frame(call_header(number), REQUEST_PAYLOAD) for number in ids),
        tuple(frame(reply_header(number), REPLY_PAYLOAD) for number in ids),
        decode_frame,
    )


def bare_stream(window: int) -> StreamScript:
    """The same requests for the bare server."""
    reply = frame(BARE_REPLY_HEADER, REPLY_PAYLOAD)
    return StreamScript(moebius_stream(window).requests, (reply,) * window, decode_frame)


def redis_stream(window: int) -> StreamScript:
    """GET of the same key, over and over."""
    return StreamScript(
        (redis_command(b"GET", REDIS_KEY),) * window,
        (_bulk(REPLY_PAYLOAD),) * window,
        decode_redis,
    )


def moebius_zmq(window: int) -> ZmqScript:
    """Requests for moebius over ZeroMQ."""
    ids = range(1, window + 1)
    return ZmqScript(
        tuple((call_header(number), REQUEST_PAYLOAD) for number in ids),
        tuple((reply_header(number), REPLY_PAYLOAD) for number in ids),
    )


def bare_zmq(window: int) -> ZmqScript:
    """The same requests for the bare ROUTER."""
    return ZmqScript(moebius_zmq(window).requests, ((BARE_REPLY_HEADER, REPLY_PAYLOAD),) * window)


def decode_header(header: bytes) -> None:
    """Raise ValueError if it is not the header of a reply."""
    fields = msgspec.msgpack.decode(header)
    if not isinstance(fields, list) or len(fields) != 2 or fields[0] != REPLY_TAG:
        raise ValueError(f"not a reply: {fields!r:.200}")


def decode_frame(reply: bytes) -> bytes:
    """The payload of a reply frame."""
    body, header_bytes, parts = PREFIX.unpack_from(reply)
    if parts != 1 or PREFIX.size + body != len(reply):
        raise ValueError(f"not one frame with one part: {reply!r:.200}")
    decode_header(reply[PREFIX.size : PREFIX.size + header_bytes])
    return reply[PREFIX.size + header_bytes :]


def decode_redis(reply: bytes) -> bytes:
    """The payload of a bulk string."""
    size, _, rest = reply.partition(b"\r\n")
    if size[:1] != b"$" or rest[-2:] != b"\r\n" or int(size[1:]) != len(rest) - 2:
        raise ValueError(f"not a bulk string: {reply!r:.200}")
    return rest[:-2]


def redis_command(*words: bytes) -> bytes:
    """A command for redis, as its protocol wants it."""
    return b"*%d\r\n" % len(words) + b"".join(map(_bulk, words))


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)
