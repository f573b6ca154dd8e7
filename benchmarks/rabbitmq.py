"""A real RabbitMQ with streams, for the benchmarks: fetch it, find it, start it.

The machine's own rabbitmq-server is used where there is one. Else `make rabbitmq` unpacks the packages of Debian, with
Erlang, into `.engines/rabbitmq`: nothing is installed, nobody has to be root, no service is started. `python -m
benchmarks.rabbitmq fetch` does the same, and `check` starts it once to see that it works. `offer`, for `make bench`,
fetches it where it is lacking and can be had, and is content where it cannot.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .interface import BenchmarkFailed
from .servers import HOST, ServerProcess, connected, free_port, running

ROOT = Path(__file__).resolve().parent.parent
UNPACKED = ROOT / ".engines" / "rabbitmq"
_SCRIPTS = "usr/lib/rabbitmq/bin"
_ERLANG = "usr/lib/erlang"
_FETCH_WITHIN_S = 600
_READY_WITHIN_S = 60.0

ERL = """\
#!/bin/sh
# Erlang from wherever this folder lies; Debian's own script knows one place only.
ROOTDIR=$(cd "$(dirname "$0")/.." && pwd)
BINDIR=$(echo "$ROOTDIR"/erts-*/bin)
EMU=beam
PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec "$BINDIR/erlexec" ${1+"$@"}
"""

SETTINGS = """\
listeners.tcp = none
stream.listeners.tcp.1 = {host}:{port}
log.file = false
log.console = true
log.console.level = warning
"""


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    """What is needed to start one."""

    server: str
    """The script that starts it."""
    epmd: str
    """The name server of Erlang's nodes."""
    paths: tuple[str, ...]
    """Where programs are found, before all other places."""
    libraries: tuple[str, ...]
    """Where libraries are found that the machine lacks."""


def find_rabbitmq() -> RabbitMQ | str:
    """What there is of it, the machine's own first; if something is lacking, what that is."""
    # Debian's rabbitmq-server on PATH changes the user, and logs into /var: the script behind it does neither.
    behind = shutil.which("rabbitmq-server", path=f"/{_SCRIPTS}")
    server = behind or shutil.which("rabbitmq-server")
    epmd = shutil.which("epmd")
    if server is not None and epmd is not None and shutil.which("erl") is not None:
        return RabbitMQ(server, epmd, (), ())
    server = shutil.which("rabbitmq-server", path=str(UNPACKED / _SCRIPTS))
    programs = list((UNPACKED / _ERLANG).glob("erts-*/bin/epmd"))
    if server is None or not programs:
        return "no RabbitMQ here: `make rabbitmq` fetches one, with apt-get"
    libraries = {str(file.parent) for file in (UNPACKED / "usr/lib").glob("*-linux-gnu*/*.so*")}
    erlang = str(UNPACKED / _ERLANG / "bin")
    return RabbitMQ(server, str(programs[0]), (erlang,), tuple(sorted(libraries)))


def rabbitmq_version(rabbitmq: RabbitMQ) -> str | None:
    """The version, which is in the name of its folder."""
    found = re.search(r"rabbitmq_server-([\d.]+)", str(Path(rabbitmq.server).resolve()))
    return found[1] if found else None


def fetch() -> None:
    """Unpack Debian's packages of RabbitMQ and of the Erlang that it needs into `.engines/rabbitmq`."""
    for program in ("apt-get", "apt-cache", "dpkg", "dpkg-query"):
        if shutil.which(program) is None:
            raise BenchmarkFailed(
                f"no {program} on PATH: without Debian's packages install rabbitmq-server yourself"
            )
    names = _needed()
    with tempfile.TemporaryDirectory() as folder:
        packages, made = Path(folder) / "packages", Path(folder) / "root"
        packages.mkdir()
        made.mkdir()
        _run(["apt-get", "download", "-q", *names], packages)
        for package in sorted(packages.glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(made)], packages)
        launcher = made / _ERLANG / "bin" / "erl"
        launcher.unlink()
        launcher.write_text(ERL)
        launcher.chmod(0o755)
        shutil.rmtree(UNPACKED, ignore_errors=True)
        UNPACKED.parent.mkdir(exist_ok=True)
        shutil.copytree(made, UNPACKED, symlinks=True)


