"""A way to ZooKeeper that can be cut at the worst moment, or swallow everything without a word."""

from __future__ import annotations

import asyncio


class Proxy:
    """Passes on what comes. `lose_answer_to(word)`: the next request with this word reaches the server, and its answer
    never the client. `lose(word)`: it does not even reach the server. `hold(word)`: it waits until `let_go`."""

    def __init__(self, host: str, port: int) -> None:
        self.cuts = 0
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._word: bytes | None = None
        self._forward = True
        self._held_word: bytes | None = None
        self.held = asyncio.Event()
        self._let_go = asyncio.Event()
        self._silent = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def lose_answer_to(self, word: bytes) -> None:
        self._word, self._forward = word, True

    def lose(self, word: bytes) -> None:
        self._word, self._forward = word, False

    def hold(self, word: bytes) -> None:
        self._held_word = word
        self.held.clear()
        self._let_go.clear()

    def let_go(self) -> None:
        self._let_go.set()

    def fall_silent(self) -> None:
        """Take connections and requests, and pass on nothing."""
        self._silent.set()

    def speak(self) -> None:
        self._silent.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            try:
                await self._pass(reader, writer, far_reader, far_writer)
            finally:
                far_writer.close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._links.discard(link)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        cut = False

        async def requests() -> None:
            nonlocal cut
            while data := await reader.read(65536):
                if self._silent.is_set():
                    continue
                if self._held_word is not None and self._held_word in data:
                    self._held_word = None
                    self.held.set()
                    await self._let_go.wait()
                cut = self._word is not None and self._word in data
                if not cut or self._forward:
                    far_writer.write(data)
                    await far_writer.drain()
                if cut:
                    self._word = None
                    return

        async def answers() -> None:
            while data := await far_reader.read(65536):
                if cut:  # it was done, and nobody will hear of it
                    return
                if not self._silent.is_set():
                    writer.write(data)
                    await writer.drain()

        answering = asyncio.ensure_future(answers())
        both = [asyncio.ensure_future(requests()), answering]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if cut and self._forward:
                await answering
        finally:
            self.cuts += cut
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
