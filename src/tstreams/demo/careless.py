"""A terminal that loses power in the middle of a transaction: `python -m tstreams.demo.careless URL PARTITION TICK`.

Nobody closes the transaction. It holds up the readers of its partition until its lease ends, and is invalid then.
"""

from __future__ import annotations

import os
import signal
import sys

import tstreams
from tstreams.demo.payments import phantoms
from tstreams.demo.story import PAYMENTS

LEASE_S = 0.5


def main() -> None:
    """Open a transaction, say which, fill it, and die."""
    url, partition, tick = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ts = tstreams.connect(url)
    producer = ts.producer(PAYMENTS, transaction_ttl=LEASE_S)
    transaction = producer.open(partition)
    transaction.send_many(phantoms(tick, partition))
    ts.stream(PAYMENTS)  # when this is answered, the payments have arrived
    print(transaction.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
