"""Consumers over HTTP: positions, lag, resets with and without force, forgetting."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

import tstreams

from .doors import Door, wait_for

pytestmark = pytest.mark.xdist_group("discovery")


def _write(ts: tstreams.Client, stream: str, count: int, partition: int = 0) -> list[int]:
    with ts.producer(stream) as producer:
        found = [producer.instant([b"a", b"b"], partition=partition) for _ in range(count)]
    return [it for it in found if it is not None]


def _read(ts: tstreams.Client, stream: str, name: str, count: int, partition: int = 0) -> None:
    with ts.consumer(stream, name) as consumer:
        for _ in range(count):
            assert consumer.get(partition, timeout=10) is not None
        consumer.checkpoint()


def _next(ts: tstreams.Client, stream: str, name: str, partition: int = 0) -> int | None:
    with ts.consumer(stream, name) as consumer:
        found = consumer.get(partition, timeout=0.2)
        return None if found is None else found.id


def test_positions_and_lag(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream("lagging", partitions=2)
    ids = [*_write(ts, "lagging", 10), *_write(ts, "lagging", 5, 1)]
    _read(ts, "lagging", "a/b", 4)
    path = f"/v1/streams/lagging/consumers/{quote('a/b', safe='')}"
    found = shared_door.get(path)
    assert (found["name"], found["live"], found["partitions"]) == ("a/b", False, 1)
    lag = found["lag"]
    assert (lag["transactions"], lag["items"], lag["exact"]) == (11, 22, True)
    assert lag["seconds"] >= 0
    first, second = found["positions"]
    assert (first["position"], first["lag"]["transactions"]) == (str(ids[3]), 6)
    assert (second["position"], second["lag"]["transactions"]) == (None, 5)

    with ts.consumer("lagging", "a/b") as consumer:
        live = shared_door.get(path)
        assert live["live"] is True
        assert live["holder"]["name"] == "a/b"
        for partition, count in ((0, 6), (1, 5)):
            for _ in range(count):
                assert consumer.get(partition, timeout=10) is not None
        consumer.checkpoint()
    done = shared_door.get(path)["lag"]
    assert (done["transactions"], done["seconds"], done["exact"]) == (0, 0.0, True)

    listed = shared_door.get("/v1/streams/lagging/consumers")["items"]
    assert [it["name"] for it in listed] == ["a/b"]
    assert shared_door.get("/v1/streams/lagging")["consumers"] == 1
    everywhere = shared_door.get("/v1/consumers?limit=1000")["items"]
    assert ("lagging", "a/b") in [(it["stream"], it["name"]) for it in everywhere]
    assert shared_door("GET", "/v1/streams/lagging/consumers/nobody").status == 404


def test_the_lag_of_the_slowest_shows_with_the_stream_and_over_time(
    shared_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("slowest")
    _write(ts, "slowest", 20)
    _read(ts, "slowest", "quick", 19)
    _read(ts, "slowest", "slow", 2)
    row = shared_door.get("/v1/streams?prefix=slowest")["items"][0]
    assert row["slowest"]["consumer"] == "slow"
    assert row["slowest"]["lag"]["transactions"] == 18
    path = "/v1/streams/slowest/consumers/slow/lag"
    points = wait_for(lambda: shared_door.get(path)["items"])
    assert points[-1]["transactions"] == 18
    statistics = wait_for(
        lambda: [
            it for it in shared_door.get("/v1/statistics")["slowest"] if it["consumer"] == "slow"
        ]
    )
    assert statistics[0]["transactions"] == 18


def test_a_reset_says_what_would_happen_and_then_does_it(
    shared_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("again")
    ids = _write(ts, "again", 10)
    _read(ts, "again", "r", 6)
    path = "/v1/streams/again/consumers/r"

    def reset(to: Any, **more: Any) -> Any:
        return shared_door.post(f"{path}/reset", {"to": to, **more})

    dry = reset("oldest", dry_run=True)
    assert (dry["applied"], dry["live"]) == (False, False)
    assert dry["partitions"] == [
        {
            "partition": 0,
            "before": str(ids[5]),
            "after": str(ids[0] - 1),
            "direction": "back",
            "transactions": 6,
            "items": 12,
            "exact": True,
        }
    ]
    assert dry["summary"] == "consumer 'r' reads 6 transactions again"
    assert _next(ts, "again", "r") == ids[6]
    assert reset("oldest")["applied"] is True
    assert _next(ts, "again", "r") == ids[0]
    forward = reset({"id": str(ids[7])})
    assert (forward["partitions"][0]["direction"], forward["partitions"][0]["transactions"]) == (
        "forward",
        8,
    )
    assert _next(ts, "again", "r") == ids[8]
    reset({"time": shared_door.get("/v1/streams/again/partitions/0")["oldest"]})
    assert _next(ts, "again", "r") == ids[0]
    reset("newest")
    assert _next(ts, "again", "r") is None
    assert shared_door.get(path)["lag"]["transactions"] == 0
    wrong: list[dict[str, Any]] = [
        {"to": "middle"},
        {"to": {}},
        {"to": {"id": "1", "time": "2026-01-01T00:00:00Z"}},
    ]
    for body in wrong:
        assert shared_door("POST", f"{path}/reset", body).status == 422
    assert shared_door("POST", f"{path}/reset", {"to": "oldest", "partitions": [1]}).status == 422
    assert shared_door("POST", f"{path}/reset", {"to": {"id": str(2**62)}}).status == 422


def test_a_live_consumer_is_reset_only_by_force_which_fences_it(
    shared_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("held")
    ids = _write(ts, "held", 5)
    path = "/v1/streams/held/consumers/h"
    with ts.consumer("held", "h") as consumer:
        for _ in range(3):
            assert consumer.get(0, timeout=10) is not None
        consumer.checkpoint()
        refused = shared_door("POST", f"{path}/reset", {"to": "oldest"})
        assert (refused.status, refused.json["code"]) == (409, "invalid_state")
        assert shared_door("DELETE", path).status == 409
        dry = shared_door.post(f"{path}/reset", {"to": "oldest", "dry_run": True})
        assert dry["live"] is True
        assert "fenced" in dry["summary"]
        tag = shared_door("GET", path).headers["etag"]
        body = {"to": "oldest", "force": True}
        assert shared_door("POST", f"{path}/reset", body, If_Match='"other"').status == 412
        assert shared_door("POST", f"{path}/reset", body, If_Match=tag).status == 200
        assert consumer.get(0, timeout=10) is not None
        with pytest.raises(tstreams.Fenced):
            consumer.checkpoint()
    assert _next(ts, "held", "h") == ids[0]


def test_a_consumer_is_forgotten(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream("forgotten")
    ids = _write(ts, "forgotten", 3)
    _read(ts, "forgotten", "f", 2)
    path = "/v1/streams/forgotten/consumers/f"
    assert shared_door("DELETE", path).status == 204
    assert shared_door("GET", path).status == 404
    assert _next(ts, "forgotten", "f") == ids[0]
