"""Accumulators of chips of bf16, which vector lanes write, too: no sum and no lane's row is lost, and reads see them in
order.

As in ``test_accumulator.py`` one row of the solver's choice is followed through any passes, any reads and any writes of
the lanes. A sum is in memory ``acc_revisit`` cycles after it left the array, and ``finished`` comes the cycle before; a
lane's row is in memory one cycle after its transfer. Reads and lanes' writes wait only for the array's read or write of
the same region in the same cycle. int32 sums, of a chip of both types, are added as int32 ones.

Assumed is what others promise: the array adds to a row that it has changed no sooner than ``acc_revisit`` cycles later
(``test_apart.py``), and lanes write no row while a sum for it is under way (tokens; programs are checked for races). In
place of the adder stands one that gives x for x + -0, and no other law of addition.

Bounds: one column, 6 rows, latency 1 (soak: 4, and both types with latency 2). Otherwise unbounded, by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assume, Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data

from sluice_hw.accumulator import Accumulator, pass_layout
from sluice_hw.config import ChipConfig
from verif.formal.claims import Check, altered, open_up, prove_bites, prove_checks
from verif.formal.test_accumulator import QUEUES, RAMS, AnyQueue, OneRowRam

pytestmark = pytest.mark.formal

MINUS_ZERO = 1 << 31


def added(base, row, int8):
    """A sum; of bf16 a stand-in whose result says which operand was which."""
    return Mux(int8, base + row, Mux(base == MINUS_ZERO, row, (base << 1) + row + 1))[:32]


class AnyAdder(Elaboratable):
    """In place of the row of adders of one column."""

    last: AnyAdder

    def __init__(self, *, cell, name: str, rows: int, cols: int, emission: str) -> None:
        self.latency = cell.LATENCY
        self.all = SimpleNamespace(valid=Signal(), int8=Signal())
        self.col = SimpleNamespace(base=Signal(32), sum=Signal(32))
        self.down = SimpleNamespace(result=Signal(32))
        AnyAdder.last = self

    def elaborate(self, platform) -> Module:
        m = Module()
        self.stages, value, valid = [], added(self.col.base, self.col.sum, self.all.int8), self.all.valid
        for k in range(self.latency):
            stage, then = Signal(32, name=f"stage{k}"), Signal(name=f"valid{k}")
            m.d.sync += then.eq(valid)
            with m.If(valid):
                m.d.sync += stage.eq(value)
            self.stages.append(stage)
            value, valid = stage, then
        m.d.comb += self.down.result.eq(value)
        return m


class FloatCheck(Check):
    """The accumulators beside one number."""

    def __init__(self, latency: int, *bugs: tuple[str, str], dtype: str = "bf16") -> None:
        super().__init__()
        self.config = ChipConfig(cols=1, rows=2, acc_bytes=6 * 4, dtype=dtype, pe_latency=latency)
        self.unit = altered(Accumulator, *bugs, Ram1R1W=OneRowRam, Grid=AnyAdder,
                            fifo=SimpleNamespace(SyncFIFOBuffered=AnyQueue))

    def describe(self, m: Module) -> None:
        RAMS.clear()
        QUEUES.clear()
        config, latency = self.config, self.config.pe_latency
        dut = self.unit(config)
        m.submodules.dut, inside = open_up(dut)
        (queue,), rams, adder = QUEUES, list(RAMS), AnyAdder.last
        half, rows = config.acc_region_rows, config.acc_rows

        row = self.constant(m, range(rows), "row")
        m.d.comb += Assume(row < rows)
        local = Signal(range(half))
        m.d.comb += local.eq(Mux(row >= half, row - half, row))
        for number, ram in enumerate(rams):
            m.d.comb += [ram.ours.eq((row >= half) == number), ram.watched.eq(local),
                         ram.other.eq(self.free(32, f"other{number}"))]

        # Passes as the matrix unit checks them, and sums in any cycles.
        p_valid, p_data = self.free(1, "p_valid"), self.free(32, "p_data")
        m.d.comb += [queue.any.eq(self.free(len(queue.any), "pass")), dut.p_valid.eq(p_valid), dut.p_data[0].eq(p_data)]
        now = data.View(pass_layout(config), queue.r_data)
        m.d.comb += Assume((now.rows != 0) & (now.first + now.rows <= rows))
        int8 = now.int8 if config.both else 0
        at, ends, place = Signal(range(rows + 1)), Signal(), Signal(range(rows))
        m.d.comb += [ends.eq(p_valid & (at == now.rows - 1)), place.eq(now.first + at)]
        with m.If(p_valid):
            m.d.sync += at.eq(Mux(ends, 0, at + 1))
        reads, hit = Signal(), Signal()
        m.d.comb += [reads.eq(p_valid & now.accumulate), hit.eq(p_valid & (place == row))]

        # ``value`` has every sum that has come; those under way, the latest first; ``visible`` what memory holds.
        value, visible = Signal(32), Signal(32)
        under_way = [Signal(name=f"under_way{k}") for k in range(latency + 1)]
        becomes = [Signal(32, name=f"becomes{k}") for k in range(latency + 1)]
        new = Signal(32)
        plain = Mux(int8, 0, MINUS_ZERO)
        m.d.comb += new.eq(added(Mux(now.accumulate, value, plain), p_data, int8))
        m.d.sync += [under_way[0].eq(hit), becomes[0].eq(new)]
        m.d.sync += [later.eq(one) for later, one in zip(under_way[1:], under_way, strict=False)]
        m.d.sync += [later.eq(one) for later, one in zip(becomes[1:], becomes, strict=False)]
        m.d.comb += Assume(~(hit & now.accumulate & Cat(under_way).any()))
        with m.If(hit):
            m.d.sync += value.eq(new)
        with m.If(under_way[-1]):
            m.d.sync += visible.eq(becomes[-1])

        # The lanes' writes. The array writes what it was given latency + 1 cycles ago.
        puts, put_row, put_data = self.free(1, "puts"), self.free(32, "put_row"), self.free(32, "put_data")
        write = dut.write.req
        stored = Signal()
        m.d.comb += [write.valid.eq(puts), write.payload.row.eq(put_row), write.payload.data[0].eq(put_data),
                     Assume(put_row < rows), stored.eq(puts & write.ready & (put_row == row)),
                     Assume(~(stored & (hit | Cat(under_way).any())))]
        with m.If(stored):
            m.d.sync += [value.eq(put_data), visible.eq(put_data)]
        writes, uppers, ended = ([value] for value in (p_valid, place >= half, ends))
        for k in range(latency + 1):
            for stages, name in ((writes, "writes"), (uppers, "uppers"), (ended, "ended")):
                stages.append(self.delayed(m, stages[-1], 1, f"{name}{k}"))
        self.claim(m, write.ready | (writes[-1] & (uppers[-1] == (put_row >= half))))

        # Reads.
        asks, wanted = self.free(1, "asks"), self.free(32, "wanted")
        m.d.comb += [dut.acc.req.valid.eq(asks), dut.acc.req.payload.row.eq(wanted), Assume(wanted < rows)]
        seen, answered, ours = Signal(32), Signal(), Signal()
        m.d.sync += [answered.eq(asks & dut.acc.req.ready), seen.eq(visible), ours.eq(wanted == row)]
        self.claim(m, dut.acc.rsp_valid == answered)
        with m.If(answered & ours):
            self.claim(m, dut.acc.rsp_data[0] == seen)
        self.claim(m, ~asks | dut.acc.req.ready | (reads & ((place >= half) == (wanted >= half))))

        # Of a pass that has finished, reads taken later see all.
        self.claim(m, dut.finished == ended[-1])
        if self.mutant:
            return

        content, base = Signal(32), Signal(32)
        m.d.comb += [content.eq(Mux(row >= half, rams[1].content, rams[0].content)),
                     base.eq(Mux(inside["add_upper"], rams[1].rdata, rams[0].rdata))]
        self.invariant(m, (content == visible) & (inside["done"] == at))
        newest = visible
        for one, what in reversed(list(zip(under_way, becomes, strict=True))):
            newest = Mux(one, what, newest)
        self.invariant(m, value == newest)
        # What is under way in the unit, stage by stage.
        self.invariant(m, under_way[0] == (inside["adds"] & (inside["add_row"] == row)))
        with m.If(inside["adds"]):
            self.invariant(m, (inside["add_row"] < rows) & (inside["add_upper"] == (inside["add_row"] >= half)))
            self.invariant(m, inside["add_local"] == (inside["add_row"] - Mux(inside["add_upper"], half, 0))[:2])
        with m.If(under_way[0]):
            whole = inside["add_int8"] if config.both else 0
            self.invariant(m, becomes[0] == added(
                Mux(inside["add_accumulate"], base, Mux(whole, 0, MINUS_ZERO)), inside["sums"], whole))
        for k in range(latency):
            valid, upper, where = (inside[f"{name}{k}"] for name in ("adding", "upper", "local"))
            self.invariant(m, under_way[k + 1] == (valid & (upper == (row >= half)) & (where == local)))
            self.invariant(m, ~valid | (where < half))
            self.invariant(m, ~under_way[k + 1] | (adder.stages[k] == becomes[k + 1]))
            self.invariant(m, inside[f"ends{k}"] == ended[k + 1])
        for k in range(latency + 1):
            valid = inside["adds"] if k == 0 else inside[f"adding{k - 1}"]
            upper = inside["add_upper"] if k == 0 else inside[f"upper{k - 1}"]
            self.invariant(m, valid == writes[k + 1])
            self.invariant(m, ~valid | (upper == uppers[k + 1]))
        before = data.View(pass_layout(config), queue.before)
        self.invariant(m, (at == 0) | ~queue.taken)
        self.invariant(m, queue.taken | ((at < before.rows) & (before.first + before.rows <= rows)))


def test_no_lost_update():
    prove_checks("float_accumulator", {"bf16": FloatCheck(1)}, depth=2)


@pytest.mark.soak
def test_longer_adder():
    """The stand-in's stages say nothing of how they follow each other: as many steps as it has fill them."""
    prove_checks("float_accumulator_soak", {
        "bf16": FloatCheck(4), "both": FloatCheck(2, dtype="int8+bf16")}, depth=6)  # fmt: skip


