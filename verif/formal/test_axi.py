"""The AXI ports keep the rules of the protocol, whatever the master, the registers and the memory do in time.

Both ports: VALID and its companions hold until READY; no answer without a request, one for each. AXI4-Lite: an answer
needs its address and, for a write, its data, and comes within LiteCheck.PATIENCE cycles of the registers' side being
done, whatever READY does. AXI4: write data are taken only after their address; B is there from the last beat on until
it is taken, once a burst, with its id; a read burst gives exactly its number of beats, RLAST on the last and no other,
all with its id, in the order of the requests.

The AXI4 proof follows one read burst of the solver's choice. Its queue of answers is replaced by an equal one of
registers, whose contents induction can speak about. Bounds: ids of 2 bits; otherwise none, by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data

from sluice_hw.config import ChipConfig
from sluice_hw.host.axi import HostAxi
from sluice_hw.host.axil import HostAxiLite
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

CONFIG = ChipConfig(rows=2, cols=2, vmem_bytes=192, vmem_banks=8, acc_bytes=6 * 8, microcode_words=16)
IDLE, WRITE, READ, RESPOND = range(4)


class Channel:
    """An AXI channel as a stream."""

    def __init__(self, dut, prefix: str, *fields: str) -> None:
        self.valid, self.ready = getattr(dut, f"{prefix}valid"), getattr(dut, f"{prefix}ready")
        self.payload = Cat(getattr(dut, f"{prefix}{name}") for name in fields)

    @property
    def moves(self):
        return self.valid & self.ready


class RegisterQueue(Elaboratable):
    """``SyncFIFOBuffered`` with its entries in registers, one after the other from the output on."""

    made: list = []

    def __init__(self, *, width: int, depth: int) -> None:
        self.depth = depth
        self.w_data, self.w_rdy, self.w_en = Signal(width), Signal(), Signal()
        self.r_data, self.r_rdy, self.r_en = Signal(width), Signal(), Signal()
        self.level = Signal(range(depth + 1))
        self.entries = [Signal(width, name=f"entry{i}") for i in range(depth + 1)]
        self.late = Signal()  # an entry put into an empty queue is shown one cycle later
        self.made.append(self)

    def elaborate(self, platform) -> Module:
        m = Module()
        push, pop = self.w_en & self.w_rdy, self.r_en & self.r_rdy
        m.d.comb += [
            self.w_rdy.eq(self.level != self.depth), self.r_rdy.eq((self.level != 0) & ~self.late),
            self.r_data.eq(self.entries[0]),
        ]
        m.d.sync += [self.level.eq(self.level + push - pop), self.late.eq(push & (self.level == pop))]
        for i in range(self.depth):
            with m.If(push & (self.level == i + pop)):
                m.d.sync += self.entries[i].eq(self.w_data)
            with m.Elif(pop):
                m.d.sync += self.entries[i].eq(self.entries[i + 1])
        return m


class LiteCheck(Check):
    """AXI4-Lite."""

    #: Cycles in which everything needed for an answer is there, and none comes.
    PATIENCE = 3

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(HostAxiLite, *bugs)

    def describe(self, m: Module) -> None:
        dut = self.unit()
        m.submodules.dut, inside = open_up(dut)
        self.free_inputs(m, dut, but=("s_axil_aw", "s_axil_wv", "s_axil_wd", "s_axil_ws", "s_axil_ar"))
        channels = {
            "aw": Channel(dut, "s_axil_aw", "addr", "prot"), "w": Channel(dut, "s_axil_w", "data", "strb"),
            "ar": Channel(dut, "s_axil_ar", "addr", "prot"), "b": Channel(dut, "s_axil_b", "resp"),
            "r": Channel(dut, "s_axil_r", "data", "resp"),
        }
        for name in ("aw", "w", "ar"):
            self.held_stream(m, channels[name], name)
        self.claim_held(m, channels["b"], "b")
        self.claim_held(m, channels["r"], "r")
        # The registers' side.
        bus = SimpleNamespace(valid=dut.bus.valid, ready=dut.bus.ready,
                              payload=Cat(dut.bus.write, dut.bus.addr, Mux(dut.bus.write, dut.bus.wdata, 0)))
        self.claim_held(m, bus, "bus")

        # Requests taken and not answered.
        open_ = {name: Signal(4, name=f"open_{name}") for name in ("aw", "w", "ar")}
        for name, answer in (("aw", "b"), ("w", "b"), ("ar", "r")):
            m.d.sync += open_[name].eq(open_[name] + channels[name].moves - channels[answer].moves)
            self.claim(m, open_[name] <= 2)
        self.claim(m, ~channels["b"].valid | ((open_["aw"] != 0) & (open_["w"] != 0)))
        self.claim(m, ~channels["r"].valid | (open_["ar"] != 0))
        # An answer comes, and without waiting for READY.
        waits = Signal(4)
        due = ((open_["aw"] != 0) & (open_["w"] != 0)) | (open_["ar"] != 0)
        with m.If(~due | channels["b"].valid | channels["r"].valid | (dut.bus.valid & ~dut.bus.ready)):
            m.d.sync += waits.eq(0)
        with m.Else():
            m.d.sync += waits.eq(waits + 1)
        self.claim(m, waits < self.PATIENCE)
        if self.mutant:
            return
        state = inside["fsm_state"]
        b, r = channels["b"].valid, channels["r"].valid
        self.invariant(m, open_["aw"] == inside["aw_full"] + b)
        self.invariant(m, open_["w"] == inside["w_full"] + b)
        self.invariant(m, open_["ar"] == inside["ar_full"] + r)
        self.invariant(m, (state == 3) == (b | r))
        self.invariant(m, ~(b & r))
        self.invariant(m, (state != 1) | (inside["aw_full"] & inside["w_full"]))
        self.invariant(m, (state != 2) | inside["ar_full"])
        self.invariant(m, waits <= Mux(state == 3, 2, state != 0))


class FullCheck(Check):
    """AXI4."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(HostAxi, *bugs, fifo=SimpleNamespace(SyncFIFOBuffered=RegisterQueue))

    def describe(self, m: Module) -> None:
        RegisterQueue.made.clear()
        dut = self.unit(config=CONFIG, id_bits=2)
        m.submodules.dut, inside = open_up(dut)
        (answers,) = RegisterQueue.made
        request = ("id", "addr", "len", "size", "burst")
        driven = {"aw": request, "ar": request, "w": ("data", "strb", "last")}
        self.free_inputs(m, dut, but=tuple(
            f"s_axi_{x}{name}" for x, names in driven.items() for name in (*names, "valid")))
        channels = {x: Channel(dut, f"s_axi_{x}", *names) for x, names in driven.items()}
        channels["b"], channels["r"] = Channel(dut, "s_axi_b", "id", "resp"), Channel(
            dut, "s_axi_r", "id", "data", "resp", "last")
        for name in driven:
            self.held_stream(m, channels[name], name)
        self.claim_held(m, channels["b"], "b")
        self.claim_held(m, channels["r"], "r")

        # Writes: `beats` of the burst to come, and its answer due.
        beats, due, write_id = Signal(9), Signal(), Signal(2)
        with m.If(channels["w"].moves):
            m.d.sync += beats.eq(beats - 1)
        with m.If(channels["b"].moves):
            m.d.sync += due.eq(0)
        with m.If(channels["aw"].moves):
            m.d.sync += [beats.eq(dut.s_axi_awlen + 1), due.eq(1), write_id.eq(dut.s_axi_awid)]
        self.claim(m, ~channels["aw"].moves | ~due)
        self.claim(m, ~channels["w"].ready | (beats != 0))
        self.claim(m, channels["b"].valid == (due & (beats == 0)))
        self.claim(m, ~channels["b"].valid | (dut.s_axi_bid == write_id))

        # Reads: beats asked for and not delivered, and one burst: its beats, and those that come before them.
        asked, mine, ahead, seen = Signal(16), Signal(), Signal(4), Signal(9)
        length, read_id = Signal(8), Signal(2)
        ar, r = channels["ar"], channels["r"]
        m.d.sync += asked.eq(asked + Mux(ar.moves, dut.s_axi_arlen + 1, 0) - r.moves)
        self.claim(m, ~r.valid | (asked != 0))
        pick = self.free(1, "pick")
        ours = Signal()
        m.d.comb += ours.eq(mine & (ahead == 0))
        with m.If(ar.moves & pick & ~mine):
            m.d.sync += [
                mine.eq(1), ahead.eq(asked - r.moves), seen.eq(0), length.eq(dut.s_axi_arlen),
                read_id.eq(dut.s_axi_arid)]
            self.claim(m, asked <= 6)
        with m.Elif(r.moves & mine & (ahead != 0)):
            m.d.sync += ahead.eq(ahead - 1)
        with m.Elif(r.moves & ours):
            m.d.sync += [seen.eq(seen + 1), mine.eq(seen != length)]
        with m.If(r.valid & ours):
            self.claim(m, dut.s_axi_rid == read_id)
            self.claim(m, dut.s_axi_rlast == (seen == length))
        if not self.mutant:
            self.connect(m, dut, inside, answers, beats, due, write_id, asked, mine, ahead, seen, length, read_id)

    def connect(self, m: Module, dut, inside, answers, beats, due, write_id, asked, mine, ahead, seen, length,
                read_id) -> None:
        """For the induction: what the unit's registers mean."""
        state, left, coming = inside["fsm_state"], inside["left"], inside["coming"]
        writing, reading = state == WRITE, state == READ
        self.invariant(m, ~(writing | reading) | (left != 0))
        self.invariant(m, left <= 256)
        self.invariant(m, due == (writing | (state == RESPOND)))
        self.invariant(m, beats == Mux(writing, left, 0))
        self.invariant(m, ~due | (inside["burst_id"] == write_id))
        self.invariant(m, answers.level + coming <= answers.depth)
        self.invariant(m, ~answers.late | (answers.level == 1))
        made = answers.level + coming  # beats on their way out
        self.invariant(m, asked == made + Mux(reading, left, 0))
        answer = data.StructLayout({"id": 2, "data": 64, "resp": 2, "last": 1})
        coming_as = inside["coming_as"]
        # Entry p of the queue, or the beat about to enter it, is beat number p - ahead + seen of the burst.
        for p in range(answers.depth + 1):
            entry = data.View(answer, answers.entries[p])
            number = Signal(9, name=f"number{p}")
            m.d.comb += number.eq(p - ahead + seen)
            theirs = mine & (p >= ahead) & (number <= length)
            with m.If(theirs & (p < answers.level)):
                self.invariant(m, (entry.id == read_id) & (entry.last == (number == length)))
            with m.If(theirs & coming & (p == answers.level)):
                self.invariant(m, (coming_as.id == read_id) & (coming_as.last == (number == length)))
        with m.If(mine):
            self.invariant(m, (seen <= length) & ((ahead == 0) | (seen == 0)) & (ahead <= made))
            out = Signal(9)  # of the burst, made and not delivered
            m.d.comb += out.eq(made - ahead)
            with m.If(out + seen <= length):
                self.invariant(m, reading & (left == length + 1 - out - seen) & (inside["burst_id"] == read_id))


