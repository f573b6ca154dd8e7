"""Takes the best screenshots of the last run into the documentation.

python -m tests.e2e.console.pictures
"""

from __future__ import annotations

import shutil
import sys

from tests.e2e.doc_blocks import ROOT

from .browser import SCREENSHOTS

BEST = {"overview-dark": "overview", "stream-light": "stream", "reset-light": "reset"}
BYTES_MAX = 200_000
PLACE = ROOT / "docs" / "assets" / "console"


def main() -> None:
    """Copy them; a picture that is missing, or too large, is an error."""
    PLACE.mkdir(parents=True, exist_ok=True)
    for source, name in BEST.items():
        path = SCREENSHOTS / f"{source}.png"
        size = path.stat().st_size
        if size > BYTES_MAX:
            sys.exit(f"{path} has {size} bytes, and {BYTES_MAX} are allowed")
        shutil.copyfile(path, PLACE / f"{name}.png")


if __name__ == "__main__":
    main()
