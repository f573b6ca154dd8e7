"""The Java virtual machine in this process: one, small, that leaves signals and the end of the process to Python."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..java import find_java
from .engine import EngineUnfit

HEAP_MIB = 256
"""What Java objects may take. Groups on their way and entries that are read lie there: `bookkeeper_link` bounds them."""
DIRECT_MIB = 128
"""What network buffers of Java may take beside that."""

_PROOF = "org.apache.bookkeeper.client.api.BookKeeper"
_starting = threading.Lock()


def options(heap_mib: int = HEAP_MIB, direct_mib: int = DIRECT_MIB) -> list[str]:
    """How the machine is started."""
    return [
        f"-Xmx{heap_mib}m",
        "-Xms32m",
        f"-XX:MaxDirectMemorySize={direct_mib}m",
        "-Xrs",  # SIGTERM, SIGINT and SIGHUP are Python's
        "-XX:+UseSerialGC",  # one thread for it, and a small heap
        "-XX:TieredStopAtLevel=1",
        "-XX:CICompilerCount=1",
        "-XX:-UsePerfData",  # or else a file in the temporary folder that other users can read
        "-XX:+ExitOnOutOfMemoryError",  # a client that has lost a thread waits for ever
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        "-Dio.netty.allocator.numHeapArenas=1",
        "-Dio.netty.allocator.numDirectArenas=2",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
        f"-Dlog4j2.configurationFile={log_settings()}",
    ]


def log_settings() -> Path:
    """What Java's own log does: warnings, to standard error."""
    return Path(str(resources.files(__package__).joinpath("jvm-log.properties")))


def start(jars: Sequence[Path], *, heap_mib: int = HEAP_MIB, direct_mib: int = DIRECT_MIB) -> None:
    """Start it with these jars, unless it runs. Takes a second, and blocks.

    `EngineUnfit` if JPype is missing, or if the process has a machine already that does not know the jars;
    `Unavailable` if there is no Java.
    """
    if find_spec("jpype") is None:
        raise EngineUnfit("BookKeeper needs the package jpype1: pip install 'tstreams[bookkeeper]'")
    import jpype
    import jpype.config

    with _starting:
        if jpype.isJVMStarted():
            _check_knows()
            return
        # At the end of the process nobody waits for threads of Java: some of them never end.
        jpype.config.onexit = False
        jpype.config.destroy_jvm = False
        jpype.startJVM(
            _library(find_java("BookKeeper")),
            *options(heap_mib, direct_mib),
            classpath=[str(jar) for jar in jars],
            convertStrings=False,
            interrupt=False,
        )


def _library(java: Path) -> str:
    """The machine that belongs to a `java`."""
    home = java.resolve().parent.parent
    for name in ("lib/server/libjvm.so", "lib/server/libjvm.dylib", "jre/lib/server/libjvm.so"):
        if (home / name).exists():
            return str(home / name)
    raise EngineUnfit(f"{home} has no libjvm: BookKeeper needs a whole Java, set JAVA_HOME to one")


def _check_knows() -> None:
    """Somebody else may have started it, with what they need."""
    import jpype

    try:
        jpype.JClass(_PROOF)
    except TypeError as error:
        raise EngineUnfit(
            "a Java virtual machine runs in this process without BookKeeper's jars, and there can only be one: "
            "connect to BookKeeper before anything else starts it"
        ) from error


def java_class(name: str) -> Any:
    """A class of Java."""
    import jpype

    return jpype.JClass(name)


def java_bytes(data: Any) -> Any:
    """A copy of these bytes in Java."""
    import jpype

    return jpype.JArray(jpype.JByte)(data)
