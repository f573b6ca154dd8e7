"""An echo server on four addresses at once, and two clients that know nothing of moebius.

The raw clients are plain pyzmq: a message is a header frame and then the payload frames. The
header is an array, in MessagePack or in JSON; a call is `[2, id, command]`, the answer `[18, id]`.
"""

import tempfile
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

import moebius
from moebius import Request, Router, Server

KIB = 1024
SIZES = (0, 1, KIB, 64 * KIB, 1024 * KIB, 4 * 1024 * KIB)
CODECS: dict[str, Any] = {"msgpack": msgspec.msgpack, "json": msgspec.json}
CALL = 2

router = Router()


@router.command("echo")
def echo(request: Request) -> tuple[Any, ...]:
    """The payload parts go back as they came, without a copy."""
    return request.parts


@dataclass(frozen=True)
class Echo:
    """One payload that went there and back."""

    transport: str
    size: int
    same: bool
    seconds: float


@dataclass(frozen=True)
class RawEcho:
    """One exchange of frames with a plain DEALER socket."""

    header_format: str
    sent: list[bytes]
    received: list[bytes]
    header: list[Any]
    """The header that came back, decoded."""


def run() -> tuple[list[Echo], list[RawEcho]]:
    """Echo every size over every transport, then by hand."""
    with tempfile.TemporaryDirectory() as directory:
        addresses = [
            "tcp://127.0.0.1:0",
            f"ipc://{directory}/echo.sock",
            "zmq+tcp://127.0.0.1:0",
            f"zmq+ipc://{directory}/echo-zmq.sock",
        ]
        with Server(router, addresses).in_thread() as server:
            echoes = [result for address in server.addresses for result in echo_over(address)]
            endpoint = server.addresses[2].removeprefix("zmq+")
            return echoes, [raw_echo(endpoint, name) for name in CODECS]


def echo_over(address: str) -> list[Echo]:
    """Echo payloads of all sizes over one address."""
    transport = address.partition("://")[0]
    results = []
    with moebius.connect(address) as client:
        for size in SIZES:
            payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            begun = time.perf_counter()
            answer = client.call("echo", payload)
            seconds = time.perf_counter() - begun
            results.append(Echo(transport, size, answer == payload, seconds))
    return results


def raw_echo(endpoint: str, header_format: str) -> RawEcho:
    """What a client in any language with ZeroMQ would do."""
    codec = CODECS[header_format]
    sent = [codec.encode([CALL, 1, "echo"]), b"hello", b"world"]
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 10_000
        dealer.connect(endpoint)
        dealer.send_multipart(sent)
        received = dealer.recv_multipart()
    return RawEcho(header_format, sent, received, codec.decode(received[0]))


def main() -> None:
    """Tell what happened."""
    echoes, raw = run()
    print("transport      bytes   came back   milliseconds")
    for result in echoes:
        verdict = "the same" if result.same else "CHANGED"
        print(
            f"{result.transport:8} {result.size:>11}   {verdict:9}   {result.seconds * 1000:12.2f}"
        )
    for exchange in raw:
        print(f"\nA plain zmq.DEALER with a {exchange.header_format} header")
        print("  sent     ", exchange.sent)
        print("  received ", exchange.received)


if __name__ == "__main__":
    main()
