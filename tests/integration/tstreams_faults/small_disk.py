"""A disk of a few megabytes: a tmpfs, mounted by root, or by anyone in a namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_NAMESPACE = "TSTREAMS_TEST_IN_NAMESPACE"
UNSHARE = ["unshare", "--map-root-user", "--mount"]


def _run(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0


def can_mount() -> bool:
    """Whether this process may mount a file system."""
    return os.geteuid() == 0 and _run("unshare", "--mount", "mount", "-t", "tmpfs", "x", "/mnt")


def can_unshare() -> bool:
    """Whether it could, in a namespace of its own."""
    return IN_NAMESPACE not in os.environ and _run(*UNSHARE, "mount", "-t", "tmpfs", "x", "/mnt")


def run_in_namespace(test: str) -> subprocess.CompletedProcess[str]:
    """Run one test where mounting is allowed."""
    command = [*UNSHARE, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    environment = {**os.environ, IN_NAMESPACE: "1"}
    return subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=110
    )


@contextmanager
def mounted(path: Path, megabytes: int) -> Iterator[Path]:
    """A file system of that size."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tstreams-test"]
    subprocess.run(["mount", *options, str(path)], check=True, timeout=30)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=30)


def free_bytes(path: Path) -> int:
    """What is left of a file system."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def fill(path: Path) -> Path:
    """A file that takes all the room there is."""
    filler = path / "somebody-elses-file"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while True:
            try:
                os.write(descriptor, bytes(4096))
            except OSError:
                return filler
    finally:
        os.close(descriptor)
