"""What a Python worker keeps from one task to the next."""

from __future__ import annotations

import json
import subprocess
import sys

WORKER = """
import gc, json, sys
from tstreams.client.config import ClientConfig
from tstreams.spark import connections

def tracked():
    gc.collect()
    return len(gc.get_objects())

config = ClientConfig(sys.argv[1])
first = connections.client(config)
after_first = tracked()
import pandas  # as Spark does while the first task runs
after_import = tracked()
same = connections.client(config) is first
after_second = tracked()
frozen = gc.get_freeze_count()
connections.client(config)
print(json.dumps([same, after_first, after_import, after_second, frozen, gc.get_freeze_count()]))
first.close()
"""


def test_what_comes_with_the_first_task_is_frozen_before_the_second(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER, url],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    same, after_first, after_import, after_second, frozen, frozen_later = json.loads(done.stdout)
    assert same
    assert after_import > 10 * after_first
    assert after_second < after_import / 10
    assert frozen_later == frozen, "nothing new came, so there is nothing to do"
