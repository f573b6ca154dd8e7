"""What `tstreams serve` tells its front door: one line of JSON on standard input."""

from __future__ import annotations

import ssl

import msgspec

from ..client.config import ClientConfig

SETTINGS_BYTES_MAX = 64 * 1024
"""The line that holds the settings. A token may have 4 KiB, paths as much."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that the front door needs to know."""

    socket: int
    """The file descriptor of the socket that it listens on."""
    url: str
    """How others reach it: http://host:port."""
    server: str
    """The address of the storage server."""
    token: str = ""
    certificate: str | None = None
    """The certificate of the storage server, if it has one: it is trusted as it is."""
    hosts: list[str] = []
    """Names by which it may be asked for, beside addresses and localhost. "*": any."""
    log_level: str = "info"
    log_format: str = "text"
    config: list[tuple[str, str, str]] = []
    """The settings of the server that are in force, fit to be shown: name, value, description."""

    def client(self, timeout_s: float) -> ClientConfig:
        """How to reach the storage server."""
        tls = self.tls() if self.server.startswith("tcp://") else None
        return ClientConfig(self.server, self.token, timeout_s, tls)

    def tls(self) -> ssl.SSLContext | None:
        """How to trust the storage server, and other nodes of its cluster; None: they speak no TLS."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False  # it is for the name by which others reach it
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context
