"""One direction of a cable, for simulation and for emulation on an FPGA: latency, and faults from a seeded generator.

Between two ends of a link this stands for copper or optics; with all rates 0 it is a plain delay. Words keep their
order. Rates are thresholds of 32 bits: a fault happens to a word with probability ``rate / 2**32``. The generator is
Marsaglia's xorshift64 (G. Marsaglia, "Xorshift RNGs", J. Statistical Software 8(14), 2003), so that a run with the same
seed has the same faults.
"""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .frame import WireSignature
from .store import Store

__all__ = ["Channel"]


class Channel(wiring.Component):
    """Delays words by `latency` cycles and harms some.

    Parameters
    ----------
    bits
        Of a word.
    latency
        Cycles, from 1.
    seed
        Of the faults; not 0.

    Members
    -------
    i : In(WireSignature)
    o : Out(WireSignature)
    drop, corrupt, twice : In(32)
        Rates: the word is lost; one to three of its bits flip; it comes again in place of the next one.
    cut : In(1)
        Nothing passes.

    Raises
    ------
    ValueError
        For a latency below 1 or a seed of 0.
    """

    def __init__(self, *, bits: int, latency: int, seed: int = 1) -> None:
        if latency < 1:
            raise ValueError(f"channel latency must be at least 1, not {latency}")
        if not 0 < seed < 1 << 64:
            raise ValueError(f"channel seed must be a 64-bit number other than 0, not {seed}")
        self.bits, self.latency, self.seed = bits, latency, seed
        super().__init__({
            "i": In(WireSignature(bits)),
            "o": Out(WireSignature(bits)),
            "drop": In(32),
            "corrupt": In(32),
            "twice": In(32),
            "cut": In(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()

        def generator(name: str, seed: int) -> Signal:
            state = Signal(64, name=name, init=seed)
            a = Signal(64, name=f"{name}_a")
            b = Signal(64, name=f"{name}_b")
            m.d.comb += [a.eq(state ^ (state << 13)), b.eq(a ^ (a >> 7))]
            m.d.sync += state.eq(b ^ (b << 17))
            return state

        first, second = generator("first", self.seed), generator("second", self.seed ^ 0x9E3779B97F4A7C15 or 1)
        # The two draws of a word from one generator: its halves.
        drop, corrupt = first[:32] < self.drop, first[32:] < self.corrupt
        twice = second[:32] < self.twice

        repeat, last = Signal(), Signal(self.bits, reset_less=True)
        word, harmed = Signal(self.bits), Signal(self.bits)
        m.d.comb += word.eq(Mux(repeat, last, self.i.word))
        with m.If(self.i.valid):
            m.d.sync += [last.eq(word), repeat.eq(~repeat & twice)]
        # Three places, which may be the same: then fewer bits flip, an odd number all the same.
        flips = Signal(self.bits)
        places = []
        for k in range(3):
            place = Signal(range(self.bits), name=f"place_{k}")
            m.d.comb += place.eq((second[32 + 10 * k : 42 + 10 * k] * self.bits) >> 10)
            places.append(place)
        one = Const(1, self.bits)
        m.d.comb += flips.eq(
            (one << places[0]) ^ Mux(second[62], (one << places[1]) ^ (one << places[2]), 0)
        )
        m.d.comb += harmed.eq(word ^ Mux(corrupt, flips, 0))
        valid = self.i.valid & ~drop & ~self.cut

        if self.latency == 1:
            m.d.sync += [self.o.valid.eq(valid), self.o.word.eq(harmed)]
            return m
        m.submodules.way = way = Store(depth=self.latency, width=self.bits + 1)
        place, following = Signal(range(self.latency)), Signal(range(self.latency))
        filled = Signal()  # before, the memory holds anything
        m.d.comb += [
            following.eq(Mux(place == self.latency - 1, 0, place + 1)),
            way.we.eq(1), way.waddr.eq(place), way.wdata.eq(harmed << 1 | valid), way.raddr.eq(following),
            self.o.valid.eq(way.rdata[0] & filled), self.o.word.eq(way.rdata[1:]),
        ]
        m.d.sync += place.eq(following)
        with m.If(place == self.latency - 1):
            m.d.sync += filled.eq(1)
        return m
