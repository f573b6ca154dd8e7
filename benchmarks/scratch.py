"""Where the data of a benchmark lies while it runs."""

from __future__ import annotations

import contextlib
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path


def add_dir_argument(parser: ArgumentParser) -> None:
    """The option `--dir`."""
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="where the data lies while it runs, a folder of a real disk (default build)",
    )


@contextlib.contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent`, removed at the end with all it holds."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=parent) as folder:
        yield Path(folder).resolve()
