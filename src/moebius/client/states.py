"""What a client's connection can be doing."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The state of a client's connection.

    CONNECTING -> CONNECTED <-> RECONNECTING, and from each of them -> CLOSED, which is final.
    """

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"
