"""Estimates of time, in core cycles. They choose between plans and are printed beside them; the chip's counters decide.

Constants are those of :class:`sluice.estimate.Timing`, which counts the hardware's registers; the cost model there
knows everything that a planner must leave out.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.estimate.timing import Timing
from sluice_hw.config import ChipConfig

__all__ = ["Costs"]

#: Words that set a program up before its first load: shape, two addresses, the load.
_FIRST_WORDS = 4


@dataclass(frozen=True)
class Costs:
    """Times of a configuration's parts."""

    config: ChipConfig

    #: From the doorbell to the first request of a program that loads at once.
    start = Timing.FETCH + _FIRST_WORDS + Timing.BUFFERED + Timing.SHAPE_TO_TRAIN + Timing.REQUEST + Timing.TOKEN
    #: A VECTOR's pipeline, with the start before it and a token behind, and what residual operands add.
    vector_fill = 1 + Timing.NARROW + Timing.TOKEN
    residual_fill = Timing.RESIDUAL - Timing.NARROW
    #: Around a store's data: token, request and pipeline, answer, and the end of the program.
    store_fill = Timing.TOKEN + Timing.READ_TO_BEAT + Timing.ANSWER + Timing.HALT + 1
    #: From a PULSE_ARRAY's token to its first row's entry into the array.
    feed = Timing.TOKEN + Timing.FIRST_ROW + Timing.FEED
    #: A hardware loop around one weight tile: LOAD_WEIGHTS, PULSE_ARRAY, and END with the refill behind it.
    loop_words = 2 + Timing.JUMP

    def beats(self, size: int) -> int:
        """Cycles that HBM moves ``size`` bytes in."""
        return -(-size // self.config.hbm_bytes_per_cycle)

    def load(self, size: int) -> int:
        """A load that nothing hides, from its word to its token."""
        return Timing.BUFFERED + Timing.SHAPE_TO_TRAIN + Timing(self.config).load_fill + self.beats(size)

    def tile(self, rows: int) -> int:
        """A weight tile that ``rows`` rows pass: the next tile takes R cycles to enter."""
        return max(rows, self.config.rows, self.loop_words)

    @property
    def weights(self) -> int:
        """From a LOAD_WEIGHTS' token to the entry of the first row that its tile serves."""
        return Timing.TOKEN + Timing.FIRST_WEIGHTS + self.config.rows - 1 + Timing.FEED

    @property
    def array_latency(self) -> int:
        """From a row's entry to the token of its sums."""
        return Timing(self.config).array - Timing.FEED + Timing.SUMS_TO_TOKEN

    def pulse(self, rows: int) -> int:
        """From a PULSE_ARRAY's start to its end."""
        return self.feed + rows + self.array_latency

    def vector(self, rows: int, *, window: int = 1, wide: bool = False, residual: bool = False) -> int:
        """A VECTOR of ``rows`` result rows."""
        per_row = max(window, 4 if wide else 1)
        return rows * per_row + self.vector_fill + (self.residual_fill if residual else 0)
