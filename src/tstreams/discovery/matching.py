"""Which route a request is for, by its path as it was sent: names may hold anything, `/` too, encoded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from .problems import Refused
from .routes import PATH_PARAMETERS, Query, Route

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
QUERY_FIELDS_MAX = 32
"""Parameters behind the question mark. No route has as many."""


class Matcher:
    """The routes as a tree of segments. A segment that is written out wins over a parameter."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Branch()
        for route in routes:
            branch = self._root
            for segment in route.path.strip("/").split("/"):
                name = segment[1:-1] if segment.startswith("{") else None
                branch = branch.next(segment, name)
            assert route.method not in branch.routes, f"{route.name}: its path is taken"
            branch.routes[route.method] = route

    def match(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, Any]] | None:
        """The route and the parameters in its path; None if no route has this path.

        `Refused` if the path has routes, but none with this method, or a parameter is not what it should be.
        """
        if not raw_path.startswith(b"/"):
            return None
        segments = raw_path[1:].split(b"/")
        texts: dict[str, str] = {}
        branch = self._root
        for segment in segments:
            text = _decoded(segment)
            following = branch.fixed.get(text)
            if following is None and branch.parameter is not None:
                following = branch.parameter
                texts[branch.parameter_name] = text
            if following is None:
                return None
            branch = following
        if not branch.routes:
            return None
        route = branch.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = sorted(branch.routes) + (["HEAD"] if "GET" in branch.routes else [])
            raise Refused(
                405,
                "method_not_allowed",
                f"{method} is not for this path: it has {', '.join(allowed)}",
                {"Allow": ", ".join(allowed)},
            )
        return route, {name: _read_path(name, text) for name, text in texts.items()}


class _Branch:
    __slots__ = ("fixed", "parameter", "parameter_name", "routes")

    def __init__(self) -> None:
        self.fixed: dict[str, _Branch] = {}
        self.parameter: _Branch | None = None
        self.parameter_name = ""
        self.routes: dict[str, Route] = {}

    def next(self, segment: str, parameter: str | None) -> _Branch:
        if parameter is None:
            return self.fixed.setdefault(segment, _Branch())
        assert self.parameter is None or self.parameter_name == parameter
        self.parameter_name = parameter
        self.parameter = self.parameter or _Branch()
        return self.parameter


def _decoded(raw: bytes) -> str:
    try:
        if _BAD_ESCAPE.search(raw):
            raise ValueError("a % is followed by two hexadecimal digits")
        return unquote_to_bytes(raw).decode()
    except ValueError as error:
        raise Refused(400, "bad_path", f"the path is not percent-encoded UTF-8: {error}") from None


def _read_path(name: str, text: str) -> Any:
    try:
        return _convert(text, PATH_PARAMETERS[name][0])
    except msgspec.ValidationError as error:
        raise Refused(422, "bad_request", f"{name} in the path: {error}") from None


def read_query(route: Route, query: bytes) -> dict[str, Any]:
    """The parameters behind the question mark; those that are not there have their defaults."""
    try:
        if _BAD_ESCAPE.search(query):
            raise ValueError("a % is followed by two hexadecimal digits")
        given = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError as error:
        raise Refused(400, "bad_query", f"the query cannot be read: {error}") from None
    known = {parameter.name: parameter for parameter in route.query}
    found = {name: parameter.default for name, parameter in known.items()}
    seen = set()
    for name, text in given:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise Refused(422, "bad_request", f"{name!r} is no parameter of this route: {has}")
        if name in seen:
            raise Refused(422, "bad_request", f"{name} is there more than once")
        seen.add(name)
        found[name] = _read_query(known[name], text)
    return found


def _read_query(parameter: Query, text: str) -> Any:
    try:
        if parameter.type is bool and text not in ("true", "false"):
            raise msgspec.ValidationError("Expected `true` or `false`")
        return _convert(text, parameter.type)
    except msgspec.ValidationError as error:
        raise Refused(422, "bad_request", f"{parameter.name}: {error}") from None


def _convert(text: str, kind: Any) -> Any:
    return msgspec.convert(text, kind, strict=False)
