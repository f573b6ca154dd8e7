"""Both faces of the client behind one blocking interface, so that one suite can test both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import moebius
from moebius import Client, aio

T = TypeVar("T")


class LoopThread:
    """A plain asyncio loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = 60) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def call(self, function: Callable[[], T]) -> T:
        async def body() -> T:
            return function()

        return self.run(body())

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class AsyncFace:
    """The asyncio client, driven from a test's thread."""

    def __init__(self, url: str, **options: Any) -> None:
        connect_timeout = options.pop("connect_timeout", 10.0)
        self._thread = LoopThread()
        self.client = aio.Client(url, **options)
        try:
            self._thread.run(self.client.open(connect_timeout))
        except BaseException:
            self._thread.close()
            raise

    def call(self, *args: Any, **options: Any) -> bytes:
        return self._thread.run(self.client.call(*args, **options))

    def call_parts(self, *args: Any, **options: Any) -> Any:
        return self._thread.run(self.client.call_parts(*args, **options))

    def submit(self, *args: Any, **options: Any) -> Any:
        """A concurrent future: cancelling it cancels the asyncio one."""

        async def body() -> Any:
            return await self.client.submit(*args, **options)

        return asyncio.run_coroutine_threadsafe(body(), self._thread.loop)

    def stream(self, *args: Any, **options: Any) -> AsyncFaceStream:
        return AsyncFaceStream(
            self._thread, self._thread.call(lambda: self.client.stream(*args, **options))
        )

    def send(self, *args: Any, **options: Any) -> None:
        self._thread.run(self.client.send(*args, **options))

    @property
    def id(self) -> int:
        return self.client.id

    @property
    def state(self) -> moebius.State:
        return self.client.state

    def statistics(self) -> moebius.ClientStatistics:
        return self.client.statistics()

    def close(self) -> None:
        if not self._thread.loop.is_closed():
            self._thread.run(self.client.close())
            self._thread.close()

    def __enter__(self) -> AsyncFace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncFaceStream:
    def __init__(self, thread: LoopThread, stream: aio.Stream) -> None:
        self._thread = thread
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        async def body() -> bytes | None:
            try:
                return await self._stream.__anext__()
            except StopAsyncIteration:
                return None

        item = self._thread.run(body())
        if item is None:
            raise StopIteration
        return item

    def close(self) -> None:
        self._thread.run(self._stream.aclose())

    def __enter__(self) -> AsyncFaceStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Face = Client | AsyncFace
FACES: dict[str, Callable[..., Face]] = {"blocking": Client, "asyncio": AsyncFace}
