"""Accumulators: no update is lost, no read sees a row half way, and ``finished`` means visible.

One row of the solver's choice is followed through any passes (over it or not, in both regions, adding or overwriting,
of any length, with sums in any cycles) and any reads. The RAMs are replaced by a model of that one row: reads of other
rows give anything. The queue of passes, whose order ``test_fifo.py`` checks, is replaced by passes of any kind.

Bound: one column of 32 bits (columns are copies of each other), 6 rows, which is no power of two. Otherwise unbounded,
by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assume, Elaboratable, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.accumulator import Accumulator, pass_layout
from sluice_hw.config import ChipConfig
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

CONFIG = ChipConfig(cols=1, rows=2, acc_bytes=6 * 4)


class OneRowRam(wiring.Component):
    """``Ram1R1W`` as far as the row ``watched`` goes; ``other`` is what a read of another row gives."""

    def __init__(self, *, depth: int, width: int) -> None:
        bits = max(1, (depth - 1).bit_length())
        self.width = width
        super().__init__({
            "re": In(1), "raddr": In(bits), "rdata": Out(width), "we": In(1), "waddr": In(bits), "wdata": In(width),
            "watched": In(bits), "ours": In(1), "other": In(width), "content": Out(width),
        })
        RAMS.append(self)

    def elaborate(self, platform) -> Module:
        m = Module()
        with m.If(self.re):
            m.d.sync += self.rdata.eq(Mux(self.ours & (self.raddr == self.watched), self.content, self.other))
        with m.If(self.we & self.ours & (self.waddr == self.watched)):
            m.d.sync += self.content.eq(self.wdata)
        return m


class AnyQueue(Elaboratable):
    """In place of the queue of passes: ``r_data`` is any, until it is taken."""

    def __init__(self, *, width: int, depth: int) -> None:
        self.w_data, self.w_rdy, self.w_en = Signal(width), Signal(init=1), Signal()
        self.r_data, self.r_rdy, self.r_en = Signal(width), Signal(), Signal()
        self.any, self.before, self.taken = Signal(width), Signal(width), Signal(init=1)
        QUEUES.append(self)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += [self.before.eq(self.r_data), self.taken.eq(self.r_en)]
        m.d.comb += [self.r_data.eq(Mux(self.taken, self.any, self.before)), self.r_rdy.eq(1)]
        return m


RAMS: list[OneRowRam] = []
QUEUES: list[AnyQueue] = []


class AccumulatorCheck(Check):
    """The accumulators beside one number."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(
            Accumulator, *bugs, Ram1R1W=OneRowRam, fifo=SimpleNamespace(SyncFIFOBuffered=AnyQueue))

    def describe(self, m: Module) -> None:
        RAMS.clear()
        QUEUES.clear()
        dut = self.unit(CONFIG)
        m.submodules.dut, inside = open_up(dut)
        (queue,), rams = QUEUES, list(RAMS)
        half = CONFIG.acc_region_rows

        row = self.constant(m, range(CONFIG.acc_rows), "row")
        m.d.comb += Assume(row < CONFIG.acc_rows)
        for number, ram in enumerate(rams):
            m.d.comb += [
                ram.ours.eq((row >= half) == number),
                ram.watched.eq(Mux(row >= half, row - half, row)),
                ram.other.eq(self.free(32, f"other{number}")),
            ]

        # Passes as the matrix unit checks them, and sums in any cycles.
        p_valid, p_data = self.free(1, "p_valid"), self.free(signed(CONFIG.psum_width), "p_data")
        m.d.comb += [queue.any.eq(self.free(len(queue.any), "pass")), dut.p_valid.eq(p_valid), dut.p_data[0].eq(p_data)]
        now = data.View(pass_layout(CONFIG), queue.r_data)
        m.d.comb += Assume((now.rows != 0) & (now.first + now.rows <= CONFIG.acc_rows))
        at = Signal(range(CONFIG.acc_rows + 1))
        ends = Signal()
        m.d.comb += ends.eq(p_valid & (at == now.rows - 1))
        with m.If(p_valid):
            m.d.sync += at.eq(Mux(ends, 0, at + 1))

        # The row's value: ``value`` has every sum that came before this cycle, ``visible`` those before the last one.
        value, visible = Signal(32), Signal(32)
        hit = Signal()
        m.d.comb += hit.eq(p_valid & (now.first + at == row))
        with m.If(hit):
            m.d.sync += value.eq(Mux(now.accumulate, value, 0) + p_data)
        m.d.sync += visible.eq(value)

        # Reads.
        asks, wanted = self.free(1, "asks"), self.free(32, "wanted")
        m.d.comb += [dut.acc.req.valid.eq(asks), dut.acc.req.payload.row.eq(wanted), Assume(wanted < CONFIG.acc_rows)]
        taken, seen, answered = Signal(), Signal(32), Signal()
        m.d.comb += taken.eq(asks & dut.acc.req.ready)
        m.d.sync += [answered.eq(taken), seen.eq(visible)]
        ours = Signal()
        m.d.sync += ours.eq(wanted == row)
        self.claim(m, dut.acc.rsp_valid == answered)
        with m.If(answered & ours):
            self.claim(m, dut.acc.rsp_data[0] == seen)
        # A read waits only for the array's read in the same region.
        with m.If(asks & ~(p_valid & now.accumulate & ((now.first + at >= half) == (wanted >= half)))):
            self.claim(m, dut.acc.req.ready)

        # ``finished`` comes one cycle behind the last sum: reads taken later see all of it.
        ended = Signal()
        m.d.sync += ended.eq(ends)
        self.claim(m, dut.finished == ended)

        # For the induction.
        content = Signal(32)
        m.d.comb += content.eq(Mux(row >= half, rams[1].content, rams[0].content))
        self.invariant(m, content == visible)
        self.invariant(m, inside["done"] == at)
        before = data.View(pass_layout(CONFIG), queue.before)
        self.invariant(m, (at == 0) | ~queue.taken)
        self.invariant(m, queue.taken | ((at < before.rows) & (before.first + before.rows <= CONFIG.acc_rows)))


def test_no_lost_update():
    prove_checks("accumulator", {"rows6": AccumulatorCheck()}, depth=4)


BUGS = {
    "no forwarding": ("again.eq(adds & reads & (add_row == row))", "again.eq(0)"),
    "forwards the wrong row": ("again.eq(adds & reads & (add_row == row))", "again.eq(adds & reads)"),
    "a read goes first": ("Mux(mine, local, wanted_local)", "Mux(taken, wanted_local, local)"),
    "no arbitration": ("self.acc.req.ready.eq(~(reads & (upper == wanted_upper)))", "self.acc.req.ready.eq(1)"),
    "finished early": ('valid_stages(m, "ends", ends,', 'valid_stages(m, "ends", self.p_valid,'),
    "overwrites": ("base[c] + lanes[c]", "lanes[c]"),
    "regions mixed up": ("Mux(answers_upper, regions[1].rdata", "Mux(~answers_upper, regions[1].rdata"),
    "a write is left out": ("written & (write_upper == number)\n", "written & ~again & (write_upper == number)\n"),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    prove_bites("accumulator_bites", AccumulatorCheck(bug), depth=8)
