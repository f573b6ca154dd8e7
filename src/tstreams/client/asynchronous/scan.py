"""Reading a range of a partition, without a name."""

from __future__ import annotations

from collections import deque

from ..rules.delivery import Delivery
from ..rules.link import Link
from ..rules.scanning import Scan, find_source
from .driver import Driver
from .received import ReadTransaction


class Scanning:
    """Hands out one transaction after the other: what `client.scan()` gives. For `async for`."""

    def __init__(
        self,
        driver: Driver,
        link: Link,
        stream: str,
        partition: int,
        after: int,
        up_to: int,
        roams: bool | None,
    ) -> None:
        self._driver = driver
        self._link = link
        self._roams = roams
        self._range = (stream, partition, after, up_to)
        self._scan: Scan | None = None
        self._found: deque[Delivery] = deque()

    def __aiter__(self) -> Scanning:
        return self

    async def __anext__(self) -> ReadTransaction:
        await self._driver.breathe()
        if self._scan is None:
            stream, *rest = self._range
            source = await self._driver.run(find_source(self._link, stream, self._roams))
            self._scan = Scan(source, *rest)
        if not self._found:
            self._found.extend(await self._driver.run(self._scan.next()))
        if not self._found:
            raise StopAsyncIteration
        return ReadTransaction(self._driver, self._found.popleft())
