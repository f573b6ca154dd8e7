"""Libraries from a repository of Maven: only what is pinned gets in. The repository is a server of this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tstreams.errors import Corrupt, Unavailable
from tstreams.jars import Jar, JarSet, bookkeeper_jars, project_of


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


class Repository:
    """Has two jars."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jars = (
            self.add("org.first", "first", "1.0", b"the first"),
            self.add("org.second.part", "second", "2.1", b"the second", "linux"),
        )
        self.set = JarSet("test", "The test", "1.0", "do it", self.jars)

    def add(
        self, group: str, artifact: str, version: str, data: bytes, classifier: str = ""
    ) -> Jar:
        digest = hashlib.sha256(data).hexdigest()
        jar = Jar(digest, len(data), group, artifact, version, classifier)
        path = self.folder / jar.path
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        return jar


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    folder = tmp_path / "repository"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("TSTREAMS_MAVEN_URL", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("TSTREAMS_JARS", str(tmp_path / "jars"))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))  # no Maven
        yield Repository(folder)
        server.shutdown()
        thread.join()


def test_jars_are_fetched_once_and_checked(repository: Repository, tmp_path: Path) -> None:
    jars = repository.set
    said: list[str] = []
    with pytest.raises(Unavailable, match=r"The test is not installed in .*test-1.0: run `do it`"):
        jars.find()
    jars.install(said.append)
    assert len(said) == 2
    assert [it.read_bytes() for it in jars.find()] == [b"the first", b"the second"]
    assert {it.name for it in jars.folder.iterdir()} == {"first-1.0.jar", "second-2.1-linux.jar"}
    jars.check()
    jars.install(said.append)
    assert len(said) == 2, "what is there is not fetched again"
    (jars.folder / "first-1.0.jar").write_bytes(b"the FIRST")
    with pytest.raises(Corrupt, match=r"first-1.0.jar is not the one that is pinned"):
        jars.check()
    (jars.folder / "first-1.0.jar").unlink()
    with pytest.raises(Unavailable, match=r"lacks first-1.0.jar"):
        jars.find()
    jars.install(said.append)
    assert len(said) == 3


def test_a_jar_with_another_checksum_does_not_get_in(repository: Repository) -> None:
    (repository.folder / repository.jars[1].path).write_bytes(b"THE SECOND")
    with pytest.raises(Unavailable, match=r"gave another second-2.1-linux.jar.*no mvn on the path"):
        repository.set.install(lambda _: None)
    assert [it.name for it in repository.set.folder.iterdir()] == ["first-1.0.jar"]


def test_a_repository_that_lacks_a_jar_is_told_of(repository: Repository) -> None:
    (repository.folder / repository.jars[0].path).unlink()
    with pytest.raises(
        Unavailable, match=r"first-1.0.jar does not answer.*404.*copy the jars into"
    ):
        repository.set.install(lambda _: None)


def test_maven_comes_first_where_it_is_set_up(repository: Repository, tmp_path: Path) -> None:
    """A Maven that has all jars, as one with a mirror has."""
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings/>")
    script = tmp_path / "mvn"
    copies = "".join(
        f'/bin/cp "{repository.folder / jar.path}" "$folder/"\n' for jar in repository.jars
    )
    script.write_text(
        '#!/bin/sh\nfor word in "$@"; do case $word in -DoutputDirectory=*) folder=${word#*=};; esac; done\n'
        f'/bin/mkdir -p "$folder"\n{copies}'
    )
    script.chmod(0o755)
    said: list[str] = []
    repository.set.install(said.append)
    assert said == [f"fetching 2 jars with {script}"]
    repository.set.check()


def test_a_maven_that_fails_is_told_of_and_gone_round(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings/>")
    script = tmp_path / "mvn"
    script.write_text("#!/bin/sh\necho '[ERROR] no such mirror'\nexit 1\n")
    script.chmod(0o755)
    repository.set.install(lambda _: None)
    repository.set.check()
    (repository.set.folder / "first-1.0.jar").unlink()
    (repository.folder / repository.jars[0].path).unlink()
    with pytest.raises(
        Unavailable, match=r"ended with code 1: \[ERROR\] no such mirror; and .*404"
    ):
        repository.set.install(lambda _: None)


def test_the_list_of_bookkeeper_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TSTREAMS_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    jars = bookkeeper_jars()
    assert jars.folder == Path(f"/cache/tstreams/jars/bookkeeper-{jars.version}")
    assert tuple(int(it) for it in jars.version.split(".")) >= (4, 17)
    assert len({jar.file for jar in jars.jars}) == len(jars.jars)
    assert all(len(jar.sha256) == 64 for jar in jars.jars)
    assert {"bookkeeper-server", "zookeeper", "netty-handler"} <= {it.artifact for it in jars.jars}
    assert project_of(jars.jars).count("<dependency>") == len(jars.jars)
