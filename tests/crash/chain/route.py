"""The third processor: a subscriber and two producers in a group, from bills to the ledger and the alarms."""

from __future__ import annotations

import time

import tstreams
from tests.crash.chain.items import ALARMS, BILLS, LEDGER, Bill, decode, is_alarming
from tests.crash.chain.life import AT_LEAST_ONCE, Life

NAME = "route"
ENGINES = 3
COMMIT_S = 0.03


def run(ts: tstreams.Client, life: Life) -> None:
    """Route bills until there are no more, or for ever. Some lives checkpoint in the callbacks, some outside."""
    is_torn = life.plant == AT_LEAST_ONCE
    commits_inside = life.rng.random() < 0.5 and not is_torn
    failures: list[BaseException] = []
    last_at = time.monotonic()

    def route(_: tstreams.Subscriber, transaction: tstreams.ReadTransaction) -> None:
        nonlocal last_at
        life.works()
        last_at = time.monotonic()
        alarming = [it for it in transaction.items if is_alarming(decode(it, Bill))]
        for producer, items in ((ledger, list(transaction.items)), (alarms, alarming)):
            if items:
                written = producer.open(transaction.partition)
                written.send_many(items)
                if is_torn:
                    written.checkpoint()
        if commits_inside:
            group.checkpoint()

    def failed(error: BaseException) -> None:
        failures.append(error)

    subscriber = ts.subscriber(
        BILLS, NAME, on_transaction=route, on_failure=failed, engines=ENGINES
    )
    ledger, alarms = (ts.producer(stream, NAME) for stream in (LEDGER, ALARMS))
    group = ts.checkpoint_group()
    for agent in (subscriber, ledger, alarms):
        group.add(agent)
    with subscriber:
        while not failures:
            if life.max_wait_s is not None and time.monotonic() - last_at > life.max_wait_s:
                group.checkpoint()
                return
            if subscriber.wait(0.5 if is_torn else COMMIT_S):
                break
            if not commits_inside:
                group.checkpoint()
    raise failures[0]
