"""The short version of `python -m tests.crash --exactly-once`, and that it would notice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.chain.items import (
    PARTITIONS,
    PAYMENTS,
    PRICED,
    Bill,
    bill,
    bill_partition,
    is_alarming,
    order,
    payment,
    priced,
)
from tests.crash.chain.join import Memory
from tests.crash.chain.judge import Contents, Verdict, judge

WRONG = ("missing", "duplicated", "out_of_order", "strange")


def campaign(*flags: str) -> tuple[int, dict[str, Any]]:
    """The command, its exit code and its report."""
    command = [sys.executable, "-m", "tests.crash", "--exactly-once", "--json", *flags]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_a_chain_that_is_killed_is_exactly_once() -> None:
    status, report = campaign("--kills", "8", "--seed", "1")
    assert report["findings"] == []
    assert status == 0
    assert (report["server_kills"], report["processor_kills"]) == (2, 6)
    assert report["zombies"] == 1
    assert report["input_items"] > 100
    assert report["output_items"] > 100
    assert {name: report[name] for name in WRONG} == dict.fromkeys(WRONG, 0)


@pytest.mark.slow
def test_a_chain_over_several_shards_is_exactly_once() -> None:
    """Its groups span shards, and are cut off between the steps."""
    status, report = campaign("--kills", "4", "--seed", "1", "--shards", "3")
    assert report["findings"] == []
    assert status == 0
    assert report["kills"] == 4
    assert report["output_items"] > 50
    assert {name: report[name] for name in WRONG} == dict.fromkeys(WRONG, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "kind"), [("at-least-once", "duplicated"), ("at-most-once", "missing")]
)
def test_a_chain_with_a_planted_fault_is_not(plant: str, kind: str) -> None:
    status, report = campaign("--kills", "8", "--seed", "1", "--plant", plant)
    assert status == 1
    assert report[kind] > 0


# The judge.

COUNT = 24


def contents() -> Contents:
    """What is there if all went well: the payments came first, and so the orders made the bills."""
    places = range(PARTITIONS)
    memory = Memory()
    orders = [[order(partition, number) for number in range(COUNT)] for partition in places]
    payments = [[payment(partition, number) for number in range(COUNT)] for partition in places]
    prices = [[made for it in lane if (made := priced(it)) is not None] for lane in orders]
    bills: list[list[Bill]] = [[] for _ in places]
    for side, lanes in ((PAYMENTS, payments), (PRICED, prices)):
        for lane in lanes:
            for it in lane:
                _, done = memory.meet(side, it)
                if done is not None:
                    bills[bill_partition(done.key)].append(done)
    ledger = [list(lane) for lane in bills]
    alarms = [[it for it in lane if is_alarming(it)] for lane in bills]
    return Contents(orders, payments, prices, memory.waiting, bills, ledger, alarms)


def test_the_inputs_hold_the_same_keys_in_another_order() -> None:
    orders = [order(partition, number).key for number in range(8) for partition in range(8)]
    payments = [payment(partition, number).key for number in range(8) for partition in range(8)]
    assert orders != payments
    assert sorted(orders) == sorted(payments) == list(range(64))


def test_a_bill_says_who_came_last() -> None:
    price, paid = order(1, 2), payment(3, 4)
    assert bill(price, paid, PRICED)[3:] == (PRICED, 1, 2)
    assert bill(price, paid, PAYMENTS)[3:] == (PAYMENTS, 3, 4)


def test_the_judge_is_content_when_all_is_well() -> None:
    found = contents()
    verdict = judge(found)
    assert verdict == Verdict(input_items=2 * 8 * COUNT, output_items=verdict.output_items)
    assert verdict.output_items == sum(map(len, (*found.ledger, *found.alarms))) > 8 * COUNT


def lose_an_alarm(found: Contents) -> None:
    """The last one."""
    next(lane for lane in found.alarms if lane).pop()


def repeat_a_bill(found: Contents) -> None:
    """In the ledger only."""
    found.ledger[2].append(found.ledger[2][0])


def repeat_a_price(found: Contents) -> None:
    """Which no other stream shows."""
    found.priced[2].append(found.priced[2][-1])


def bill_twice(found: Contents) -> None:
    """All the way down."""
    found.bills[2].append(found.bills[2][0])
    found.ledger[2].append(found.bills[2][0])


def change_a_bill(found: Contents) -> None:
    """Everywhere: the ledger agrees with it."""
    found.ledger[2][0] = found.bills[2][0] = found.bills[2][0]._replace(paid=-1)


def swap_prices(found: Contents) -> None:
    """Two neighbours."""
    found.priced[0][:2] = reversed(found.priced[0][:2])


def turn_bills_round(found: Contents) -> None:
    """The ledger has them in the same order."""
    for lanes in (found.bills, found.ledger, found.alarms):
        lanes[0].reverse()


def forget_who_waits(found: Contents) -> None:
    """One of them."""
    found.waiting.popitem()


def leave_out_an_order(found: Contents) -> None:
    """A feeder went on too far."""
    del found.orders[0][3]


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lose_an_alarm, "missing"),
        (repeat_a_bill, "duplicated"),
        (repeat_a_price, "duplicated"),
        (bill_twice, "duplicated"),
        (change_a_bill, "strange"),
        (swap_prices, "out_of_order"),
        (turn_bills_round, "out_of_order"),
        (forget_who_waits, "missing"),
        (leave_out_an_order, "missing"),
    ],
)
def test_the_judge_notices(spoil: Callable[[Contents], None], kind: str) -> None:
    found = contents()
    spoil(found)
    assert getattr(judge(found), kind) > 0
