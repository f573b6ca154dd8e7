"""What a transaction says of itself, beside its items: a few names, each with some bytes.

They travel in the first batch of a transaction, between the batch's header and its body:

    bytes u32 | headers | body as it is stored

A header is `name bytes u8 | value bytes u16 | name | value`, with the name in UTF-8. They are never compressed,
so that whoever wants nothing else need not decompress the body. The batch's checksum covers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from ..errors import BadRequest, Corrupt, TooLarge
from ..limits import HEADERS_BYTES_MAX, HEADERS_MAX, NAME_BYTES_MAX
from .batch import section_of
from .codec import Buffer

_SIZES = Struct("<BH")


def pack_headers(headers: Mapping[str, Buffer]) -> bytes:
    """Headers as they travel; empty if there are none.

    `TypeError` for a name that is no text or a value that is not bytes-like, `BadRequest` for a name that is
    empty or too long, `TooLarge` if they are too many or too large.
    """
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers are a mapping of names, not {type(headers).__name__}")
    if len(headers) > HEADERS_MAX:
        raise TooLarge(f"{len(headers)} headers are over the limit of {HEADERS_MAX}")
    parts: list[bytes] = []
    for name, value in headers.items():
        encoded, data = _name(name), _value(name, value)
        if len(data) > HEADERS_BYTES_MAX:
            raise TooLarge(_over(len(data)))
        parts += (_SIZES.pack(len(encoded), len(data)), encoded, data)
    section = b"".join(parts)
    if len(section) > HEADERS_BYTES_MAX:
        raise TooLarge(_over(len(section)))
    return section


def _name(name: object) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is text, this is {type(name).__name__}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"the name of a header cannot be written in UTF-8: {name!a}") from None
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise BadRequest(
            f"the name of a header has 1 to {NAME_BYTES_MAX} bytes in UTF-8, not {len(encoded)}"
        )
    return encoded


def _value(name: str, value: object) -> bytes:
    if type(value) is bytes:
        return value
    try:
        return memoryview(value).tobytes()  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"the value of header {name!r} is bytes-like, this is {type(value).__name__}"
        ) from None


def _over(size: int) -> str:
    return (
        f"headers of {size} bytes are over the limit of {HEADERS_BYTES_MAX}: "
        "what is larger belongs into the items"
    )


def headers_of(blob: Buffer) -> dict[str, bytes]:
    """The headers in a batch; none in most. Errors are those of `opened`, and `Corrupt` if they make no sense."""
    section = section_of(blob)
    found: dict[str, bytes] = {}
    at, end = 0, len(section)
    while at < end:
        start = at + _SIZES.size
        if start > end:
            raise Corrupt("the headers of an item batch end too soon")
        name_bytes, value_bytes = _SIZES.unpack_from(section, at)
        middle = start + name_bytes
        at = middle + value_bytes
        if at > end or name_bytes == 0:
            raise Corrupt("a header of an item batch is out of bounds")
        try:
            name = str(section[start:middle], "utf-8")
        except UnicodeDecodeError as error:
            raise Corrupt(f"the name of a header in an item batch is no text: {error}") from None
        if name in found or len(found) == HEADERS_MAX:
            raise Corrupt("an item batch has too many headers, or two of one name")
        found[name] = bytes(section[middle:at])
    return found
