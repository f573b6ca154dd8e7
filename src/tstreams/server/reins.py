"""What the parent of shard processes and they tell each other: lines of JSON, over pipes that end with either of them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ..config import Config
from ..errors import Error
from ..protocol import Measured, NodeInfo
from .wire import wire_error

LINE_BYTES_MAX = 4 * 1024 * 1024
"""One line. Where 1024 shards are takes some 200 KB, what one has measured some 20 KB."""

_PR_SET_PDEATHSIG = 1


class Orders(msgspec.Struct, frozen=True, tag=True):
    """What a process needs to know to serve a shard. The first line to it."""

    config: Config
    shard: int
    listen: list[str]
    parent: int
    """The process that sends this."""
    node: NodeInfo


class Know(msgspec.Struct, frozen=True, tag=True):
    """Where all shards are now."""

    node: NodeInfo


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Say what you have measured."""


class Serving(msgspec.Struct, frozen=True, tag=True):
    """It has recovered, and serves here. The first line from it."""

    addresses: list[str]
    epoch: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It cannot serve, and ends: the code and the text of an `Error`."""

    code: str
    text: str


class Numbers(msgspec.Struct, frozen=True, tag=True):
    """What it has measured."""

    measured: Measured


ToShard: TypeAlias = Orders | Know | Measure
FromShard: TypeAlias = Serving | Refused | Numbers


def _as_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r} cannot be sent")


def _from_text(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return Path(value)
    raise TypeError(f"{kind} cannot be received")


_encoder = msgspec.json.Encoder(enc_hook=_as_text)
_to_shard: msgspec.json.Decoder[ToShard] = msgspec.json.Decoder(ToShard, dec_hook=_from_text)
_from_shard: msgspec.json.Decoder[FromShard] = msgspec.json.Decoder(FromShard)


def line_of(message: ToShard | FromShard) -> bytes:
    """A message as it is sent."""
    return _encoder.encode(message) + b"\n"


def read_to_shard(line: bytes) -> ToShard:
    """What the parent says."""
    return _to_shard.decode(line)


def read_from_shard(line: bytes) -> FromShard:
    """What a shard process says."""
    return _from_shard.decode(line)


def refusal_of(error: Error) -> Refused:
    """Why it cannot serve."""
    return Refused(wire_error(error).code, error.message)


class Reins:
    """A shard process's end of them. `close` gives nothing back: they are there as long as the process is."""

    def __init__(self) -> None:
        """Takes standard input and output; whatever is printed from now on goes to standard error."""
        self._in = os.dup(0)
        self._out = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._rest = b""

    def orders(self) -> Orders:
        """The first line; waits for it. `EOFError` if the parent has ended."""
        while b"\n" not in self._rest:
            data = os.read(self._in, 65_536)
            if not data:
                raise EOFError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        orders = read_to_shard(line)
        assert isinstance(orders, Orders)
        return orders

    def say(self, message: FromShard) -> None:
        """Tell the parent. It fits into the pipe, so nobody waits: one answer at most is in it."""
        data = line_of(message)
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except BrokenPipeError:
            pass  # that the parent has ended is seen at the other pipe

    async def heard(self) -> asyncio.StreamReader:
        """What the parent says from now on, on the running loop."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        reader.feed_data(self._rest)
        self._rest = b""
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._in, "rb", buffering=0)
        )
        return reader


def end_with(parent: int) -> None:
    """Let the system kill this process when its parent ends, however that ends. Only Linux can; elsewhere the pipe
    tells. `EOFError` if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise EOFError
