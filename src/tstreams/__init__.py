"""tstreams: transactional, persistent streams for exactly-once batch messaging.

with tstreams.connect("tcp://127.0.0.1:7070") as ts:      # or tstreams.embedded("./data")
    ts.create_stream("clicks", partitions=4, ttl="7d")
    with ts.producer("clicks", name="p1") as producer:
        producer.instant([b"one", b"two"], partition=0)
    with ts.consumer("clicks", name="c1") as consumer:
        print(list(consumer.get(0, timeout=1.0).items))
"""

from __future__ import annotations

from . import aio
from .client.blocking.client import Client, connect
from .client.blocking.consumer import Consumer
from .client.blocking.group import CheckpointGroup
from .client.blocking.job import Job
from .client.blocking.producer import Producer
from .client.blocking.received import ReadTransaction
from .client.blocking.subscriber import Subscriber
from .client.blocking.transaction import Transaction
from .client.config import ClientConfig, Tls
from .client.rules.job import Staged
from .client.rules.processing import Processed
from .client.statistics import ClientStatistics, SubscriberStatistics
from .embedding import embedded
from .errors import (
    AlreadyExists,
    BadRequest,
    Corrupt,
    Error,
    Expired,
    Fenced,
    InvalidState,
    NotFound,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from .model import Offset, Stream, Stretch, TransactionState
from .version import __version__

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "CheckpointGroup",
    "Client",
    "ClientConfig",
    "ClientStatistics",
    "Consumer",
    "Corrupt",
    "Error",
    "Expired",
    "Fenced",
    "InvalidState",
    "Job",
    "NotFound",
    "Offset",
    "Processed",
    "Producer",
    "ReadTransaction",
    "Staged",
    "Stream",
    "Stretch",
    "Subscriber",
    "SubscriberStatistics",
    "Timeout",
    "Tls",
    "TooLarge",
    "Transaction",
    "TransactionState",
    "Unauthorized",
    "Unavailable",
    "__version__",
    "aio",
    "connect",
    "embedded",
]
