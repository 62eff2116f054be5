"""No flit is lost or made in a whole router, for all time and any traffic of links that send with credits only.

Queue by queue: every flit that leaves one goes to exactly one output in that cycle, unchanged, and every flit that an
output sends left exactly one queue. The queues of lanes hold what came and did not leave, and so do link buffers
(``test_router.py``). By induction, for the router of a 2 x 2 torus (XY only, two places per channel)
whose links live; that nothing is doubled or overtaken within a flow is claimed in ``test_router.py``.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assume, Cat, Module, Signal, Value

from sluice_hw.ici.buffer import InputBuffer
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.fair import EarliestArbiter
from sluice_hw.ici.interface import Port
from sluice_hw.ici.lane import LaneQueue
from sluice_hw.ici.router import Router
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks
from verif.formal.test_router import SMALL

pytestmark = pytest.mark.formal


class AnyArbiter(EarliestArbiter):
    """Grants any that can. That the real one grants one of these is proven in ``test_router.py``."""

    def __init__(self, n: int, *, bits: int, patience_bits: int) -> None:
        super().__init__(n, bits=bits, patience_bits=patience_bits)
        self.choice = Signal(range(n))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [
            self.any.eq(self.can.any()), self.index.eq(self.choice), self.grant.eq(self.any << self.index),
            Assume(~self.any | self.can.bit_select(self.choice, 1)),
        ]  # fmt: skip
        return m


class AnyBuffer(InputBuffer):
    """Has any flits. That the real one has those that came, in order, is proven in ``test_router.py``."""

    def __init__(self, config: TorusConfig) -> None:
        super().__init__(config)
        self.some = Signal.like(self.valid)
        self.firsts = Signal.like(Value.cast(self.flits))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.valid.eq(self.some), Value.cast(self.flits).eq(self.firsts)]
        return m


class FlitsCheck(Check):
    """What leaves the queues of a router is what its outputs send."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(Router, *bugs, EarliestArbiter=AnyArbiter, InputBuffer=AnyBuffer)

    def describe(self, m: Module) -> None:
        dut = self.unit(SMALL)
        m.submodules.dut, state = open_up(dut)
        m.d.comb += [dut.last_x.eq(1), dut.last_y.eq(1)]
        faults = [f"link_{way}__{p}__{what}" for p in Port for way, what in (("in", "ended"), ("out", "dead"))]
        self.free_inputs(m, dut, but=("x", "y", "last", *faults))
        parts = [part["self"] for part in state["parts"]]
        buffers = [part for part in parts if isinstance(part, AnyBuffer)]
        arbiters = [part for part in parts if isinstance(part, AnyArbiter)]
        queues = [part for part in parts if isinstance(part, LaneQueue)]
        assert (len(buffers), len(arbiters), len(queues)) == (4, 12, 16)
        for port, buffer in zip(Port, buffers, strict=True):
            m.d.comb += [buffer.some.eq(self.free(SMALL.vcs, f"some{port}")),
                         buffer.firsts.eq(self.free(len(buffer.firsts), f"firsts{port}"))]  # fmt: skip
            self.claim(m, (buffer.pop & ~buffer.valid) == 0)
        for name, signal in state.items():
            if name.endswith("_to_kept"):  # a packet goes one way
                self.invariant(m, (signal & (signal - 1)) == 0)
        for k, arbiter in enumerate(arbiters):
            m.d.comb += arbiter.choice.eq(self.free(len(arbiter.choice), f"choice{k}"))
        for port, arbiter in zip(Port, arbiters[:4], strict=True):
            self.claim(m, dut.link_out[port].valid == arbiter.any)
        for queue, arbiter in zip(queues[8:], arbiters[4:], strict=True):
            self.claim(m, queue.i.valid == arbiter.any)
            self.claim(m, ~queue.i.valid | queue.i.ready)
        for entry in state["inputs"]:
            grants = Cat(*entry.grants)
            self.claim(m, (grants & (grants - 1)) == 0)
            self.claim(m, entry.pop == grants.any())
            self.claim(m, ~entry.pop | entry.valid)
            # By links in their order, then by the lane out.
            outs = [dut.link_out[port].flit for port in sorted(entry.ways)]
            outs.append(queues[8 + 2 * entry.lane + entry.message].i.payload)
            for grant, flit in zip(entry.grants, outs, strict=True):
                with m.If(grant):
                    for name in ("data", "head", "tail"):
                        self.claim(m, flit[name] == entry.flit[name])


class LaneQueueCheck(Check):
    """A queue of two places: what came and did not leave is in it, in order."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(LaneQueue, *bugs)

    def describe(self, m: Module) -> None:
        dut = self.unit(SMALL)
        m.submodules.dut, state = open_up(dut)
        m.d.comb += dut.o.ready.eq(self.free(1, "ready"))
        self.held_stream(m, dut.i, "i")
        count, kept = Signal(3), [Signal.like(Value.cast(dut.i.payload), name=f"kept{k}") for k in range(2)]
        push, pop = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        m.d.sync += count.eq(count + push - pop)
        with m.If(pop):
            m.d.sync += kept[0].eq(kept[1])
        with m.If(push):
            with m.If(count == pop):
                m.d.sync += kept[0].eq(dut.i.payload)
            with m.Else():
                m.d.sync += kept[1].eq(dut.i.payload)
        self.claim(m, count == dut.o.valid + state["second_valid"])
        self.claim(m, dut.o.valid == (count != 0))
        self.claim(m, ~dut.o.valid | (Value.cast(dut.o.payload) == kept[0]))
        self.invariant(m, ~state["second_valid"] | (Value.cast(state["second"]) == kept[1]))


BUGS = {
    "a flit goes without leaving its queue": ("Cat(*entry.grants).any()", "Cat(*entry.grants[1:]).any()"),
    "two outputs take one flit": ("first_to[_LOCAL].eq(~first_to[:_LOCAL].any())", "first_to[_LOCAL].eq(1)"),
    "a full lane out is written": (" & free & (entry.open | ~busy)", " & (entry.open | ~busy)"),
}


@pytest.mark.soak
def test_no_flit_is_lost_or_made():
    prove_checks("router_whole", {"router": FlitsCheck()}, depth=1)


@pytest.mark.soak
@pytest.mark.parametrize("bug", planted(BUGS))
def test_a_bug_of_the_router_is_found(bug):
    prove_bites("router_whole_bug", FlitsCheck(bug), depth=3)


def test_the_queue_of_a_lane():
    prove_checks("lane_queue", {"lane": LaneQueueCheck()}, depth=1)


@pytest.mark.soak
def test_a_bug_of_a_lane_is_found():
    prove_bites("lane_queue_bug", LaneQueueCheck(("self.i.valid & ~second_valid", "self.i.valid")), depth=6)
