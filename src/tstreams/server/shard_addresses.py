"""Where the processes of shards listen: beside the addresses of their server, and where they did before."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from moebius.addresses import parse_address

from ..config import ports_of

log = logging.getLogger("tstreams.server")

FILE = "addresses"


def shard_listen(shard: int, listen: Sequence[str], ports: str) -> list[str]:
    """The addresses of one shard: for each of its server's one of the same kind. Those of tcp have the same host, and
    a port of `ports` (the setting `shard_ports`), or one that the system chooses; unix sockets are beside the other,
    with the number behind the name."""
    found = []
    named = ports_of(ports)
    over_tcp = sum("tcp://" in it for it in listen)
    place = shard * over_tcp
    for text in listen:
        address = parse_address(text)
        if address.host:
            found.append(str(address.with_port(named[place] if named else 0)))
            place += 1
        else:
            found.append(f"{text}.{shard}")
    return found


def remembered(folder: Path, shard: int, listen: Sequence[str]) -> list[str]:
    """Where a shard listened when the server ran last, if it should listen on the same hosts now; else nothing. Clients that
    outlive a restart find it there again without asking."""
    try:
        found = msgspec.json.decode((folder / FILE).read_bytes(), type=list[list[str]])[shard]
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, IndexError):
        return []
    same = len(found) == len(listen) and all(map(_fits, found, listen))
    return found if same else []


def _fits(address: str, listen: str) -> bool:
    """Whether this may have become of an address to listen on, or could have."""
    if "tcp://" not in listen or not listen.endswith(":0"):
        return address == listen
    return address.rpartition(":")[0] == listen.rpartition(":")[0]


def remember(folder: Path, addresses: Sequence[Sequence[str]]) -> None:
    """Keep where all shards listen. It is of use, and not needed: a full disk is no reason not to serve."""
    beside = folder / f".{FILE}"
    try:
        beside.write_bytes(msgspec.json.encode(addresses))
        beside.replace(folder / FILE)
    except OSError as error:
        log.warning("where the shards listen could not be kept: %s", error)
