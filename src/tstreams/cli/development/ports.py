"""Ports for servers that are ended and started again."""

from __future__ import annotations

import random
import socket

from ...errors import Unavailable

LOW, HIGH = 20_000, 32_000
"""Below those that systems give to outgoing connections: one of these could have a port while its server is down."""
_HOST = "127.0.0.1"


def lasting_ports(number: int) -> list[int]:
    """Ports of loopback that nobody has at this moment, all different, and that nobody is given by chance later."""
    found: list[int] = []
    for port in random.sample(range(LOW, HIGH), HIGH - LOW):
        if len(found) == number:
            return found
        try:
            socket.create_server((_HOST, port)).close()
        except OSError:
            continue
        found.append(port)
    raise Unavailable(f"there are not {number} free ports between {LOW} and {HIGH} on this machine")
