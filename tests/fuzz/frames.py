"""Fuzz the frame decoder and the header decoders: python -m tests.fuzz.frames -max_total_time=60

Whatever the bytes and however they are cut, the decoder gives frames or sets a typed error; every
frame that it gives is encoded to the same bytes again; every header is a message or is refused.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from moebius.errors import Error
    from moebius.frames import FrameDecoder, encode_frame
    from moebius.limits import Limits
    from moebius.messages import DecodeError, Message, Parts, decode, decode_json

LIMITS = Limits(frame_bytes_max=200_000, header_bytes_max=300, parts_max=5)
SHARED = memoryview(bytearray(4096))


def check(data: bytes) -> None:
    """One input: its first bytes say how the rest is cut."""
    provider = atheris.FuzzedDataProvider(data)
    cuts = [provider.ConsumeIntInRange(1, 4096) for _ in range(4)]
    stream = provider.ConsumeBytes(provider.remaining_bytes())
    decoder = FrameDecoder(LIMITS, SHARED)
    frames: list[tuple[bytes, Parts]] = []
    at = turn = 0
    while at < len(stream):
        buffer = decoder.buffer()
        size = min(len(buffer), cuts[turn % 4], len(stream) - at)
        buffer[:size] = stream[at : at + size]
        frames += decoder.advance(size)
        at += size
        turn += 1
    assert decoder.error is None or isinstance(decoder.error, Error)
    again = b"".join(b"".join(encode_frame(header, parts)) for header, parts in frames)
    assert stream.startswith(again)
    for header, _ in frames:
        for read in (decode, decode_json):
            try:
                assert isinstance(read(header), Message)
            except DecodeError:
                continue


def main() -> None:
    """Run until the time is up."""
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
