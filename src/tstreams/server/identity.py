"""What is settled once and stays with a data folder: who its node is, how many shards there are, of which cluster, and by
which secret they know each other."""

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
KIN_FILE = "kin"
_SECRET = re.compile(r"[0-9a-f]{64}")
CLUSTER_FILE = "cluster-id"
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


def kin_secret(folder: Path) -> str:
    """The secret by which the shards of this folder know each other, if they are in several processes: 32 bytes in hex.
    Whoever may read the data may read it, and nobody else. Whoever calls first holds the lock of the folder."""
    path = folder / KIN_FILE
    try:
        found = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        found = secrets.token_hex(32)
        _write(path, found, mode=0o600)
        return found
    if not _SECRET.fullmatch(found):
        raise Corrupt(f"{path} holds no secret: put back what was there, or remove the file")
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


def check_cluster(folder: Path, cluster: tuple[str, str] | None) -> None:
    """`InvalidState` if the data in this folder belongs to another cluster than the one of this id and name, or to a
    server that stands alone (None). A new folder is settled by this. Whoever calls holds the lock of the folder."""
    path = folder / CLUSTER_FILE
    try:
        found_id, _, found_name = path.read_text(errors="replace").strip().partition(" ")
    except FileNotFoundError:
        if cluster is None:
            return
        if (folder / "shard-0").exists():
            raise InvalidState(
                f"the data in {folder} is that of a server which stood alone, and cannot become part of the cluster "
                f"{cluster[1]}: use another folder"
            ) from None
        _write(path, " ".join(cluster))
        return
    if cluster is None:
        raise InvalidState(
            f"the data in {folder} belongs to a node of the cluster {found_name}: set cluster and zookeeper, or "
            "use another folder"
        )
    if cluster[0] != found_id:
        raise InvalidState(
            f"the data in {folder} belongs to the cluster {found_name} ({found_id}), and not to {cluster[1]} "
            f"({cluster[0]}): use another folder, or look at cluster and zookeeper. If the cluster was made anew, "
            "the folder is of no use to it"
        )


def _write(path: Path, made: str, mode: int = 0o666) -> None:
    beside = path.with_name(f".{path.name}")
    with open(beside, "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(f"{made}\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
