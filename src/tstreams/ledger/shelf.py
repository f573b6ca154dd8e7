"""The files of closed ledgers that are open for reading: a few of them, however many ledgers there are."""

from __future__ import annotations

from collections import OrderedDict

from .files import File, Folder

OPEN_FILES_MAX = 64
"""Ledgers that are open for reading. Readers of old data move through few ledgers at a time; opening
another costs some 20 µs."""


class Shelf:
    """Opens files when they are asked for, and closes those that were not asked for the longest."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files: OrderedDict[str, File] = OrderedDict()

    def file(self, name: str) -> File:
        """An open file."""
        file = self._files.get(name)
        if file is not None:
            self._files.move_to_end(name)
            return file
        file = self._folder.open(name)
        self.put(name, file)
        return file

    def put(self, name: str, file: File) -> None:
        """A file that is open already."""
        self._files[name] = file
        if len(self._files) > OPEN_FILES_MAX:
            self._files.popitem(last=False)[1].close()

    def drop(self, name: str) -> None:
        """Close a file, if it is open."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close them all."""
        for name in list(self._files):
            self.drop(name)
