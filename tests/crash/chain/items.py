"""What flows through the chain, and what the chain makes of it, as plain functions of the input.

Every item can be made from its place: nobody has to remember what was fed. Items with one key meet in the
join, once. Each carries where it came from, so that its order can be checked further down.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

PARTITIONS = 8

ORDERS = "orders"
PAYMENTS = "payments"
PRICED = "priced"
WAITING = "waiting"
BILLS = "bills"
LEDGER = "ledger"
ALARMS = "alarms"
STREAMS = (ORDERS, PAYMENTS, PRICED, WAITING, BILLS, LEDGER, ALARMS)


class Fed(NamedTuple):
    """An item of an input, an order or a payment: the `number`th of its partition."""

    key: int
    partition: int
    number: int
    amount: int


class Bill(NamedTuple):
    """What an order and its payment came to. `fed` is the one of the two that came last, from `side`."""

    key: int
    price: int
    paid: int
    side: str
    partition: int
    number: int


class Change(NamedTuple):
    """A line of the join's memory: `fed` of `side` waits for the other one of its key, or has met it."""

    waits: bool
    side: str
    fed: Fed


T = TypeVar("T", Fed, Bill, Change)

encode = msgspec.json.Encoder().encode


def decode(item: bytes, kind: type[T]) -> T:
    """An item as it was before it was bytes."""
    return msgspec.json.decode(item, type=kind)


# The inputs.


def order(partition: int, number: int) -> Fed:
    """The `number`th order of a partition."""
    key = PARTITIONS * number + partition
    return Fed(key, partition, number, key * 7919 % 1000)


def payment(partition: int, number: int) -> Fed:
    """The `number`th payment of a partition. Its key's order is in any partition, some way off."""
    block, row = divmod(number, PARTITIONS)
    key = PARTITIONS * (PARTITIONS * block + partition) + row
    return Fed(key, partition, number, key * 104729 % 1000)


FEEDS = {ORDERS: order, PAYMENTS: payment}


# The work.


def priced(it: Fed) -> Fed | None:
    """What the first processor makes of an order. One in ten is dropped."""
    return None if it.amount % 10 == 0 else it._replace(amount=3 * it.amount + 1)


def bill(price: Fed, paid: Fed, side: str) -> Bill:
    """What the second makes of a priced order and its payment."""
    last = price if side == PRICED else paid
    return Bill(price.key, price.amount, paid.amount, side, last.partition, last.number)


def bill_partition(key: int) -> int:
    """Where the bill of a key goes."""
    return (key // 3) % PARTITIONS


def is_alarming(it: Bill) -> bool:
    """Whether the third writes a bill to the alarms too."""
    return it.paid < it.price
