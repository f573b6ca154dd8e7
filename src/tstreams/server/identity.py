"""What is settled once and stays with a data folder: who its node is, and how many shards there are."""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path

from ..errors import Corrupt, InvalidState

log = logging.getLogger("tstreams.server")

FILE = "node"
SHARDS_FILE = "shards"
_ID = re.compile(r"[0-9a-f]{16}")


def node_id(folder: Path) -> str:
    """The id of the node that this folder belongs to. Whoever calls holds the lock of the folder."""
    path = folder / FILE
    try:
        found = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        found = secrets.token_hex(8)
        try:
            _write(path, found)
        except OSError as error:  # a full disk can be read, and serves readers
            log.warning("the id of this node could not be kept: %s", error)
        return found
    if not _ID.fullmatch(found):
        raise Corrupt(
            f"{path} holds no node id, but {found[:40]!r}: put back what was there, or remove the file, "
            "and the node gets a new id"
        )
    return found


def check_shards(folder: Path, shards: int) -> None:
    """`InvalidState` if the data in this folder lies in another number of shards: where a partition is follows from that.
    A new folder is settled by this. Whoever calls holds the lock of the folder."""
    path = folder / SHARDS_FILE
    try:
        text = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        if shards == 1:
            return  # it says so by having no such file
        if (folder / "shard-0").exists():
            text = "1"
        else:
            _write(path, str(shards))
            return
    if not text.isdecimal():
        raise Corrupt(
            f"{path} holds no number of shards, but {text[:40]!r}: put back what was there"
        )
    if int(text) != shards:
        raise InvalidState(
            f"the data in {folder} was made for {text} shards, and cannot be served with {shards}: set shards "
            f"to {text}, or use another folder"
        )


def _write(path: Path, made: str) -> None:
    beside = path.with_name(f".{path.name}")
    with beside.open("w") as file:
        file.write(f"{made}\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