def test_axi():
    prove_checks("axi", {"lite": LiteCheck(), "full": FullCheck()}, depth=3)


BUGS = {
    "lite: write without data": (LiteCheck, ("can_write = aw_full & w_full", "can_write = aw_full")),
    "lite: read data change": (LiteCheck, (
        "with m.If(self.s_axil_rvalid & self.s_axil_rready):\n                    m.d.sync += self.s_axil_rvalid.eq(0)",
        "with m.If(self.s_axil_rvalid):\n                    m.d.sync += self.s_axil_rvalid.eq(0)")),
    "lite: takes two addresses": (LiteCheck, ("self.s_axil_arready.eq(~ar_full)", "self.s_axil_arready.eq(1)")),
    "lite: reads starve": (LiteCheck, ("with m.Elif(ar_full):", "with m.Elif(ar_full & self.s_axil_rready):")),
    "RLAST a beat early": (FullCheck, ("coming_as.last.eq(left == 1)", "coming_as.last.eq(left <= 2)")),
    "a beat too many": (FullCheck, ("left.eq(sig(\"len\") + 1)", "left.eq(sig(\"len\") + 2)")),
    "B before the last beat": (FullCheck, ("with m.If(step & (left == 1)):", "with m.If(step & (left <= 2)):")),
    "B withdrawn": (FullCheck, ("with m.If(self.s_axi_bready):", "if True:")),
    "id of the latest request": (FullCheck, ("self.s_axi_bid.eq(burst_id)", "self.s_axi_bid.eq(self.s_axi_awid)")),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    check, change = bug
    prove_bites("axi_bites", check(change), depth=14)