def _needed() -> list[str]:
    """rabbitmq-server, all of Erlang that it needs, and libraries that are not installed."""
    installed = _installed()
    found: set[str] = set()
    waiting = {"rabbitmq-server"}
    while waiting:
        found |= waiting
        waiting = {
            name
            for name in _depended_on(waiting) - found
            if name.startswith("erlang-") or (name.startswith("lib") and name not in installed)
        }
    return sorted(found)


def _depended_on(packages: set[str]) -> set[str]:
    command = ["apt-cache", "depends", *sorted(packages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode or not done.stdout:
        said = done.stderr.strip() or "nothing"
        raise BenchmarkFailed(
            f"apt-cache does not know all of {' '.join(command[2:])} (it says: {said}): "
            "run `apt-get update` first"
        )
    found = re.findall(r"^ [ |](?:Pre)?Depends: ([^<\s]\S*)$", done.stdout, re.MULTILINE)
    return set(found)


def _installed() -> set[str]:
    command = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return set(re.findall(r"^(\S+) installed$", done.stdout, re.MULTILINE))


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_WITHIN_S, check=False
    )
    if done.returncode:
        said = done.stderr.strip()[-2000:]
        raise BenchmarkFailed(f"{' '.join(command[:2])} ended with code {done.returncode}:\n{said}")


@contextlib.contextmanager
def rabbitmq_server(rabbitmq: RabbitMQ, folder: Path) -> Iterator[ServerProcess]:
    """A node of its own with its streams in `folder`, on loopback alone. It never calls fsync."""
    port, epmd_port = free_port(), free_port()
    (folder / "rabbitmq.conf").write_text(SETTINGS.format(host=HOST, port=port))
    (folder / "enabled_plugins").write_text("[rabbitmq_stream].\n")
    surroundings = _surroundings(rabbitmq, folder, epmd_port)
    # Erlang finds nodes through a process that outlives them all, unless it is there before.
    names = [rabbitmq.epmd, "-address", HOST, "-port", str(epmd_port)]
    with (
        running("epmd", names, folder, surroundings),
        running("rabbitmq", [rabbitmq.server], folder, surroundings) as server,
    ):
        server.port = port
        connected(server, within_s=_READY_WITHIN_S).close()
        yield server


def _surroundings(rabbitmq: RabbitMQ, folder: Path, epmd_port: int) -> dict[str, str]:
    """The environment of its processes: nothing of the machine's own RabbitMQ is read or written."""
    paths = [*rabbitmq.paths, os.environ.get("PATH", os.defpath)]
    libraries = [*rabbitmq.libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        **{name: it for name, it in os.environ.items() if not name.startswith("RABBITMQ_")},
        "PATH": os.pathsep.join(paths),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": f"tstreams-bench-{secrets.token_hex(4)}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(folder / "no-such-file"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "no-such-file"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        # The shell script turns into the server then, so that signals and figures are of the server itself.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


def _offer() -> None:
    """Have one if it can be had; say why if it cannot."""
    if not isinstance(find_rabbitmq(), str):
        return
    print("== fetching RabbitMQ with apt-get (once; half a minute)", file=sys.stderr)
    try:
        fetch()
    except (BenchmarkFailed, subprocess.TimeoutExpired) as error:
        print(f"the benchmarks go without RabbitMQ: {error}", file=sys.stderr)


def _check() -> None:
    """Start it, and speak with it."""
    from .rabbitmq_streams import StreamConnection

    rabbitmq = find_rabbitmq()
    if isinstance(rabbitmq, str):
        raise BenchmarkFailed(rabbitmq)
    with (
        tempfile.TemporaryDirectory() as folder,
        rabbitmq_server(rabbitmq, Path(folder)) as server,
    ):
        StreamConnection(server.port).close()
        version = rabbitmq_version(rabbitmq) or "of unknown version"
        print(f"RabbitMQ {version} runs at {HOST}:{server.port}; it is stopped again")


def main() -> int:
    """The exit code."""
    actions = sys.argv[1:]
    try:
        if "offer" in actions:
            _offer()
        if "fetch" in actions:
            fetch()
        if "check" in actions:
            _check()
    except BenchmarkFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
