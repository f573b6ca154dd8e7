"""Each benchmark runs, cleans up, and prints one JSON object with its figures. No times are asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .console.browser import find_chromium
from .doc_blocks import ROOT

pytestmark = pytest.mark.slow


def run_benchmark(*arguments: str, within_s: float = 110) -> Any:
    command = [sys.executable, "-m", "benchmarks", *arguments, "--quick", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=within_s, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_reqrep() -> None:
    result = run_benchmark("reqrep", "--clients", "3")
    assert set(result["ratios"]) == {
        "tcp_vs_bare_tcp",
        "zmq_vs_bare_zmq",
        "tcp_vs_redis",
        "tcp_pipelined_vs_bare_zmq_pipelined",
    }
    for name, ratio in result["ratios"].items():
        assert ratio is not None or "redis" in name, f"{name} was not measured"


def test_durable(tmp_path: Path) -> None:
    slow = ("kafka", "kafka-idempotent", "rabbitmq-streams", "rabbitmq-batch")
    words = [word for name in slow for word in ("--without", name)]
    result = run_benchmark("durable", *words, "--dir", str(tmp_path))
    assert set(slow) <= set(result["missing"])
    peers = {
        "items_vs_redis": "redis",
        "items_vs_redis_blob": "redis-blob",
        "items_vs_jetstream": "jetstream",
        "items_vs_ceiling": "ceiling",
        "one_item_vs_redis": "redis",
        "one_item_vs_redis_plain_xadd": "redis-blob",
        "items_vs_kafka": "kafka",
        "items_vs_kafka_idempotent": "kafka-idempotent",
        "items_vs_postgres": "postgres",
        "one_item_vs_kafka": "kafka",
        "one_item_vs_kafka_idempotent": "kafka-idempotent",
        "one_item_vs_postgres": "postgres",
        "items_nofsync_vs_rabbitmq_streams": "rabbitmq-streams",
        "items_nofsync_vs_rabbitmq_batch": "rabbitmq-batch",
        "one_item_nofsync_vs_rabbitmq_streams": "rabbitmq-streams",
        "one_item_nofsync_vs_rabbitmq_batch": "rabbitmq-batch",
        "drain_vs_redis": "redis",
        "append_vs_file": "file",
    }
    assert set(result["ratios"]) == set(peers)
    for name, ratio in result["ratios"].items():
        if peers[name] in result["missing"]:
            assert ratio is None, f"{name}: {result['missing'][peers[name]]}"
        else:
            assert ratio > 0, f"{name} was not measured"
    shapes = {
        (found["items"], found["item_bytes"], found["clients"])
        for found in result["results"]
        if (found["mode"], found["subject"]) == ("write", "tstreams")
    }
    wanted = ((1, 100), (10, 100), (100, 100), (1000, 100), (100, 1024))
    assert shapes == {(*shape, clients) for shape in wanted for clients in (1, 4)}
    assert result["fsync"] == "on"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group("zookeeper")
def test_cluster(tmp_path: Path) -> None:
    slow = ("kafka", "kafka-idempotent")
    words = [word for name in slow for word in ("--without", name)]
    result = run_benchmark("cluster", *words, "--dir", str(tmp_path))
    assert set(result["missing"]) == set(slow)
    assert (result["targets"]["items_vs_jetstream"], result["targets"]["items_vs_kafka"]) == (8, 3)
    assert result["targets"]["two_shards_vs_one"] == 1.5
    for name, ratio in result["ratios"].items():
        assert ratio is None if "kafka" in name else ratio > 0, f"{name} is {ratio}"
    found = {(it["mode"], it["subject"], it["items"]): it for it in result["results"]}
    assert found.keys() == {
        *(("write", who, items) for who in ("tstreams", "jetstream") for items in (1, 100, 1000)),
        *(("scale", f"tstreams, {shards}", 100) for shards in ("1 shard", "2 shards")),
        *(("read", f"tstreams, {who}", 100) for who in ("leaders", "followers")),
    }
    for key, it in found.items():
        for cost in ("servers", "clients"):
            assert it[f"{cost}_us_per_transaction"]["median"] > 0, f"{key}: {cost}"
    assert found["write", "tstreams", 100]["engine_us_per_transaction"]["median"] > 0
    assert result["durability"].keys() == {it["subject"] for it in result["results"]}
    assert (result["copies"], result["fsync"]) == (3, "on")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group("zookeeper")
def test_failover(tmp_path: Path) -> None:
    result = run_benchmark("failover", "--dir", str(tmp_path))
    assert {kind: len(gaps["write_ms"]["rounds"]) for kind, gaps in result["gaps"].items()} == {
        "kill": 1,
        "stop": 1,
        "move": 1,
        "roll": 3,
    }
    assert result["gaps"]["kill"]["write_ms"]["p99"] > 0
    assert result["errors"] == {kind: [] for kind in ("kill", "stop", "move", "roll")}
    assert result["targets"]["kill_p99_ms"] == 2000  # the session timeout is 1 s here
    assert result["targets"]["stop_p99_ms"] == result["targets"]["move_p99_ms"] == 200
    assert result["written"] > 0
    assert list(tmp_path.iterdir()) == []


def test_door(tmp_path: Path) -> None:
    result = run_benchmark("door", "--without-browser", "--dir", str(tmp_path))
    names = {
        f"{condition}_vs_alone_{workload}"
        for condition in ("watched", "crowded")
        for workload in ("batches", "one_item")
    }
    assert set(result["ratios"]) == set(result["targets"]) == names
    assert all(ratio > 0 for ratio in result["ratios"].values())
    assert (result["fsync"], result["idle"], result["slow"]) == ("on", 50, 4)
    assert "--without-browser" in result["conditions"]["watched"]
    assert list(tmp_path.iterdir()) == []


def test_views_without_a_browser(tmp_path: Path) -> None:
    words = ("--count", "300", "--without-browser", "--dir", str(tmp_path))
    result = run_benchmark("views", *words)
    assert result["missing"] == {"browser": "--without-browser was said"}
    assert (result["first_view_s"], result["views_s"], result["count"]) == (None, {}, 300)
    assert result["targets"] == {"first_view_s": 1.0}
    assert result["answers_s"]["search, one"]["median"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group("console")
def test_views_in_a_browser(tmp_path: Path) -> None:
    find_chromium()
    result = run_benchmark("views", "--count", "300", "--dir", str(tmp_path))
    assert result["missing"] == {}
    seen = result["views_s"]
    assert set(seen) == {
        "streams, right after the start",
        "streams",
        "search, one hit",
        "overview",
    }
    assert all(it["median"] > 0 for it in seen.values())
    slowest = max(seen["streams"]["max"], seen["streams, right after the start"]["max"])
    assert result["first_view_s"] == slowest
    assert list(tmp_path.iterdir()) == []


def test_streams(tmp_path: Path) -> None:
    result = run_benchmark("streams", "--count", "500", "--dir", str(tmp_path))
    assert (result["count"], result["written"]) == (500, 50)
    for name in ("fds_max", "rss_mib_max", "p99_write_vs_one", "p99_read_vs_one", "restart_s"):
        assert result[name] > 0, f"{name} was not measured"
        assert name in result["targets"]
    assert list(tmp_path.iterdir()) == []


def test_pipeline(tmp_path: Path) -> None:
    result = run_benchmark("pipeline", "--without", "kafka", "--dir", str(tmp_path))
    assert result["missing"].pop("kafka")
    peers = {"redis", "postgres", "kafka"}
    for peer in peers:
        for name in (f"items_vs_{peer}", f"one_worker_vs_{peer}", f"one_item_vs_{peer}"):
            ratio = result["ratios"][name]
            left_out = peer == "kafka" or peer in result["missing"]
            assert ratio is None if left_out else ratio > 0, f"{name} is {ratio}"
        assert result["targets"][f"items_vs_{peer}"] >= 5
    shapes = {
        (found["items"], found["workers"])
        for found in result["results"]
        if found["subject"] == "tstreams" and found["commit_p99_us"]["median"] > 0
    }
    assert shapes == {(items, workers) for items in (1, 100, 1000) for workers in (1, 4)}
    assert result["fsync"] == "on"
    assert list(tmp_path.iterdir()) == []


def test_latency(tmp_path: Path) -> None:
    slow = ("kafka", "kafka-nofsync", "rabbitmq-streams")
    words = [word for name in slow for word in ("--without", name)]
    result = run_benchmark("latency", *words, "--dir", str(tmp_path))
    assert set(slow) <= set(result["missing"])
    peers = {
        "p50_vs_redis_fsync": "redis",
        "p50_vs_redis_nofsync": "redis-nofsync",
        "p50_vs_jetstream_fsync": "jetstream",
        "p50_vs_jetstream_nofsync": "jetstream-nofsync",
        "p50_vs_kafka_fsync": "kafka",
        "p50_vs_kafka_nofsync": "kafka-nofsync",
        "p50_vs_postgres_fsync": "postgres",
        "p50_vs_postgres_nofsync": "postgres-nofsync",
        "p50_vs_rabbitmq_streams_nofsync": "rabbitmq-streams",
    }
    assert set(result["ratios"]) == set(peers)
    for name, ratio in result["ratios"].items():
        assert ratio is None if peers[name] in result["missing"] else ratio > 0, f"{name}: {ratio}"
    measured = {found["subject"] for found in result["results"] if found["p99_us"]["median"] > 0}
    assert {"tstreams", "tstreams-nofsync"} <= measured
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(400)
@pytest.mark.xdist_group("spark")
def test_spark(tmp_path: Path) -> None:
    result = run_benchmark(
        *("spark", "--rows", "3000", "--without", "kafka", "--dir", str(tmp_path)), within_s=390
    )
    assert result["missing"].pop("kafka")
    assert result["missing"] == {}
    wanted = {
        "source_vs_ceiling": 0.6,
        "source_typed_vs_ceiling": 0.6,
        "pipeline_vs_ceiling": 0.4,
        "microbatch_vs_floor": 1.3,
    }
    assert wanted.items() <= result["targets"].items()
    for name, ratio in result["ratios"].items():
        assert ratio is None if "kafka" in name else ratio > 0, f"{name} is {ratio}"
    measured = {(found["subject"], found["way"], found["kind"]) for found in result["results"]}
    assert measured == {
        (subject, way, kind)
        for subject in ("tstreams", "ceiling", "parquet")
        for way in ("source", "sink", "pipeline")
        for kind in ("binary", "typed")
    }
    assert (result["rows"], result["fsync"]) == (3000, "on")
    assert list(tmp_path.iterdir()) == []


def test_history(tmp_path: Path) -> None:
    result = run_benchmark("history", "--count", "500", "--dir", str(tmp_path))
    assert (result["count"], result["count_at_restart_small"]) == (500, 50)
    for name in ("at_vs_last", "restart_small_s", "restart_full_s"):
        assert result[name] > 0, f"{name} was not measured"
    assert list(tmp_path.iterdir()) == []


def test_growth(tmp_path: Path) -> None:
    names = ["partitions", "open_transactions", "history", "connections"]
    words = [word for name in names for word in ("--axis", name)]
    result = run_benchmark("growth", *words, "--dir", str(tmp_path))
    assert [axis["axis"] for axis in result["axes"]] == names
    for axis in result["axes"]:
        assert len(axis["points"]) == 2
        for point in axis["points"]:
            for figure in ("commits_per_s", "p99_us", "server_us_per_commit", "server_us_per_read"):
                assert point[figure]["median"] > 0, f"{axis['axis']}: {figure} was not measured"
        for cost, fit in axis["growth"].items():
            assert fit["exponent"] is not None, f"{axis['axis']}: {cost} was not fitted"
    assert result["fsync"] == "on"
    assert list(tmp_path.iterdir()) == []


def test_all_of_them_make_one_table(tmp_path: Path) -> None:
    chosen = ("reqrep", "history", "latency")
    words = [word for name in chosen for word in ("--only", name)]
    result = run_benchmark("all", *words, "--out", str(tmp_path))
    assert result == json.loads((tmp_path / "all.json").read_text())
    assert {report["benchmark"] for report in result["reports"]} == set(chosen)
    assert {row["benchmark"] for row in result["rows"]} == set(chosen)
    assert all(row["durability"] and row["machine"] for row in result["rows"])
    assert {file.name for file in tmp_path.glob("*.svg")} == {f"{name}.svg" for name in chosen}
    text = (tmp_path / "table.md").read_text()
    assert text.count("\n### ") == len(chosen) + 1
