"""Who may ask at all: as long as there are no permissions, only the machine's own pages and programs.

A page of another site can make a browser send requests here. What it must not do is read (DNS rebinding:
its name now points at us) or change anything (a form that is sent here). Hence:

- the host that is asked for is an address, localhost, or a name that the settings allow;
- a change comes from a page of ours, or from no page at all, and its body is JSON, which forms cannot send.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from .problems import Refused

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
}
"""Go out with every answer."""


class Guard:
    """Refuses what does not come from where it should."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._any = "*" in hosts
        self._names = {"localhost", *(host.lower() for host in hosts)}

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """`Refused` says why a request is not answered."""
        host = headers.get("host", "")
        if not self._any and not self._is_ours(host):
            raise Refused(
                421,
                "misdirected",
                f"nobody here is called {host!r}: ask for an address or localhost, or allow the name "
                "in http_hosts",
            )
        if method not in SAFE_METHODS:
            self._check_change(host, headers)

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host.lower())
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _check_change(self, host: str, headers: Mapping[str, str]) -> None:
        site = headers.get("sec-fetch-site", "none")
        origin = headers.get("origin")
        others = origin is not None and origin.lower().partition("://")[2] != host.lower()
        if others or site not in ("same-origin", "none"):
            raise Refused(
                403,
                "cross_origin",
                f"changes come from pages of this server, not from {origin or site}",
            )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
