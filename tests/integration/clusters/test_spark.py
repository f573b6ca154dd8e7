"""A query on Spark that reads from a cluster and writes to it, while a node that leads is killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import tstreams
from tests.integration.clusters.conftest import SHARDS, Development
from tests.integration.clusters.test_development import eventually
from tests.integration.spark.conftest import items_of
from tests.integration.spark.test_kills import outcome, run_driver
from tests.integration.spark.test_source import fill
from tstreams.sharding import home_of

pytestmark = [pytest.mark.xdist_group("clusters"), pytest.mark.slow, pytest.mark.timeout(300)]

SOURCE, SINK = "query-source", "query-sink"
TRANSACTIONS = 400
"""Twenty micro-batches of the driver's."""


def test_a_query_goes_on_when_a_node_that_leads_is_killed(
    development: Development, tmp_path: Path
) -> None:
    """Each partition is read from whoever leads it. The driver's tasks may fail three times, its query never: neither
    happens more than clients wait for the next leader."""
    eventually(lambda: development.status()["cluster"]["settled"])
    url = ",".join(development.addresses)
    with tstreams.connect(url, timeout=60.0) as ts, ThreadPoolExecutor(1) as pool:
        ts.create_stream(SOURCE, 2 * SHARDS)
        ts.create_stream(SINK, SHARDS)
        fill(ts, SOURCE, TRANSACTIONS)
        expected = outcome(ts, SOURCE)

        def more_than(seen: int, query: Future[int]) -> bool:
            return query.done() or len(items_of(ts, SINK)) > seen

        query = pool.submit(run_driver, url, SOURCE, SINK, str(tmp_path))
        eventually(lambda: more_than(0, query))
        victim = development.leaders()[home_of(SINK, SHARDS)]
        name = next(name for name, it in development.nodes().items() if it["id"] == victim)
        os.kill(development.pid(name), signal.SIGKILL)
        seen = len(items_of(ts, SINK))
        assert seen < expected.total(), "it was killed in the middle of the query"
        assert not query.done()
        eventually(lambda: more_than(seen, query))
        assert query.result(240) == 0
        assert Counter(items_of(ts, SINK)) == expected
    assert development("up", "--shards", str(SHARDS)) == development.told
    eventually(lambda: development.status()["cluster"]["settled"])
