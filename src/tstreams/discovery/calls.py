"""A request that has been read and checked, and the answer to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from .limits import BODY_BYTES_MAX, BODY_TIMEOUT_S
from .problems import Refused
from .routes import Route

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """A request: its route, and all its parameters, with their types."""

    route: Route
    path: dict[str, Any]
    query: dict[str, Any]
    body: Any
    request: Request

    def check_match(self, tag: str) -> None:
        """Refuse a change that was meant for something else than is there now (If-Match)."""
        wanted = self.request.headers.get("if-match")
        if wanted is None or wanted.strip() == "*":
            return
        if tag not in [part.strip() for part in wanted.split(",")]:
            raise Refused(
                412,
                "precondition_failed",
                f"it has changed: it is {tag} now, and not {wanted}. Look at it again",
            )

    def has_copy(self, tag: str) -> bool:
        """Whether the client has what it asks for already (If-None-Match)."""
        given = self.request.headers.get("if-none-match")
        if given is None:
            return False
        return given.strip() == "*" or tag in [
            part.strip().removeprefix("W/") for part in given.split(",")
        ]


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back, where it is more than a resource."""

    resource: msgspec.Struct | None
    headers: dict[str, str] = field(default_factory=dict)
    status: int | None = None
    tag: str | None = None
    raw: bytes | None = None
    """A body that is not JSON, or is JSON already."""


async def read_body(route: Route, request: Request) -> Any:
    """The body, decoded and checked. `Refused` if it is too large, too slow, no JSON or the wrong one."""
    data = await _read_bytes(request)
    if route.body is None:
        if data:
            raise Refused(422, "bad_request", "this request has no body")
        return None
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != _JSON:
        raise Refused(
            415,
            "unsupported_media_type",
            f"the body is {_JSON}, not {media or 'of no type'}",
            {"Accept-Post" if route.method == "POST" else "Accept-Patch": _JSON},
        )
    try:
        return msgspec.json.decode(data, type=route.body)
    except msgspec.ValidationError as error:
        raise Refused(422, "bad_request", f"the body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "bad_json", f"the body is no JSON: {error}") from None


async def _read_bytes(request: Request) -> bytes:
    too_large = Refused(413, "too_large", f"a body may have {BODY_BYTES_MAX} bytes")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_BYTES_MAX:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > BODY_BYTES_MAX:
                    raise too_large
    except TimeoutError:
        raise Refused(
            408,
            "too_slow",
            f"the body did not come within {BODY_TIMEOUT_S:g} s",
            {"Connection": "close"},
        ) from None
    except ClientDisconnect:
        raise Refused(400, "gone", "the client went away") from None
    return bytes(data)
