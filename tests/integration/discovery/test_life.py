"""The life of a front door: it comes with the server, is started again, and never outlives it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

import tstreams
from tests.integration.certificates import make_certificate
from tests.integration.cli import DEADLINE_S, Shell, stream_of

from .doors import Door, door, event_frames, wait_for

pytestmark = pytest.mark.xdist_group("discovery-life")


def _listen(made: Door, path: str = "/v1/events") -> socket.socket:
    where = urlsplit(made.url)
    connection = socket.create_connection((where.hostname, where.port), timeout=DEADLINE_S)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def test_sigterm_ends_both_also_with_listeners_and_slow_clients(tmp_path: Path) -> None:
    with door(tmp_path) as made:
        listener = _listen(made)
        while not event_frames(data := listener.recv(65536)):
            assert data
        idle = socket.create_connection(listener.getpeername())
        half = socket.create_connection(listener.getpeername())
        half.sendall(b"GET / HTTP/1.1\r\nHo")
        front = made.front
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(DEADLINE_S) == 0
        assert not front.is_running()
        for connection in (listener, idle, half):
            connection.close()
    assert not [line for line in made.logs if "ERROR" in line or "Traceback" in line], made.logs


def test_a_killed_server_leaves_no_front_door_behind(tmp_path: Path) -> None:
    with door(tmp_path) as made:
        front = made.front
        made.process.kill()
        made.process.wait(DEADLINE_S)
        front.wait(DEADLINE_S)
        assert not front.is_running()


def test_a_front_door_that_dies_is_started_again_and_the_server_goes_on(tmp_path: Path) -> None:
    with door(tmp_path) as made, tstreams.connect(made.tcp) as ts:
        ts.create_stream("kept")
        first = made.front
        first.kill()
        # Those who come meanwhile wait: the socket is the server's.
        assert made.get("/v1/streams/kept")["name"] == "kept"
        assert wait_for(lambda: made.front.pid != first.pid)
        assert ts.stream("kept").name == "kept"
        assert any("the front door has ended" in line for line in made.logs)
        made.front.send_signal(signal.SIGTERM)
        assert made.get("/v1/streams/kept")["name"] == "kept"


def test_http_can_be_switched_off(tmp_path: Path) -> None:
    with door(tmp_path, "--http", "off") as made:
        assert made.url == ""
        assert psutil.Process(made.process.pid).children() == []


def test_a_port_that_is_taken_is_an_error_if_it_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["--listen", "tcp://127.0.0.1:0", "--http", where]
        done = Shell()("serve", "--data", str(tmp_path), *words)
    assert done.code == 1
    assert f"cannot serve on http://{where}" in done.err
    assert "Traceback" not in done.err


def test_other_machines_are_kept_out_unless_that_is_meant(tmp_path: Path) -> None:
    words = ["--listen", "tcp://127.0.0.1:0", "--http", "0.0.0.0:0"]
    done = Shell()("serve", "--data", str(tmp_path), *words)
    assert done.code == 1
    assert "insecure" in done.err


def test_names_are_allowed_by_the_settings(tmp_path: Path) -> None:
    with door(tmp_path, "--http-hosts", "front.example") as made:
        assert made("GET", "/v1/nodes", Host="Front.example:7080").status == 200
        assert made("GET", "/v1/nodes", Host="other.example").status == 421


def test_the_front_door_of_a_server_with_a_token_and_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("secret")
    flags = [
        "--token-file",
        str(token),
        "--tls-certificate",
        str(certificate),
        "--tls-key",
        str(key),
    ]
    with door(tmp_path / "data", *flags) as made:
        assert made.get("/health/ready")["status"] == "ok"
        settings = {it["name"]: it["value"] for it in made.get("/v1/config")["items"]}
        assert settings["token"] == "(hidden)"
        tls = tstreams.Tls(ca_file=str(certificate), check_hostname=False)
        with tstreams.connect(made.url, token="secret", tls=tls) as ts:
            ts.create_stream("guarded")
        assert "secret" not in " ".join(made.front.cmdline() + list(made.front.environ().values()))


def test_a_storage_server_that_hangs_is_reported_and_the_front_door_lives(tmp_path: Path) -> None:
    with door(tmp_path) as made:
        made.get("/health/ready")
        made.process.send_signal(signal.SIGSTOP)
        try:
            assert made.get("/health/live")["status"] == "ok"
            ready = made("GET", "/health/ready")
            assert (ready.status, ready.json["status"]) == (503, "failing")
            assert made("GET", "/v1/streams").status in (503, 504)
        finally:
            made.process.send_signal(signal.SIGCONT)
        wait_for(lambda: made("GET", "/health/ready").status == 200)


def test_a_crowd_of_slow_clients_keeps_nobody_out(tmp_path: Path) -> None:
    with door(tmp_path) as made, tstreams.connect(made.tcp) as ts:
        ts.create_stream("big")
        with ts.producer("big") as producer:
            number = producer.instant([b"z" * 10_000] * 60)
        where = urlsplit(made.url)
        assert where.hostname is not None
        path = f"/v1/streams/big/partitions/0/transactions/{number}/items?view=hex"
        crowd = []
        for index in range(100):
            connection = socket.socket()
            connection.settimeout(DEADLINE_S)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((where.hostname, where.port))
            if index % 2:  # takes nothing of a long answer
                head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            else:  # never ends its request
                head = "GET /v1/streams HTTP/1.1\r\nHost: local"
            connection.sendall(head.encode())
            crowd.append(connection)
        assert made.get("/v1/streams/big")["size"]["items"] == 60
        with ts.producer("big") as producer:
            producer.instant([b"still"])
        # A request that does not come to its end is given up.
        assert crowd[0].recv(65536).startswith(b"HTTP/1.1 408 ")
        for connection in crowd:
            connection.close()
        descriptors = made.front.num_fds
        assert wait_for(lambda: descriptors() < 60)


def test_the_client_finds_the_server_by_the_url_of_its_front_door(tmp_path: Path) -> None:
    with door(tmp_path) as made, tstreams.connect(made.url) as ts:
        ts.create_stream("found")
        assert made.get("/v1/streams/found")["name"] == "found"
        assert ts.config.url == made.url


def test_the_client_asks_again_where_a_server_is_that_has_moved(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        http = f"127.0.0.1:{probe.getsockname()[1]}"
    with door(tmp_path, "--http", http) as made:
        client = tstreams.connect(made.url)
        client.create_stream("moved")
        first = made.tcp
    with door(tmp_path, "--http", http) as made:
        assert made.tcp != first
        assert client.stream("moved").name == "moved"
        client.close()


def test_a_url_without_a_front_door_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        def refuse() -> None:
            connection, _ = silent.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(tstreams.Unavailable, match="status 404"):
            tstreams.connect(url, timeout=0.5)
        thread.join()
    for wrong in ("http://", "http://user:pw@host", "http://host:99999", "http://host?x=1"):
        with pytest.raises(tstreams.BadRequest):
            tstreams.connect(wrong, timeout=0.5)


def test_embedded_opens_no_http(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    with tstreams.embedded(tmp_path):
        assert set(psutil.Process().children()) == before


def test_a_server_without_http_says_so_where_the_extra_is_missing(tmp_path: Path) -> None:
    blocker = tmp_path / "site"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'uvicorn' else find(name, package)\n"
    )

    path = os.pathsep.join(filter(None, [str(blocker), os.environ.get("PYTHONPATH", "")]))
    words = ["serve", "--listen", "tcp://127.0.0.1:0", "--data"]
    with Shell(PYTHONPATH=path).started(*words, str(tmp_path / "one")) as process:
        line = stream_of(process.stdout).readline().decode()
        process.terminate()
        _, logs = process.communicate(timeout=DEADLINE_S)
    assert "http://" not in line
    assert "serving without HTTP" in logs.decode()
    assert "tstreams[console]" in logs.decode()
    done = Shell(PYTHONPATH=path)(*words, str(tmp_path / "two"), "--http", "127.0.0.1:0")
    assert done.code == 1
    assert "tstreams[console]" in done.err
