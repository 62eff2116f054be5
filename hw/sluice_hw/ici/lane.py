"""Queue of a lane into or out of a router: two places, so that neither side's ready depends on the other's valid."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import TorusConfig
from .flit import flit_layout

__all__ = ["LaneQueue"]


class LaneQueue(wiring.Component):
    """A queue of two flits that takes and gives one in every cycle.

    Members
    -------
    i : In(stream)
    o : Out(stream)
    """

    def __init__(self, config: TorusConfig) -> None:
        shape = flit_layout(config)
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform) -> Module:
        m = Module()
        second, second_valid = Signal.like(self.i.payload, reset_less=True), Signal()
        m.d.comb += self.i.ready.eq(~second_valid)
        with m.If(~self.o.valid | self.o.ready):
            with m.If(second_valid):
                m.d.sync += [self.o.payload.eq(second), second_valid.eq(0), self.o.valid.eq(1)]
            with m.Else():
                m.d.sync += [self.o.payload.eq(self.i.payload), self.o.valid.eq(self.i.valid)]
        with m.Elif(self.i.valid & ~second_valid):
            m.d.sync += [second.eq(self.i.payload), second_valid.eq(1)]
        return m
