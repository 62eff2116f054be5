"""Loop counters: every loop makes the iterations it was opened for, inside its nesting. By induction, for all time."""

from __future__ import annotations

import pytest
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Signal

from sluice_hw.isa import LOOP_LEVELS
from sluice_hw.loops import LoopLevels
from verif.formal.sby import ProofFailed, prove

pytestmark = pytest.mark.formal


class LoopCheck(Elaboratable):
    """The levels, driven as the sequencer does: it acts only on good verdicts."""

    def __init__(self, *, flaw: bool = False) -> None:
        self.dut = LoopLevels()
        self.flaw = flaw

    @property
    def ports(self) -> list[Signal]:
        d = self.dut
        return [d.clear, d.pc, d.level, d.loop, d.count, d.end_pc, d.end]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        m.d.comb += [
            Assume(~(dut.loop & dut.end)),
            Assume(dut.level < LOOP_LEVELS),
            Assume(~dut.loop | ~(dut.bad_level | dut.bad_end)),
            Assume(~dut.end | ~dut.bad_close),
        ]
        if not self.flaw:
            m.d.comb += Assume(~dut.loop | (dut.count != 0))
        for i in range(LOOP_LEVELS):
            # What each loop was opened for, and how often its END came.
            asked, ends = Signal(32, name=f"asked{i}"), Signal(32, name=f"ends{i}")
            with m.If(dut.loop & (dut.level == i)):
                m.d.sync += [asked.eq(dut.count), ends.eq(0)]
            with m.Elif(dut.end & (dut.level == i)):
                m.d.sync += ends.eq(ends + 1)
                # The loop is left at its last END, and at no other.
                m.d.comb += Assert(dut.leaves == (ends + 1 == asked))
            with m.If(dut.open[i]):
                m.d.comb += [
                    Assert(dut.total[i] == asked),
                    Assert(dut.done[i] == ends),
                    Assert(ends < asked),
                    Assert(dut.first[i] == (ends == 0)),
                    Assert(dut.last[i] == (ends + 1 == asked)),
                ]
                for j in range(i):
                    with m.If(dut.open[j]):
                        m.d.comb += Assert(dut.ends[i] < dut.ends[j])
            with m.Else():
                m.d.comb += Assert(~dut.first[i] & ~dut.last[i])
            # Only the innermost loop can be closed.
            m.d.comb += Assert(~(dut.end & (dut.level == i)) | ~dut.open[i + 1:].any() & dut.open[i])
        m.d.comb += Cover(dut.open.all() & ~dut.first.any())
        return m


def test_loops():
    check = LoopCheck()
    prove(check, name="loops", depth=2, ports=check.ports)


def test_all_levels_are_reached():
    check = LoopCheck()
    prove(check, name="loops_cover", mode="cover", depth=16, ports=check.ports)


def test_a_flaw_is_found():
    """A loop of no iterations, which the sequencer never opens, would break the properties."""
    check = LoopCheck(flaw=True)
    with pytest.raises(ProofFailed):
        prove(check, name="loops_flaw", mode="bmc", depth=4, ports=check.ports)
