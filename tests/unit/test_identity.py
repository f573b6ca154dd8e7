"""The id of a node stays with its folder."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tstreams.errors import Corrupt
from tstreams.server.identity import node_id


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
