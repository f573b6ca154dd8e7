"""Programs that end without having closed what they opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from moebius import Router, Server

# When Python has ended this says so, and the process waits until its standard input is closed.
LINGERS = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.__cxa_atexit(libc.getchar, None, None)
libc.__cxa_atexit(libc.perror, ctypes.c_void_p(libc.strdup(b"python has ended")), None)
"""

CLIENT = (
    LINGERS
    + """
import moebius
client = moebius.Client(sys.argv[1])
print(client.call("echo", b"hello").decode(), flush=True)
"""
)

CLOSED_LATE = (
    """
import atexit, sys
clients = []
atexit.register(lambda: clients[0].close())  # before moebius asks to be told of the end
"""
    + CLIENT
    + "clients.append(client)"
)

SERVER = (
    LINGERS
    + """
import moebius
router = moebius.Router()
router.command("echo")(lambda request: request.payload)
server = moebius.Server(router, "tcp://127.0.0.1:0").in_thread()
server.__enter__()
print("hello", flush=True)
"""
)

EMBEDDED = (
    LINGERS
    + """
import tstreams
ts = tstreams.embedded(sys.argv[1])
ts.create_stream("clicks")
ts.producer("clicks").instant([b"one"], 0)
print("hello", flush=True)
"""
)


def begin(script: str, argument: str = "") -> subprocess.Popen[str]:
    """Run it until it is at the end of its program."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "hello\n"
    assert process.stderr.readline().startswith("python has ended")
    return process


def end(process: subprocess.Popen[str]) -> int:
    """Its status."""
    with process:
        assert process.stdin is not None
        process.stdin.close()
        return process.wait(30)


def make_server() -> Server:
    router = Router()
    router.command("echo")(lambda request: request.payload)
    return Server(router, "tcp://127.0.0.1:0")


def test_a_client_whose_server_goes_while_the_process_ends() -> None:
    with make_server().in_thread() as server:
        process = begin(CLIENT, str(server.addresses[0]))
    assert end(process) == 0


def test_a_client_that_is_closed_when_it_is_too_late() -> None:
    with make_server().in_thread() as server:
        process = begin(CLOSED_LATE, str(server.addresses[0]))
        assert end(process) == 0


def test_a_server_that_nobody_stopped() -> None:
    assert end(begin(SERVER)) == 0


def test_an_embedded_server_that_nobody_closed(tmp_path: Path) -> None:
    assert end(begin(EMBEDDED, str(tmp_path / "data"))) == 0
