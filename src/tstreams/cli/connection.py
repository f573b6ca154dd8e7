"""How commands reach a server: the flags they share, and the connection made of them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import PREFIX, read_number
from ..errors import BadRequest, Unavailable
from .output import checked
from .sources import read_token

if TYPE_CHECKING:
    from .. import Client, Tls

DEFAULT_URL = "tcp://127.0.0.1:7070"
DEFAULT_TIMEOUT = "10s"
"""Long enough for a server that is just starting, short enough for a person who mistyped the URL."""


def add_connection(
    parser: ArgumentParser, timeout: str = DEFAULT_TIMEOUT, default: str = DEFAULT_URL
) -> None:
    """The flags of a command that needs a server."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--url",
        default=None,
        help="the server's address, tcp://host:port, or that of its front door, http://host:port; "
        f"else TSTREAMS_URL, else {default}",
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with the token that the server wants; else TSTREAMS_TOKEN_FILE, else the "
        "token itself in TSTREAMS_TOKEN",
    )
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="speak TLS, and trust this certificate (PEM), or `system` for what the system trusts; "
        "else TSTREAMS_TLS_CA",
    )
    group.add_argument(
        "--timeout",
        type=checked(_seconds),
        default=timeout,
        metavar="TIME",
        help=f"give up if the server does not answer for this long [{timeout}]",
    )


def connection(arguments: Namespace) -> Client:
    """A client of the server that the flags or the environment name."""
    import tstreams

    try:
        return tstreams.connect(
            url_of(arguments),
            token=token_of(arguments),
            timeout=arguments.timeout,
            tls=tls_of(arguments),
        )
    except Unavailable as error:
        raise type(error)(f"{error.message}: is a server running there?") from None


def spark_options(arguments: Namespace) -> dict[str, str]:
    """The same server, as options of Spark's `format("tstreams")`."""
    tls = tls_of(arguments)
    options = {
        "url": url_of(arguments),
        "token": token_of(arguments),
        "tlsCa": tls.ca_file if tls is not None and tls.ca_file else "",
        "timeout": str(arguments.timeout),
    }
    if tls is not None and not tls.ca_file:
        raise BadRequest("pipelines trust a certificate of your own: --tls-ca FILE, not `system`")
    return {name: value for name, value in options.items() if value}


def url_of(arguments: Namespace) -> str:
    """The address that the flags or the environment name."""
    return given_url(arguments) or DEFAULT_URL


def given_url(arguments: Namespace) -> str:
    """The same; empty: they name none."""
    return arguments.url or os.environ.get(f"{PREFIX}URL") or ""


def _seconds(text: str) -> float:
    seconds = read_number(text, "seconds")
    if seconds <= 0:
        raise ValueError("it must be more than nothing")
    return seconds


def tls_of(arguments: Namespace) -> Tls | None:
    """How to trust the server; None: it does not speak TLS."""
    from ..client.config import Tls

    trusted = arguments.tls_ca or os.environ.get(f"{PREFIX}TLS_CA")
    if not trusted:
        return None
    if trusted == "system":
        return Tls()
    if not os.access(trusted, os.R_OK):
        raise BadRequest(f"the certificate {trusted} cannot be read: is it there, and may you?")
    return Tls(ca_file=trusted)


def token_of(arguments: Namespace) -> str:
    """The token to show."""
    file = arguments.token_file or os.environ.get(f"{PREFIX}TOKEN_FILE")
    if not file:
        return os.environ.get(f"{PREFIX}TOKEN", "")
    try:
        return read_token(file, Path())
    except ValueError as error:
        raise BadRequest(str(error)) from None
