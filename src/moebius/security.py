"""Keys for ZeroMQ's CURVE. (TLS on tcp needs no code of ours: pass an `ssl.SSLContext`.)"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator


def curve_keypair() -> tuple[bytes, bytes]:
    """A new (public key, secret key), both in Z85."""
    return zmq.curve_keypair()


@dataclass(frozen=True, slots=True)
class CurveServer:
    """A server's CURVE keys, and which clients it lets in.

    `clients`: public keys (Z85) that are let in; None lets in every key, and leaves the decision
    to the `authenticate` hook, which sees the key.
    """

    public_key: bytes
    secret_key: bytes
    clients: Collection[bytes] | None = None

    def apply(self, sock: zmq.Socket[bytes]) -> None:
        """Make a socket demand CURVE."""
        sock.curve_server = True
        sock.curve_publickey = self.public_key
        sock.curve_secretkey = self.secret_key


@dataclass(frozen=True, slots=True)
class CurveClient:
    """A client's CURVE keys, and the key of the server it expects."""

    server_key: bytes
    public_key: bytes
    secret_key: bytes

    def apply(self, sock: zmq.Socket[bytes]) -> None:
        """Make a socket speak CURVE."""
        sock.curve_serverkey = self.server_key
        sock.curve_publickey = self.public_key
        sock.curve_secretkey = self.secret_key


class _Keys:
    """Answers ZeroMQ's question whether a key is let in; its user id is the key itself."""

    def __init__(self, clients: Collection[bytes] | None) -> None:
        self._clients = None if clients is None else frozenset(clients)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether this key may connect."""
        return self._clients is None or key in self._clients


class CurveGate:
    """ZeroMQ's authentication service of one context: must run for CURVE keys to be told to us."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], curve: CurveServer) -> None:
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("*", credentials_provider=_Keys(curve.clients))

    def close(self) -> None:
        """Stop the service."""
        if self._authenticator.is_alive():
            self._authenticator.stop()
