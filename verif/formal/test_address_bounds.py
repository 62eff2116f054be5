"""Addresses stay inside their memories, whatever a legal program asks for.

- DMA: when the front of an engine starts a train, its slices lie in [HBM_LO, HBM_HI), its rows fit into its slices, and
  every chunk that the walk over its rows shows lies inside VMEM.
- Vector unit: the walk over nested loops shows base + i0*s0 + i1*s1 + ..., each position once; and no request of the
  unit uses a byte outside VMEM or a row outside the accumulators.
- Feeder: no access begins outside VMEM, the bytes that a row uses lie inside, and no access is made for none.

Fields of setup words are those that the decoder lets pass. Bounds: a VMEM of 192 bytes (no power of two); the front of
the DMA engines with 3 rows (it multiplies), their walk with 7; vector walks of 2 and 3 levels with 3 positions, strides
of 3 bits and addresses of 6; a feeder of 2 rows and 2 ports; 2 columns. All other addresses, pitches and strides have
their full width. Unbounded in time, by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assume, Cat, Module, Mux, Signal, signed
from amaranth.lib import data

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.dma.front import TrainFront
from sluice_hw.dma.walk import RowWalk
from sluice_hw.emit.grid import Grid
from sluice_hw.feeder import Feeder
from sluice_hw.vpu import Vpu
from sluice_hw.vpu.params import PARAM_READS, ParamRegisters
from sluice_hw.vpu.walk import Walker
from verif.formal.claims import AnyQueue, Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

CONFIG = ChipConfig(rows=2, cols=2, vmem_bytes=192, vmem_banks=8, acc_bytes=6 * 8, feed_ports=2)
MOST_ROWS = 3


def legal(op: isa.Op, view, config: ChipConfig = CONFIG) -> list:
    """The fields of an op lie in the ranges that the decoder checks."""
    conditions = []
    for field in isa.OPS[op].fields:
        low, high = isa.field_range(field, config)
        conditions += [view[field.name] >= low, view[field.name] <= high]
    return conditions


def all_of(conditions) -> Signal:
    return Cat(conditions).all()


def times(count, value):
    """A number of at most MOST_ROWS times a value."""
    return sum(Mux(count[i], value << i, 0) for i in range(MOST_ROWS.bit_length()))


#: The solver cannot compare multipliers; for the few rows here a product is a sum.
_PRODUCTS = (("total.eq(rows * row_bytes)", "total.eq(times(rows, row_bytes))"),
             ("span.eq((rows - 1) * pitch)", "span.eq(times(rows - 1, pitch))"),
             ("UNITS = len(isa.Unit)", "UNITS = len(isa.Unit)\ntimes = None"))


class TrainCheck(Check):
    """What the front of a DMA engine promises about a train that it starts."""

    def __init__(self, unit: isa.Unit, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = unit
        self.front = altered(TrainFront, *_PRODUCTS, *bugs, times=times)

    def describe(self, m: Module) -> None:
        vmem, slice_bytes = CONFIG.vmem_bytes, CONFIG.slice_bytes
        front = self.front(CONFIG, self.unit)
        m.submodules.front, inside = open_up(front)
        self.held_stream(m, front.op, "op")
        m.d.comb += [
            front.hbm_lo.eq(self.constant(m, 32, "hbm_lo")), front.hbm_hi.eq(self.constant(m, 32, "hbm_hi")),
            front.take.ready.eq(self.free(1, "tokens")), front.stop.eq(self.free(1, "stop")),
            front.room.eq(self.free(1, "room")),
        ]
        op, train = front.op.payload, front.train
        word = data.View(isa.word_layout(isa.Op.DMA_SHAPE), op.word)
        with m.If(front.op.valid & (word.opcode == isa.Op.DMA_SHAPE)):
            m.d.comb += Assume(all_of(legal(isa.Op.DMA_SHAPE, word)) & (word.rows <= MOST_ROWS))

        # The shape that was set last, and what follows for the train at the head.
        rows, row_bytes, pitch = (inside[name] for name in ("rows", "row_bytes", "pitch"))
        total, span = Signal(32), Signal(signed(40))
        m.d.comb += [total.eq(times(rows, row_bytes)), span.eq(times(rows - 1, pitch))]
        in_hbm = (op.a >= front.hbm_lo) & (op.a + train.count <= front.hbm_hi)
        in_train = (total != 0) & (total <= train.count * slice_bytes)
        in_vmem = Signal()
        far = op.b + span
        m.d.comb += in_vmem.eq((op.b + row_bytes <= vmem) & (far >= 0) & (far + row_bytes <= vmem))
        with m.If(front.start & ~train.sync):
            self.claim(m, in_hbm & (train.hbm == op.a))
            self.claim(m, in_train)
            self.claim(m, in_vmem & (train.rows.vmem == op.b))
            # One long row in place of rows without gaps.
            flat = (train.rows.rows == 1) & (train.rows.row_bytes == total) & (pitch == row_bytes)
            self.claim(m, flat | (train.rows.rows == rows) & (train.rows.row_bytes == row_bytes)
                       & (train.rows.pitch == pitch[:len(train.rows.pitch)]))
        if self.mutant:
            return
        set_up = Signal()
        m.d.comb += set_up.eq(rows != 0)
        self.invariant(m, (rows <= MOST_ROWS) & (row_bytes <= vmem) & (set_up == (row_bytes != 0)))
        with m.If(inside["settled"]):
            self.invariant(m, inside["total"] == total)
            self.invariant(m, ~set_up | (inside["span"] == span))
            self.invariant(m, inside["flat"] == (pitch == row_bytes))
        with m.If(inside["checked"]):
            self.invariant(m, front.op.valid & inside["is_train"] & inside["settled"])
            self.invariant(m, inside["too_long"] | in_train)
            self.invariant(m, inside["hbm_bad"] | in_hbm)
            self.invariant(m, inside["vmem_bad"] | ~set_up | in_vmem)


class RowsCheck(Check):
    """The walk over rows that the front has let through."""

    ROWS = 7

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(RowWalk, *bugs)

    def describe(self, m: Module) -> None:
        vmem = CONFIG.vmem_bytes
        walk = self.unit(CONFIG)
        m.submodules.walk, inside = open_up(walk)
        m.d.comb += [walk.step.eq(self.free(1, "step") & walk.active), walk.abort.eq(self.free(1, "abort"))]
        # Its registers count modulo 2**n; here are the true numbers.
        base, pitch = self.free(8, "base"), self.free(signed(10), "pitch")
        rows, size = self.free(3, "rows"), self.free(8, "size")
        last = Signal(signed(14))
        m.d.comb += [
            last.eq(base + sum(Mux((rows - 1)[i], pitch << i, 0) for i in range(3))),
            walk.load.eq(self.free(1, "load")), walk.rows.vmem.eq(base), walk.rows.rows.eq(rows),
            walk.rows.row_bytes.eq(size), walk.rows.pitch.eq(pitch),
            Assume((rows != 0) & (size != 0) & (base + size <= vmem) & (last >= 0) & (last + size <= vmem)),
            # Of a single row there is no pitch, of several it is no longer than VMEM.
            Assume((pitch >= -vmem) & (pitch <= vmem)),
        ]
        # Row by row, byte by byte.
        row, at, left, step = Signal(signed(10)), Signal(8), Signal(8), Signal(signed(10))
        rows_left, row_bytes, going = Signal(3), Signal(8), Signal()
        ends = Signal()
        m.d.comb += ends.eq(walk.size == left)
        with m.If(walk.step):
            m.d.sync += [at.eq(at + walk.size), left.eq(left - walk.size)]
            with m.If(ends):
                m.d.sync += [row.eq(row + step), at.eq(row + step), left.eq(row_bytes), rows_left.eq(rows_left - 1)]
                with m.If(rows_left == 1):
                    m.d.sync += going.eq(0)
        with m.If(walk.abort):
            m.d.sync += going.eq(0)
        with m.If(walk.load):
            m.d.sync += [row.eq(base), at.eq(base), left.eq(size), step.eq(pitch), rows_left.eq(rows),
                         row_bytes.eq(size), going.eq(1)]
        self.claim(m, walk.active == going)
        with m.If(going):
            end = walk.offset + walk.size
            self.claim(m, walk.line + end <= vmem)
            self.claim(m, (walk.line + walk.offset == at) & (walk.size != 0) & (walk.size <= left))
            self.claim(m, end <= CONFIG.hbm_beat_bytes)
            self.claim(m, ends | (end == CONFIG.hbm_beat_bytes))
            self.claim(m, walk.last == (ends & (rows_left == 1)))
        if self.mutant:
            return
        fits, there = Signal(signed(10)), Signal(signed(14))
        m.d.comb += [
            fits.eq(vmem - row_bytes),
            there.eq(row + sum(Mux((rows_left - 1)[i], step << i, 0) for i in range(3))),
        ]
        with m.If(going):
            self.invariant(m, (rows_left != 0) & (row >= 0) & (row <= fits) & (there >= 0) & (there <= fits))
            self.invariant(m, (step >= -vmem) & (step <= vmem))
            self.invariant(m, (left != 0) & (left <= row_bytes) & (at + left == row + row_bytes))
            mirror = {"row": row[:8], "at": at, "left": left, "rows_left": rows_left, "row_bytes": row_bytes,
                      "pitch": step[:8]}
            for name, value in mirror.items():
                self.invariant(m, inside[name] == value)


def test_dma_trains():
    prove_checks("bounds_dma", {"ld": TrainCheck(isa.Unit.LD), "rows": RowsCheck()}, depth=1)


class WalkerCheck(Check):
    """Positions of the walk over nested loops."""

    BITS, MOST = 6, 3

    def __init__(self, levels: int, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.levels, self.unit = levels, altered(Walker, *bugs)

    def describe(self, m: Module) -> None:
        n = range(self.levels)
        dut = self.unit(levels=self.levels, count_bits=2, step_bits=3, addr_bits=self.BITS)
        m.submodules.dut, inside = open_up(dut)
        self.free_inputs(m, dut)
        for i in n:
            m.d.comb += Assume(dut.counts[i] != 0)
        base = Signal(self.BITS)
        count = [Signal(2, name=f"count{i}") for i in n]
        step = [Signal(signed(3), name=f"step{i}") for i in n]
        index = [Signal(2, name=f"index{i}") for i in n]
        going = Signal()
        last = [index[i] == count[i] - 1 for i in n]
        with m.If(dut.start):
            m.d.sync += [going.eq(1), base.eq(dut.base)]
            m.d.sync += [x.eq(v) for i in n for x, v in
                         ((count[i], dut.counts[i]), (step[i], dut.steps[i]), (index[i], 0))]
        with m.Elif(dut.step & going):
            with m.If(all_of(last)):
                m.d.sync += going.eq(0)
            with m.Else():
                for i in n:
                    with m.If(all_of(last[:i]) if i else 1):
                        m.d.sync += index[i].eq(Mux(last[i], 0, index[i] + 1))
        self.claim(m, dut.valid == going)
        with m.If(going):
            self.claim(m, dut.addr == (base + sum(index[i] * step[i] for i in n))[:self.BITS])
            for i in n:
                self.claim(m, dut.last[i] == all_of(last[:i + 1]))
                self.claim(m, dut.first[i] == all_of([x == 0 for x in index[:i + 1]]))
        if not self.mutant:
            with m.If(going):
                for i in n:
                    at = base + sum((index[j] * step[j] for j in n if j >= i), 0)
                    self.invariant(m, inside[f"at{i}"] == at[:self.BITS])
                    self.invariant(m, (inside[f"count{i}"] == count[i]) & (inside[f"stride{i}"] == step[i]))
                    self.invariant(m, (inside[f"left{i}"] == count[i] - index[i]) & (index[i] < count[i]))
                    self.invariant(m, inside[f"fresh{i}"] == (index[i] == 0))


def test_walker():
    prove_checks("bounds_walker", {f"levels{n}": WalkerCheck(n) for n in (2, 3)}, depth=2)




class _NoLanes(Grid):
    """Lanes whose results do not matter: all 0."""

    def elaborate(self, platform) -> Module:
        return Module()


class VpuCheck(Check):
    """All requests of the vector unit."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(Vpu, *bugs, SyncFIFOBuffered=AnyQueue, Grid=_NoLanes)

    def describe(self, m: Module) -> None:
        cfg, vmem = CONFIG, CONFIG.vmem_bytes
        dut = self.unit(cfg)
        m.submodules.dut, inside = open_up(dut)
        self.free_queues(m)
        self.free_inputs(m, dut, but=("unit__op__valid", "unit__op__payload"))
        self.held_stream(m, dut.unit.op, "op")
        op = dut.unit.op.payload
        for kind in (isa.Op.VECTOR_SHAPE, isa.Op.VECTOR_MODE, isa.Op.VECTOR_RESIDUAL, isa.Op.VECTOR):
            word = data.View(isa.word_layout(kind), op.word)
            with m.If(dut.unit.op.valid & (word.opcode == kind)):
                m.d.comb += Assume(all_of(legal(kind, word)))
        # A fault stops the chip: no op comes after it.
        stopped = Signal()
        with m.If(dut.unit.fault_valid):
            m.d.sync += stopped.eq(1)
        with m.If(stopped):
            m.d.comb += Assume(~dut.unit.op.valid)

        mode, params = inside["mode"], inside["params"]
        for port in (dut.source, dut.residual):
            with m.If(port.req.valid):
                self.claim(m, port.req.payload.addr + mode.cols <= vmem)
        with m.If(dut.acc.req.valid):
            self.claim(m, dut.acc.req.payload.row < cfg.acc_rows)
        request = dut.result.req.payload
        for i in range(cfg.word_bytes):
            with m.If(dut.result.req.valid & request.mask[i]):
                self.claim(m, request.addr + i < vmem)
        with m.If(params.load):
            self.claim(m, params.base + cfg.param_bytes <= vmem)
        if self.mutant:
            return
        running, piece, row_bytes = inside["running"], inside["piece"], inside["row_bytes"]
        new_mode = inside["new_mode"]
        self.invariant(m, new_mode.cols <= cfg.cols)
        with m.If(running):
            self.invariant(m, (mode.cols != 0) & (mode.cols <= cfg.cols))
            self.invariant(m, ~mode.wide | (piece * cfg.cols < row_bytes))
            self.invariant(m, mode.wide | (piece == 0))
        self.invariant(m, (piece == 0) | running | stopped)


