"""What the show draws with: headings, lines, bars, and claims that are counted."""

import os
import sys
from collections.abc import Sequence

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "1;31", "32", "33", "1;36"
BAR_WIDTH = 40


class Screen:
    """Writes to the terminal. Without one, and where `NO_COLOR` is set, it is plain text."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._has_colour = self._is_terminal and "NO_COLOR" not in os.environ
        can_draw = "utf" in (sys.stdout.encoding or "").lower()
        self.full, self.empty, self.mark = "█░✗" if can_draw else "#.X"
        self._headings = 0
        self.claims = 0
        self.broken: list[str] = []

    def title(self, text: str) -> None:
        """The name of all that follows, or its end."""
        print(f"\n    {self._painted(text, BOLD)}", flush=True)

    def heading(self, text: str) -> None:
        """The name of an act."""
        self._headings += 1
        print(self._painted(f"\n{self._headings:2}  {text}", CYAN), flush=True)

    def say(self, text: str, colour: str = "") -> None:
        """A line."""
        print(f"    {self._painted(text, colour)}", flush=True)

    def claim(self, holds: bool, text: str) -> None:
        """Something that must be so. The show fails if it is not."""
        self.claims += 1
        if holds:
            self.say(f"ok  {text}", GREEN)
        else:
            self.broken.append(text)
            self.say(f"NOT SO:  {text}", RED)

    def bars(self, rows: Sequence[tuple[str, float, str]]) -> None:
        """A bar for each (name, value, what to say of it), the longest for the greatest value."""
        widest = max(len(name) for name, _, _ in rows)
        greatest = max(value for _, value, _ in rows) or 1
        for name, value, text in rows:
            bar = self.full * round(30 * value / greatest)
            self.say(f"{name:{widest}}  {self._painted(bar, CYAN)} {text}")

    def progress(self, done: int, total: int, what: str, marks: Sequence[int] = ()) -> None:
        """A line that is drawn over and over; on a terminal only. `marks` are values worth a cross."""
        if self._is_terminal:
            line = f"    {self.bar(done, total, marks)} {done:>7,} {what}"
            print(f"\r{line}\033[K", end="", flush=True)

    def finish(self, done: int, total: int, what: str, marks: Sequence[int] = ()) -> None:
        """The last of such lines."""
        start = "\r\033[K" if self._is_terminal else ""
        print(f"{start}    {self.bar(done, total, marks)} {done:>7,} {what}", flush=True)

    def bar(self, done: int, total: int, marks: Sequence[int] = ()) -> str:
        """How much of a whole is done."""
        filled = round(BAR_WIDTH * done / total)
        cells = [self._painted(self.full, CYAN)] * filled
        cells += [self._painted(self.empty, DIM)] * (BAR_WIDTH - filled)
        for value in marks:
            cells[min(BAR_WIDTH - 1, BAR_WIDTH * value // total)] = self._painted(self.mark, RED)
        return "".join(cells)

    def _painted(self, text: str, colour: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if colour and self._has_colour else text
