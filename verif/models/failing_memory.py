"""Devices behind a chip's pins that stop to answer: DRAM that leaves reads alone, an AXI4 memory that stands still."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.utils import ceil_log2

from sluice_hw.behind import Axi4Ram, DramChannels

__all__ = ["PAUSE", "SilentDram", "StuckAxi"]

#: Cycles that an AXI4 memory stands still.
PAUSE = 20_000


class SilentDram(DramChannels):
    """Reads of the last slice of memory bring nothing."""

    def silent(self, beat: Value) -> Value:
        chip = self.config.chip
        return beat >> (ceil_log2(chip.slice_beats) - 1) == chip.hbm_slices - 1


class StuckAxi(Axi4Ram):
    """A read of the last data slice makes it stand still for :data:`PAUSE` cycles; then it goes on."""

    def answers(self, m: Module) -> Value:
        config = self.config
        left = Signal(range(PAUSE + 1))
        last = self.m_axi_araddr >> ceil_log2(config.slice_bytes) == config.hbm_slices - 1
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.m_axi_arvalid & self.m_axi_arready & last):
            m.d.sync += left.eq(PAUSE)
        return left == 0
