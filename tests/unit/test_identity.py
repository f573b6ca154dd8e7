"""The id of a node stays with its folder, and so does the secret of its shards."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tstreams.errors import Corrupt
from tstreams.server.identity import kin_secret, node_id
from tstreams.server.seal import Seal


def test_it_is_made_once(tmp_path: Path) -> None:
    first = node_id(tmp_path)
    assert node_id(tmp_path) == first
    assert [it.name for it in tmp_path.iterdir()] == ["node"]
    (tmp_path / "node").unlink()
    assert node_id(tmp_path) != first


@pytest.mark.parametrize("content", [b"", b"x" * 16, b"0123", b"\xff\xfe", b"0123456789abcdef0"])
def test_what_is_no_id_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "node").write_bytes(content)
    with pytest.raises(Corrupt, match="holds no node id"):
        node_id(tmp_path)


def test_where_nothing_can_be_kept_it_has_one_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".node").mkdir()  # in the way of the file that is written first
    with caplog.at_level(logging.WARNING, "tstreams.server"):
        assert len(node_id(tmp_path)) == 16
    assert "could not be kept" in caplog.text


def test_the_secret_of_the_shards_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = kin_secret(tmp_path)
    assert kin_secret(tmp_path) == first
    assert Seal(first).fits("0:x", b"y", Seal(first).of("0:x", b"y"))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    assert kin_secret(tmp_path) != first


@pytest.mark.parametrize("content", [b"", b"x" * 64, b"0123", b"\xff\xfe"])
def test_what_is_no_secret_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kin").write_bytes(content)
    with pytest.raises(Corrupt, match=r"kin holds no secret: put back what was there"):
        kin_secret(tmp_path)
