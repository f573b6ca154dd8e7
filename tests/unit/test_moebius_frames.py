"""The frame codec, without sockets: what goes in comes out, however the bytes are cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moebius import Limits, ProtocolError, TooLarge
from moebius.buffers import Buffers
from moebius.frames import LARGE_BYTES, PREFIX, FrameDecoder, encode_frame, encode_pieces
from moebius.messages import Parts

LIMITS = Limits(frame_bytes_max=300_000, header_bytes_max=1000, parts_max=8)


def decoder(read_bytes: int = 256 * 1024) -> FrameDecoder:
    return FrameDecoder(LIMITS, Buffers(read_bytes))


def feed(target: FrameDecoder, data: bytes, cuts: list[int]) -> list[tuple[bytes, list[bytes]]]:
    """Give the decoder the data in pieces, as a socket would."""
    frames: list[tuple[bytes, Parts]] = []
    at, cut = 0, iter(cuts)
    while at < len(data):
        buffer = target.room
        size = min(next(cut, len(data)), len(buffer), len(data) - at)
        buffer[:size] = data[at : at + size]
        frames += target.advance(size)
        at += size
    return [(header, [bytes(part) for part in parts]) for header, parts in frames]


messages = st.tuples(
    st.binary(max_size=50),
    st.lists(
        st.one_of(st.binary(max_size=60), st.just(b"x" * 70_000), st.just(b"y" * LARGE_BYTES)),
        max_size=3,
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(messages, max_size=6), st.lists(st.integers(1, 100_000), max_size=200))
def test_frames_survive_any_cut(sent: list[tuple[bytes, list[bytes]]], cuts: list[int]) -> None:
    data = b"".join(b"".join(encode_frame(header, tuple(parts))) for header, parts in sent)
    target = decoder(90_000)
    assert feed(target, data, cuts) == [(header, parts) for header, parts in sent]
    assert target.error is None
    assert not target.partial


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(1, 40), max_size=40))
def test_any_bytes_end_in_frames_or_a_typed_error(data: bytes, cuts: list[int]) -> None:
    target = decoder()
    feed(target, data, cuts)
    assert target.error is None or isinstance(target.error, ProtocolError | TooLarge)


@given(st.binary(max_size=200))
def test_after_an_error_nothing_more_is_decoded(rest: bytes) -> None:
    good = b"".join(encode_frame(b"h", (b"p",)))
    target = decoder()
    frames = feed(target, good + PREFIX.pack(2**32 - 1, 1, 1) + rest, [])
    assert frames == [(b"h", [b"p"])]
    assert isinstance(target.error, TooLarge)
    assert feed(target, good, []) == []


@pytest.mark.parametrize(
    ("prefix", "body", "error"),
    [
        ((300_001, 1, 1), b"", TooLarge),
        ((2000, 1001, 1), b"", TooLarge),
        ((100, 1, 9), b"", TooLarge),
        ((4, 10, 1), b"abcd", ProtocolError),  # the header is longer than the body
        ((4, 2, 0), b"abcd", ProtocolError),  # bytes that belong to nothing
        ((2, 0, 3), b"ab", ProtocolError),  # no room for the table of lengths
        ((10, 2, 2), struct.pack(">I", 9) + b"hhabcd", ProtocolError),  # a part past the end
    ],
)
def test_malformed_frames_are_refused(
    prefix: tuple[int, int, int], body: bytes, error: type[Exception]
) -> None:
    target = decoder()
    assert feed(target, PREFIX.pack(*prefix) + body, []) == []
    assert type(target.error) is error


def test_a_malformed_large_frame_is_refused_too() -> None:
    target = decoder(8192)
    body = struct.pack(">I", 250_000) + b"x" * 100_000
    assert feed(target, PREFIX.pack(len(body), 2, 2) + body, []) == []
    assert isinstance(target.error, ProtocolError)


def test_large_parts_are_views_and_cannot_be_changed() -> None:
    data = b"".join(encode_frame(b"h", (b"x" * 200_000,)))
    target = decoder()
    frames: list[tuple[bytes, Parts]] = []
    at = 0
    while at < len(data):
        buffer = target.room
        size = min(len(buffer), 60_000, len(data) - at)
        buffer[:size] = data[at : at + size]
        frames += target.advance(size)
        at += size
    part = frames[0][1][0]
    assert isinstance(part, memoryview)
    assert part.readonly
    assert part == b"x" * 200_000


def test_partial_tells_whether_a_frame_has_begun() -> None:
    target = decoder()
    frame = b"".join(encode_frame(b"head", (b"body",)))
    feed(target, frame[:5], [])
    assert target.partial
    assert feed(target, frame[5:], []) == [(b"head", [b"body"])]
    assert not target.partial


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=50),
    st.binary(max_size=60),
    st.lists(st.one_of(st.binary(max_size=60), st.just(b"x" * 30_000)), max_size=8),
)
def test_a_part_in_pieces_is_the_same_on_the_wire(
    header: bytes, first: bytes, pieces: list[bytes]
) -> None:
    whole = b"".join(encode_frame(header, (first, b"".join(pieces))))
    assert b"".join(encode_pieces(header, first, pieces)) == whole
