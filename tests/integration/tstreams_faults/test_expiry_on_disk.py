"""What has expired is gone from the disk soon after; what lies between it in the same files stays."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

import tstreams
from tests.crash.server import KilledServer
from tstreams.server.verify import verify

MIB = 1024 * 1024
SHORT_BYTES = 40 * MIB
SHORT_TTL_S = 4
GONE_WITHIN_S = 60
BESIDE_BYTES = 8 * MIB
"""The index, the ledger in use, the file that is prepared for the next, and what is not worth to be copied."""


def disk_usage(path: Path) -> int:
    """What `du` says."""
    found = subprocess.run(
        ["du", "--summarize", "--block-size=1", str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return int(found.stdout.split()[0])


@pytest.mark.slow
def test_a_ttl_frees_the_disk_and_spares_the_neighbours(tmp_path: Path) -> None:
    rng = random.Random(1)
    server = KilledServer(tmp_path / "data")
    server.start()
    try:
        with tstreams.connect(server.url) as ts:
            ts.create_stream("short", partitions=2, ttl=SHORT_TTL_S)
            ts.create_stream("long", partitions=2, ttl="1d")
            short, long = ts.producer("short"), ts.producer("long")
            kept: dict[int, list[bytes]] = {}
            written = 0
            while written < SHORT_BYTES:
                under_way = [
                    short.instant([os.urandom(50_000)], partition=n % 2, wait=False)
                    for n in range(20)
                ]
                items = [rng.randbytes(rng.randrange(20_000)) for _ in range(5)]
                kept[long.instant(items)] = items
                for future in under_way:
                    future.result()
                written += 50_000 * 20
            expired_at = time.monotonic() + SHORT_TTL_S
            kept_bytes = sum(len(item) for items in kept.values() for item in items)
            assert disk_usage(server.data) > SHORT_BYTES + kept_bytes
            # From here on nobody writes: the server must do it by itself.
            while (used := disk_usage(server.data)) > kept_bytes + BESIDE_BYTES:
                assert time.monotonic() < expired_at + GONE_WITHIN_S, f"{used} bytes are still used"
                time.sleep(0.5)
            with ts.consumer("short") as consumer:
                assert list(consumer.read(max_wait=0.2)) == []
            assert_kept(ts, kept)
        server.kill()
        server.start()
        with tstreams.connect(server.url) as ts:
            assert_kept(ts, kept)
        assert server.stop() == 0
        assert verify(server.data).problems == []
    finally:
        server.close()


def assert_kept(ts: tstreams.Client, kept: dict[int, list[bytes]]) -> None:
    with ts.consumer("long") as consumer:
        seen = {it.id: list(it.items) for it in consumer.read(max_wait=0.5)}
    assert seen == kept
