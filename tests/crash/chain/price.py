"""The first processor: `ts.process`, from orders to priced orders."""

from __future__ import annotations

import time
from collections.abc import Iterator

import tstreams
from tests.crash.chain import items
from tests.crash.chain.items import ORDERS, PRICED, Fed, decode, encode
from tests.crash.chain.life import AT_MOST_ONCE, Life

NAME = "price"


def run(ts: tstreams.Client, life: Life) -> None:
    """Price orders until there are no more, or for ever."""

    def price(transaction: tstreams.ReadTransaction) -> Iterator[bytes]:
        life.works()
        if life.plant == AT_MOST_ONCE:
            time.sleep(0.01)  # a good time to be killed
        for item in transaction.items:
            if (made := items.priced(decode(item, Fed))) is not None:
                yield encode(made)

    ts.process(
        ORDERS,
        NAME,
        PRICED,
        price,
        delivery=AT_MOST_ONCE if life.plant == AT_MOST_ONCE else "exactly-once",
        max_wait=life.max_wait_s,
        batch=life.rng.choice((1, 10, 100)),
    )
