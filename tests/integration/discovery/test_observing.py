"""What the node says of itself: health, nodes, settings, sessions, ledgers, statistics, events, metrics."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tstreams
from tstreams.discovery.described import DESCRIBED

from .doors import Door, event_frames, wait_for

pytestmark = pytest.mark.xdist_group("discovery")


def test_the_node_says_who_and_where_it_is(shared_door: Door, ts: tstreams.Client) -> None:
    assert shared_door.get("/health/live")["status"] == "ok"
    assert shared_door.get("/health/ready")["status"] == "ok"
    (node,) = shared_door.get("/v1/nodes")["items"]
    assert node["addresses"] == [shared_door.tcp]
    assert node["http"] == shared_door.url
    assert node["shards"][0]["role"] == "leader"
    assert shared_door.get(f"/v1/nodes/{node['id']}") == node
    assert shared_door("GET", "/v1/nodes/nobody").status == 404
    ts.create_stream("where", partitions=4)
    epochs = {it["shard"]: it["epoch"] for it in node["shards"]}
    step = len(epochs)
    ranges = shared_door.get("/v1/lookup/where")["ranges"]
    assert [(it["first"], it["last"], it["step"]) for it in ranges] == [
        (first, max(range(first, 4, step)), step) for first in range(step)
    ]
    assert sorted(it["shard"] for it in ranges) == sorted(epochs)
    for it in ranges:
        assert (it["epoch"], it["node"]) == (epochs[it["shard"]], node["id"])
        assert it["followers"] == []
        (address,) = it["addresses"]  # of the process that has the shard, if each has one
        assert (address == shared_door.tcp) == (step == 1)
    (of_three,) = shared_door.get("/v1/lookup/where?partition=3")["ranges"]
    assert of_three == ranges[3 % step]
    assert shared_door.get("/v1/streams/where/partitions/3")["shard"] == of_three["shard"]
    assert shared_door("GET", "/v1/lookup/where?partition=4").status == 404
    assert shared_door("GET", "/v1/lookup/nowhere").status == 404


def test_who_asks_again_where_things_are_is_told_if_nothing_changed(
    shared_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("kept", partitions=2)
    (node,) = shared_door.get("/v1/nodes")["items"]
    for path in ("/v1/nodes", f"/v1/nodes/{node['id']}", "/v1/lookup/kept", "/v1/config"):
        tag = shared_door("GET", path).headers["etag"]
        again = shared_door("GET", path, If_None_Match=tag)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    before = shared_door("GET", "/v1/lookup/kept").headers["etag"]
    ts.delete_stream("kept")
    ts.create_stream("kept", partitions=2)
    assert shared_door("GET", "/v1/lookup/kept", If_None_Match=before).status == 200


def test_settings_sessions_ledgers_and_jobs(shared_door: Door, ts: tstreams.Client) -> None:
    settings = {it["name"]: it["value"] for it in shared_door.get("/v1/config")["items"]}
    assert settings["http"] == "127.0.0.1:0"
    assert settings["token"] == "(none)"
    ts.create_stream("sessions")
    assert shared_door.get("/v1/sessions?limit=1000")["items"]
    (ledger,) = shared_door.get("/v1/ledgers?limit=1")["items"]
    assert ledger["shard"] == 0
    assert ledger["bytes"] >= 0
    with ts.producer("sessions", "p") as producer:
        job = ts.job("nightly")
        producer.open(0).send(b"x")
        job.commit(1, [job.stage(producer, 1)])
    jobs = shared_door.get("/v1/jobs?limit=1000")["items"]
    assert [(it["name"], it["last_step"]) for it in jobs] == [("nightly", 1)]
    for wrong in ("!", "AAAA", "x" * 2001):
        assert shared_door("GET", f"/v1/sessions?after={wrong}").status == 422


def test_statistics_follow_what_is_written(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream("busy")
    with ts.producer("busy") as producer:

        def written() -> float:
            for _ in range(50):
                producer.instant([b"x" * 100])
            found = shared_door.get("/v1/statistics")
            assert found["available"] is True
            return float(found["written"]["transactions"])

        assert wait_for(written) > 0
    assert shared_door.get("/v1/statistics")["values"]["commits_total"] >= 50
    history = wait_for(
        lambda: [
            it
            for it in shared_door.get("/v1/statistics/history?minutes=5")["items"]
            if it["written"]["transactions"] > 0
        ]
    )
    assert history[0]["commit_p99"] >= history[0]["commit_p50"] > 0


def _events(door: Door, path: str, count: int) -> bytes:
    where = urlsplit(door.url)
    assert where.hostname is not None
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    raw = b""
    while raw.count(b"\n\n") < count:
        raw += answer.read1(65536)
    connection.close()
    return raw


def test_events_come_each_second_and_a_stream_can_be_watched(
    shared_door: Door, ts: tstreams.Client
) -> None:
    ts.create_stream("watched")
    with ts.producer("watched") as producer:
        producer.instant([b"1", b"2"])
    raw = _events(shared_door, "/v1/events?stream=watched", 5)
    assert raw.startswith(b"retry: ")
    frames = event_frames(raw)
    assert [name for name, _ in frames[:4]] == ["statistics", "stream", "statistics", "stream"]
    assert frames[1][1]["size"] == frames[3][1]["size"]
    assert frames[1][1]["size"]["items"] == 2
    assert frames[2][1]["time"] > frames[0][1]["time"]
    assert shared_door("GET", "/v1/events?stream=nobody").status == 404
    # Those who left are gone.
    assert wait_for(lambda: b"\ntstreams_http_event_clients 0.0\n" in _metrics(shared_door))


def _metrics(door: Door) -> bytes:
    return door("GET", "/metrics").body


def test_metrics_are_what_prometheus_reads(shared_door: Door, ts: tstreams.Client) -> None:
    ts.create_stream('odd "name"\\')
    with ts.producer('odd "name"\\') as producer:
        producer.instant([b"x"])
    wait_for(lambda: b'stream="odd \\"name\\"' in _metrics(shared_door))
    reply = shared_door("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(reply.body.decode()))
    names = {it.name + ("_total" if it.type == "counter" else "") for it in found}
    families = {it.name: it for it in found}
    assert {name.removeprefix("tstreams_") for name in names} == set(DESCRIBED)
    buckets = [it for it in families["tstreams_commit_seconds"].samples if "le" in it.labels]
    assert [it.value for it in buckets] == sorted(it.value for it in buckets)
    labels = [it.labels["stream"] for it in families["tstreams_stream_items"].samples]
    assert 'odd "name"\\' in labels


def test_how_long_answers_took_is_a_histogram(shared_door: Door) -> None:
    def times() -> dict[str, list[float]]:
        found = text_string_to_metric_families(_metrics(shared_door).decode())
        (family,) = (it for it in found if it.name == "tstreams_http_request_seconds")
        of_live = [it for it in family.samples if it.labels["route"] == "live"]
        kinds = {it.name.rpartition("_")[2] for it in of_live}
        return {kind: [it.value for it in of_live if it.name.endswith(kind)] for kind in kinds}

    for _ in range(3):
        shared_door.get("/health/live")
    before = times()
    shared_door.get("/health/live")
    after = times()
    assert after["count"][0] == before["count"][0] + 1 == after["bucket"][-1]
    # An answer from memory takes less than the loop's clock can tell, and is counted all the same.
    assert after["sum"][0] > before["sum"][0]


def test_the_document_names_every_route(shared_door: Door) -> None:
    reply = shared_door("GET", "/v1/openapi.json")
    assert reply.json["openapi"].startswith("3.1")
    assert set(reply.json["paths"]["/v1/streams/{stream}"]) == {"get", "patch", "delete"}
    tag = reply.headers["etag"]
    assert shared_door("GET", "/v1/openapi.json", If_None_Match=tag).status == 304
