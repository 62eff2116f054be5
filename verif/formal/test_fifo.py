"""Queues: nothing lost, nothing twice, nothing out of order.

Every queue of the chip is a ``SyncFIFOBuffered``. What it counts holds for all time, by induction. Its contents lie in
a memory whose state induction cannot know without a look inside, so that order is checked up to a bound of 9 or 10
cycles: from reset, at least twice around the queue, for one item of the solver's free choice. Neither depends on the
width of an item.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assert, Cover, Elaboratable, Module, ResetSignal, Signal
from amaranth.lib.fifo import SyncFIFOBuffered

from sluice_hw.sequencer import UnitQueue
from verif.formal.sby import ProofFailed, prove

pytestmark = pytest.mark.formal


class LevelCheck(Elaboratable):
    """A unit's queue beside the number of ops inside."""

    def __init__(self, depth: int) -> None:
        self.dut = UnitQueue(depth=depth)

    @property
    def ports(self) -> list[Signal]:
        d = self.dut
        return [d.i.valid, d.o.ready, d.enable]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        push, pop = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        inside = Signal(8)
        calm = Signal()  # a cycle before this one moved nothing
        m.d.sync += [inside.eq(inside + push - pop), calm.eq(~push & ~pop)]
        m.d.comb += [
            Assert(dut.level == inside),
            Assert(dut.level <= dut.depth),
            Assert(dut.empty == (inside == 0)),
            Assert(~dut.head | (inside != 0)),
            Assert(dut.o.valid == (dut.head & dut.enable)),
            Assert(~dut.i.ready | (inside != dut.depth)),
            # An op comes out, and a free place can be used, after one calm cycle at the latest.
            Assert(dut.o.valid | ~(calm & (inside != 0) & dut.enable)),
            Assert(dut.i.ready | ~(calm & (inside != dut.depth))),
        ]
        m.d.comb += Cover((inside == dut.depth) & ~ResetSignal())
        return m


class OrderCheck(Elaboratable):
    """A queue of small items and one item's way through it."""

    WIDTH = 2

    def __init__(self, depth: int, *, flaw: bool = False) -> None:
        self.dut = SyncFIFOBuffered(width=self.WIDTH, depth=depth)
        self.flaw = flaw
        self.follow = Signal()

    @property
    def ports(self) -> list[Signal]:
        return [self.follow, self.dut.w_en, self.dut.w_data, self.dut.r_en]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        push, pop = dut.w_en & dut.w_rdy, dut.r_en & dut.r_rdy
        followed, value, ahead = Signal(), Signal(self.WIDTH), Signal(8)
        with m.If(~followed & push & self.follow):
            m.d.sync += [followed.eq(1), value.eq(dut.w_data), ahead.eq(dut.level - pop)]
        with m.Elif(followed & pop):
            m.d.sync += ahead.eq(ahead - 1)
            with m.If(ahead == (1 if self.flaw else 0)):
                m.d.sync += followed.eq(0)
                m.d.comb += Assert(dut.r_data == value)
        m.d.comb += Assert(~followed | (ahead < dut.level))
        return m


@pytest.mark.parametrize("depth", [2, 3, 4, 8, 64])
def test_levels(depth):
    check = LevelCheck(depth)
    prove(check, name=f"queue_levels_{depth}", depth=4, ports=check.ports)


@pytest.mark.parametrize(("depth", "bound"), [(2, 10), (3, 9), (4, 9)])
def test_order(depth, bound):
    check = OrderCheck(depth)
    prove(check, name=f"queue_order_{depth}", mode="bmc", depth=bound, ports=check.ports)


def test_a_full_queue_is_reached():
    check = LevelCheck(4)
    prove(check, name="queue_cover", mode="cover", depth=10, ports=check.ports)


def test_a_flaw_is_found():
    check = OrderCheck(3, flaw=True)
    with pytest.raises(ProofFailed):
        prove(check, name="queue_flaw", mode="bmc", depth=8, ports=check.ports)
