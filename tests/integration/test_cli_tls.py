"""The command line over TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from .certificates import make_certificate
from .cli import Shell, serving, url_in


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """The paths of a certificate for 127.0.0.1, signed by itself, and of its key."""
    return make_certificate(tmp_path)


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
