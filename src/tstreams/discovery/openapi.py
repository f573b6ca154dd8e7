"""The OpenAPI document, made of the table of routes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

import msgspec

from ..version import __version__
from . import resources
from .problems import MEDIA_TYPE
from .routes import PATH_PARAMETERS, ROUTES, Query, Route

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_COMMON = (400, 403, 405, 421, 422, 500, 503, 504)
"""What any request may end with."""
_WITH_BODY = (408, 413, 415)


def document() -> dict[str, Any]:
    """The whole document, as what JSON is made of."""
    kinds = {kind for route in ROUTES for kind in (route.result, route.body) if kind is not None}
    kinds |= {resources.Problem, resources.Statistics, resources.StreamTick}
    _, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    for kind in resources.EXACTLY_ONE:
        components[kind.__name__] |= {"minProperties": 1, "maxProperties": 1}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tstreams",
            "version": __version__,
            "description": "Lookup, administration and observability of a tstreams node.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def encoded() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document())


def _operation(route: Route) -> dict[str, Any]:
    parameters = [_path_parameter(name) for name in _PARAMETER.findall(route.path)]
    parameters += [_query_parameter(query) for query in route.query]
    if route.etag:
        name = "If-None-Match" if route.method == "GET" else "If-Match"
        parameters.append({"name": name, "in": "header", "schema": {"type": "string"}})
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema_of(route.body)}},
        }
    return operation


def _tag(route: Route) -> str:
    parts = [part for part in route.path.split("/") if part and part != "v1"]
    return "consumers" if "consumers" in parts else parts[0].partition(".")[0]


def _path_parameter(name: str) -> dict[str, Any]:
    kind, text = PATH_PARAMETERS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": _schema_of(kind),
    }


def _query_parameter(query: Query) -> dict[str, Any]:
    schema = dict(_schema_of(query.type))
    if query.default is not None:
        schema["default"] = query.default
    return {
        "name": query.name,
        "in": "query",
        "required": False,
        "description": query.text,
        "schema": schema,
    }


def _responses(route: Route) -> dict[str, Any]:
    done: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.status != 204:
        schema = {} if route.result is None else _schema_of(route.result)
        if route.result is None and route.media != "application/json":
            schema = {"type": "string"}
        done["content"] = {route.media: {"schema": schema}}
    headers = {}
    if route.etag and route.status == 200 and route.result is not None:
        headers["ETag"] = {"schema": {"type": "string"}}
    if route.status == 201:
        headers["Location"] = {"schema": {"type": "string"}}
    if headers:
        done["headers"] = headers
    responses = {str(route.status): done}
    statuses = {*_COMMON, *route.problems, *(_WITH_BODY if route.method != "GET" else ())}
    if route.etag:
        if route.method == "GET":
            responses["304"] = {"description": HTTPStatus(304).phrase}
        else:
            statuses.add(412)
    problem = {MEDIA_TYPE: {"schema": _schema_of(resources.Problem)}}
    for status in sorted(statuses):
        # Another resource than a problem: a probe says what it found also if that is bad.
        content = problem
        if route.name == "ready" and status == 503:
            content = {"application/json": {"schema": _schema_of(resources.Health)}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return responses


def _schema_of(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return schema