class ParamsCheck(Check):
    """The reads of a parameter block."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(ParamRegisters, *bugs)

    def describe(self, m: Module) -> None:
        dut = self.unit(config=CONFIG)
        m.submodules.dut, inside = open_up(dut)
        self.free_inputs(m, dut)
        m.d.comb += Assume(~dut.load | (dut.base + CONFIG.param_bytes <= CONFIG.vmem_bytes))
        with m.If(dut.vmem.req.valid):
            self.claim(m, dut.vmem.req.payload.addr + CONFIG.cols <= CONFIG.vmem_bytes)
        if not self.mutant:
            asked = inside["asked"]
            self.invariant(m, asked <= PARAM_READS)
            with m.If(asked != PARAM_READS):
                self.invariant(m, inside["addr"] + (PARAM_READS - asked) * CONFIG.cols <= CONFIG.vmem_bytes)


def test_vector_unit():
    prove_checks("bounds_vpu", {"vpu": VpuCheck(), "params": ParamsCheck()}, depth=2)


class BoundedQueue(AnyQueue):
    """What goes in is below a limit, so what comes out is."""


class FeederCheck(Check):
    """All accesses of the feeder."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(
            Feeder, *bugs, fifo=SimpleNamespace(SyncFIFOBuffered=AnyQueue, SyncFIFO=BoundedQueue))

    def describe(self, m: Module) -> None:
        cfg, vmem = CONFIG, CONFIG.vmem_bytes
        dut = self.unit(cfg)
        m.submodules.dut, inside = open_up(dut)
        wanted = [queue for queue in AnyQueue.made if isinstance(queue, BoundedQueue)]
        self.free_queues(m)
        self.free_inputs(m, dut)
        for kind, view, valid in ((isa.Op.FEED_SHAPE, dut.shape, dut.shape_valid),
                                  (isa.Op.FEED_SEGMENT, dut.segment, dut.segment_valid)):
            m.d.comb += Assume(~valid | all_of(legal(kind, view)))
        for queue in wanted:
            m.d.comb += Assume(~queue.r_rdy | (queue.r_data < vmem))  # since all that goes in is
            with m.If(queue.w_en):
                self.claim(m, queue.w_data < vmem)
        with m.If(dut.act.req.valid):
            self.claim(m, dut.act.req.payload.addr < vmem)
        self.claim_held(m, dut.act.req, "act")
        # The bytes that a row uses: `first` to `end` of its lanes, from `addr` on.
        checked, clipped = inside["checked"], inside["clipped"]
        for p in range(cfg.feed_ports):
            port = checked.port[p]
            with m.If(port.read):
                self.claim(m, (port.first < port.end) & (port.end <= cfg.rows))
                self.claim(m, port.addr + (port.end - port.first) <= vmem)
        if self.mutant:
            return
        placed, ports = inside["placed"], range(cfg.feed_ports)
        for p in ports:
            for segment in (inside["segments"][p], inside["next_segments"][p]):
                self.invariant(m, segment.hi <= cfg.rows)
            self.invariant(m, ~placed.port[p].used | (
                (placed.port[p].lo < placed.port[p].hi) & (placed.port[p].hi <= cfg.rows)))
            port = clipped.port[p]
            self.invariant(m, ~port.read | ((port.first < port.end) & (port.end <= cfg.rows)))


