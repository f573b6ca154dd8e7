"""What is refused before anything is asked: strangers' pages, what is no HTTP, too large, or too slow."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

import pytest

from tstreams.discovery.limits import BODY_BYTES_MAX, HEADERS_BYTES_MAX
from tstreams.discovery.routes import ROUTES

from .doors import Door

pytestmark = pytest.mark.xdist_group("discovery")


def _raw(door: Door, *parts: bytes, until: bytes | None = None) -> bytes:
    """Send bytes as they are; what comes back until the server closes, or says this."""
    where = urlsplit(door.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        found = b""
        while (until is None or until not in found) and (data := connection.recv(65536)):
            found += data
    return found


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7080", "", "localhost.evil.example"]
)
def test_a_host_that_is_not_ours_is_refused(shared_door: Door, host: str) -> None:
    reply = shared_door("GET", "/v1/streams", Host=host)
    assert (reply.status, reply.json["code"]) == (421, "misdirected")


@pytest.mark.parametrize(
    "host", ["localhost:1", "LOCALHOST", "127.0.0.1:7080", "[::1]:7080", "10.1.2.3"]
)
def test_addresses_and_localhost_are_ours(shared_door: Door, host: str) -> None:
    assert shared_door("GET", "/v1/streams", Host=host).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_pages_of_others_change_nothing(shared_door: Door, headers: dict[str, str]) -> None:
    body = {"name": "from elsewhere"}
    reply = shared_door("POST", "/v1/streams", body, raw=None, **headers)
    assert (reply.status, reply.json["code"]) == (403, "cross_origin")
    assert shared_door("GET", "/v1/streams/from%20elsewhere").status == 404
    assert shared_door("GET", "/v1/streams", None, raw=None, **headers).status == 200


def test_pages_of_ours_may(shared_door: Door) -> None:
    headers = {"Origin": shared_door.url, "Sec_Fetch_Site": "same-origin"}
    reply = shared_door("POST", "/v1/streams", {"name": "from here"}, raw=None, **headers)
    assert reply.status == 201


def test_a_form_is_no_json(shared_door: Door) -> None:
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        reply = shared_door("POST", "/v1/streams", raw=b'{"name": "form"}', Content_Type=media)
        assert (reply.status, reply.json["code"]) == (415, "unsupported_media_type")
    assert shared_door("POST", "/v1/streams", raw=b'{"name": "form"}').status == 415


def test_bodies_are_bounded_and_must_be_json(shared_door: Door) -> None:
    json = {"Content_Type": "application/json"}
    large = shared_door("POST", "/v1/streams", raw=b" " * (BODY_BYTES_MAX + 1), **json)
    assert (large.status, large.json["code"]) == (413, "too_large")
    chunked = _raw(
        shared_door,
        b"POST /v1/streams HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b" " * 65536 + b"\r\n",
        *[b"10000\r\n" + b" " * 65536 + b"\r\n"] * (BODY_BYTES_MAX // 65536 - 1),
        b"1\r\n \r\n",
        until=b"too_large",
    )
    assert chunked.startswith(b"HTTP/1.1 413 ")
    for raw in (b"", b"{", b'{"name": "\xff"}'):
        reply = shared_door("POST", "/v1/streams", raw=raw, **json)
        assert (reply.status, reply.json["code"]) == (400, "bad_json"), raw[:20]
    deep = b'{"items": [{"json": ' + b"[" * 100_000
    reply = shared_door("POST", "/v1/streams/x/transactions", raw=deep, **json)
    assert (reply.status, reply.json["code"]) == (400, "bad_json")
    extra = shared_door("POST", "/v1/transactions/open/1/cancel", raw=b"{}", **json)
    assert extra.status == 422


def test_what_is_no_http_is_answered_and_closed(shared_door: Door) -> None:
    for raw in (
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * HEADERS_BYTES_MAX + b"\r\n\r\n",
    ):
        answer = _raw(shared_door, raw)
        assert re.match(rb"HTTP/1.1 400 .*application/problem\+json", answer, re.DOTALL), answer


def test_paths_and_queries_must_be_encoded(shared_door: Door) -> None:
    for path in ("/v1/streams/%ff", "/v1/streams/%zz", "/v1/streams?prefix=%ff", "/v1/streams?a=%"):
        assert shared_door("GET", path).status == 400, path
    for path in ("/v1/streams?limit=0", "/v1/streams?limit=x", "/v1/streams?limit=1&limit=2"):
        assert shared_door("GET", path).status == 422, path
    unknown = shared_door("GET", "/v1/streams?colour=red")
    assert (unknown.status, "prefix" in unknown.json["detail"]) == (422, True)
    assert shared_door("GET", "/v1/streams/x/partitions/minus").status == 422
    assert shared_door("GET", "/v1/streams/").status == 422


def test_a_method_that_a_path_does_not_have(shared_door: Door) -> None:
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", "1", route.path)
        reply = shared_door("PUT", path)
        assert (reply.status, reply.json["code"]) == (405, "method_not_allowed")
        assert route.method in reply.headers["allow"]
    assert shared_door("OPTIONS", "/v1/streams").status == 405
    assert "access-control-allow-origin" not in shared_door("OPTIONS", "/v1/streams").headers
    head = shared_door("HEAD", "/v1/nodes")
    assert (head.status, head.body) == (200, b"")


def test_every_answer_has_the_headers_that_keep_browsers_careful(shared_door: Door) -> None:
    for path in ("/", "/v1/streams", "/v1/nope", "/metrics"):
        headers = shared_door("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
