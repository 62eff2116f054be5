"""Error answers: every request that strands or arrives cut is answered once, and nothing else is.

- A lane out: what strands never reaches the node and everything else does, flit by flit; each packet that strands or
  ends with an error without having begun with one leaves its first flit's data to be answered, once.
- All lanes: one answer for each of these, with source and destination changed over and the request's tag; a packet of
  the node's own responses is never mixed with answers, loses nothing, and waits for one answer at most before each.

By induction, for all time, for a torus of 2 x 2 with flits of 17 bits of data.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assume, Cat, Module, Mux, Signal, Value

from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.flit import Message, header_of
from sluice_hw.ici.interface import Port
from sluice_hw.ici.returns import LaneReturn, Returns
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

CONFIG = TorusConfig(rows=2, cols=2, data_bits=17, orders=1, vc_depth=2, stamp_bits=4)


def whole_packets(check: Check, m: Module, stream, name: str) -> Signal:
    """A stream into a unit is held and made of packets; high inside of one."""
    check.held_stream(m, stream, name)
    inside = Signal(name=f"{name}_inside")
    m.d.comb += Assume(~stream.valid | (stream.payload.head == ~inside))
    with m.If(stream.valid & stream.ready):
        m.d.sync += inside.eq(~stream.payload.tail)
    return inside


class LaneCheck(Check):
    """One lane."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(LaneReturn, *bugs)

    def describe(self, m: Module) -> None:
        m.submodules.dut = dut = self.unit(CONFIG)
        m.d.comb += [dut.x.eq(self.constant(m, 1, "x")), dut.y.eq(self.constant(m, 1, "y"))]
        m.d.comb += [dut.o.ready.eq(self.free(1, "o_ready")), dut.failed.ready.eq(self.free(1, "failed_ready"))]
        whole_packets(self, m, dut.i, "i")
        flit = dut.i.payload
        header = header_of(CONFIG, flit)
        taken = dut.i.valid & dut.i.ready
        away, was_away, first = Signal(), Signal(), Signal(CONFIG.data_bits)
        m.d.comb += away.eq(Mux(
            flit.head, flit.error & Cat(header.dst_x != dut.x, header.dst_y != dut.y).any(), was_away
        ))  # fmt: skip
        fails, owed = Signal(), Signal(2)
        m.d.comb += fails.eq(taken & flit.tail & flit.error & ~(flit.head & ~away))
        with m.If(taken):
            m.d.sync += was_away.eq(away)
            with m.If(flit.head):
                m.d.sync += first.eq(flit.data)
        m.d.sync += owed.eq(owed + fails - (dut.failed.valid & dut.failed.ready))
        self.claim(m, owed == dut.failed.valid)
        self.claim(m, ~(dut.o.valid & away))
        self.claim(m, ~(taken & ~away) | (dut.o.valid & dut.o.ready))
        self.claim(m, ~dut.o.valid | ~dut.o.ready | taken)
        with m.If(dut.o.valid):
            self.claim(m, dut.i.valid & (Value.cast(dut.o.payload) == Value.cast(flit)))
        with m.If(dut.failed.valid):
            self.claim(m, Value.cast(dut.failed.payload)[: CONFIG.data_bits] == first)
            self.claim(m, dut.stranded == was_away)
        self.invariant(m, dut.stranded == was_away)
        self.invariant(m, Value.cast(dut.failed.payload)[: CONFIG.data_bits] == first)
        self.claim_held(m, dut.o, "o")
        self.claim_held(m, dut.failed, "failed")


class AnyLane(LaneReturn):
    """A lane that gives any cause: the data of whatever comes in."""

    def elaborate(self, platform) -> Module:
        m = Module()
        cause = Value.cast(self.failed.payload)
        m.d.comb += [
            self.failed.valid.eq(self.i.valid), cause.eq(Value.cast(self.i.payload)[: len(cause)]),
            self.i.ready.eq(self.failed.ready),
        ]  # fmt: skip
        return m


class AnswersCheck(Check):
    """All lanes together."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(Returns, *bugs, LaneReturn=AnyLane)

    def describe(self, m: Module) -> None:
        dut = self.unit(CONFIG)
        m.submodules.dut, state = open_up(dut)
        self.free_inputs(m, dut, but=("own", "eject"))
        inside = whole_packets(self, m, dut.own, "own")
        for port in Port:
            for message in Message:
                self.held_stream(m, dut.eject[port][message], f"eject{port}_{message}")
        out = dut.responses
        sent, own = out.valid & out.ready, dut.own.valid & dut.own.ready
        lanes = [dut.eject[port][Message.REQUEST] for port in Port]
        heard = Signal(len(Port))
        answers, waits = Signal(), Signal()
        m.d.comb += [heard.eq(Cat(lane.valid & lane.ready for lane in lanes)), answers.eq(sent & ~own)]
        self.claim(m, answers == heard.any())
        self.claim(m, (heard & (heard - 1)) == 0)
        self.claim(m, dut.answered == answers)
        self.claim(m, ~own | sent)
        self.claim(m, ~(answers & inside))
        self.invariant(m, state["opened"] == inside)
        self.invariant(m, ~waits | (state["last"] & dut.own.valid))
        flit = out.payload
        with m.If(own):
            m.d.sync += waits.eq(0)
            self.claim(m, ~flit.error & (Value.cast(flit)[:-1] == Value.cast(dut.own.payload)[:-1]))
        with m.If(answers):
            m.d.sync += waits.eq(dut.own.valid)
            self.claim(m, ~waits)
            self.claim(m, flit.head & flit.tail & flit.error & (flit.vc == 2))
        header = header_of(CONFIG, flit)
        for port, lane in enumerate(lanes):
            with m.If(heard[port]):
                asked = header_of(CONFIG, lane.payload)
                for name, other in (("dst_x", "src_x"), ("dst_y", "src_y"), ("src_x", "dst_x"), ("src_y", "dst_y")):
                    self.claim(m, header[name] == asked[other])
                self.claim(m, flit.data[CONFIG.header_bits :] == lane.payload.data[CONFIG.header_bits :])


LANE_BUGS = {
    "a stranded packet reaches the node": ("self.i.valid & ~away & ~self", "self.i.valid & ~self"),
    "an answer that arrives is answered": ("(away | ~flit.head)):", "1):"),
    "a second packet overtakes the answer": ("(away | self.o.ready) & ~self.failed.valid", "(away | self.o.ready)"),
    "a cut packet is not answered": ("flit.tail & flit.error & (away | ~flit.head)", "flit.tail & flit.error & away"),
}  # fmt: skip

ANSWER_BUGS = {
    "an answer inside a packet": ("answers.eq(~opened & waiting.any()", "answers.eq(waiting.any()"),
    "answers only": (" & ~last),", "),"),
    "the node's error bit is kept": ("self.responses.payload.error.eq(0)]", "]"),
}


def test_returns():
    prove_checks("returns", {"lane": LaneCheck(), "answers": AnswersCheck()}, depth=2)


@pytest.mark.parametrize("bug", planted(LANE_BUGS))
def test_a_bug_of_a_lane_is_found(bug):
    prove_bites("returns_lane_bug", LaneCheck(bug), depth=6)


@pytest.mark.parametrize("bug", planted(ANSWER_BUGS))
def test_a_bug_of_the_answers_is_found(bug):
    prove_bites("returns_answers_bug", AnswersCheck(bug), depth=8)