BUGS = {
    "the array's row goes behind a lane's": ("waddr = Mux(own, write_local, stored_local)",
                                             "waddr = Mux(self.write.req.valid, stored_local, write_local)"),
    "no arbitration of writes": (
        "self.write.req.ready.eq(~(written & (write_upper == stored_upper)))", "self.write.req.ready.eq(1)"),
    "a lane's write is lost": (
        "we = own | (self.write.req.valid & (stored_upper == number))",
        "we = own | (self.write.req.valid & (stored_upper == number) & ~written)"),
    "lanes wait for nothing": (
        "~(written & (write_upper == stored_upper))", "~written"),
    "a write in the other region": ("(stored_upper == number)", "(stored_upper != number)"),
    "finished with the sum": ("config.pe_latency if config.is_float else 0", "0"),
    "adds to +0 in place of -0": ("Const(1 << 31, 32)", "Const(0, 32)"),
    "place of the row behind": ("[next_upper.eq(upper), next_local.eq(local)]",
                                "[next_upper.eq(upper), next_local.eq(self.write.req.payload.row)]"),
}


@pytest.mark.soak
@pytest.mark.parametrize("what", BUGS)
def test_bug_is_found(what):
    prove_bites("float_accumulator_bites", FloatCheck(1, BUGS[what]), depth=8)


@pytest.mark.soak
def test_bug_of_both_types_is_found():
    change = ("nothing = Mux(int8, 0, nothing)", "nothing = nothing")
    prove_bites("float_accumulator_bites", FloatCheck(1, change, dtype="int8+bf16"), depth=8)
