"""Progress of a running program: cycles, cycles per second, time left."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["Bar"]

_WIDTH = 24
#: Seconds between lines where there is no terminal.
_LINE_SECONDS = 10.0


class Bar:
    """To be called with the cycles that a program has run so far; a context manager that ends the line.

    On a terminal it is one line that is written again and again; elsewhere a line every few seconds, and only if asked
    for.

    Parameters
    ----------
    what
        What runs.
    total
        Cycles that it will take, about; None: unknown.
    always
        Also where the stream is no terminal.
    """

    def __init__(
        self, what: str, total: int | None = None, *, always: bool = False, stream: TextIO | None = None
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._what, self._total, self._on = what, total, self._terminal or always
        self._last = 0.0
        self._open = False
        # Rates count from the first call of a program, so that nothing before it is in them.
        self._from: tuple[float, int] | None = None

    def __call__(self, cycles: int) -> None:
        now = time.monotonic()
        if self._from is None or cycles < self._from[1]:
            self._from = now, cycles
        if not self._on or (not self._terminal and self._open and now - self._last < _LINE_SECONDS):
            return
        self._last, self._open = now, True
        seconds = now - self._from[0]
        line = self.text(cycles, (cycles - self._from[1]) / seconds if seconds > 0 else None)
        self._stream.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
        self._stream.flush()

    def text(self, cycles: int, rate: float | None) -> str:
        """The line for a number of cycles, and cycles per second."""
        speed = f", {rate:.0f} cycles/s" if rate else ""
        if not self._total:
            return f"{self._what}: {cycles} cycles{speed}"
        part = min(cycles / self._total, 1.0)
        bar = "#" * int(_WIDTH * part)
        left = f", {max(self._total - cycles, 0) / rate:.0f} s left" if rate else ""
        of = f"{100 * part:3.0f} %, {cycles} of about {self._total} cycles"
        return f"{self._what} [{bar:<{_WIDTH}}] {of}{speed}{left}"

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._open and self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
