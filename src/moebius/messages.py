"""Every message that travels between a client and a server: its header.

A message is a header and zero or more payload parts. The header is an array, in MessagePack or in
JSON (recognised by its first byte, `[`); the first element says which message it is. Fields left
out at the end take their defaults. The wire format is documented in `docs/guides/moebius.md`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Buffer: TypeAlias = bytes | bytearray | memoryview
Payload: TypeAlias = Buffer | tuple[Buffer, ...] | list[Buffer]
"""What a user may send: one bytes-like object, or several, which stay separate parts."""
Parts: TypeAlias = tuple[Buffer, ...]
"""Payload parts as they travel: bytes-like objects that nobody changes any more."""

PROTOCOL_VERSION = 1
NO_RESPONSE = 0
"""The request id of a call that wants no response of any kind."""


RequestId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Chosen by the client, unique among its requests under way."""


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""What every language can hold exactly."""

ITEM_OVERHEAD_BYTES = 64
"""What an item costs in credit beyond its payload, so that empty ones are not free. Part of the
protocol: both sides must count the same."""


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all headers."""


# From the client.


class Hello(Message, frozen=True, tag=1):
    """Optional first message: who I am, whether I promise heartbeats, and what I can take."""

    version: Number = PROTOCOL_VERSION
    token: str = ""
    heartbeat_ms: Number = 0
    name: str = ""
    frame_bytes_max: Number = 0


class Call(Message, frozen=True, tag=2):
    """A request. `credit` bounds the bytes of responses under way; None leaves it to the transport."""

    id: RequestId
    command: str
    deadline_ms: Number = 0
    credit: Number | None = None
    strategy: str | None = None


class Cancel(Message, frozen=True, tag=3):
    """Stop the request `id`; it ends with a failure `cancelled`, unless it has ended already."""

    id: RequestId


class Credit(Message, frozen=True, tag=4):
    """The reader of the stream `id` has room for so many bytes more."""

    id: RequestId
    bytes: Number


class Ping(Message, frozen=True, tag=5):
    """Are you there? Answered by `Pong` with the same number."""

    number: Number = 0


class Bye(Message, frozen=True, tag=6):
    """The client leaves (ZeroMQ has no other way to tell)."""


# From the server.


class Welcome(Message, frozen=True, tag=17):
    """The answer to `Hello`."""

    version: int
    client_id: int
    frame_bytes_max: int
    inflight_max: int
    heartbeat_ms: int


class Reply(Message, frozen=True, tag=18):
    """A response, and the last one."""

    id: RequestId


class Item(Message, frozen=True, tag=19):
    """A response; more will follow."""

    id: RequestId


class End(Message, frozen=True, tag=20):
    """No (more) responses; the request succeeded."""

    id: RequestId


class Failure(Message, frozen=True, tag=21):
    """The request failed; with id 0, the connection did."""

    id: RequestId
    code: str
    message: str = ""


class Push(Message, frozen=True, tag=22):
    """Not a response: the server's own word to this client."""


class Pong(Message, frozen=True, tag=23):
    """The answer to `Ping`."""

    number: int = 0


class Goaway(Message, frozen=True, tag=24):
    """The server is stopping: finish what runs, begin nothing new here."""


FromClient: TypeAlias = Hello | Call | Cancel | Credit | Ping | Bye
FromServer: TypeAlias = Welcome | Reply | Item | End | Failure | Push | Pong | Goaway
Header: TypeAlias = FromClient | FromServer

_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()
_decoder: msgspec.msgpack.Decoder[Header] = msgspec.msgpack.Decoder(Header)
_json_decoder: msgspec.json.Decoder[Header] = msgspec.json.Decoder(Header)

encode = _encoder.encode
encode_json = _json_encoder.encode
decode = _decoder.decode
decode_json = _json_decoder.decode

JSON_FIRST_BYTE = ord("[")
"""A MessagePack array never begins with this byte, a JSON array always does."""

DecodeError = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `decode` and `decode_json` raise for bytes that are no header."""


_BYTES = frozenset({bytes})


def as_parts(payload: Payload) -> Parts:
    """The parts of what a user gave us; `TypeError` if it is not bytes-like."""
    if type(payload) is bytes:  # by far the most frequent
        return (payload,)
    if isinstance(payload, (tuple, list)):
        if type(payload) is tuple and set(map(type, payload)) <= _BYTES:
            return payload
        return tuple([part if type(part) is bytes else _as_buffer(part) for part in payload])
    return (_as_buffer(payload),)


def _as_buffer(part: Buffer) -> Buffer:
    if isinstance(part, bytes | bytearray):
        return part
    if isinstance(part, memoryview):
        plain = part.format == "B" and part.ndim == 1 and part.c_contiguous
        return part if plain else memoryview(part.tobytes())
    raise TypeError(f"a payload is bytes-like, or a tuple or list of such; this is {part!r:.80}")


def as_bytes(parts: Parts) -> bytes:
    """All parts as one `bytes`, without a copy where there is just one of them."""
    if len(parts) == 1:
        part = parts[0]
        return part if type(part) is bytes else bytes(part)
    return b"".join(parts)
