"""A writer in a process of its own, on BookKeeper: it can be killed, and paused. Prints what was confirmed to it."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from pathlib import Path

from tstreams.ledger.bookkeeper import BookKeeperEngine
from tstreams.ledger.bookkeeper_link import BookKeeperLink, BookKeeperSettings
from tstreams.ledger.files import RealFolder
from tstreams.ledger.port import LogFenced
from tstreams.ledger.replicated import ReplicatedLog


class WriterProcess:
    """Writes `NUMBER` under epoch 1 until it is shut out."""

    def __init__(self, folder: Path, zookeeper: str, name: str) -> None:
        self._words = folder / "writer.log"
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, zookeeper, name, str(folder / "writer")],
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
        self.confirmed: list[bytes] = []

    def read(self, count: int) -> None:
        """Wait until so many more were confirmed."""
        for _ in range(count):
            line = self._line()
            assert line.isdigit(), f"{line}: {self.said()}"
            self.confirmed.append(line.encode())

    def read_to_end(self) -> str:
        """The rest of what was confirmed, and how it ended."""
        while (line := self._line()).isdigit():
            self.confirmed.append(line.encode())
        return line

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def said(self) -> str:
        """What it wrote to its log."""
        return self._words.read_text()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


async def write(zookeeper: str, name: str, folder: Path) -> None:
    link = await BookKeeperLink.connect(BookKeeperSettings(zookeeper=zookeeper))
    engine = await BookKeeperEngine.open(link, name)
    log = await ReplicatedLog.open(engine, RealFolder(folder))
    await log.take_over(1, 0)
    number = 0
    try:
        while True:
            await log.append([[b"%d" % number]], 0)
            print(number, flush=True)
            number += 1
    except LogFenced as error:
        print(f"fenced: {error}", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(write(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
