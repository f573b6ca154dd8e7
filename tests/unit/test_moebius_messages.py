"""Headers, payloads and addresses: the small pure pieces."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moebius import BadRequest, Error, HandlerFailed, RemoteError
from moebius.addresses import Transport, parse_address
from moebius.messages import (
    JSON_FIRST_BYTE,
    Bye,
    Call,
    Cancel,
    Credit,
    DecodeError,
    End,
    Failure,
    Goaway,
    Header,
    Hello,
    Item,
    Ping,
    Pong,
    Push,
    Reply,
    Welcome,
    as_bytes,
    as_parts,
    decode,
    decode_json,
    encode,
    encode_json,
)

EVERY_HEADER: list[Header] = [
    Hello(1, "token", 5000, "me"),
    Call(7, "reply", 1000, 65536, "queue"),
    Call(0, "log"),
    Cancel(7),
    Credit(7, 4096),
    Ping(3),
    Bye(),
    Welcome(1, 5, 100, 10, 5000),
    Reply(7),
    Item(7),
    End(7),
    Failure(7, "busy", "another one runs"),
    Push(),
    Pong(3),
    Goaway(),
]


@pytest.mark.parametrize("header", EVERY_HEADER, ids=lambda header: type(header).__name__)
def test_headers_travel_in_both_encodings(header: Header) -> None:
    assert decode(encode(header)) == header
    text = encode_json(header)
    assert text[0] == JSON_FIRST_BYTE
    assert decode_json(text) == header


def test_no_messagepack_header_looks_like_json() -> None:
    assert all(encode(header)[0] != JSON_FIRST_BYTE for header in EVERY_HEADER)


def test_fields_at_the_end_may_be_left_out() -> None:
    assert decode(msgspec.msgpack.encode([2, 9, "reply"])) == Call(9, "reply")
    assert decode_json(b'[2, 9, "reply"]') == Call(9, "reply")
    assert decode_json(b"[1]") == Hello()


@pytest.mark.parametrize(
    "text",
    [b"", b"[", b"[]", b"[99]", b'["2", 1, "x"]', b'[2, -1, "x"]', b"[2, 1]", b"[2, 1, 5]", b"{}"],
)
def test_nonsense_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_json(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    for read in (decode, decode_json):
        with contextlib.suppress(*DecodeError):
            assert isinstance(read(data), msgspec.Struct)


def test_payloads_become_parts() -> None:
    assert as_parts(b"a") == (b"a",)
    assert as_parts([b"a", bytearray(b"b"), memoryview(b"c")]) == (b"a", b"b", b"c")
    assert as_parts(()) == ()
    wide = memoryview(b"abcd").cast("I")
    assert len(as_parts(wide)[0]) == 4
    assert as_bytes((b"a", memoryview(b"b"))) == b"ab"
    assert as_bytes(()) == b""
    for wrong in ("text", 5, [b"a", "b"]):
        with pytest.raises(TypeError, match="bytes-like"):
            as_parts(wrong)  # type: ignore[arg-type]


def test_addresses() -> None:
    assert parse_address("tcp://127.0.0.1:7070").port == 7070
    assert str(parse_address("tcp://[::1]:7070")) == "tcp://[::1]:7070"
    assert parse_address("ipc:///run/x.sock").path == "/run/x.sock"
    assert parse_address("inproc://name").path == "name"
    zmq = parse_address("zmq+tcp://127.0.0.1:1")
    assert zmq.transport is Transport.ZMQ_TCP
    assert zmq.zmq_endpoint == "tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:7070",
        "http://x:1",
        "tcp://",
        "tcp://host",
        "tcp://h:99999",
        "tcp://h:1/path",
        "ipc://",
    ],
)
def test_bad_addresses_say_what_is_wrong(text: str) -> None:
    with pytest.raises(BadRequest, match="address"):
        parse_address(text)


def test_errors_come_back_as_their_class() -> None:
    class OutOfStock(Error):
        code = "out_of_stock"

    assert isinstance(Error.from_wire("handler_failed", "x"), HandlerFailed)
    assert isinstance(Error.from_wire("out_of_stock", "x"), OutOfStock)
    unknown = Error.from_wire("never_heard_of", "x")
    assert isinstance(unknown, RemoteError)
    assert unknown.code == "never_heard_of"


def test_an_error_with_a_constructor_of_its_own_keeps_its_type_and_message() -> None:
    class Missing(Error):
        code = "test_missing"

        def __init__(self, item: str, count: int) -> None:
            super().__init__(f"{count} {item} missing")

    error = Error.from_wire("test_missing", "3 pears missing")
    assert isinstance(error, Missing)
    assert error.message == str(error) == "3 pears missing"
