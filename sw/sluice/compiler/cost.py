"""Estimates of time, in core cycles. They choose between plans and are printed beside them; the chip's counters decide.

Constants are the latencies of the hardware as its modules state them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice_hw.config import ChipConfig

__all__ = ["Costs"]


@dataclass(frozen=True)
class Costs:
    """Times of a configuration's parts."""

    config: ChipConfig

    #: From the doorbell to the first request of a program that loads at once.
    start = 13
    #: A VECTOR's pipeline, with tokens, and what residual operands add.
    vector_fill = 20
    residual_fill = 14
    #: Tokens, requests and answers around a store's data, and the interrupt.
    store_fill = 9
    #: From a PULSE_ARRAY's start to its first row's entry into the array.
    feed = 11
    #: Words of a hardware loop around one weight tile: LOAD_WEIGHTS, PULSE_ARRAY, END and the refill behind it.
    loop_words = 6

    def beats(self, size: int) -> int:
        """Cycles that HBM moves ``size`` bytes in."""
        return -(-size // self.config.hbm_bytes_per_cycle)

    def load(self, size: int) -> int:
        """A load that nothing hides."""
        return self.config.hbm_latency + 8 + self.beats(size)

    def tile(self, rows: int) -> int:
        """A weight tile that ``rows`` rows pass: the next tile takes R cycles to enter."""
        return max(rows, self.config.rows, self.loop_words)

    @property
    def weights(self) -> int:
        """From a LOAD_WEIGHTS' start to the entry of the first row that its tile serves."""
        return self.config.rows + 10

    @property
    def array_latency(self) -> int:
        """From a row's entry to its sums in the accumulators."""
        return self.config.rows + self.config.cols + 2

    def pulse(self, rows: int) -> int:
        """From a PULSE_ARRAY's start to its end."""
        return self.feed + rows + self.array_latency

    def vector(self, rows: int, *, window: int = 1, wide: bool = False, residual: bool = False) -> int:
        """A VECTOR of ``rows`` result rows."""
        per_row = max(window, 4 if wide else 1)
        return rows * per_row + self.vector_fill + (self.residual_fill if residual else 0)
