"""Between the wire and the shard: requests are read here, and errors put into words for the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from moebius import Request
from moebius.errors import Error as WireError
from moebius.errors import RemoteError

from .. import errors
from ..errors import BadRequest, Error
from ..protocol import DECODE_ERRORS

T = TypeVar("T")


def decoder(kind: type[T], parts: int | None) -> Callable[[Request], T]:
    """A function that reads a request of this kind, which has so many parts, or refuses it. None: the
    message says how many."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(request: Request) -> T:
        if parts is None:
            if not request.parts:
                raise wire_error(BadRequest(f"{kind.__name__} came without a message"))
        elif len(request.parts) != parts:
            text = f"{kind.__name__} has {parts} parts, {len(request.parts)} came"
            raise wire_error(BadRequest(text))
        try:
            return decode(request.parts[0])
        except DECODE_ERRORS as error:
            raise wire_error(BadRequest(f"{kind.__name__} cannot be read: {error}")) from None

    return read


def wire_error(error: Error) -> WireError:
    """An error as it travels: its text, and the code of the public class that it belongs to."""
    for kind in type(error).__mro__:
        if issubclass(kind, Error) and kind.__module__ == errors.__name__:
            return RemoteError(error.message, kind.code)
    raise AssertionError("every error of ours belongs to a public class")
