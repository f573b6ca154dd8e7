"""Transactions over HTTP: browsing, items and their views, writing, open ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

import tstreams

from .doors import Door

pytestmark = pytest.mark.xdist_group("discovery")


def _ids(page: Any) -> list[str]:
    return [it["id"] for it in page["items"]]


def test_transactions_are_browsed_by_id_and_time_both_ways(
    shared_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("browse", partitions=2)
    with ts.producer("browse") as producer:
        ids = [str(producer.instant([b"x"] * (n + 1), partition=1)) for n in range(10)]
    base = "/v1/streams/browse/partitions/1/transactions"
    page = shared_door.get(f"{base}?limit=4")
    assert _ids(page) == ids[:4]
    assert page["items"][3]["items"] == 4
    rest = shared_door.get(f"{base}?limit=100&after={page['next']}")
    assert (_ids(rest), rest["next"]) == (ids[4:], None)
    down = shared_door.get(f"{base}?limit=4&order=desc")
    assert _ids(down) == ids[:5:-1]
    more = shared_door.get(f"{base}?limit=100&order=desc&after={down['next']}")
    assert _ids(more) == ids[5::-1]
    assert _ids(shared_door.get(f"{base}?from={ids[2]}&to={ids[5]}")) == ids[2:6]
    when = page["items"][0]["time"]
    assert _ids(shared_door.get(f"{base}?from={when}"))[:1] == ids[:1]
    before = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert _ids(shared_door.get(f"{base}?to={quote(before)}")) == []
    assert _ids(shared_door.get(f"{base}?from={quote(before)}&to={quote(before)}")) == []
    wrong = shared_door("GET", f"{base}?from=yesterday")
    assert (wrong.status, wrong.json["code"]) == (422, "bad_request")
    assert _ids(shared_door.get("/v1/streams/browse/partitions/0/transactions")) == []
    assert shared_door("GET", "/v1/streams/browse/partitions/2/transactions").status == 404


def test_items_are_shown_as_what_they_are(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream("shown")
    big = b"y" * 40_000
    with ts.producer("shown") as producer:
        number = producer.instant(
            [b"plain text", b'{"a": [1, 2.5]}', b"\x00\xff", b"", "füßchen".encode(), big]
        )
    path = f"/v1/streams/shown/partitions/0/transactions/{number}"
    assert shared_door.get(path)["items"] == 6
    page = shared_door.get(f"{path}/items")
    assert [(it["view"], it["value"]) for it in page["items"]][:5] == [
        ("text", "plain text"),
        ("json", {"a": [1, 2.5]}),
        ("hex", "00ff"),
        ("text", ""),
        ("text", "füßchen"),
    ]
    last = page["items"][5]
    assert (last["bytes"], last["truncated"], len(last["value"])) == (40_000, True, 16_384)
    assert page["total"] == 6
    second = shared_door.get(f"{path}/items?first=1&limit=2&view=hex")
    assert [it["value"] for it in second["items"]] == [b'{"a": [1, 2.5]}'.hex(), "00ff"]
    assert second["next"] == "3"
    wrong = shared_door("GET", f"{path}/items?view=json")
    assert (wrong.status, wrong.json["detail"]) == (
        422,
        "view: item 0 is no JSON; text or hex shows it",
    )
    assert shared_door("GET", f"{path}/items?view=arrow").status == 422
    assert shared_door("GET", f"{path[:-1]}{1 - int(path[-1]) % 2}/items").status == 404


def test_rows_are_shown_and_written(shared_door: Door, ts: tstreams.Client) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms", "UTC")), ("raw", pa.binary())])
    ts.create_stream("typed", schema=schema)
    row = {"n": 2**60, "at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\x00\x01"}
    with ts.producer("typed") as producer:
        number = producer.instant(pa.Table.from_pylist([row, {"n": 1}], schema=schema))
    items = shared_door.get(f"/v1/streams/typed/partitions/0/transactions/{number}/items")["items"]
    assert items[0]["view"] == "arrow"
    assert items[0]["value"] == {"n": str(2**60), "at": "2026-01-01T00:00:00+00:00", "raw": "AAE="}
    assert items[1]["value"] == {"n": 1, "at": None, "raw": None}
    made = shared_door.post("/v1/streams/typed/transactions", {"items": [{"json": {"n": 5}}]}, 201)
    assert made["items"] == 1
    for bad in ({"text": "x"}, {"json": {"m": 1}}, {"json": {"n": "five"}}, {"json": 7}):
        reply = shared_door("POST", "/v1/streams/typed/transactions", {"items": [bad]})
        assert (reply.status, reply.json["code"]) == (422, "bad_request"), reply


def test_a_test_transaction_is_written(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream("tried", partitions=3)
    items = [{"text": "ü"}, {"json": {"a": None}}, {"json": None}, {"base64": "AAE="}]
    reply = shared_door("POST", "/v1/streams/tried/transactions", {"items": items, "partition": 2})
    assert reply.status == 201
    assert shared_door.get(reply.headers["location"]) == reply.json
    with ts.consumer("tried") as consumer:
        found = consumer.get(2, timeout=5)
        assert found is not None
        assert list(found.items) == ["ü".encode(), b'{"a":null}', b"null", b"\x00\x01"]
    keyed = shared_door.post("/v1/streams/tried/transactions", {"items": items, "key": "k"}, 201)
    assert (
        shared_door.get(
            f"/v1/streams/tried/partitions/{keyed['partition']}/transactions/{keyed['id']}"
        )
        == keyed
    )
    wrong: list[dict[str, Any]] = [
        {"items": []},
        {"items": [{}]},
        {"items": [{"text": "a", "base64": "AAE="}]},
        {"items": [{"base64": "!"}]},
        {"items": [{"text": "a"}], "partition": 3},
        {"items": [{"text": "a"}], "partition": 0, "key": "k"},
    ]
    for body in wrong:
        assert shared_door("POST", "/v1/streams/tried/transactions", body).status == 422, body
    assert shared_door("POST", "/v1/streams/none/transactions", {"items": items}).status == 404


def test_an_open_transaction_is_seen_with_whom_it_holds_back_and_cancelled(
    shared_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("stuck")
    with ts.producer("stuck", "late", transaction_ttl=600) as late, ts.producer("stuck") as other:
        first = other.instant([b"before"])
        with ts.consumer("stuck", "waits") as consumer:
            assert consumer.get(0, timeout=5) is not None
            consumer.checkpoint()
        txn = late.open()
        txn.send(b"never")
        behind = other.instant([b"behind"])
        base = "/v1/streams/stuck/partitions/0/transactions"
        assert _ids(shared_door.get(base)) == [str(first)]
        page = shared_door.get("/v1/transactions/open?stream=stuck")
        (row,) = page["items"]
        assert (row["id"], row["first"], row["staged"]) == (str(txn.id), True, False)
        assert (row["owner"]["kind"], row["owner"]["name"]) == ("producer", "late")
        assert row["held_back"] == ["waits"]
        assert shared_door.get(f"{base}/{txn.id}")["state"] == "opened"
        assert shared_door.get(f"{base}/{behind}")["state"] == "checkpointed"
        hidden = shared_door("GET", f"{base}/{behind}/items")
        assert (hidden.status, hidden.json["code"]) == (409, "invalid_state")
        partition = shared_door.get("/v1/streams/stuck/partitions/0")
        assert partition["held_back_by"] == str(txn.id)

        done = shared_door("POST", f"/v1/transactions/open/{txn.id}/cancel")
        assert (done.status, done.json) == (200, {"id": str(txn.id), "state": "cancelled"})
        assert _ids(shared_door.get(base)) == [str(first), str(behind)]
        with pytest.raises(tstreams.InvalidState, match="operator"):
            txn.checkpoint()
        again = shared_door("POST", f"/v1/transactions/open/{txn.id}/cancel")
        assert (again.status, again.json["code"]) == (404, "not_found")
    assert shared_door.get("/v1/transactions/open?stream=stuck")["items"] == []
