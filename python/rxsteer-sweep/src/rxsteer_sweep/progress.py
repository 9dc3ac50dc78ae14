"""The progress of a sweep: one line, on a terminal only."""

from __future__ import annotations

import sys
import time


class Progress:
    """A line on standard error that each update overwrites."""

    def __init__(self, cells: int) -> None:
        """Starts the display for this number of cells."""
        self.cells = cells
        self.begun = time.monotonic()
        self.shown = sys.stderr.isatty()
        self.show(0, 0)

    def show(self, done: int, failed: int) -> None:
        """Shows the number of complete cells, and how many of these failed."""
        if not self.shown:
            return
        left = "-"
        if done:
            left = f"{(time.monotonic() - self.begun) / done * (self.cells - done):.0f} s"
        line = f"\r\033[K{done} of {self.cells} cells, {failed} failed, {left} left"
        print(line, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Removes the line."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
