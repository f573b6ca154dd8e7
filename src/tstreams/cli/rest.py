"""The REST interface of a server's front door, as commands use it: requests, pages, and errors."""

from __future__ import annotations

import asyncio
import json
import ssl
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from itertools import islice
from typing import Any, Protocol, TypeVar, cast
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

import msgspec

from ..errors import BadRequest, Error, Timeout, Unavailable
from .connection import add_connection, given_url, tls_of, token_of, url_of
from .output import whole

DEFAULT_URL = "http://127.0.0.1:7080"
PAGE = 200
"""Entries asked for at a time."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""More than any page has."""

T = TypeVar("T")


class Page(Protocol[T]):
    """A part of a list."""

    @property
    def items(self) -> list[T]:
        """What is on it."""

    @property
    def next(self) -> str | None:
        """The cursor of the next one; None: this is the last."""


class Refusal(Error):
    """A request that HTTP itself refused. It keeps the code of the problem."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def add_door(parser: ArgumentParser) -> None:
    """The flags of a command that needs the front door of a server."""
    add_connection(parser, default=DEFAULT_URL)


def door(arguments: Namespace) -> Door:
    """The front door that the flags or the environment name. A server's own address will do: it is asked."""
    url = given_url(arguments) or DEFAULT_URL
    tls = tls_of(arguments)
    if not url.lower().startswith(("http://", "https://")):
        url = asyncio.run(_ask_for_http(arguments))
    return Door(url, arguments.timeout, None if tls is None else tls.context())


async def _ask_for_http(arguments: Namespace) -> str:
    from .. import aio

    url = url_of(arguments)
    client = await aio.connect(
        url, token=token_of(arguments), timeout=arguments.timeout, tls=tls_of(arguments)
    )
    async with client:
        http = (await client.inspection().node()).http
    if not http:
        raise Unavailable(
            f"the server at {url} has no front door: start it with --http, and with "
            "tstreams[console] installed"
        )
    told = urlsplit(http)
    if told.hostname in ("0.0.0.0", "::"):  # noqa: S104 - it listens there, we do not
        host = urlsplit(url).hostname or "127.0.0.1"
        return f"{told.scheme}://{f'[{host}]' if ':' in host else host}:{told.port}"
    return http


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes


class Door:
    """A front door. Each call is one request; errors are those of tstreams."""

    def __init__(self, url: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.username:
            raise BadRequest(f"{url!r} is not the URL of a front door: http://host:port")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        # A proxy of the environment leads out of the house, and we stay in it.
        handlers: list[Any] = [ProxyHandler({})]
        if tls is not None:
            handlers.append(HTTPSHandler(context=tls))
        self._opener: OpenerDirector = build_opener(*handlers)

    def get(self, kind: type[T], path: str, **query: object) -> T:
        """Read one thing."""
        return self._decoded(self.request("GET", path, query), kind)

    def post(
        self,
        kind: type[T],
        path: str,
        body: Mapping[str, object] | None = None,
        **query: object,
    ) -> T:
        """Change something."""
        return self._decoded(self.request("POST", path, query, body), kind)

    def delete(self, path: str) -> None:
        """Remove something."""
        self.request("DELETE", path)

    def page(
        self, kind: type[Page[T]], path: str, limit: int | None, **query: object
    ) -> tuple[Sequence[T], bool]:
        """The first entries of a list, and whether there are more. None: all there are."""
        found = list(
            islice(self.each(kind, path, limit, **query), None if limit is None else limit + 1)
        )
        if limit is None:
            return found, False
        return found[:limit], len(found) > limit

    def each(
        self, kind: type[Page[T]], path: str, limit: int | None = None, **query: object
    ) -> Iterator[T]:
        """Every entry of a list, page by page. `limit` says how many are wanted, and one more may come."""
        wanted = PAGE if limit is None else min(PAGE, limit + 1)
        after: str | None = None
        while True:
            page = self.get(kind, path, **query, limit=wanted, after=after)
            yield from page.items
            after = page.next
            if after is None:
                return

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        accepted: Sequence[int] = (),
    ) -> Answer:
        """Send a request. Statuses from 400 on raise, but for those that are `accepted`."""
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        url = f"{self.url}{path}" + (f"?{urlencode(given)}" if given else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = Request(url, data, headers, method=method)  # noqa: S310 - http by construction
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                return _read(cast(HTTPResponse, response))
        except HTTPError as error:
            with error:
                if error.code in accepted:
                    return Answer(error.code, error.read(ANSWER_BYTES_MAX))
                raise self._refusal(error) from None
        except TimeoutError:
            raise Timeout(f"{self.url} has not answered for {self._timeout_s:g} s") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                raise Timeout(f"{self.url} has not answered for {self._timeout_s:g} s") from None
            text = getattr(reason, "strerror", None) or reason
            raise Unavailable(
                f"{self.url} cannot be reached: {text}: does a server run there, and with --http?"
            ) from None

    def _decoded(self, answer: Answer, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"{self.url} answers what this command does not understand: {error}: is it a tstreams "
                "server, and of this version?"
            ) from None

    def _refusal(self, error: HTTPError) -> Error:
        try:
            problem = json.loads(error.read(ANSWER_BYTES_MAX))
            code, detail = str(problem["code"]), str(problem["detail"])
        except (ValueError, KeyError, TypeError, OSError):
            return Unavailable(
                f"{self.url} answers with {error.code} {error.reason}: is it a tstreams server?"
            )
        known = Error.from_wire(code, detail)
        return Refusal(code, detail) if type(known) is Error else known


def _read(response: HTTPResponse) -> Answer:
    body = response.read(ANSWER_BYTES_MAX + 1)
    if len(body) > ANSWER_BYTES_MAX:
        raise Unavailable(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
    return Answer(response.status, body)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def stream_path(name: str, *rest: str) -> str:
    """The path of a stream, or of something in it. Names may hold anything, `/` too."""
    return "/v1/streams/" + "/".join(quote(it, safe="") for it in (name, *rest))


def add_limit(parser: ArgumentParser, default: int = 50) -> None:
    """The flags of a command that lists."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--limit", type=whole(1), default=default, metavar="N", help=f"at most so many [{default}]"
    )
    group.add_argument("--all", action="store_true", help="every one")


def limit_of(arguments: Namespace) -> int | None:
    """How many are wanted; None: all."""
    return None if arguments.all else arguments.limit
