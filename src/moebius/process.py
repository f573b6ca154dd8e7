"""Which process this is, without asking the system each time: that is a system call."""

from __future__ import annotations

import os

pid = os.getpid()
"""The number of this process."""


def _after_fork() -> None:
    global pid  # noqa: PLW0603
    pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)