def test_feeder():
    prove_checks("bounds_feeder", {"feeder": FeederCheck()}, depth=2)


BUGS = {
    "feeder: cuts of nothing": (FeederCheck, (" & (placed.line_bytes != 0)", "")),
    "feeder: checks the first byte only": (FeederCheck, (
        "beyond = port.addr + (port.end - port.first).as_unsigned()[: self._lane_bits] >", "beyond = port.addr >")),
    "feeder: one window more": (FeederCheck, ("+ length <= width", "+ length < width")),
    "dma: the last row is not looked at": (TrainCheck, ("vmem_bad.eq(row0_out | last_out)", "vmem_bad.eq(row0_out)")),
    "dma: rows below the start": (TrainCheck, ("(last_row < 0) | (last_row", "(last_row")),
    "dma: a slice too many": (TrainCheck, ("word.count > self.hbm_hi", "word.count > self.hbm_hi + 1")),
    "dma: walks beyond the line": (RowsCheck, ("fits.eq(left <= to_end)", "fits.eq(left <= to_end + 1)")),
    "dma: a row too many": (RowsCheck, ("fits & (rows_left == 1)", "fits & (rows_left == 0)")),
    "walker: stays in the inner loop": (WalkerCheck, ("left[j].eq(count[j])", "left[j].eq(left[j])")),
    "vpu: a column too many": (VpuCheck, (
        'beyond(source_walk.addr, mode.cols, "source_end")', 'beyond(source_walk.addr, 1, "source_end")')),
    "vpu: accumulator row too far": (VpuCheck, ("source_walk.addr >= cfg.acc_rows", "source_walk.addr > cfg.acc_rows")),
    "vpu: int32 rows checked as int8": (VpuCheck, (
        'beyond(result_walk.addr, row_bytes, "result_end")', 'beyond(result_walk.addr, mode.cols, "result_end")')),
    "params: ten reads": (ParamsCheck, ("asked.eq(asked + 1)", "asked.eq(asked)")),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    check, change = bug
    if check is TrainCheck:
        unit = check(isa.Unit.LD, change)
    elif check is WalkerCheck:
        unit = check(2, change)
    else:
        unit = check(change)
    prove_bites("bounds_bites", unit, depth=14)
