"""The elastic buffer: words of the wire from the far end's clock to this end's.

Domains: ``wire``, the clock that comes with the words (the far end's), writes; ``sync``, this end's, reads. Nothing
else crosses. A word is written before the pointer that shows it; pointers cross in Gray code, one bit at a time, by two
registers. For timing analysis: no path from ``wire`` to ``sync`` or back may be longer than a period of the faster
clock (data and pointer bits must not overtake each other by a cycle), and none needs to be shorter.

Both sides must be reset together with their end of the link, ``wire`` while this end is in reset: a reset of one side
alone shows words that were read before or skips some, which the link takes for frames that came twice or never.

The clocks may be in any ratio. When words come faster than they are read, IDLE frames, which the next one repeats, are
left out first; what still does not fit is lost, and the link sends it again.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .frame import Kind, WireSignature

__all__ = ["ElasticBuffer"]


def gray(value):
    """Gray code of a value."""
    return value ^ (value >> 1)


def ungray(m: Module, code: Signal) -> Signal:
    """The value behind a Gray code."""
    value = Signal.like(code, name="ungray")
    for i in range(len(code)):
        m.d.comb += value[i].eq(code[i:].xor())
    return value


class ElasticBuffer(wiring.Component):
    """Asynchronous FIFO of words of the wire.

    Parameters
    ----------
    bits
        Of a word.
    depth
        Places, a power of two from 4.

    Members
    -------
    i : In(WireSignature), domain ``wire``
    o : Out(WireSignature), domain ``sync``
    dropped : Out(1), domain ``sync``
        Words that were no IDLE frames have been lost since the last cycle in which this was high.

    Raises
    ------
    ValueError
        If `depth` is no power of two from 4.
    """

    def __init__(self, *, bits: int, depth: int) -> None:
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"elastic buffer depth must be a power of two from 4, not {depth}")
        self.bits, self.depth = bits, depth
        super().__init__({
            "i": In(WireSignature(bits)),
            "o": Out(WireSignature(bits)),
            "dropped": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        width = (self.depth - 1).bit_length() + 1
        m.submodules.memory = memory = Memory(shape=unsigned(self.bits), depth=self.depth, init=[])
        write, read = memory.write_port(domain="wire"), memory.read_port(domain="sync")

        # Domain wire.
        w_next, w_gray = Signal(width), Signal(width)
        r_gray_there = Signal(width)
        level = Signal(width)
        m.d.comb += level.eq(w_next - ungray(m, r_gray_there))
        idle = self.i.word[:2] == Kind.IDLE
        room = (level < self.depth // 2) | (~idle & (level < self.depth))
        m.d.comb += [write.en.eq(self.i.valid & room), write.addr.eq(w_next[:-1]), write.data.eq(self.i.word)]
        with m.If(write.en):
            m.d.wire += [w_next.eq(w_next + 1), w_gray.eq(gray((w_next + 1)[:width]))]
        loss = Signal()  # toggles
        loss_pending = Signal()
        loss_seen_there = Signal()
        with m.If(self.i.valid & ~room & ~idle):
            m.d.wire += loss_pending.eq(1)
        with m.If(loss_pending & (loss == loss_seen_there)):
            m.d.wire += [loss.eq(~loss), loss_pending.eq(self.i.valid & ~room & ~idle)]

        # Domain sync. The word at `r_next` stands on the read port one cycle after it was asked for.
        r_next, r_gray = Signal(width), Signal(width)
        w_gray_here = Signal(width)
        loss_here, loss_seen = Signal(), Signal()
        some = r_gray != w_gray_here
        m.d.comb += [read.en.eq(1), read.addr.eq(r_next[:-1]), self.o.word.eq(read.data)]
        m.d.sync += [self.o.valid.eq(some), loss_seen.eq(loss_here)]
        with m.If(some):
            m.d.sync += [r_next.eq(r_next + 1), r_gray.eq(gray((r_next + 1)[:width]))]
        m.d.comb += self.dropped.eq(loss_here != loss_seen)

        # The crossings.
        m.submodules.w_to_r = FFSynchronizer(w_gray, w_gray_here, o_domain="sync")
        m.submodules.r_to_w = FFSynchronizer(r_gray, r_gray_there, o_domain="wire")
        m.submodules.loss_to_r = FFSynchronizer(loss, loss_here, o_domain="sync")
        m.submodules.loss_to_w = FFSynchronizer(loss_seen, loss_seen_there, o_domain="wire")
        return m
