"""The shim: a little C between the server's process and the system, for what Python cannot reach."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.torture.panel import Cell, Panel

SOURCE = Path(__file__).with_name("shim.c")


def barrier() -> str:
    """Why it cannot be had; empty if it can."""
    return "" if shutil.which("cc") else "there is no C compiler (cc)"


def build(folder: Path, panel: Panel) -> list[str]:
    """Build it. What a command begins with, to run with it."""
    library = folder / "shim.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run([*command, "-ldl"], check=True, timeout=60)
    variables = {
        "LD_PRELOAD": library,
        "TSTREAMS_TORTURE_PANEL": panel.path,
        "TSTREAMS_TORTURE_CELL": Cell.INDEX_SYNC_ERROR.value,
    }
    return ["env", *(f"{name}={value}" for name, value in variables.items())]
