"""What Spark says when it fails, in one line."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ")


def reason_of(error: BaseException) -> str:
    """The cause: what Python code has raised, else what Spark says first; without the stacks of both."""
    lines = str(error).splitlines()
    for number, line in enumerate(lines):
        if _TRACEBACK in line:
            raised = next((it for it in lines[number + 1 :] if it and not it.startswith(" ")), "")
            if raised:
                return raised.strip()
    first = next((line.strip() for line in lines if line.strip()), "")
    return _CLASS.sub("", first) or type(error).__name__
