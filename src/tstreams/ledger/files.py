"""Files, as the local log uses them: the port, and the real thing.

So few calls that a simulated disk, which forgets what was not synced, is easy to write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ..items import Buffer

_BUFFERS_PER_WRITE = 1000
"""The kernel takes 1024 buffers in one call."""
_JOIN_BELOW_BYTES = 64 * 1024
"""Below this, one copy is cheaper than many buffers."""
_BYTES_PER_WRITE = 256 * 1024
"""For a large write the kernel takes pages of up to 2 MiB for its cache. Where free memory goes back to a host, such pages
have to be fetched from there first: writes of 1 MiB cost 1.9 ns a byte, those of at most 512 KiB 0.2. Elsewhere it is
the same."""


class File(Protocol):
    """An open file."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write the buffers end to end at `offset`; how many bytes. They may be lost until `sync`."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer at the end of the file."""

    def sync(self) -> None:
        """Make what was written durable."""

    def truncate(self, size: int) -> None:
        """Cut the file."""

    def allocate(self, size: int) -> None:
        """Have the file's blocks up to `size` found and set aside; they read as zeros."""

    def size(self) -> int:
        """Its length in bytes."""

    def close(self) -> None:
        """Give it back."""


class Folder(Protocol):
    """A directory of files."""

    def names(self) -> list[str]:
        """The files in it."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing."""

    def rename(self, old: str, new: str) -> None:
        """Give a file its final name. Durable when it returns."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that may be there. Durable when it returns."""


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all of it, in as few calls as it takes."""
        total = sum(map(len, buffers))
        if total < _JOIN_BELOW_BYTES:
            data = b"".join(buffers)
            written = os.pwrite(self._descriptor, data, offset)
            if written < total:
                self._write_all(memoryview(data)[written:], offset + written)
            return total
        at = offset
        for part in _pieces(buffers):
            wanted = sum(map(len, part))
            written = os.pwritev(self._descriptor, part, at)
            if written < wanted:
                self._write_all(memoryview(b"".join(part))[written:], at + written)
            at += wanted
        return total

    def _write_all(self, data: memoryview, offset: int) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, offset)
            data, offset = data[written:], offset + written

    def read(self, offset: int, size: int) -> bytes:
        """Read, however many calls it takes."""
        data = os.pread(self._descriptor, size, offset)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def sync(self) -> None:
        """fdatasync: the data, and what is needed to find it again."""
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        """Set blocks aside, without writing to them."""
        os.posix_fallocate(self._descriptor, 0, size)

    def size(self) -> int:
        """Its length in bytes."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def _pieces(buffers: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """The same bytes for several writes: not too many buffers in one, and not too much."""
    part: list[Buffer] = []
    room = _BYTES_PER_WRITE
    for buffer in buffers:
        left = buffer
        while len(left) > room or len(part) == _BUFFERS_PER_WRITE:
            view = memoryview(left)
            if room and len(part) < _BUFFERS_PER_WRITE:
                part.append(view[:room])
                left = view[room:]
            yield part
            part, room = [], _BYTES_PER_WRITE
        part.append(left)
        room -= len(left)
    if part:
        yield part


class RealFolder:
    """A directory of the operating system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The files in it."""
        return sorted(os.listdir(self.path))

    def open(self, name: str, *, create: bool = False) -> RealFile:
        """Open a file for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(self.path / name, flags, 0o640))

    def rename(self, old: str, new: str) -> None:
        """Rename, and sync the directory."""
        os.rename(self.path / old, self.path / new)
        self._sync()

    def remove(self, names: Sequence[str]) -> None:
        """Remove, and sync the directory once."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
