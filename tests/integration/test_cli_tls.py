"""The command line over TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .cli import Shell, serving, url_in


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """The paths of a certificate for 127.0.0.1, signed by itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tstreams test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(cert_file), str(key_file)


def test_a_server_with_tls_is_reached_by_who_trusts_it(
    certificate: tuple[str, str], tmp_path: Path
) -> None:
    cert, key = certificate
    flags = ("--tls-certificate", cert, "--tls-key", key)
    with serving(tmp_path / "data", *flags) as line:
        url = url_in(line)
        Shell(url).ok("stream", "create", "secret", "--tls-ca", cert)
        Shell(url, TSTREAMS_TLS_CA=cert).ok("stream", "show", "secret")
        for trusts in ((), ("--tls-ca", "system")):
            done = Shell(url)("stream", "list", "--timeout", "1s", *trusts)
            assert (done.code, done.out) == (1, b"")
            assert len(done.err.splitlines()) == 1
    missing = Shell(url)("stream", "list", "--tls-ca", str(tmp_path / "none"))
    assert missing.code == 1
    assert "none cannot be read" in missing.err


def test_a_certificate_and_a_key_that_do_not_fit_are_refused(
    certificate: tuple[str, str], tmp_path: Path
) -> None:
    cert, key = certificate
    words = ("config", "check", "--data", str(tmp_path))
    Shell().ok(*words, "--tls-certificate", cert, "--tls-key", key)
    swapped = Shell()(*words, "--tls-certificate", key, "--tls-key", cert)
    assert swapped.code == 1
    assert "are not a certificate and its key" in swapped.err
    missing = Shell()(*words, "--tls-certificate", cert, "--tls-key", str(tmp_path / "none"))
    assert missing.code == 1
    assert f"--tls-key: {tmp_path / 'none'} cannot be read" in missing.err
