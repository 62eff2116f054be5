"""Chips of bf16: the array adds to an accumulator row no sooner than ``acc_revisit`` cycles after it changed that row.

Two proofs share the work. Of the matrix unit: when every pass that is to be kept apart has its first row that long
behind the row before it, no row that accumulates comes sooner behind one of the same accumulator row; passes are any,
one after the other, of any rows, with bubbles anywhere or none. Of the feeder: it issues the first row of such a pass
no sooner. (That the mark reaches the row's head is left to the unit tests.) What is done with the sums then is
``test_float_accumulator.py``'s.

Bounds: 8 accumulator rows, latency 1 (soak: 2); the feeder's 1, with 2 rows and 2 ports. Unbounded in time, by
induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assume, Module, Mux, Signal

from sluice_hw.config import ChipConfig
from sluice_hw.feeder import Feeder
from sluice_hw.mxu import Mxu
from verif.formal.claims import AnyQueue, Check, altered, open_up, prove_bites, prove_checks

pytestmark = pytest.mark.formal


#: What the unit remembers of the pass before, by a name that can be reached.
_KEPT = ("        m.d.comb += feeder.start.payload.apart.eq(",
         "        self.kept = short, end, tail\n        m.d.comb += feeder.start.payload.apart.eq(")


class PassesCheck(Check):
    """Passes as the matrix unit starts them, row by row."""

    def __init__(self, latency: int, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.config = ChipConfig(rows=2, cols=1, dtype="bf16", pe_latency=latency, acc_bytes=8 * 4)
        self.unit = altered(Mxu, _KEPT, *bugs)

    def describe(self, m: Module) -> None:
        config, most = self.config, self.config.acc_rows
        revisit = config.acc_revisit
        starts, first, rows, adds = (self.free(n, name) for n, name in (
            (1, "starts"), (32, "first"), (5, "rows"), (1, "adds")))
        apart = Signal()
        feeder = SimpleNamespace(rows=rows, start=SimpleNamespace(payload=SimpleNamespace(apart=apart)))
        op = SimpleNamespace(b=first, accumulate=adds)
        unit = SimpleNamespace(_config=config, unit=SimpleNamespace(op=SimpleNamespace(payload=op)))
        # A pass starts with the last row of the one before, or later; in the unit earlier, but in the same order.
        at, now_first, now_rows = Signal(5), Signal(5), Signal(5)
        now_adds, now_apart, issue = Signal(), Signal(), self.free(1, "issue")
        going = at != now_rows
        m.d.comb += [
            Assume((rows != 0) & (first < most) & (first + rows <= most)),
        ]
        self.unit._keep_apart(unit, m, feeder, starts)
        since, moves, row = Signal(range(revisit + 1), init=revisit), Signal(), Signal(5)
        m.d.comb += [
            moves.eq(issue & going & ((since == revisit) | ~(now_apart & (at == 0)))), row.eq(now_first + at),
            Assume(~starts | ~going | (moves & (at + 1 == now_rows))),
        ]
        m.d.sync += since.eq(Mux(moves, 1, since + (since != revisit)))
        with m.If(moves):
            m.d.sync += at.eq(at + 1)
        with m.If(starts):
            m.d.sync += [at.eq(0), now_first.eq(first), now_rows.eq(rows), now_adds.eq(adds), now_apart.eq(apart)]
        # One row: cycles since the array changed it.
        mine, hit = self.constant(m, 3, "mine"), Signal()
        changed = Signal(range(revisit + 1), init=revisit)
        m.d.comb += hit.eq(moves & (row == mine))
        m.d.sync += changed.eq(Mux(hit, 1, changed + (changed != revisit)))
        with m.If(hit & now_adds):
            self.claim(m, changed == revisit)
        if self.mutant:
            return
        short, end, tail = unit.kept
        self.invariant(m, (at <= now_rows) & (now_first + now_rows <= most) & (since <= revisit) & (changed <= revisit))
        self.invariant(m, changed >= since)
        with m.If(now_rows == 0):
            self.invariant(m, changed == revisit)
        with m.Else():
            self.invariant(m, (short == (now_rows < revisit)) & (end == now_first + now_rows))
            self.invariant(m, short | (tail == (end - revisit)[:3]))
        # Rows that were issued behind it keep it apart from the next ones; of a pass that adds, those before it do.
        with m.If((mine >= now_first) & (mine < now_first + at)):
            self.invariant(m, (changed == revisit) | (changed + mine >= now_first + at))
        with m.Else():
            self.invariant(m, (changed == revisit) | (changed >= at))
        with m.If(now_adds & (mine >= now_first + at) & (mine < now_first + now_rows) & ~(now_apart & (at == 0))):
            self.invariant(m, changed + mine >= now_first + at + revisit)


class GapCheck(Check):
    """The issue of rows in the feeder."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.config = ChipConfig(rows=2, cols=2, dtype="bf16", vmem_bytes=192, vmem_banks=8, acc_bytes=6 * 8,
                                 feed_ports=2)
        self.unit = altered(Feeder, *bugs, fifo=SimpleNamespace(SyncFIFOBuffered=AnyQueue, SyncFIFO=AnyQueue))

    def describe(self, m: Module) -> None:
        revisit = self.config.acc_revisit
        AnyQueue.made.clear()
        dut = self.unit(self.config)
        m.submodules.dut, inside = open_up(dut)
        self.free_queues(m)
        self.free_inputs(m, dut)
        gap = Signal(range(revisit + 1))  # cycles since the row before, or since reset
        m.d.sync += gap.eq(Mux(dut.issue, 1, gap + (gap != revisit)))
        with m.If(dut.issue & inside["head"].apart):
            self.claim(m, gap == revisit)
        if not self.mutant:
            since = inside["since"]
            self.invariant(m, (since <= revisit) & (gap >= since) & (gap <= revisit))


def test_apart():
    prove_checks("apart", {"passes": PassesCheck(1), "gap": GapCheck()}, depth=1)


@pytest.mark.soak
def test_apart_longer():
    prove_checks("apart_soak", {"passes": PassesCheck(2)}, depth=1)


BUGS = {
    "short passes count as long": (PassesCheck, ("short.eq(feeder.rows < config.acc_revisit)", "short.eq(0)")),
    "a row less of the pass before": (PassesCheck, (
        "tail.eq(op.b + feeder.rows - config.acc_revisit)", "tail.eq(op.b + feeder.rows - config.acc_revisit + 1)")),
    "its last row does not count": (PassesCheck, ("end.eq(op.b + feeder.rows)", "end.eq(op.b + feeder.rows - 1)")),
    "two cycles less": (GapCheck, ("(since != self._config.acc_revisit)\n        m.d.comb", "(since < self._config."
                                   "acc_revisit - 2)\n        m.d.comb")),
}


@pytest.mark.soak
@pytest.mark.parametrize("what", BUGS)
def test_bug_is_found(what):
    check, change = BUGS[what]
    prove_bites("apart_bites", check(1, change) if check is PassesCheck else check(change), depth=16)
