"""Address registers hold what the loops say, and a ring never leaves its buffer.

- Affine: ``cur`` is, at all times, base + the sum over the open loops of (iterations done) x (stride), counted from
  where ADDR stood; so a loop that ends leaves it as it was when the loop opened, and ADDR inside of loops that are past
  their first iteration (which needs products) is right as well.
- Ring: ``cur`` stays in [base, base + ring) when 0 <= stride <= ring, and moves by the stride or by stride - ring.

Bound: reduced widths, addresses of 6 bits, strides of 4, counts of 2, 2 levels, 1 register (all are alike). Unbounded
in time, by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assume, Elaboratable, Module, Mux, Signal, signed

from sluice_hw.addrgen import AddressRegisters
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

ADDR, STRIDE, COUNT, LEVELS = 6, 4, 2, 2


class RegisterMemory(Elaboratable):
    """``memory.Memory`` of registers, with one port of each kind."""

    made: list = []

    def __init__(self, *, shape, depth: int, init) -> None:
        self.rows = [Signal(shape, name=f"row{i}") for i in range(depth)]
        self.read = SimpleNamespace(addr=Signal(range(depth)), data=Signal(shape))
        self.write = SimpleNamespace(addr=Signal(range(depth)), data=Signal(shape), en=Signal())
        self.made.append(self)

    def read_port(self, *, domain: str):
        assert domain == "comb"
        return self.read

    def write_port(self):
        return self.write

    def elaborate(self, platform) -> Module:
        m = Module()
        for i, row in enumerate(self.rows):
            with m.If(self.read.addr == i):
                m.d.comb += self.read.data.eq(row)
            with m.If(self.write.en & (self.write.addr == i)):
                m.d.sync += row.eq(self.write.data)
        return m


class AddressCheck(Check):
    """The registers, driven as the sequencer does: loops nest, and nothing happens while products are made."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(
            AddressRegisters, ("_LEVELS = isa.LOOP_LEVELS", f"_LEVELS = {LEVELS}"), *bugs, ADDR_BITS=ADDR,
            COUNT_BITS=COUNT, memory=SimpleNamespace(Memory=RegisterMemory),
            isa=SimpleNamespace(STRIDE_BITS=STRIDE, LOOP_LEVELS=LEVELS, ADDRESS_REGISTERS=1))

    def describe(self, m: Module) -> None:
        RegisterMemory.made.clear()
        dut = self.unit()
        m.submodules.dut, inside = open_up(dut)
        levels = range(LEVELS)
        clear, put, opens, step = (self.free(1, name) for name in ("clear", "set", "opens", "step"))
        which = self.free(1, "level")
        values = self.free(len(dut.values.as_value()), "values")
        m.d.comb += [
            dut.clear.eq(clear), dut.set.eq(put), dut.values.as_value().eq(values),
            dut.step.eq(step), dut.level.eq(which),
            Assume(put + opens + step + clear <= 1), Assume(~dut.busy | ~(put | opens | step)),
        ]
        # Loops.
        is_open = [Signal(name=f"open{i}") for i in levels]
        count = [Signal(COUNT, name=f"count{i}") for i in levels]
        done = [Signal(COUNT, name=f"done{i}") for i in levels]
        asked = self.free(COUNT, "asked")
        m.d.comb += Assume(asked != 0)
        for i in levels:
            inner_open = sum((is_open[j] for j in levels if j > i), 0) != 0
            mine = Signal(name=f"mine{i}")
            m.d.comb += [
                mine.eq(which == i), dut.active[i].eq(is_open[i]), dut.done[i].eq(done[i]),
                dut.open[i].eq(opens & mine),
                Assume(~(opens & mine) | ~(is_open[i] | inner_open)),
                Assume(~(step & mine) | (is_open[i] & ~inner_open)),
            ]
            ends = done[i] == count[i] - 1
            with m.If(mine):
                m.d.comb += dut.last.eq(ends)
            with m.If(clear):
                m.d.sync += is_open[i].eq(0)
            with m.Elif(opens & mine):
                m.d.sync += [is_open[i].eq(1), count[i].eq(asked), done[i].eq(0)]
            with m.Elif(step & mine):
                m.d.sync += [done[i].eq(done[i] + 1), is_open[i].eq(~ends)]

        # The register.
        base, ring, here, origin = Signal(ADDR), Signal(STRIDE), Signal(STRIDE), Signal(ADDR)
        stride = [Signal(signed(STRIDE), name=f"stride{i}") for i in levels]

        # What each open loop has moved it by.
        moved = [Signal(ADDR, name=f"moved{i}") for i in levels]

        sets = Signal()
        m.d.comb += sets.eq(put)
        with m.If(clear):
            m.d.sync += [base.eq(0), origin.eq(0), ring.eq(0), here.eq(0), *(s.eq(0) for s in stride)]
        with m.Elif(sets):
            new = dut.values
            m.d.sync += [base.eq(new.base), ring.eq(new.ring), here.eq(0)]
            m.d.sync += [stride[i].eq(new.strides[i]) for i in levels]
            already = [Mux(is_open[i], (done[i] * new.strides[i])[:ADDR], 0) for i in levels]
            m.d.sync += [moved[i].eq(already[i]) for i in levels]
            m.d.sync += origin.eq(new.base - sum(already))
            for i in levels:  # legal rings
                m.d.comb += Assume((new.ring == 0) | (
                    (new.strides[i] >= 0) & (new.strides[i].as_unsigned() <= new.ring)))
        with m.Elif(step & (ring != 0)):
            for i in levels:
                with m.If(which == i):
                    there = here + stride[i].as_unsigned()
                    m.d.sync += here.eq(there - Mux(there >= ring, ring, 0))

        with m.If(clear):
            m.d.sync += [x.eq(0) for x in moved]
        with m.Elif(step):
            for i in levels:
                with m.If(which == i):
                    m.d.sync += moved[i].eq(Mux(dut.last, 0, moved[i] + stride[i]))
        cur = dut.cur[0]
        with m.If(ring != 0):
            self.claim(m, (cur - base)[:ADDR] < ring)
            self.claim(m, cur == (base + here)[:ADDR])
        with m.Else():
            self.claim(m, cur == (origin + sum(moved))[:ADDR])
        if not self.mutant:
            self.connect(m, inside, stride, ring, here, done, is_open, count, moved)

    def connect(self, m: Module, inside, stride, ring, here, done, is_open, count, moved) -> None:
        """For the induction: what the registers' own registers hold."""
        levels = range(LEVELS)
        parts = [part for part in inside["parts"] if "known" in part]
        level, todo, running = inside["level"], inside["todo"], inside["running"]
        product, left, bits = inside["product"], inside["count"], inside["bits"]
        (part,), rows = parts, RegisterMemory.made[0].rows
        self.invariant(m, (part["ring"] == ring) & ((ring == 0) | (part["left"] == ring - here)))
        for i in levels:
            self.invariant(m, part["strides"][i] == stride[i])
            self.invariant(m, (ring == 0) | ((stride[i] >= 0) & (stride[i].as_unsigned() <= ring)))
            so_far = Mux(part["known"][i], rows[i], 0)
            self.invariant(m, (ring != 0) | ~is_open[i] | todo[i] | (so_far == moved[i]))
            self.invariant(m, ~todo[i] | ((ring == 0) & (inside["strides"][i] == stride[i])))
        self.invariant(m, (ring == 0) | (here < ring))
        for i in levels:
            self.invariant(m, ~is_open[i] | (done[i] < count[i]))
            self.invariant(m, (ring != 0) | (moved[i] == Mux(is_open[i], (done[i] * stride[i])[:ADDR], 0)))
            self.invariant(m, ~todo[i] | is_open[i])
            with m.If(running & (level == i)):
                self.invariant(m, todo[i])
                self.invariant(m, inside["stride"] == inside["strides"][i])
                self.invariant(m, (left <= COUNT) & (bits == (done[i] << (COUNT - left)[:2])[:COUNT]))
                self.invariant(m, product == ((done[i] >> left) * inside["strides"][i])[:ADDR])
        self.invariant(m, ~running | todo.any())


def test_address_registers():
    prove_checks("addrgen", {"registers": AddressCheck()}, depth=1)


BUGS = {
    "wraps late": ("wraps = stride.as_unsigned() >= left", "wraps = stride.as_unsigned() > left"),
    "does not return": ("self.cur.eq(self.cur - so_far)", "self.cur.eq(self.cur)"),
    "no products": ("self.active[i] & (self.done[i] != 0)", "self.active[i] & (self.done[i] == 0)"),
    "a bit too few": ("count.eq(COUNT_BITS),", "count.eq(COUNT_BITS - 1),"),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    prove_bites("addrgen_bites", AddressCheck(bug), depth=14)
