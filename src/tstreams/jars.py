"""Java libraries from Maven Central that parts of this need: which, where they are on this machine, and how they get there.

The list of a set is a file of the package: one line for each jar, with its SHA-256 and size. Nothing else is ever loaded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from .errors import Corrupt, Unavailable

REPOSITORY = "https://repo1.maven.org/maven2"
FOLDER_VARIABLE = "TSTREAMS_JARS"
"""Where jars are, instead of the user's cache."""
REPOSITORY_VARIABLE = "TSTREAMS_MAVEN_URL"
"""Where jars are fetched from, instead of Maven Central: a mirror of it."""
_ANSWER_S = 30.0
_MAVEN_S = 1200.0
_CHUNK_BYTES = 1 << 18

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Jar:
    """One library, as it must be."""

    sha256: str
    size_bytes: int
    group: str
    artifact: str
    version: str
    classifier: str = ""

    @staticmethod
    def parse(line: str) -> Jar:
        """A line of a list: `SHA256 BYTES GROUP:ARTIFACT:VERSION[:CLASSIFIER]`."""
        sha256, size, coordinates = line.split()
        return Jar(sha256, int(size), *coordinates.split(":"))

    @property
    def file(self) -> str:
        """Its name, here and in repositories."""
        behind = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{behind}.jar"

    @property
    def path(self) -> str:
        """Where it lies in a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"

    def is_right(self, path: Path) -> bool:
        """Whether this file is what it must be, to the byte."""
        if not path.is_file() or path.stat().st_size != self.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


@dataclass(frozen=True, slots=True)
class JarSet:
    """What one part needs. `command` brings it."""

    name: str
    title: str
    version: str
    command: str
    jars: tuple[Jar, ...]

    @property
    def folder(self) -> Path:
        """Where the jars of this version are on this machine: in the user's cache, unless TSTREAMS_JARS is set."""
        root = os.environ.get(FOLDER_VARIABLE)
        if root:
            return Path(root) / f"{self.name}-{self.version}"
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "tstreams" / "jars" / f"{self.name}-{self.version}"

    def missing(self) -> list[Jar]:
        """Those that are not there, or have another size."""
        folder = self.folder

        def is_there(jar: Jar) -> bool:
            path = folder / jar.file
            return path.is_file() and path.stat().st_size == jar.size_bytes

        return [jar for jar in self.jars if not is_there(jar)]

    def find(self) -> list[Path]:
        """All of them. `Unavailable` if any is missing; it says what to do."""
        missing = self.missing()
        if missing:
            what = (
                "is not installed" if len(missing) == len(self.jars) else f"lacks {missing[0].file}"
            )
            raise Unavailable(f"{self.title} {what} in {self.folder}: run `{self.command}`")
        return [self.folder / jar.file for jar in self.jars]

    def check(self) -> None:
        """Compare every byte. `Unavailable` if a jar is missing, `Corrupt` if one is not what it must be."""
        for jar, path in zip(self.jars, self.find(), strict=True):
            if not jar.is_right(path):
                raise Corrupt(
                    f"{path} is not the one that is pinned: delete it, and run `{self.command}`"
                )

    def install(self, say: Say) -> None:
        """Fetch what is missing. `Unavailable` if it cannot be had; it says what was tried. Jars that are there stay,
        so it may be repeated. A jar with another checksum is never put into the folder."""
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        missing = [jar for jar in self.jars if not jar.is_right(folder / jar.file)]
        if not missing:
            return
        # Who has set Maven up knows a way that we do not: mirrors, proxies, passwords.
        set_up = (Path.home() / ".m2" / "settings.xml").exists()
        ways = [_by_maven, _by_https] if set_up else [_by_https, _by_maven]
        problems = []
        for way in ways:
            try:
                way(missing, folder, say)
            except (Unavailable, OSError) as error:
                problems.append(str(error))
                missing = [jar for jar in missing if not jar.is_right(folder / jar.file)]
            else:
                return
        raise Unavailable(
            f"{self.title} cannot be fetched: {'; and '.join(problems)}. Set {REPOSITORY_VARIABLE} to a mirror of "
            f"Maven Central, or copy the jars into {folder} from where it works"
        )


def _by_https(jars: Iterable[Jar], folder: Path, say: Say) -> None:
    """From the repository, through the proxies and with the certificates that the environment names."""
    repository = os.environ.get(REPOSITORY_VARIABLE, REPOSITORY).rstrip("/")
    if not repository.startswith(("https://", "http://")):
        raise Unavailable(
            f"{REPOSITORY_VARIABLE} is {repository}, which is not the URL of a repository"
        )
    for jar in jars:
        url = f"{repository}/{jar.path}"
        say(f"fetching {url}")
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-") as part:
            try:
                with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310
                    while chunk := answer.read(_CHUNK_BYTES):
                        part.write(chunk)
            except (urllib.error.URLError, TimeoutError) as error:
                raise Unavailable(f"{url} does not answer: {error}") from error
            part.flush()
            _keep(jar, Path(part.name), folder, url)


def _by_maven(jars: Iterable[Jar], folder: Path, say: Say) -> None:
    """With Maven, as it is set up on this machine."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("there is no mvn on the path")
    jars = list(jars)
    with tempfile.TemporaryDirectory() as place:
        pom, made = Path(place) / "pom.xml", Path(place) / "jars"
        pom.write_text(project_of(jars))
        say(f"fetching {len(jars)} jars with {maven}")
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={made}", "-DexcludeTransitive=true"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_MAVEN_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{maven} took longer than {_MAVEN_S:g} s") from None
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line]
            raise Unavailable(f"{maven} ended with code {done.returncode}: {' '.join(said[:1])}")
        for jar in jars:
            _keep(jar, made / jar.file, folder, maven)


def _keep(jar: Jar, found: Path, folder: Path, source: str) -> None:
    if not jar.is_right(found):
        raise Unavailable(f"{source} gave another {jar.file} than the one that is pinned")
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-", delete=False) as copy:
        copy.write(found.read_bytes())
    Path(copy.name).replace(folder / jar.file)


def project_of(jars: Iterable[Jar]) -> str:
    """A project of Maven that needs exactly these."""

    def dependency(jar: Jar) -> str:
        classifier = f"<classifier>{jar.classifier}</classifier>" if jar.classifier else ""
        return (
            f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
            f"<version>{jar.version}</version>{classifier}<exclusions><exclusion><groupId>*</groupId>"
            f"<artifactId>*</artifactId></exclusion></exclusions></dependency>"
        )

    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tstreams</groupId><artifactId>jars</artifactId><version>1</version><dependencies>"
        f"{''.join(map(dependency, jars))}</dependencies></project>"
    )


def read_list(name: str, title: str, leading: str) -> JarSet:
    """A set by the list that the package has of it. `leading` is the artifact whose version is that of the set."""
    text = resources.files(__package__).joinpath("ledger", f"{name}-jars.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    jars = tuple(map(Jar.parse, lines))
    version = next(jar.version for jar in jars if jar.artifact == leading)
    return JarSet(name, title, version, f"tstreams engine install {name}", jars)


def bookkeeper_jars() -> JarSet:
    """Apache BookKeeper: its client, and its server."""
    return read_list("bookkeeper", "Apache BookKeeper", "bookkeeper-server")
