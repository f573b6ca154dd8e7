"""What the front door shows of streams whose partitions are in several shards: all of it, and each thing once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tstreams
from tstreams import Offset

from .doors import Door, door, wait_for

pytestmark = pytest.mark.xdist_group("discovery")

SHARDS = 3
PARTITIONS = 5


@pytest.fixture(scope="module")
def spread_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with door(tmp_path_factory.mktemp("spread") / "data", "--shards", str(SHARDS)) as made:
        yield made


@pytest.fixture
def ts(spread_door: Door) -> Iterator[tstreams.Client]:
    with tstreams.connect(spread_door.tcp) as client:
        yield client


def _fill(ts: tstreams.Client, name: str, each: int = 4) -> dict[int, list[int]]:
    """A stream with some transactions in each partition, and their ids."""
    ts.create_stream(name, partitions=PARTITIONS)
    ids: dict[int, list[int]] = {it: [] for it in range(PARTITIONS)}
    with ts.producer(name) as producer:
        for _ in range(each):
            for partition, found in ids.items():
                number = producer.instant([b"a", b"b"], partition=partition)
                assert number is not None
                found.append(number)
    return ids


def _read(ts: tstreams.Client, stream: str, name: str, counts: dict[int, int]) -> None:
    with ts.consumer(stream, name, partitions=set(counts)) as consumer:
        for partition, count in counts.items():
            for _ in range(count):
                assert consumer.get(partition, timeout=10) is not None
        consumer.checkpoint()


def _pages(door: Door, path: str, limit: int = 1) -> list[Any]:
    """All entries of a list, a page at a time."""
    sign = "&" if "?" in path else "?"
    first = f"{path}{sign}limit={limit}"
    page = door.get(first)
    found = list(page["items"])
    while page["next"] is not None:
        page = door.get(f"{first}&after={page['next']}")
        found += page["items"]
    return found


def test_a_stream_is_counted_in_all_its_shards(spread_door: Door, ts: tstreams.Client) -> None:
    _fill(ts, "counted")
    found = spread_door.get("/v1/streams/counted")
    size = found["size"]
    assert (size["transactions"], size["items"], size["exact"]) == (20, 40, True)
    rows = _pages(spread_door, "/v1/streams/counted/partitions", 2)
    assert [it["partition"] for it in rows] == list(range(PARTITIONS))
    assert [it["size"]["transactions"] for it in rows] == [4] * PARTITIONS
    assert [it["shard"] for it in rows] == [rows[it % SHARDS]["shard"] for it in range(PARTITIONS)]
    assert len({it["shard"] for it in rows}) == SHARDS


def test_a_purge_of_everything_leaves_nothing_in_any_shard(
    spread_door: Door, ts: tstreams.Client
) -> None:
    ids = _fill(ts, "purged")
    last = max(ids[PARTITIONS - 1])
    spread_door.post("/v1/streams/purged/purge", {"before": {"id": str(last + 1)}})
    assert spread_door.get("/v1/streams/purged")["size"]["transactions"] == 0
    with ts.producer("purged") as producer:
        for partition in range(PARTITIONS):
            producer.instant([b"after"], partition=partition)
    assert spread_door.get("/v1/streams/purged")["size"]["transactions"] == PARTITIONS


def test_a_consumer_is_listed_once_with_all_its_positions(
    spread_door: Door, ts: tstreams.Client
) -> None:
    ids = _fill(ts, "listed")
    _read(ts, "listed", "all", {0: 1, 1: 2, 2: 3, 3: 4, 4: 0})
    _read(ts, "listed", "one", {1: 3})  # in a shard that is not the stream's home
    with ts.consumer("listed", "idle", partitions={2}):  # has no position
        for path in ("/v1/streams/listed/consumers", "/v1/consumers"):
            names = [it["name"] for it in _pages(spread_door, path) if it["stream"] == "listed"]
            assert sorted(names) == ["all", "idle", "one"]
        assert spread_door.get("/v1/streams/listed")["consumers"] == 3
        assert spread_door.get("/v1/streams/listed/consumers/idle")["live"]
    found = spread_door.get("/v1/streams/listed/consumers/all")
    assert (found["live"], found["partitions"], found["lag"]["transactions"]) == (False, 4, 10)
    assert [it["position"] for it in found["positions"]] == [
        str(ids[0][0]),
        str(ids[1][1]),
        str(ids[2][2]),
        str(ids[3][3]),
        None,
    ]
    assert [it["lag"]["transactions"] for it in found["positions"]] == [3, 2, 1, 0, 4]
    one = spread_door.get("/v1/streams/listed/consumers/one")
    assert (one["partitions"], one["lag"]["transactions"]) == (1, 17)
    row = spread_door.get("/v1/streams?prefix=listed")["items"][0]
    assert (row["slowest"]["consumer"], row["slowest"]["lag"]["transactions"]) == ("one", 17)


def test_a_reset_goes_to_all_shards(spread_door: Door, ts: tstreams.Client) -> None:
    ids = _fill(ts, "again")
    _read(ts, "again", "r", dict.fromkeys(range(PARTITIONS), 3))
    path = "/v1/streams/again/consumers/r"

    def next_ids() -> list[int | None]:
        with ts.consumer("again", "r") as consumer:
            found = [consumer.get(it, timeout=0.2) for it in range(PARTITIONS)]
        return [None if it is None else it.id for it in found]

    assert next_ids() == [ids[it][3] for it in range(PARTITIONS)]
    done = spread_door.post(f"{path}/reset", {"to": "oldest"})
    assert done["summary"] == "consumer 'r' reads 15 transactions again"
    assert next_ids() == [ids[it][0] for it in range(PARTITIONS)]
    spread_door.post(f"{path}/reset", {"to": {"id": str(ids[2][1])}})
    assert next_ids() == [min(n for n in ids[it] if n > ids[2][1]) for it in range(PARTITIONS)]
    spread_door.post(f"{path}/reset", {"to": {"time": "2001-01-01T00:00:00Z"}, "partitions": [4]})
    assert next_ids()[4] == ids[4][0]
    latest = max(it for found in ids.values() for it in found)
    spread_door.post(f"{path}/reset", {"to": {"id": str(latest)}})
    assert next_ids() == [None] * PARTITIONS
    spread_door.post(f"{path}/reset", {"to": "oldest"})
    spread_door.post(f"{path}/reset", {"to": "newest"})
    assert next_ids() == [None] * PARTITIONS
    assert spread_door("DELETE", path).status == 204
    assert spread_door("GET", path).status == 404
    assert next_ids() == [ids[it][0] for it in range(PARTITIONS)]


def test_a_live_consumer_is_refused_before_anything_is_done_and_fenced_everywhere_by_force(
    spread_door: Door, ts: tstreams.Client
) -> None:
    ids = _fill(ts, "held")
    path = "/v1/streams/held/consumers/h"
    with ts.consumer("held", "h", start=Offset.oldest()) as consumer:
        for partition in range(PARTITIONS):
            assert consumer.get(partition, timeout=10) is not None
        consumer.checkpoint()
        for refused in ({"to": "oldest"}, {"to": "oldest", "partitions": [2]}):
            assert spread_door("POST", f"{path}/reset", refused).status == 409
        saved = [it["position"] for it in spread_door.get(path)["positions"]]
        assert saved == [str(ids[it][0]) for it in range(PARTITIONS)]
        spread_door.post(f"{path}/reset", {"to": "oldest", "partitions": [1], "force": True})
        for partition in (0, 2):  # other shards than that of partition 1
            assert consumer.get(partition, timeout=10) is not None
            with pytest.raises(tstreams.Fenced):
                consumer.checkpoint()
    found = spread_door.get(path)
    assert found["live"] is False
    saved = [it["position"] for it in found["positions"]]
    assert saved == [str(ids[1][0] - 1) if it == 1 else str(ids[it][0]) for it in range(PARTITIONS)]


def test_open_transactions_of_all_shards_come_in_the_order_of_their_ids(
    spread_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("open", partitions=PARTITIONS)
    with ts.producer("open", transaction_ttl=600) as producer:
        opened = [producer.open(partition=it) for it in range(PARTITIONS)]
        found = _pages(spread_door, "/v1/transactions/open?stream=open", 2)
        ids = [int(it["id"]) for it in found]
        assert ids == sorted(ids)  # two shards may give out the same
        assert sorted((int(it["id"]), it["partition"]) for it in found) == sorted(
            (it.id, it.partition) for it in opened
        )
        assert spread_door.get("/v1/streams/open")["open_transactions"] == PARTITIONS
        everywhere = _pages(spread_door, "/v1/transactions/open", 2)
        ids = [int(it["id"]) for it in everywhere]
        assert ids == sorted(ids)
        assert {it.id for it in opened} <= set(ids)
        victim = opened[0]
        where = f"/v1/transactions/open/{victim.id}/cancel"
        assert spread_door("POST", f"{where}?stream=counted").status == 404
        wrong = victim.partition + SHARDS  # of the same shard, so no id is there twice
        assert spread_door("POST", f"{where}?stream=open&partition={wrong}").status == 404
        done = spread_door("POST", f"{where}?stream=open&partition={victim.partition}")
        assert (done.status, done.json["state"]) == (200, "cancelled")
        with pytest.raises(tstreams.InvalidState, match="operator"):
            victim.checkpoint()


def test_the_busiest_streams_stand_there_once(spread_door: Door, ts: tstreams.Client) -> None:
    _fill(ts, "busy", 20)
    mark = 'tstreams_stream_transactions_total{stream="busy"} '

    def counted() -> list[float]:
        text = spread_door("GET", "/metrics").body.decode()
        return [float(it.removeprefix(mark)) for it in text.splitlines() if it.startswith(mark)]

    wait_for(lambda: counted() == [20.0 * PARTITIONS])
    names = [it["name"] for it in spread_door.get("/v1/statistics")["busiest"]]
    assert names.count("busy") == 1
