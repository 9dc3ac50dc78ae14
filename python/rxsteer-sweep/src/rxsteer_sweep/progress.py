"""How far a sweep is: one line, on a terminal only."""

from __future__ import annotations

import sys
import time


class Progress:
    """A line on standard error that is written over again."""

    def __init__(self, cells: int) -> None:
        """For so many cells."""
        self.cells = cells
        self.begun = time.monotonic()
        self.shown = sys.stderr.isatty()
        self.show(0, 0)

    def show(self, done: int, failed: int) -> None:
        """Shows how many are done, and how many of these failed."""
        if not self.shown:
            return
        left = "-"
        if done:
            left = f"{(time.monotonic() - self.begun) / done * (self.cells - done):.0f} s"
        line = f"\r\033[K{done} of {self.cells} cells, {failed} failed, {left} left"
        print(line, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Takes the line away."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
