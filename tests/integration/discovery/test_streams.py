"""Streams over HTTP: lists, searches, one stream, changes, sizes, partitions."""

from __future__ import annotations

from urllib.parse import quote

import pyarrow as pa
import pytest

import tstreams

from .doors import Door, wait_for

pytestmark = pytest.mark.xdist_group("discovery")

ODD = 'a/b c?d#e%2F&ü"\\'


def test_a_stream_is_made_looked_at_changed_and_deleted(shared_door: Door) -> None:
    made = shared_door(
        "POST",
        "/v1/streams",
        {"name": "life", "partitions": 3, "ttl_seconds": 60, "description": "x"},
    )
    assert made.status == 201
    assert made.headers["location"] == "/v1/streams/life"
    assert made.json["partitions"] == 3
    again = shared_door("POST", "/v1/streams", {"name": "life"})
    assert (again.status, again.json["code"]) == (409, "already_exists")

    found = shared_door("GET", "/v1/streams/life")
    assert found.json["ttl_seconds"] == 60
    assert found.json["size"] == {"transactions": 0, "items": 0, "bytes": 0, "exact": True}
    tag = found.headers["etag"]
    assert made.headers["etag"] == tag
    assert shared_door("GET", "/v1/streams/life", If_None_Match=tag).status == 304

    changed = shared_door("PATCH", "/v1/streams/life", {"ttl_seconds": 90}, If_Match=tag)
    assert (changed.status, changed.json["ttl_seconds"], changed.json["description"]) == (
        200,
        90,
        "x",
    )
    assert changed.headers["etag"] != tag
    late = shared_door("PATCH", "/v1/streams/life", {"ttl_seconds": 120}, If_Match=tag)
    assert (late.status, late.json["code"]) == (412, "precondition_failed")
    assert shared_door("DELETE", "/v1/streams/life", If_Match=tag).status == 412
    assert shared_door.get("/v1/streams/life")["ttl_seconds"] == 90

    gone = shared_door("DELETE", "/v1/streams/life", If_Match=changed.headers["etag"])
    assert (gone.status, gone.body) == (204, b"")
    missing = shared_door("GET", "/v1/streams/life")
    assert (missing.status, missing.json["code"]) == (404, "not_found")
    assert shared_door("DELETE", "/v1/streams/life").status == 404


def test_names_may_hold_anything_printable(shared_door: Door) -> None:
    made = shared_door("POST", "/v1/streams", {"name": ODD})
    assert made.status == 201
    path = made.headers["location"]
    assert path == f"/v1/streams/{quote(ODD, safe='')}"
    assert shared_door.get(path)["name"] == ODD
    assert shared_door.get(f"{path}/partitions/0")["partition"] == 0
    assert shared_door.get(f"/v1/lookup/{quote(ODD, safe='')}")["stream"] == ODD
    # A slash that is not encoded separates.
    assert shared_door("GET", f"/v1/streams/{quote(ODD)}").status == 404


def test_lists_come_in_pages_by_name(shared_door: Door, ts: tstreams.Client) -> None:
    names = [f"page-{number:03}" for number in range(7)]
    for name in names:
        ts.create_stream(name)
    found, after = [], ""
    while True:
        page = shared_door.get(f"/v1/streams?prefix=page-&limit=3{after}")
        assert len(page["items"]) <= 3
        found += [it["name"] for it in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == names


def test_a_search_finds_words_anywhere_in_names_and_not_what_was_deleted(
    shared_door: Door, ts: tstreams.Client
) -> None:
    names = [f"find-{number}-Needle-{number}" for number in range(5)]
    for name in names:
        ts.create_stream(name)
    ts.create_stream("find-hay")

    def hits(word: str, rest: str = "") -> list[str]:
        page = shared_door.get(f"/v1/streams?search={quote(word)}{rest}")
        return [it["name"] for it in page["items"]]

    assert wait_for(lambda: sorted(hits("nEEdle")) == names)
    first = shared_door.get("/v1/streams?search=needle&limit=2&details=false")
    assert first["total"] == 5
    second = shared_door.get(f"/v1/streams?search=needle&limit=9&after={first['next']}")
    assert sorted(it["name"] for it in first["items"] + second["items"]) == names
    assert second["next"] is None
    ts.delete_stream(names[1])
    ts.delete_stream(names[2])
    ts.create_stream(names[2])
    assert wait_for(lambda: sorted(hits("needle")) == [names[0], *names[2:]])
    assert hits("no such thing") == []
    both = shared_door("GET", "/v1/streams?search=a&prefix=b")
    assert (both.status, both.json["code"]) == (422, "bad_request")


def test_sizes_are_counted_exactly_by_and_by(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream("sized", partitions=2)
    with ts.producer("sized") as producer:
        waits = [
            producer.instant([b"12345"] * (1 + number % 3), partition=number % 2, wait=False)
            for number in range(5000)
        ]
        ids = [it.result() for it in waits]
        row = shared_door.get("/v1/streams/sized")
        assert row["size"]["transactions"] == 5000
        assert row["size"]["items"] == sum(1 + number % 3 for number in range(5000))
        assert row["size"]["exact"] is True
        assert row["size"]["bytes"] > 25_000
        assert row["last_transaction"] is not None

        # History goes at its old end, and grows at its new one: what was counted stays right.
        cut = ids[1234]
        purged = shared_door.post("/v1/streams/sized/purge", {"before": {"id": str(cut)}})
        assert purged == {"stream": "sized", "before": str(cut)}
        producer.instant([b"more"], partition=0)
    left = len([it for it in ids if it >= cut]) + 1
    partitions = shared_door.get("/v1/streams/sized/partitions")["items"]
    assert [it["partition"] for it in partitions] == [0, 1]
    assert sum(it["size"]["transactions"] for it in partitions) == left
    assert shared_door.get("/v1/streams?prefix=sized")["items"][0]["size"]["transactions"] == left
    assert shared_door("GET", "/v1/streams/sized/partitions/2").status == 404
    page = shared_door.get("/v1/streams/sized/partitions?limit=1")
    rest = shared_door.get(f"/v1/streams/sized/partitions?limit=1&after={page['next']}")
    assert [it["partition"] for it in page["items"] + rest["items"]] == [0, 1]
    assert rest["next"] is None


def test_a_typed_stream_has_columns(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream("rows", schema=pa.schema([("n", pa.int64()), ("name", pa.string())]))
    found = shared_door.get("/v1/streams/rows")
    assert found["typed"] is True
    assert found["columns"][0] == {"name": "n", "type": "int64", "nullable": True}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": ""}, 422),
        ({"name": "x" * 256}, 422),
        ({"name": "a\nb"}, 422),
        ({"name": "ok", "partitions": 0}, 422),
        ({"name": "ok", "ttl_seconds": 0.5}, 422),
        ({"name": "ok", "colour": "red"}, 422),
        ({}, 422),
        ([], 422),
    ],
)
def test_nonsense_is_refused(shared_door: Door, body: object, status: int) -> None:
    reply = shared_door("POST", "/v1/streams", body)
    assert (reply.status, reply.json["status"]) == (status, status)
    assert reply.headers["content-type"] == "application/problem+json"
