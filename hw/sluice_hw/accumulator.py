"""Accumulators: int32 or fp32 rows that the array adds to in place and the vector unit reads, in two regions. That of a
chip of bf16 writes them, too.

A row of int32 sums that leaves the array is written one cycle later, and what it adds to is read in the cycle between.
Only when the row of the cycle before is the same one is that too late; then its sum is taken on the way to the memory.

An fp32 adder takes ``pe_latency`` cycles more. Who adds to a row again keeps ``acc_revisit`` cycles between its sums
(:class:`sluice_hw.mxu.Mxu`): its result is in the memory when it is read.
"""

from __future__ import annotations

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from .arith.add import Fp32Add
from .arith.multiply_add import valid_stages
from .arith.stages import Stages
from .config import ChipConfig
from .emit.grid import Grid
from .interfaces import ACC_LATENCY, AccReadSignature, AccWriteSignature
from .ram import Ram1R1W

__all__ = ["PASSES", "Accumulator", "pass_layout"]

#: Passes that may be on their way; those of R rows or more, which keep the array full, need four.
PASSES = 16

assert ACC_LATENCY == 1, "reads answer in the next cycle"


def pass_layout(config: ChipConfig) -> data.StructLayout:
    """Where the next ``rows`` rows of sums go: from row ``first`` on, added or written over; with both types, whether
    they are int32."""
    return data.StructLayout({
        "first": range(config.acc_rows), "rows": range(config.acc_rows + 1), "accumulate": 1,
        **({"int8": 1} if config.both else {}),
    })


