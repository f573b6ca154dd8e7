"""RocksDB as the index uses it: raw bytes, no write-ahead log, explicit flushes.

What is not flushed is lost when the process dies; the log has it, and the position that is stored with
the facts says from where to read it again. A batch is in the database whole or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from ..errors import Corrupt, Unavailable
from ..limits import MIB
from .keys import after_prefix

log = logging.getLogger("tstreams.server")

BLOCK_CACHE_BYTES = 64 * MIB
"""Blocks of the index that are kept in memory, their own indexes and filters not counted."""

WRITE_BUFFER_BYTES = 32 * MIB
"""What RocksDB gathers before it flushes by itself. We flush earlier, as a rule."""

OPEN_FILES_MAX = 128
"""Files of the index that may be open at once. A million streams make some ten."""


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_max_background_jobs(2)
    options.set_atomic_flush(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 * MIB)
    options.set_bytes_per_sync(1 * MIB)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    table.set_bloom_filter(10, False)
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    return options


class IndexFailed(Unavailable):
    """The index could not be written. The log has all of it: opening both again mends it, if there is room
    on the disk."""


class Store:
    """The database. All methods but `flush` belong to one thread."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        access = AccessType.read_only() if read_only else AccessType.read_write()
        if read_only and not path.is_dir():  # rocksdict would make it, and leave its settings there
            raise IndexFailed(f"the index in {path} cannot be opened: it is not there")
        try:
            if not read_only:
                path.mkdir(parents=True, exist_ok=True)
            self._db = Rdict(str(path), _options(), access_type=access)
        except Exception as error:
            raise _translated(f"the index in {path} cannot be opened", error) from error
        self._write_options = WriteOptions()
        setattr(self._write_options, "disable_wal", True)  # noqa: B010  (its stub calls it a method)
        self._read_options = ReadOptions()
        self.get = self._db.get
        """The value of a key, or None."""

    @staticmethod
    def batch() -> WriteBatch:
        """An empty batch."""
        return WriteBatch(raw_mode=True)

    def write(self, batch: WriteBatch) -> None:
        """Apply a batch, whole."""
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise _translated("the index cannot be written", error) from error

    def iterator(self) -> Any:
        """A new iterator over all keys, not yet placed."""
        return self._db.iter(self._read_options)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin with `prefix`, from `start` on, with their values."""
        iterator = self.iterator()
        iterator.seek(start or prefix)
        while iterator.valid():
            key = iterator.key()
            if not key.startswith(prefix):
                return
            yield key, iterator.value()
            iterator.next()
        self.check(iterator)

    def scan_keys(self, prefix: bytes, start: bytes) -> Iterator[bytes]:
        """All keys that begin with `prefix`, from `start` on."""
        iterator = self.iterator()
        iterator.seek(start)
        while iterator.valid():
            key = iterator.key()
            if not key.startswith(prefix):
                return
            yield key
            iterator.next()
        self.check(iterator)

    def number(self, name: str) -> int:
        """A number that the database keeps of itself; 0 if it does not know it."""
        return self._db.property_int_value(f"rocksdb.{name}") or 0

    def check(self, iterator: Any) -> None:
        """An iterator that stops does not say why unless it is asked."""
        try:
            iterator.status()
        except Exception as error:
            raise _translated("the index cannot be read", error) from error

    @staticmethod
    def delete_prefix(batch: WriteBatch, prefix: bytes) -> None:
        """Delete all keys that begin with this."""
        batch.delete_range(prefix, after_prefix(prefix))

    def flush(self) -> None:
        """Make everything that was written durable. May run in another thread; it leaves the GIL."""
        try:
            self._db.flush(True)
        except Exception as error:
            raise _translated("the index cannot be flushed", error) from error

    def close(self) -> None:
        """Close the database; what was not flushed is in the log."""
        try:
            self._db.close()
        except Exception as error:  # it is closed all the same
            log.warning("the index was closed without a flush: %s", error)


def _translated(what: str, error: Exception) -> Exception:
    text = str(error)
    if "orruption" in text or "hecksum" in text:
        return Corrupt(f"{what}: {text}. Stop the server and run `tstreams verify`.")
    if "No space" in text:
        text += ". Make room on the disk."
    return IndexFailed(f"{what}: {text}")
