"""Stacks as py-spy folds them: read, tidied, sorted by what the thread was doing, and added up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Stack: TypeAlias = tuple[str, ...]
"""Frames from the outermost to the innermost: `Shard.commit (tstreams/server/shard.py)`."""

WAITING: Final = "waiting"
PYTHON: Final = "Python"
NATIVE: Final = "C and Rust"
SYSTEM: Final = "system calls"
SYNC: Final = "fdatasync"
KINDS: Final = (PYTHON, NATIVE, SYSTEM, SYNC)
"""What a thread may be at when it does not wait."""

_LIBC = "libc"
# fmt: off
_WAITS = frozenset({
    "epoll_pwait", "epoll_wait", "poll", "ppoll", "select", "pselect", "accept", "accept4",
    "clock_nanosleep", "PyThread_acquire_lock_timed", "pthread_cond_timedwait",
    "pthread_cond_wait", "pthread_join", "sem_wait",
})
# fmt: on
_PIPES = {
    "Connection._recv (multiprocessing/connection.py)": "read",
    "read_int (serializers.py)": "read",
    "ArrowStreamSerializer.load_stream (serializers.py)": "read",
    "RecordBatchStreamReader.__init__ (pyarrow/ipc.py)": "read",
    "ArrowStreamSerializer.dump_stream (serializers.py)": "write",
}
"""Functions that block in this call: clients until they are told to begin, workers of Spark until rows come from its
Java, or are taken there. What they copy meanwhile is little: their processor time says so."""
_SYNCS = frozenset({"fdatasync", "fsync", "sync_file_range"})
# fmt: off
_CALLS = frozenset({
    "read", "write", "readv", "writev", "pread64", "preadv64v2", "pwrite64", "pwritev64v2",
    "recv", "recvfrom", "recvmsg", "send", "sendto", "sendmsg", "sched_yield", "open64",
    "openat", "close", "fstat64", "posix_fallocate64", "unlink", "rename", "mmap", "munmap",
    "madvise", "epoll_ctl", "ftruncate64",
})
# fmt: on
_INLINED = frozenset({"Py_DECREF", "Py_XDECREF"})
"""The compiler has merged them with what follows, so they would stand where others belong."""
_FRAME = re.compile(r"^(?P<name>.*) \((?P<place>[^()]*)\)$")
_LINE = re.compile(r":\d+$")
_INNERMOST = 4
"""So many frames tell whether a thread waits: below a lock there is the library's own code."""


@dataclass(frozen=True, slots=True)
class Line:
    """One function in the table: shares of all samples in which a thread did not wait."""

    function: str
    own: float
    """In the function itself and in what is not Python and is called by it."""
    outside: float
    """The part of `own` that was not Python."""
    callees: tuple[str, ...]
    """What that was, the most frequent first."""
    total: float
    """In it and in all that it calls."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was seen of one process: stacks at work with their counts, and how many samples waited."""

    stacks: dict[Stack, int]
    waiting: int

    @property
    def working(self) -> int:
        """Samples in which a thread did not wait."""
        return sum(self.stacks.values())

    def shares(self) -> dict[str, float]:
        """By kind: its share of the samples at work."""
        counts: Counter[str] = Counter()
        for stack, count in self.stacks.items():
            counts[kind_of(stack)] += count
        return {kind: counts[kind] / max(1, self.working) for kind in KINDS}

    def lines(self) -> list[Line]:
        """Every function of Python, those first in which most time went."""
        own: Counter[str] = Counter()
        outside: Counter[str] = Counter()
        total: Counter[str] = Counter()
        callees: dict[str, Counter[str]] = {}
        for stack, count in self.stacks.items():
            inner = innermost_python(stack)
            own[inner] += count
            if stack[-1] != inner:
                outside[inner] += count
                callees.setdefault(inner, Counter())[bare_name(stack[-1])] += count
            total.update(dict.fromkeys({it for it in stack if is_python(it)}, count))
        every = max(1, self.working)
        lines = [
            Line(
                name,
                own[name] / every,
                outside[name] / every,
                tuple(it for it, _ in callees.get(name, Counter()).most_common(3)),
                total[name] / every,
            )
            for name in own | total
        ]
        return sorted(lines, key=lambda line: (-line.own, -line.total, line.function))


def parse(text: str) -> Profile:
    """What py-spy writes with `--format raw --idle --native`."""
    stacks: Counter[Stack] = Counter()
    waiting = 0
    for line in text.splitlines():
        folded, _, count = line.rpartition(" ")
        stack = tidy(folded.split(";"))
        if not stack or waits(stack):
            waiting += int(count)
        else:
            stacks[stack] += int(count)
    return Profile(dict(stacks), waiting)


def tidy(frames: Iterable[str]) -> Stack:
    """Without line numbers and addresses; a library without names for its insides is one frame."""
    found: list[str] = []
    for frame in frames:
        match = _FRAME.match(frame)
        name, place = (match["name"], _LINE.sub("", match["place"])) if match else (frame, "")
        if place in ("?", "[vdso]") or name.startswith("process ") or name in _INLINED:
            continue
        if place.startswith("libc."):
            name, place = ("" if name.startswith("0x") else name), _LIBC
        elif ".so" in place and not place.startswith("libpython"):
            name, place = "", place.rpartition("/")[2].partition(".")[0]
        elif name.startswith("0x"):
            continue
        tidied = f"{name} ({place})" if name and place else name or place
        if not found or found[-1] != tidied:
            found.append(tidied)
    return tuple(found)


def waits(stack: Stack) -> bool:
    """Whether the thread waits for work, for another thread, or for its turn to run Python."""
    if any(bare_name(frame) in _WAITS for frame in stack[-_INNERMOST:]):
        return True
    return _PIPES.get(innermost_python(stack)) == bare_name(stack[-1])


def kind_of(stack: Stack) -> str:
    """What the thread was at."""
    if any(bare_name(frame) in _SYNCS for frame in stack[-2:]):
        return SYNC
    if is_python(stack[-1]):
        return PYTHON
    return SYSTEM if bare_name(stack[-1]) in _CALLS else NATIVE


def is_python(frame: str) -> bool:
    """Whether a frame is a function of Python."""
    return frame.endswith((".py)", "(<frozen runpy>)"))


def is_ours(frame: str) -> bool:
    """Whether a frame is a function of this project."""
    return "(tstreams/" in frame or "(moebius/" in frame


def bare_name(frame: str) -> str:
    """A frame without its place."""
    return frame.partition(" (")[0]


def innermost_python(stack: Stack) -> str:
    """The function of Python that a stack ends in, or that called what it ends in."""
    return next((frame for frame in reversed(stack) if is_python(frame)), stack[0])
