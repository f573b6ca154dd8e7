"""A server whose disk fails on command: while the file named by `--fails` is there, as it says.

sync     fdatasync reports an I/O error, whatever has become of the bytes
write    writing does
"""

from __future__ import annotations

import errno
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from tstreams.ledger.files import RealFile, RealFolder
from tstreams.logs import configure
from tstreams.server import Node
from tstreams.server.storage import LocalStorage


class FailingFile:
    """A file that does what it is told to."""

    def __init__(self, file: RealFile, fails: Path) -> None:
        self._file = file
        self._fails = fails
        self.read = file.read
        self.truncate = file.truncate
        self.allocate = file.allocate
        self.size = file.size
        self.close = file.close

    def write(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        self._maybe_fail("write")
        return self._file.write(buffers, offset)

    def sync(self) -> None:
        self._maybe_fail("sync")
        self._file.sync()

    def _maybe_fail(self, what: str) -> None:
        if self._fails.exists() and self._fails.read_text() == what:
            raise OSError(errno.EIO, "Input/output error")


class FailingFolder:
    """A folder of such files."""

    def __init__(self, folder: RealFolder, fails: Path) -> None:
        self._folder = folder
        self._fails = fails
        self.names = folder.names
        self.rename = folder.rename
        self.remove = folder.remove

    def open(self, name: str, *, create: bool = False) -> FailingFile:
        return FailingFile(self._folder.open(name, create=create), self._fails)


class FailingStorage(LocalStorage):
    """The real index beside it: only the log can fail here."""

    fails: Path

    def folder(self) -> FailingFolder:  # type: ignore[override]
        return FailingFolder(super().folder(), self.fails)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until it is told to stop."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--fails", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--http", choices=["off"], help="there is none; a real server is told so")
    given = parser.parse_args(arguments)
    configure()
    FailingStorage.fails = given.fails
    node = Node(given.data, [given.listen], storage=FailingStorage)
    node.run(on_ready=lambda: given.ready_file.write_text("".join(node.addresses)))


if __name__ == "__main__":
    main()
