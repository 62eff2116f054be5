"""A soft reset in front of a memory outside: nothing under way is lost, nothing gets through meanwhile.

The memory sees no beat change before it is taken, although requesters forget theirs: so WDATA of an AXI4 memory holds.
Requesters do what they like, before and behind a cut, but for holding a beat to its transfer or the cut; the memory
answers what is under way, in any time. Unbounded, by induction.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assume, Module, Mux, Signal

from sluice_hw.config import ChipConfig
from sluice_hw.hbm.drain import TRAINS, SliceDrain
from sluice_hw.hbm.inband import InbandCodec
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks
from verif.formal.test_streams import AnyRam

pytestmark = pytest.mark.formal

CONFIG = ChipConfig(rows=2, cols=2, vmem_bytes=192, vmem_banks=8, acc_bytes=6 * 8, feed_ports=2)


class InbandCheck(Check):
    """Check bits in memory: what stands behind the drain holds its requests and beats, too, if those before it do."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(InbandCodec, *bugs, Ram1R1W=AnyRam)

    def describe(self, m: Module) -> None:
        AnyRam.made.clear()
        dut = self.unit(CONFIG)
        m.submodules.dut, _ = open_up(dut)
        (ram,) = AnyRam.made
        m.d.comb += ram.any.eq(self.free(len(ram.any), "ram"))
        self.free_inputs(m, dut, but=("port__write_data__valid", "port__write_data__payload"))
        self.held_stream(m, dut.port.write_data, "beat")
        for name in ("read", "write", "write_data"):
            self.claim_held(m, getattr(dut.memory, name), name)


class DrainCheck(Check):
    """Trains and beats counted beside the drain."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(SliceDrain, *bugs) if bugs else SliceDrain

    def describe(self, m: Module) -> None:
        dut = self.unit(CONFIG, settle=4)
        m.submodules.dut, inside = open_up(dut)
        self.free_inputs(m, dut, but=("port__write_data__valid", "port__write_data__payload"))
        port, memory = dut.port, dut.memory

        def moves(stream):
            return stream.valid & stream.ready

        reads, writes, owed = Signal(8), Signal(8), Signal(32)
        m.d.sync += [
            reads.eq(reads + moves(memory.read) - (moves(memory.read_data) & memory.read_data.payload.last)),
            writes.eq(writes + moves(memory.write) - moves(memory.write_done)),
            owed.eq(owed + Mux(moves(memory.write), memory.write.payload.count * CONFIG.slice_beats, 0)
                    - moves(memory.write_data)),
        ]  # fmt: skip
        m.d.comb += [
            # The memory answers nobody who has not asked; a requester sends what it has announced.
            Assume(~memory.read_data.valid | (reads != 0)), Assume(~memory.write_done.valid | (writes != 0)),
            Assume(~port.write_data.valid | (owed != 0)),
            Assume(owed < 1 << 30),
        ]  # fmt: skip
        # Beats are held; a cut makes a requester forget.
        self.held_stream(m, port.write_data, "beat", until=dut.cut)
        self.claim_held(m, memory.write_data, "shown")
        self.invariant(m, (reads == inside["reads"]) & (writes == inside["writes"]) & (owed == inside["owed"]))
        self.claim(m, (reads <= TRAINS) & (writes <= TRAINS))
        self.claim(m, ~moves(memory.write_data) | (owed != 0))

        # Closed from a cut on, until the memory has been reset, which nothing is under way for.
        closed, was_reset = Signal(), Signal()
        draining, settling = inside["draining"], inside["settling"]
        with m.If(dut.cut):
            m.d.sync += [closed.eq(1), was_reset.eq(0)]
        with m.Elif(dut.reset & ~draining):
            m.d.sync += was_reset.eq(1)
        with m.Elif(was_reset):
            m.d.sync += [closed.eq(0), was_reset.eq(0)]
        self.claim(m, ~dut.reset | ((reads == 0) & (writes == 0) & (owed == 0) & closed))
        passing = [moves(s) for s in (port.read, port.write, port.write_data, port.read_data, port.write_done)]
        with m.If(closed):
            for one in (*passing, memory.read.valid, memory.write.valid):
                self.claim(m, ~one)
            # What is under way goes on.
            self.claim(m, memory.read_data.ready & memory.write_done.ready & ((owed == 0) | memory.write_data.valid))
        with m.Else():
            theirs = (memory.read, memory.write, memory.write_data, memory.read_data, memory.write_done)
            for one, other in zip(passing, theirs, strict=True):
                self.claim(m, one | ~moves(other) | (inside["settling"] != 0))
        self.invariant(m, settling <= 4)
        self.invariant(m, (settling == 0) | ((reads == 0) & (writes == 0) & (owed == 0)))
        self.invariant(m, ~draining | (closed & ~was_reset))
        with m.If(closed & ~draining):
            self.invariant(m, Mux(was_reset, (settling == 3) | (settling == 2), settling == 4))
        with m.If(~closed):
            self.invariant(m, ~draining & (settling <= 1) & ~was_reset)


def test_drain() -> None:
    prove_checks("drain", {"drain": DrainCheck()}, depth=2)


@pytest.mark.soak
def test_inband() -> None:
    prove_checks("inband", {"inband": InbandCheck()}, depth=2)


@pytest.mark.soak
def test_bug_of_inband_is_found() -> None:
    prove_bites("inband_bug", InbandCheck(("(~full | sent.ready)", "(~full | 1)")), depth=14)


BUGS = {
    "a beat changes at a cut": ("Mux(open_, port.write_data.payload, kept)", "port.write_data.payload"),
    "reset while beats are owed": ("draining & none & (owed == 0)", "draining & none"),
    "open while it drains": ("open_ = ~draining & (settling == 0)", "open_ = settling == 0"),
    "read beats held up": ("port.read_data.ready | ~open_", "port.read_data.ready"),
    "beats that nobody is owed": ("draining & (owed != 0)", "draining"),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bugs_are_found(bug: tuple[str, str]) -> None:
    prove_bites("drain_bug", DrainCheck(bug), depth=12)
