"""Writes the list of BookKeeper's jars anew: `make freeze-jars BOOKKEEPER=4.18.0`. Needs Maven.

Left out is what neither the client nor a bookie with its default storage loads: RocksDB (72 MB, for another storage), native
TLS libraries of other makers, io_uring, and jars that hold nothing but annotations.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from tstreams.jars import Jar, project_of

LIST = Path(__file__).parent.parent / "src/tstreams/ledger/bookkeeper-jars.txt"
LEFT_OUT = [
    "rocksdbjni-*",
    "bc-fips-*",
    "netty-tcnative-boringssl-static-*",
    "netty-transport-native-io_uring-*",
    "checker-qual-*",
    "error_prone_annotations-*",
    "j2objc-annotations-*",
    "jsr305-*",
    "listenablefuture-*",
    "audience-annotations-*",
]
HEAD = """\
# Apache BookKeeper {version} and what it needs: SHA-256, bytes, group:artifact:version[:classifier].
# `make freeze-jars` writes this file.
"""


def main(version: str) -> None:
    wanted = Jar("", 0, "org.apache.bookkeeper", "bookkeeper-server", version)
    with tempfile.TemporaryDirectory() as folder:
        pom, made = Path(folder) / "pom.xml", Path(folder) / "jars"
        text = project_of([wanted])
        begin, end = text.index("<exclusions>"), text.index("</exclusions>") + len("</exclusions>")
        pom.write_text(text[:begin] + text[end:])
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={made}", "-DincludeScope=runtime"]
        command += ["-Dmdep.useRepositoryLayout=true"]
        subprocess.run(command, check=True)
        lines = sorted(line_of(path, made) for path in made.rglob("*.jar") if is_wanted(path))
    LIST.write_text(HEAD.format(version=version) + "".join(f"{line[1]}\n" for line in lines))


def is_wanted(path: Path) -> bool:
    return not any(fnmatch(path.name, pattern) for pattern in LEFT_OUT)


def line_of(path: Path, root: Path) -> tuple[str, str]:
    *group, artifact, version, _ = path.relative_to(root).parts
    classifier = path.stem.removeprefix(f"{artifact}-{version}").removeprefix("-")
    coordinates = ":".join(filter(None, (".".join(group), artifact, version, classifier)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return coordinates, f"{digest} {path.stat().st_size} {coordinates}"


if __name__ == "__main__":
    main(sys.argv[1])
