"""The application: every request goes through here, from the guard to the answer."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import Error, Unauthorized
from .calls import Answer, Call, read_body
from .console import Console
from .guard import HEADERS, Guard
from .limits import REQUEST_TIMEOUT_S
from .matching import Matcher, read_query
from .problems import MEDIA_TYPE, Refused, problem_of, refusal_of
from .routes import CONSOLE, ROUTES, Route
from .times import Times

log = logging.getLogger("tstreams.discovery")

Handler: TypeAlias = Callable[[Call], Awaitable[msgspec.Struct | Answer | Response]]
Authorise: TypeAlias = Callable[[str, Route, Mapping[str, Any]], None]
"""Called for every request with who asks (today always ""), the route, and the parameters in its path.
Raises `Unauthorized` to refuse it."""

_encode = msgspec.json.Encoder().encode


class Application:
    """Answers requests: an ASGI application. Nothing of a request outlives its answer.

    Whatever fails is answered with a problem. A client that goes away costs at most what its request had
    begun, which has its deadline.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        console: Console,
        hosts: list[str] | None = None,
        authorise: Authorise | None = None,
    ) -> None:
        missing = [route.name for route in ROUTES if route.name not in handlers]
        assert not missing, f"routes without a function: {missing}"
        self._handlers = handlers
        self._console = console
        self._guard = Guard(hosts or [])
        self._authorise = authorise
        self._matcher = Matcher(ROUTES)
        self.counts: Counter[tuple[str, int]] = Counter()
        """Requests that were answered, by route and status."""
        self.times: defaultdict[str, Times] = defaultdict(Times)
        """How long they took, by route; events, which do not end, are left out."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is spoken here, not {scope['type']}")
        begun_at = time.perf_counter()  # the loop's own clock stands still while it works
        request = Request(scope, receive)
        route = None
        try:
            route, path = self._match(request)
            response = await self._respond(route, path, request)
        except Refused as refused:
            response = self._refuse(refused, request)
        except Error as error:
            response = self._refuse(refusal_of(error), request)
        except TimeoutError:
            late = Refused(504, "timeout", f"it took more than {REQUEST_TIMEOUT_S:g} s: try again")
            response = self._refuse(late, request)
        except Exception:
            log.exception("a request failed: %s %s", request.method, _path(request))
            broken = Refused(500, "error", "a mistake in the front door: its log has more")
            response = self._refuse(broken, request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        self.counts[route.name if route else "none", response.status_code] += 1
        if response.media_type != "text/event-stream":
            self.times[route.name if route else "none"].add(time.perf_counter() - begun_at)
        await response(scope, receive, send)

    def _match(self, request: Request) -> tuple[Route, dict[str, Any]]:
        self._guard.check(request.method, request.headers)
        raw_path: bytes = request.scope.get("raw_path") or b"/"
        found = self._matcher.match(request.method, raw_path)
        if found is not None:
            return found
        if self._console.has(raw_path):
            if request.method not in ("GET", "HEAD"):
                raise Refused(
                    405,
                    "method_not_allowed",
                    f"{request.method} is not for files: they have GET, HEAD",
                    {"Allow": "GET, HEAD"},
                )
            return CONSOLE, {}
        raise Refused(404, "not_found", f"there is nothing at {_path(request)}")

    async def _respond(self, route: Route, path: dict[str, Any], request: Request) -> Response:
        if self._authorise is not None:
            try:
                self._authorise("", route, path)
            except Unauthorized as error:
                raise refusal_of(error) from None
        if route is CONSOLE:
            return self._console.respond(request)
        query = read_query(route, request.scope["query_string"])
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            body = await read_body(route, request) if route.method != "GET" else None
            call = Call(route, path, query, body, request)
            result = await self._handlers[route.name](call)
        return result if isinstance(result, Response) else _response(call, result)

    def _refuse(self, refused: Refused, request: Request) -> Response:
        body = problem_of(refused, _path(request))
        headers = {"Cache-Control": "no-store", **refused.headers}
        return Response(body, refused.status, headers, MEDIA_TYPE)


def _response(call: Call, result: msgspec.Struct | Answer) -> Response:
    answer = result if isinstance(result, Answer) else Answer(result)
    headers = {"Cache-Control": "no-store", **answer.headers}
    reads = call.route.method == "GET"
    body = answer.raw
    if body is None and answer.resource is not None:
        body = _encode(answer.resource)
    tag = answer.tag
    if tag is None and reads and call.route.etag and body is not None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    if tag is not None:
        headers["ETag"] = tag
        if reads and call.has_copy(tag):
            return Response(status_code=304, headers=headers)
    status = answer.status or call.route.status
    if body is None:
        return Response(status_code=status, headers=headers)
    if answer.raw is not None:
        headers.setdefault("Content-Type", call.route.media)
        return Response(body, status, headers)
    return Response(body, status, headers, call.route.media)


def _path(request: Request) -> str:
    """The path as it was sent, fit to be shown."""
    raw: bytes = request.scope.get("raw_path") or b"/"
    return raw[:2000].decode("ascii", "replace")
