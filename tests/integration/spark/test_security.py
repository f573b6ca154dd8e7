"""Spark against a server that lets in only who has its token, and speaks TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tstreams

from ..certificates import make_certificate
from ..cli import serving, url_in
from .conftest import Pipe
from .test_source import fill

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""


def test_a_token_and_tls(spark: SparkSession, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    token_file = tmp_path / "token"
    token_file.write_text("open sesame")
    flags = ("--tls-certificate", cert, "--tls-key", key, "--token-file", str(token_file))
    with serving(tmp_path / "data", *flags) as line:
        url = url_in(line)
        tls = tstreams.Tls(ca_file=cert)
        with tstreams.connect(url, "open sesame", tls=tls) as ts:
            for name in ("source", "sink"):
                ts.create_stream(name, 2)
            fill(ts, "source", 4)
            pipe = Pipe(spark, url, ts, tmp_path)
            right = {"token": "open sesame", "tlsCa": cert, "timeout": "20"}
            df = pipe.stream("source", **right).select("item")
            pipe.run(df, "sink", **right)
            assert sorted(pipe.items("sink")) == sorted(pipe.items("source"))
            assert pipe.read("sink", **right).count() == 20
            with pytest.raises(Exception, match=r"(?i)unauthori"):
                pipe.read("sink", **right | {"token": "wrong"}).count()
            with pytest.raises(Exception, match=r"(?i)certificate|tls|connect"):
                pipe.read("sink", token="open sesame", timeout="2").count()
