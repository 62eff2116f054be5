"""The cycles that a waveform shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sluice.errors import UsageError

__all__ = ["WaveWindow"]

_ALL = (1 << 64) - 1


@dataclass(frozen=True)
class WaveWindow:
    """From cycle ``first`` up to and without cycle ``last``, after the doorbell (the first start of a program).

    A waveform of a window has its time 0 at the doorbell, and a cycle takes 10 ns. Without a window it begins with the
    simulation, what the host writes before the doorbell included.

    Raises
    ------
    UsageError
        For a window without cycles.
    """

    first: int = 0
    last: int | None = None

    def __post_init__(self) -> None:
        if self.first < 0 or (self.last is not None and not self.first < self.last < _ALL):
            raise UsageError(f"a window of waves needs 0 <= FIRST < LAST, not {self.first}:{self.last}")

    @classmethod
    def parse(cls, text: str) -> WaveWindow:
        """``FIRST:LAST``, ``FIRST:`` or ``:LAST``.

        Raises
        ------
        UsageError
            Naming the text and what is allowed.
        """
        match = re.fullmatch(r"(\d*):(\d*)", text)
        if not match or match[0] == ":":
            raise UsageError(
                f"a window of waves is FIRST:LAST, cycles after the doorbell (for example 1000:3000), not {text!r}"
            )
        return cls(int(match[1] or 0), int(match[2]) if match[2] else None)

    @property
    def whole(self) -> bool:
        """Everything, from the start of the simulation."""
        return self.first == 0 and self.last is None

    @property
    def end(self) -> int:
        """The last cycle shown, as the simulator takes it."""
        return _ALL if self.last is None else self.last - 1

    def __str__(self) -> str:
        return "all cycles" if self.whole else (
            f"cycles {self.first} to {'the end' if self.last is None else self.last - 1} after the doorbell"
        )
