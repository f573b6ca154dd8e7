"""How shards prove to each other that they are of one cluster: by a secret that is never sent."""

from __future__ import annotations

import hmac

SECRET_BYTES = 32
"""The secret of a data folder, or of a cluster."""


class Seal:
    """What a shard puts on what it says to another, and how the other knows it.

    It depends on the command and on the message, so it opens nothing else. Whoever overhears a sealed message can send
    the same one again: that does nothing, because shards repeat themselves too.
    """

    def __init__(self, secret: str) -> None:
        self._secret = bytes.fromhex(secret)
        if len(self._secret) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(self._secret)}")

    def of(self, command: str, message: bytes | bytearray | memoryview) -> bytes:
        """The seal of a message."""
        return hmac.digest(self._secret, b"".join((command.encode(), b"\0", message)), "sha256")

    def fits(
        self,
        command: str,
        message: bytes | bytearray | memoryview,
        seal: bytes | bytearray | memoryview,
    ) -> bool:
        """Whether somebody who knows the secret has sealed this message."""
        return hmac.compare_digest(self.of(command, message), bytes(seal))
