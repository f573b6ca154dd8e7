"""What is in the streams in the end, compared with what should be: the function of what is in the inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import tstreams
from tests.crash.chain import items
from tests.crash.chain.items import (
    ALARMS,
    BILLS,
    FEEDS,
    LEDGER,
    ORDERS,
    PARTITIONS,
    PAYMENTS,
    PRICED,
    Bill,
    Fed,
    T,
    bill_partition,
    decode,
    is_alarming,
)
from tests.crash.chain.join import Memory

Lanes = list[list[T]]
"""The items of a stream, by partition, in order."""

FINDINGS_MAX = 100


@dataclass(slots=True)
class Contents:
    """All that the streams hold."""

    orders: Lanes[Fed]
    payments: Lanes[Fed]
    priced: Lanes[Fed]
    waiting: dict[tuple[str, int], Fed]
    bills: Lanes[Bill]
    ledger: Lanes[Bill]
    alarms: Lanes[Bill]


@dataclass(slots=True)
class Verdict:
    """What went wrong, counted. `findings` has the first of it in words."""

    input_items: int = 0
    output_items: int = 0
    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    strange: int = 0
    """Items that no input accounts for."""
    findings: list[str] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        """Something is wrong."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(f"{kind}: {text}")


def read(ts: tstreams.Client) -> Contents:
    """Read it all, as somebody who has seen nothing before."""
    return Contents(
        _lanes(ts, ORDERS, Fed),
        _lanes(ts, PAYMENTS, Fed),
        _lanes(ts, PRICED, Fed),
        Memory.read(ts).waiting,
        _lanes(ts, BILLS, Bill),
        _lanes(ts, LEDGER, Bill),
        _lanes(ts, ALARMS, Bill),
    )


def _lanes(ts: tstreams.Client, stream: str, kind: type[T]) -> Lanes[T]:
    lanes: Lanes[T] = [[] for _ in range(PARTITIONS)]
    with ts.consumer(stream) as consumer:
        for transaction in consumer.read(max_wait=0):
            lanes[transaction.partition] += (decode(item, kind) for item in transaction.items)
    return lanes


def judge(found: Contents) -> Verdict:
    """Compare each step of the chain with what the inputs say, and the last with the step before it."""
    verdict = Verdict()
    for name, lanes in ((ORDERS, found.orders), (PAYMENTS, found.payments)):
        verdict.input_items += sum(map(len, lanes))
        for partition, lane in enumerate(lanes):
            expected = [FEEDS[name](partition, number) for number in range(len(lane))]
            _compare(verdict, f"{name}/{partition}", expected, lane)
    _judge_prices(verdict, found)
    _judge_join(verdict, found)
    for partition, bills in enumerate(found.bills):
        _compare(verdict, f"{LEDGER}/{partition}", bills, found.ledger[partition])
        alarming = [it for it in bills if is_alarming(it)]
        _compare(verdict, f"{ALARMS}/{partition}", alarming, found.alarms[partition])
    verdict.output_items = sum(map(len, found.ledger)) + sum(map(len, found.alarms))
    return verdict


def _judge_prices(verdict: Verdict, found: Contents) -> None:
    for partition, lane in enumerate(found.orders):
        expected = [made for it in lane if (made := items.priced(it)) is not None]
        _compare(verdict, f"{PRICED}/{partition}", expected, found.priced[partition])


def _judge_join(verdict: Verdict, found: Contents) -> None:
    """Which side came last is chance. All else follows from the inputs: who met whom, and who still waits."""
    prices = {
        made.key: made
        for lane in found.orders
        for it in lane
        if (made := items.priced(it)) is not None
    }
    payments = {it.key: it for lane in found.payments for it in lane}
    met = prices.keys() & payments.keys()
    expected = [
        (bill_partition(key), key, prices[key].amount, payments[key].amount) for key in sorted(met)
    ]
    there = [
        (partition, it.key, it.price, it.paid)
        for partition, lane in enumerate(found.bills)
        for it in lane
    ]
    _compare_sets(verdict, BILLS, expected, there)
    alone = [((PRICED, key), prices[key]) for key in prices.keys() - met]
    alone += [((PAYMENTS, key), payments[key]) for key in payments.keys() - met]
    _compare_sets(verdict, "the memory of the join", alone, found.waiting.items())
    for partition, lane in enumerate(found.bills):
        lanes: dict[tuple[str, int], list[int]] = {}
        for it in lane:
            lanes.setdefault((it.side, it.partition), []).append(it.number)
        for (side, source), numbers in lanes.items():
            _check_order(verdict, f"{BILLS}/{partition} from {side}/{source}", numbers)


def _compare(verdict: Verdict, where: str, expected: Sequence[T], found: Sequence[T]) -> None:
    """These items, in this order, and nothing else."""
    _compare_sets(verdict, where, expected, found)
    place = {it: index for index, it in enumerate(expected)}
    _check_order(verdict, where, [place[it] for it in found if it in place])


def _compare_sets(
    verdict: Verdict, where: str, expected: Iterable[Hashable], found: Iterable[Hashable]
) -> None:
    """These items, each once."""
    wanted, there = Counter(expected), Counter(found)
    for it in wanted - there:
        verdict.add("missing", f"{where}: {it}")
    for it, times in (there - wanted).items():
        if it in wanted:
            for _ in range(times):
                verdict.add("duplicated", f"{where}: {it}")
        else:
            verdict.add("strange", f"{where}: {it}")


def _check_order(verdict: Verdict, where: str, numbers: Iterable[int]) -> None:
    """Only rising, apart from what is there twice: that is another complaint."""
    highest = -1
    seen = set()
    for number in numbers:
        if number in seen:
            continue
        seen.add(number)
        if number < highest:
            verdict.add("out_of_order", f"{where}: {number} after {highest}")
        highest = max(highest, number)
