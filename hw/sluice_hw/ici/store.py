"""Memories of a link: one write port, one read port, the row read stands there one cycle later."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..ram import Ram1R1W

__all__ = ["Store"]

#: Rows up to which registers serve.
_TINY = 8
#: Rows up to which Amaranth's own memory serves, which its simulator can look into.
_SMALL = 64


class Store(wiring.Component):
    """`depth` rows of `width` bits; ``rdata`` is, in every cycle, the row at ``raddr`` of the cycle before.

    A row that is read in the cycle that writes it: the new contents if `bypass`, else any of both.

    Members
    -------
    we : In(1)
    waddr, raddr : In(address)
    wdata : In(width)
    rdata : Out(width)
    """

    def __init__(self, *, depth: int, width: int, bypass: bool = False) -> None:
        self.depth, self.width, self.bypass = depth, width, bypass
        bits = max(1, (depth - 1).bit_length())
        super().__init__({
            "we": In(1), "waddr": In(bits), "wdata": In(width), "raddr": In(bits), "rdata": Out(width)
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        rdata = Signal(self.width)
        if self.depth <= _TINY:
            rows = Array(Signal(self.width, name=f"row_{i}", reset_less=True) for i in range(self.depth))
            m.d.sync += rdata.eq(rows[self.raddr])
            with m.If(self.we):
                m.d.sync += rows[self.waddr].eq(self.wdata)
        elif self.depth <= _SMALL:
            m.submodules.memory = memory = Memory(shape=unsigned(self.width), depth=self.depth, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.en.eq(self.we), write.addr.eq(self.waddr), write.data.eq(self.wdata),
                read.en.eq(1), read.addr.eq(self.raddr), rdata.eq(read.data),
            ]
        else:
            m.submodules.memory = ram = Ram1R1W(depth=self.depth, width=self.width)
            m.d.comb += [
                ram.we.eq(self.we), ram.waddr.eq(self.waddr), ram.wdata.eq(self.wdata),
                ram.re.eq(1), ram.raddr.eq(self.raddr), rdata.eq(ram.rdata),
            ]
        if self.bypass:
            same, fresh = Signal(), Signal(self.width, reset_less=True)
            m.d.sync += [same.eq(self.we & (self.waddr == self.raddr)), fresh.eq(self.wdata)]
            m.d.comb += self.rdata.eq(Mux(same, fresh, rdata))
        else:
            m.d.comb += self.rdata.eq(rdata)
        return m
