"""TLS, CURVE, and the `authenticate` hook."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import zmq
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moebius import (
    Credentials,
    CurveClient,
    CurveServer,
    Disconnected,
    Request,
    Router,
    Strategy,
    Unauthorized,
    curve_keypair,
    sleep,
)

from .conftest import Connect, Serve, address_of, eventually
from .raw import CALL, FAILURE, HELLO, REPLY, RawClient


def make_router() -> Router:
    router = Router()

    @router.command("whoami")
    def whoami(request: Request) -> bytes:
        return str(request.identity).encode()

    @router.command("wait", strategy=Strategy.PARALLEL)
    def wait(request: Request) -> Iterator[Any]:
        yield sleep(60)

    return router


TOKENS = {"secret-a": "anna", "secret-b": "ben"}


def by_token(credentials: Credentials) -> str | None:
    return TOKENS.get(credentials.token)


async def by_token_later(credentials: Credentials) -> str | None:
    await asyncio.sleep(0.05)
    return TOKENS.get(credentials.token)


def by_raising(credentials: Credentials) -> str:
    if credentials.token not in TOKENS:
        raise Unauthorized("no such token; ask the operator for one")
    return TOKENS[credentials.token]


@pytest.mark.parametrize("hook", [by_token, by_token_later, by_raising])
def test_tokens(serve: Serve, connect: Connect, address: str, hook: Any) -> None:
    server = serve(make_router(), address, authenticate=hook)
    anna, ben = connect(server, token="secret-a"), connect(server, token="secret-b")
    assert (anna.call("whoami"), ben.call("whoami")) == (b"anna", b"ben")
    for options in ({"token": "wrong"}, {}):
        with pytest.raises(Unauthorized):
            connect(server, **options)
    assert server.statistics().counts.unauthorized == 2
    assert anna.call("whoami") == b"anna"


def test_a_hook_that_fails_refuses(serve: Serve, connect: Connect, address: str) -> None:
    router = make_router()
    reported: list[BaseException] = []
    router.on_error(lambda request, error: reported.append(error))

    def broken(credentials: Credentials) -> str:
        raise KeyError("a bug in the hook, with details that are nobody's business")

    server = serve(router, address, authenticate=broken)
    with pytest.raises(Unauthorized) as caught:
        connect(server, token="secret-a")
    assert "details" not in str(caught.value)
    assert isinstance(reported[0], KeyError)


def test_nothing_is_done_before_the_hook_has_answered(serve: Serve) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0", authenticate=by_token_later)
    with RawClient(server.addresses[0]) as good:
        # All in one go: the calls wait for the hook.
        good.sock.sendall(
            good.frame([HELLO, 1, "secret-a"])
            + b"".join(good.frame([CALL, n, "whoami"], b"") for n in (1, 2, 3))
        )
        good.receive()
        assert [good.receive() for _ in range(3)] == [([REPLY, n], [b"anna"]) for n in (1, 2, 3)]
    with RawClient(server.addresses[0]) as bad:
        bad.send([CALL, 1, "whoami"], b"")
        assert bad.receive()[0][:3] == [FAILURE, 1, "unauthorized"]
        assert bad.receive()[0][:3] == [FAILURE, 0, "unauthorized"]
        assert bad.closed()


def test_the_hook_sees_where_a_client_comes_from(
    serve: Serve, connect: Connect, address: str
) -> None:
    seen: list[Credentials] = []

    def look(credentials: Credentials) -> str:
        seen.append(credentials)
        return "someone"

    connect(serve(make_router(), address, authenticate=look), token="t")
    assert seen[0].transport == address.split(":")[0]
    assert seen[0].token == "t"
    if address.startswith("tcp"):
        assert seen[0].address.startswith("127.0.0.1:")


# TLS.


class Authority(NamedTuple):
    folder: Path

    def issue(self, name: str) -> tuple[str, str]:
        """A certificate and a key for `name`, signed by the authority; paths."""
        return str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("certificates")
    now = dt.datetime.now(dt.UTC)
    root_key = ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    for name in ("root", "server", "client"):
        key = root_key if name == "root" else ec.generate_private_key(ec.SECP256R1())
        subject = (
            root_name
            if name == "root"
            else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        )
        names = x509.SubjectAlternativeName(
            [
                x509.DNSName("localhost"),
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            ]
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(root_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(
                x509.BasicConstraints(ca=name == "root", path_length=None), critical=True
            )
            .add_extension(names, critical=False)
            .sign(root_key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    return Authority(folder)


def server_context(authority: Authority, demand: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("server"))
    if demand:
        context.load_verify_locations(authority.issue("root")[0])
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(authority: Authority, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.issue("root")[0])
    if certificate:
        context.load_cert_chain(*authority.issue(certificate))
    return context


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_tls(
    serve: Serve, connect: Connect, authority: Authority, transport: str, tmp_path: Path
) -> None:
    router = make_router()
    router.command("echo")(lambda request: request.payload)
    server = serve(router, address_of(transport, tmp_path), tls=server_context(authority))
    client = connect(server, tls=client_context(authority))
    payload = bytes(3_000_000)
    assert client.call("echo", payload) == payload
    with pytest.raises(Disconnected, match=r"(?i)certificate"):
        connect(server, tls=ssl.create_default_context(), connect_timeout=1)
    with pytest.raises(Disconnected):
        connect(server, connect_timeout=0.5)
    assert client.call("echo", b"x") == b"x"


def test_client_certificates(serve: Serve, connect: Connect, authority: Authority) -> None:
    def by_certificate(credentials: Credentials) -> str | None:
        if credentials.certificate is None:
            return None
        subject = dict(pair for (pair,) in credentials.certificate["subject"])
        return str(subject["commonName"])

    server = serve(
        make_router(),
        "tcp://127.0.0.1:0",
        tls=server_context(authority, demand=True),
        authenticate=by_certificate,
    )
    client = connect(server, tls=client_context(authority, "client"))
    assert client.call("whoami") == b"client"
    with pytest.raises(Disconnected):
        connect(server, tls=client_context(authority), connect_timeout=1)


# CURVE.


@pytest.mark.parametrize("transport", ["zmq+tcp", "zmq+ipc"])
def test_curve(serve: Serve, connect: Connect, transport: str, tmp_path: Path) -> None:
    server_public, server_secret = curve_keypair()
    anna_public, anna_secret = curve_keypair()
    mallory_public, mallory_secret = curve_keypair()

    def by_key(credentials: Credentials) -> str | None:
        return "anna" if credentials.curve_key == anna_public else None

    curve = CurveServer(server_public, server_secret)
    address = address_of(transport, tmp_path)
    server = serve(make_router(), address, curve=curve, authenticate=by_key)
    anna = connect(server, curve=CurveClient(server_public, anna_public, anna_secret))
    assert anna.call("whoami") == b"anna"
    # An unknown key reaches the hook, which refuses it.
    with pytest.raises(Unauthorized):
        connect(server, curve=CurveClient(server_public, mallory_public, mallory_secret))
    # The wrong server key, or no CURVE at all, does not get through the handshake.
    with pytest.raises(Disconnected):
        connect(
            server,
            curve=CurveClient(mallory_public, anna_public, anna_secret),
            connect_timeout=0.5,
        )
    with pytest.raises(Disconnected):
        connect(server, connect_timeout=0.5)
    assert anna.call("whoami") == b"anna"


def test_curve_with_a_list_of_keys(serve: Serve, connect: Connect) -> None:
    server_public, server_secret = curve_keypair()
    anna_public, anna_secret = curve_keypair()
    other_public, other_secret = curve_keypair()
    curve = CurveServer(server_public, server_secret, clients=[anna_public])
    server = serve(make_router(), "zmq+tcp://127.0.0.1:0", curve=curve)
    anna = connect(server, curve=CurveClient(server_public, anna_public, anna_secret))
    assert anna.call("whoami") == b"None"
    with pytest.raises(Disconnected):
        connect(
            server,
            curve=CurveClient(server_public, other_public, other_secret),
            connect_timeout=0.5,
        )


def test_another_key_cannot_take_over_a_routing_id(serve: Serve) -> None:
    """A routing id that one key used is a stranger's with another key."""
    server_public, server_secret = curve_keypair()
    keys = [curve_keypair(), curve_keypair()]

    def by_key(credentials: Credentials) -> str | None:
        return "anna" if credentials.curve_key == keys[0][0] else None

    server = serve(
        make_router(),
        "zmq+tcp://127.0.0.1:0",
        curve=CurveServer(server_public, server_secret),
        authenticate=by_key,
    )
    answers = []
    with zmq.Context() as context:
        for public, secret in keys:
            with context.socket(zmq.DEALER) as dealer:
                dealer.linger, dealer.rcvtimeo, dealer.routing_id = 0, 10_000, b"the same"
                dealer.curve_serverkey = server_public
                dealer.curve_publickey, dealer.curve_secretkey = public, secret
                dealer.connect(server.addresses[0].removeprefix("zmq+"))
                dealer.send_multipart([msgspec.msgpack.encode([CALL, 1, "whoami"]), b""])
                answers.append(dealer.recv_multipart())
            # ROUTER refuses a second connection of one routing id while the first is open.
            time.sleep(0.2)
    assert answers[0][1] == b"anna"
    assert b"unauthorized" in answers[1][0] or b"disconnected" in answers[1][0]
    eventually(lambda: server.statistics().counts.unauthorized == 1)
