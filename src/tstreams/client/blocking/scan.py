"""Reading a range of a partition, without a name."""

from __future__ import annotations

from collections.abc import Iterator

from ..rules.scanning import Scan
from .driver import Driver
from .received import ReadTransaction


def scan(driver: Driver, steps: Scan) -> Iterator[ReadTransaction]:
    """One transaction after the other."""
    try:
        while found := driver.run(steps.next()):
            for delivery in found:
                yield ReadTransaction(driver, delivery)
    finally:
        steps.close()
