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
from ..items import opened
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
            raise _miscounted(kind, parts, len(request.parts))
        try:
            return decode(request.parts[0])
        except DECODE_ERRORS as error:
            raise _unreadable(kind, error) from None

    return read


def decoder_with_batch(kind: type[T]) -> Callable[[Request], tuple[T, int]]:
    """The same for a message that comes with an item batch, which is checked, and its items are counted."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(request: Request) -> tuple[T, int]:
        parts = request.parts
        if len(parts) != 2:
            raise _miscounted(kind, 2, len(parts))
        try:
            return decode(parts[0]), opened(parts[1])[2]
        except DECODE_ERRORS as error:
            raise _unreadable(kind, error) from None
        except Error as error:
            raise wire_error(error) from None

    return read


def _miscounted(kind: type, parts: int, came: int) -> WireError:
    return wire_error(BadRequest(f"{kind.__name__} has {parts} parts, {came} came"))


def _unreadable(kind: type, error: Exception) -> WireError:
    return wire_error(BadRequest(f"{kind.__name__} cannot be read: {error}"))


def wire_error(error: Error) -> WireError:
    """An error as it travels: its text, and the code of the public class that it belongs to."""
    for kind in type(error).__mro__:
        if issubclass(kind, Error) and kind.__module__ == errors.__name__:
            return RemoteError(error.message, kind.code)
    raise AssertionError("every error of ours belongs to a public class")
