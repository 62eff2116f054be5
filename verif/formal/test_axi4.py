"""The AXI4 back end of HBM keeps the rules of a manager, whatever requesters and memory do in time.

Read, write and data channels hold VALID and what it says until READY; so do the answers to the requester. No burst
crosses 4 KiB. An id of a read is not used again before all beats of its burst have come, so that those of two bursts
are never mixed up. READY of R and B never falls. The memory is assumed to send no beat and no answer that it does
not owe.

Bounds: two read bursts under way, slices of 2 KiB, a memory of 16 KiB; otherwise none, by induction. What the
buffer and the queue of write bursts hold is any.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assume, Module, Mux, Signal

from sluice_hw.config import ChipConfig
from sluice_hw.hbm.axi4 import BURST_BEATS, TRAINS, Axi4Memory
from verif.formal.claims import AnyQueue, Check, altered, open_up, planted, prove_bites, prove_checks
from verif.formal.test_axi import Channel
from verif.formal.test_streams import AnyRam

pytestmark = pytest.mark.formal

CONFIG = ChipConfig(slice_bytes=2048, hbm_bytes=1 << 14)
READS = 2


class ManagerCheck(Check):
    """The back end between a requester and a memory."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.bugs = bugs

    def describe(self, m: Module) -> None:
        AnyRam.made.clear()
        AnyQueue.made.clear()
        unit = altered(Axi4Memory, *self.bugs, Ram1R1W=AnyRam, SyncFIFO=AnyQueue)
        dut = unit(CONFIG, reads=READS, id_bits=2, address_bits=14)
        m.submodules.dut, inside = open_up(dut)
        self.free_queues(m)
        (ram,) = AnyRam.made
        m.d.comb += ram.any.eq(self.free(len(ram.any), "any"))
        self.free_inputs(m, dut, but=("port__read__", "port__write__", "port__write_data__"))
        for name in ("read", "write", "write_data"):
            self.held_stream(m, getattr(dut.port, name), name)
        self.claim_held(m, dut.port.read_data, "read_data")
        self.claim_held(m, dut.port.write_done, "write_done")

        answers = inside["waits"][dut.m_axi_bid[:2]]
        m.d.comb += Assume(~dut.m_axi_bvalid | (answers != 0))
        burst = inside["now"]  # whose beats go nowhere is waited for, as one that the memory answers
        m.d.comb += Assume(~(inside["bursts"].r_rdy & burst.drop) | (inside["waits"][burst.train] != 0))

        fields = ("id", "addr", "len", "size", "burst")
        ar, aw = Channel(dut, "m_axi_ar", *fields), Channel(dut, "m_axi_aw", *fields)
        w = Channel(dut, "m_axi_w", "data", "strb", "last")
        for name, channel in (("ar", ar), ("aw", aw), ("w", w)):
            self.claim_held(m, channel, name)
        self.claim(m, dut.m_axi_rready & dut.m_axi_bready)
        for x in ("ar", "aw"):
            valid, address, length = (getattr(dut, f"m_axi_{x}{name}") for name in ("valid", "addr", "len"))
            with m.If(valid):
                self.claim(m, (address[5:12] + length + 1 <= BURST_BEATS) & (address[:5] == 0))

        # One read id of the solver's choice: beats asked for and not come.
        mine = self.constant(m, range(READS), "mine")
        coming = Signal(9)
        asks = ar.moves & (dut.m_axi_arid == mine)
        comes = dut.m_axi_rvalid & (dut.m_axi_rid[:1] == mine)
        m.d.comb += Assume(~comes | (coming != 0))
        m.d.sync += coming.eq(coming + Mux(asks, dut.m_axi_arlen + 1, 0) - comes)
        with m.If(asks):
            self.claim(m, coming == 0)
        if not self.mutant:
            self.connect(m, dut, inside, mine, coming)

    def connect(self, m: Module, dut, inside, mine, coming) -> None:
        """For the induction: what the unit's registers mean."""
        head, tail, used, given = (inside[name] for name in ("head", "tail", "used", "given"))
        info, filled = inside["info"], inside["filled"]
        for name in ("read", "write"):
            with m.If(inside[f"{name}_active"] & ~inside[f"{name}_refused"]):
                self.invariant(m, inside[f"{name}_left"] != 0)
        # The train that is being cut into bursts is the newest, and no other expects more of them.
        oldest, newest, trains, train = (inside[name] for name in ("oldest", "newest", "trains", "train"))
        self.invariant(m, (trains <= TRAINS) & (newest == (oldest + trains)[:2]))
        for i, is_open in enumerate(inside["open_"]):
            self.invariant(m, is_open == (inside["write_active"] & (train == i)))
        with m.If(inside["write_active"]):
            self.invariant(m, (trains != 0) & (train == (newest - 1)[:2]))
        asking = dut.m_axi_arvalid & (dut.m_axi_arid == mine)
        occupied = Signal()
        m.d.comb += occupied.eq(Mux(mine == head, used != 0, used == READS))
        self.invariant(m, (used <= READS) & ((used != 0) | (given == 0)))
        self.invariant(m, tail == (head + used)[:1])
        slot, got = info[mine], filled[mine]
        self.invariant(m, ~dut.m_axi_arvalid | (dut.m_axi_arid < READS))
        with m.If(occupied & ~slot.refused):
            self.invariant(m, (slot.beats != 0) & (slot.beats <= BURST_BEATS))
            self.invariant(m, got + Mux(asking, dut.m_axi_arlen + 1, coming) == slot.beats)
            self.invariant(m, ~asking | ((coming == 0) & (got == 0)))
            with m.If(mine == head):
                self.invariant(m, (given <= got) & (given < slot.beats))
        with m.Else():
            self.invariant(m, ~asking & (coming == 0))
        with m.If(occupied & slot.refused):
            self.invariant(m, slot.beats == 1)
            with m.If(mine == head):
                self.invariant(m, given == 0)


def test_axi4():
    prove_checks("axi4", {"manager": ManagerCheck()}, depth=2)


BUGS = {
    "a burst crosses 4 KiB": ("burst.eq(Mux(left < to_edge, left, to_edge))", "burst.eq(Mux(left < 128, left, 128))"),
    "address changes while it waits": (
        "take.eq(active & (used != slots) & (refused | ar_free))",
        "take.eq(active & (used != slots))",
    ),
    "more bursts than places": ("(used != slots) &", ""),
    "data before their burst": ("beat.valid & bursts.r_rdy & ~now.drop", "beat.valid & ~now.drop"),
    "an answer is withdrawn": (
        "done.valid.eq((trains != 0) & ~open_[oldest]",
        "done.valid.eq(self.m_axi_bvalid & ~open_[oldest]",
    ),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    prove_bites("axi4_bites", ManagerCheck(bug), depth=8)
