"""Devices behind a chip's pins that stop to answer: DRAM that leaves reads alone, an AXI4 memory that stands still.

Each does so with the next read after the chip has written 16 bytes that count from 0 (:data:`TRIGGER`).
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value

from sluice_hw.behind import Axi4Ram, DramChannels

__all__ = ["PAUSE", "TRIGGER", "SilentDram", "StuckAxi"]

#: What makes them fail, once.
TRIGGER = bytes(range(16))
#: Cycles that they do not answer.
PAUSE = 20_000
_VALUE = int.from_bytes(TRIGGER, "little")


def _failing(m: Module, trigger: Value, read: Value) -> Value:
    """Whether it does not answer now: for a while from the first read behind the trigger on, that read included."""
    armed, left = Signal(), Signal(range(PAUSE + 1))
    before = Signal()  # pins may keep what they had last
    m.d.sync += before.eq(trigger)
    with m.If(left != 0):
        m.d.sync += left.eq(left - 1)
    with m.Elif(trigger & ~before):
        m.d.sync += armed.eq(1)
    with m.Elif(armed & read):
        m.d.sync += [armed.eq(0), left.eq(PAUSE)]
    return (left != 0) | (armed & read)


class SilentDram(DramChannels):
    """Reads bring nothing."""

    def silent(self, m: Module, read: Value) -> Value:
        return _failing(m, self.dram_write_data0[:128] == _VALUE, read)


class StuckAxi(Axi4Ram):
    """No address is taken and no answer given."""

    def answers(self, m: Module) -> Value:
        return ~_failing(m, self.m_axi_wvalid & (self.m_axi_wdata[:128] == _VALUE), self.m_axi_arvalid)
