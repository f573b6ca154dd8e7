"""All clients of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .messages import Payload
from .peer import Peer


class Peers:
    """The clients that are connected now: iterate, look up, broadcast."""

    def __init__(self) -> None:
        self._by_id: dict[int, Peer] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[Peer]:
        """A snapshot: clients may come and go while you iterate."""
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, peer: object) -> bool:
        return isinstance(peer, Peer) and self._by_id.get(peer.id) is peer

    def get(self, peer_id: int) -> Peer | None:
        """The client of that id, if it is connected."""
        return self._by_id.get(peer_id)

    def broadcast(self, payload: Payload, where: Callable[[Peer], bool] | None = None) -> int:
        """Send to all clients, or to those that `where` accepts; how many it was sent to.

        A client that takes too little is left out (see `Peer.send`).
        """
        return sum(peer.send(payload) for peer in self if where is None or where(peer))

    def new_id(self) -> int:
        """An id that no client had before."""
        self._last_id += 1
        return self._last_id

    def add(self, peer: Peer) -> None:
        """A client came."""
        self._by_id[peer.id] = peer

    def remove(self, peer: Peer) -> None:
        """A client left."""
        self._by_id.pop(peer.id, None)