class AddLane(wiring.Component):
    """One column's fp32 adder, as a cell of a row.

    Parameters
    ----------
    latency : int
        Stages.
    both : bool
        Whether it adds int32, too.

    Members
    -------
    all.valid : In(1)
    all.int8 : In(1), with ``both``
    col.base, col.sum : In(32)
    down.result : Out(32)
    """

    def __init__(self, *, latency: int, both: bool = False) -> None:
        self.LATENCY, self._both = latency, both
        super().__init__({
            "all": In(wiring.Signature({"valid": Out(1), **({"int8": Out(1)} if both else {})})),
            "col": In(wiring.Signature({"base": Out(32), "sum": Out(32)})),
            "down": Out(wiring.Signature({"result": Out(32)})),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.add = add = Fp32Add(latency=self.LATENCY)
        m.d.comb += [
            add.in_valid.eq(self.all.valid),
            Value.cast(add.a).eq(self.col.base),
            Value.cast(add.b).eq(self.col.sum),
        ]
        result = Value.cast(add.result)
        if self._both:
            pipe = Stages(m, self.all.valid, self.LATENCY)
            total = pipe.later((self.col.base + self.col.sum)[:32], 0, self.LATENCY, "total")
            whole = pipe.later(self.all.int8, 0, self.LATENCY, "whole")
            result = Mux(whole, total, result)
        m.d.comb += self.down.result.eq(result)
        return m


class Accumulator(wiring.Component):
    """Two regions of accumulator rows.

    Parameters
    ----------
    config : ChipConfig
    emission : str
        Form of the row of fp32 adders, see :mod:`sluice_hw.emit.grid`.

    Members
    -------
    start : In(stream)
        Passes, in the order of their sums; each must be there before its first row of sums. Ready for PASSES at least.
        ``first + rows`` must not exceed ``acc_rows``.
    p_valid, p_data : In
        Rows of sums from the array.
    finished : Out(1)
        The last row of a pass is being written: a read that is taken in any later cycle sees it.
    acc : In(AccReadSignature(cols))
        Read port. The array's read of the same region in the same cycle goes first.
    write : In(AccWriteSignature(cols)), chips of bf16 only
        Write port. The array's write of the same region in the same cycle goes first.

    Raises
    ------
    TypeError
        If ``config`` is not a ChipConfig.
    """

    def __init__(self, config: ChipConfig, emission: str = "structural") -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config, self._emission = config, emission
        super().__init__({
            "start": In(stream.Signature(pass_layout(config))),
            "p_valid": In(1),
            "p_data": In(data.ArrayLayout(signed(config.psum_width), config.cols)),
            "finished": Out(1),
            "acc": In(AccReadSignature(config.cols)),
            **({"write": In(AccWriteSignature(config.cols))} if config.is_float else {}),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        config = self._config
        cols, half = config.cols, config.acc_region_rows
        m = Module()
        regions = [Ram1R1W(depth=half, width=32 * cols) for _ in range(2)]
        m.submodules.region0, m.submodules.region1 = regions
        layout = pass_layout(config)
        m.submodules.passes = passes = fifo.SyncFIFOBuffered(width=layout.size, depth=PASSES + 1)
        m.d.comb += [
            passes.w_data.eq(self.start.payload),
            passes.w_en.eq(self.start.valid),
            self.start.ready.eq(passes.w_rdy),
        ]

        def place(row: Value) -> tuple[Value, Value]:
            """Region and the row in it."""
            upper = row >= half
            return upper, Mux(upper, row - half, row)

        # A row of sums comes: read what it adds to.
        current = Signal(layout)
        done = Signal(range(config.acc_rows + 1))
        row = Signal(range(config.acc_rows))
        ends = Signal()
        reads = Signal()
        m.d.comb += [
            current.eq(passes.r_data),
            row.eq(current.first + done),
            ends.eq(self.p_valid & (done + 1 == current.rows)),
            passes.r_en.eq(ends),
            reads.eq(self.p_valid & current.accumulate),
        ]
        with m.If(self.p_valid):
            m.d.sync += done.eq(Mux(ends, 0, done + 1))
        upper, local = place(row)

        # One cycle later: add, write.
        adds, add_accumulate, add_forward = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        add_row = Signal.like(row, reset_less=True)
        add_upper, add_local = Signal(reset_less=True), Signal(range(half), reset_less=True)
        sums = Signal.like(Value.cast(self.p_data), reset_less=True, name="sums")
        add_int8 = Signal(reset_less=True)
        if config.both:
            with m.If(self.p_valid):
                m.d.sync += add_int8.eq(current.int8)
        again = Signal()
        m.d.comb += again.eq(adds & reads & (add_row == row))
        m.d.sync += adds.eq(self.p_valid)
        m.d.sync += self.finished.eq(valid_stages(m, "ends", ends, config.pe_latency if config.is_float else 0)[-1])
        with m.If(self.p_valid):
            m.d.sync += [
                add_accumulate.eq(current.accumulate),
                add_forward.eq(again),
                add_row.eq(row),
                add_upper.eq(upper),
                add_local.eq(local),
                sums.eq(self.p_data),
            ]
        if config.is_float:
            written, write_upper, write_local, result = self._add_float(
                m, adds, add_accumulate, Mux(add_upper, regions[1].rdata, regions[0].rdata), sums, add_upper, add_local,
                add_int8)
        else:
            kept = Signal(32 * cols, reset_less=True)
            base = Signal(data.ArrayLayout(signed(32), cols))
            result = Signal(data.ArrayLayout(signed(32), cols))
            lanes = data.View(self.p_data.shape(), sums)
            with m.If(add_accumulate):
                m.d.comb += Value.cast(base).eq(
                    Mux(add_forward, kept, Mux(add_upper, regions[1].rdata, regions[0].rdata)))
            m.d.comb += [result[c].eq(base[c] + lanes[c]) for c in range(cols)]
            with m.If(again):
                m.d.sync += kept.eq(result)
            written, write_upper, write_local = adds, add_upper, add_local

        # The vector unit reads where the array does not.
        wanted = self.acc.req.payload.row
        wanted_upper = wanted >= half
        wanted_local = Mux(wanted_upper, wanted - half, wanted)[: len(regions[0].raddr)]
        answers_upper = Signal(reset_less=True)
        m.d.comb += self.acc.req.ready.eq(~(reads & (upper == wanted_upper)))
        taken = Signal()
        m.d.comb += taken.eq(self.acc.req.valid & self.acc.req.ready)
        m.d.sync += [self.acc.rsp_valid.eq(taken), answers_upper.eq(wanted_upper)]
        m.d.comb += Value.cast(self.acc.rsp_data).eq(Mux(answers_upper, regions[1].rdata, regions[0].rdata))

        if config.is_float:
            # ... and writes likewise.
            stored = self.write.req.payload.row
            stored_upper = stored >= half
            stored_local = Mux(stored_upper, stored - half, stored)[: len(regions[0].waddr)]
            m.d.comb += self.write.req.ready.eq(~(written & (write_upper == stored_upper)))
        for number, region in enumerate(regions):
            mine, own = reads & (upper == number), written & (write_upper == number)
            we, waddr, wdata = own, write_local, result
            if config.is_float:
                we = own | (self.write.req.valid & (stored_upper == number))
                waddr = Mux(own, write_local, stored_local)
                wdata = Mux(own, result, Value.cast(self.write.req.payload.data))
            m.d.comb += [
                region.re.eq(mine | (taken & (wanted_upper == number))),
                region.raddr.eq(Mux(mine, local, wanted_local)),
                region.we.eq(we),
                region.waddr.eq(waddr),
                region.wdata.eq(wdata),
            ]
        return m

    def _add_float(self, m: Module, adds: Value, accumulate: Value, base: Value, sums: Value, upper: Signal,
                   local: Signal, int8: Signal) -> tuple[Value, Value, Value, Value]:
        """Add rows of sums, or pass them on; when and where they are written, and what."""
        config = self._config
        cols, latency = config.cols, config.pe_latency
        form = ("_both" if config.both else "") + ("_loop" if self._emission == "loop" else "")
        m.submodules.lanes = lanes = Grid(
            cell=AddLane(latency=latency, both=config.both), name=f"sluice_accumulate_{cols}_l{latency}{form}", rows=1,
            cols=cols, emission=self._emission)
        # x + -0 is x for every x.
        nothing = Cat(Const(1 << 31, 32) for _ in range(cols))
        if config.both:
            nothing = Mux(int8, 0, nothing)
            m.d.comb += lanes.all.int8.eq(int8)
        m.d.comb += [
            lanes.all.valid.eq(adds),
            lanes.col.base.eq(Mux(accumulate, base, nothing)),
            lanes.col.sum.eq(sums),
        ]
        valid = adds
        for stage in range(latency):
            next_valid = Signal(name=f"adding{stage}")
            next_upper = Signal.like(upper, reset_less=True, name=f"upper{stage}")
            next_local = Signal.like(local, reset_less=True, name=f"local{stage}")
            m.d.sync += next_valid.eq(valid)
            with m.If(valid):
                m.d.sync += [next_upper.eq(upper), next_local.eq(local)]
            valid, upper, local = next_valid, next_upper, next_local
        return valid, upper, local, lanes.down.result
