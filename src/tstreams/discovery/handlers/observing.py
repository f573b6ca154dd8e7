"""Routes for those who watch: statistics now and over time, events, metrics, and the document of all routes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
from starlette.responses import Response, StreamingResponse

from ...errors import Error, NotFound
from ...protocol import StreamInfo
from .. import metrics, openapi
from .. import resources as r
from ..amounts import Amount, Budget
from ..broadcast import frame
from ..calls import Answer, Call
from ..front import Front, shown_time
from ..limits import COUNT_STRIDES_LIST, EVENT_CLIENTS_MAX, EVENTS_INTERVAL_S, ROW_PARTITIONS_MAX
from ..problems import Refused
from ..statistics import NO_RATES
from ..whole import WholeStream

RETRY_MS = 2000
"""How long a browser waits before it connects again."""


class Observing:
    """Everything that is measured."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._document = openapi.encoded()
        self._tag = f'"{hashlib.sha256(self._document).hexdigest()[:20]}"'

    async def statistics(self, call: Call) -> r.Statistics:
        """The last second."""
        return self._front.sampler.latest

    async def history(self, call: Call) -> r.History:
        """The last minutes."""
        samples = self._front.sampler.history(call.query["minutes"])
        return r.History(interval_seconds=EVENTS_INTERVAL_S, items=samples)

    async def openapi(self, call: Call) -> Answer:
        """The document."""
        return Answer(None, raw=self._document, tag=self._tag)

    async def metrics(self, call: Call) -> Answer:
        """The text for Prometheus."""
        text = metrics.text(self._front)
        return Answer(None, {"Content-Type": metrics.CONTENT_TYPE}, raw=text)

    async def events(self, call: Call) -> Response:
        """Events, for as long as the client stays."""
        name = call.query["stream"]
        watch = None
        if name is not None:
            async with self._front.storage.turn() as inspect:
                watch = _Watch(self._front, await inspect.stream(name))
        if self._front.event_clients >= EVENT_CLIENTS_MAX:
            raise Refused(
                503,
                "too_many",
                f"{EVENT_CLIENTS_MAX} clients get events already",
                {"Retry-After": "10"},
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._send(watch), headers=headers, media_type="text/event-stream")

    async def _send(self, watch: _Watch | None) -> AsyncIterator[bytes]:
        """Each event as soon as the client has taken the one before; what it missed by then is skipped."""
        self._front.event_clients += 1
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            number = 0
            while (news := await self._front.sampler.broadcast.after(number)) is not None:
                number, data = news
                yield data
                if watch is not None:
                    yield await watch.tick()
        finally:
            self._front.event_clients -= 1


class _Watch:
    """One stream, watched closely by one client: counted each second."""

    def __init__(self, front: Front, info: StreamInfo) -> None:
        self._front = front
        self._info = info
        self._before: tuple[float, Amount] | None = None

    async def tick(self) -> bytes:
        """The event `stream`; `gone` if it was deleted, and a comment if nothing can be said now."""
        info = self._info
        try:
            async with self._front.storage.turn() as inspect:
                wanted = range(min(info.partitions, ROW_PARTITIONS_MAX))
                counted = await self._front.milestones.count(
                    WholeStream(inspect, info), wanted, Budget(COUNT_STRIDES_LIST)
                )
        except NotFound:
            return frame("gone", msgspec.json.encode({"stream": info.name}))
        except Error as error:
            return b": %s\n\n" % error.code.encode()
        now = asyncio.get_running_loop().time()
        amount = Amount()
        for it in counted.values():
            amount = amount.plus(it.amount)
        rates = self._rates(now, amount)
        self._before = (now, amount)
        exact = info.partitions == len(wanted) and all(it.exact for it in counted.values())
        tick = r.StreamTick(
            stream=info.name,
            time=datetime.now(UTC),
            rates=self._front.sampler.rates_of(info.name) or rates,
            size=amount.size(exact),
            last_transaction=shown_time(max((it.last_id for it in counted.values()), default=0)),
        )
        return frame("stream", msgspec.json.encode(tick))

    def _rates(self, now: float, amount: Amount) -> r.Rates:
        """From what was counted. What has gone at the old end meanwhile is missing: rates are at least these."""
        if self._before is None or now <= self._before[0]:
            return NO_RATES
        seconds = now - self._before[0]
        grown = amount.minus(self._before[1])
        return r.Rates(
            transactions=grown.transactions / seconds,
            items=grown.items / seconds,
            bytes=grown.bytes / seconds,
        )
