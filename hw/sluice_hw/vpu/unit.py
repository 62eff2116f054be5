"""The vector unit: queue head, source and residual fetch, the lanes, and the result writer."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import Component, Out, connect, flipped

from .. import isa
from ..config import ChipConfig
from ..emit.grid import Grid
from ..interfaces import ADDR_BITS, VMEM_LATENCY, AccReadSignature, UnitSignature, VmemReadSignature, VmemWriteSignature
from ..isa import Cause, Error, Op, Residual, Source
from ..tokens import token_cause
from .lane import LANE_BROADCAST, EpilogueLane
from .params import ParamRegisters
from .walk import Walker

__all__ = ["Vpu"]

#: Result rows that may be under way: covers the pipeline, so that a row can leave every cycle.
NARROW_ROWS = 64
WIDE_ROWS = 8
RESIDUAL_ROWS = 32


class Vpu(Component):
    """Vector unit with the integer epilogue (rules in ``docs/architecture.md``, op VECTOR).

    Parameters
    ----------
    config : ChipConfig
    emission : 'structural' or 'loop'
        How the lanes are emitted.

    Members
    -------
    unit : queue, tokens and status
    source, residual, params : VMEM read ports
    result : VMEM write port of ``word_bytes``
    acc : accumulator read port
    vector_rows : Out(1), pulses per result row
    """

    def __init__(self, config: ChipConfig, *, emission: str = "structural") -> None:
        self._config = config
        self._emission = emission
        super().__init__({
            "unit": Out(UnitSignature()),
            "source": Out(VmemReadSignature(config.word_bytes)),
            "residual": Out(VmemReadSignature(config.word_bytes)),
            "params": Out(VmemReadSignature(config.word_bytes)),
            "result": Out(VmemWriteSignature(config.word_bytes)),
            "acc": Out(AccReadSignature(config.cols)),
            "vector_rows": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        cfg, unit = self._config, self.unit
        cols, width = cfg.cols, cfg.word_bytes

        # -- queue head ------------------------------------------------------------------------------------------
        op = unit.op.payload
        word = {o: data.View(isa.word_layout(o), op.word) for o in (
            Op.VECTOR_SHAPE, Op.VECTOR_MODE, Op.VECTOR_RESIDUAL, Op.LOAD_PARAMS, Op.VECTOR, Op.SYNC)}
        opcode = word[Op.VECTOR].opcode
        setups = (Op.VECTOR_SHAPE, Op.VECTOR_MODE, Op.VECTOR_RESIDUAL)
        following = {o: Signal(isa.word_layout(o), name=f"next_{o.name.lower()}") for o in setups}
        running = Signal()
        mode = Signal(isa.word_layout(Op.VECTOR_MODE), reset_less=True)
        rescale = Signal(isa.word_layout(Op.VECTOR_RESIDUAL), reset_less=True)
        signal, pc = Signal(len(isa.Unit), reset_less=True), Signal(16, reset_less=True)

        m.submodules.params = params = ParamRegisters(config=cfg)
        connect(m, params.vmem, flipped(self.params))
        params_signal, params_pc = Signal.like(signal), Signal.like(pc)
        params_give = Signal()

        is_vector, is_params, is_sync, is_setup = Signal(), Signal(), Signal(), Signal()
        quiet = Signal()
        m.d.comb += [
            is_vector.eq(opcode == Op.VECTOR), is_params.eq(opcode == Op.LOAD_PARAMS), is_sync.eq(opcode == Op.SYNC),
            is_setup.eq(~(is_vector | is_params | is_sync)),
            quiet.eq(~running & ~params.busy & ~params.done & ~params_give),
        ]
        able, start = Signal(), Signal()
        m.d.comb += [
            able.eq(unit.op.valid & ~is_setup & Mux(is_params, ~params.busy & ~params.loaded & ~params_give, quiet)),
            unit.take.valid.eq(able), unit.take.payload.eq(op.wait),
            start.eq(able & unit.take.ready),
            unit.op.ready.eq(start | is_setup),
        ]
        with m.If(unit.op.valid & is_setup):
            for o in setups:
                with m.If(opcode == o):
                    m.d.sync += following[o].eq(word[o])

        # -- start -----------------------------------------------------------------------------------------------
        shape = following[Op.VECTOR_SHAPE]
        new_mode = following[Op.VECTOR_MODE]
        new_rescale = following[Op.VECTOR_RESIDUAL]
        walk = dict(count_bits=16, step_bits=isa.STRIDE_BITS, addr_bits=ADDR_BITS)
        wants_residual = (new_mode.residual != Residual.NONE) & ~new_mode.wide
        m.submodules.source_walk = source_walk = Walker(levels=4, **walk)
        m.submodules.residual_walk = residual_walk = Walker(levels=2, **walk)
        m.submodules.result_walk = result_walk = Walker(levels=2, **walk)
        # Counts of 0 are the reset value and no other: the program has not set the shape or the mode.
        start_vector, unset = Signal(), Signal()
        m.d.comb += [
            unset.eq((shape.n2 == 0) | (new_mode.cols == 0)),
            start_vector.eq(start & is_vector & ~unset),
            source_walk.start.eq(start_vector), source_walk.base.eq(op.a),
            residual_walk.start.eq(start_vector & wants_residual), residual_walk.base.eq(op.b),
            result_walk.start.eq(start_vector), result_walk.base.eq(op.c),
            params.take.eq(start_vector & params.loaded),
            params.base.eq(op.a),
        ]
        for i, name in enumerate(("0", "1", "2", "3")):
            m.d.comb += [source_walk.counts[i].eq(shape[f"n{name}"]), source_walk.steps[i].eq(shape[f"s{name}"])]
        for i, (count, res_step, dst_step) in enumerate((
            (shape.n2, new_rescale.r2, shape.d2), (shape.n3, new_rescale.r3, new_mode.d3),
        )):
            m.d.comb += [
                residual_walk.counts[i].eq(count), residual_walk.steps[i].eq(res_step),
                result_walk.counts[i].eq(count), result_walk.steps[i].eq(dst_step),
            ]
        with m.If(start_vector):
            m.d.sync += [
                running.eq(1), mode.eq(new_mode), rescale.eq(new_rescale), signal.eq(op.signal), pc.eq(op.pc),
            ]
        with m.If(start & is_params):
            m.d.sync += [params_signal.eq(op.signal), params_pc.eq(op.pc)]

        # -- faults: nothing is asked for beyond a memory's end ---------------------------------------------------
        def beyond(addr, size, name: str):
            end = Signal(ADDR_BITS + 1, name=name)
            m.d.comb += end.eq(addr + size)
            return end > cfg.vmem_bytes

        from_vmem, has_residual = Signal(), Signal()
        row_bytes = Signal(range(4 * cols + 1))
        m.d.comb += [
            from_vmem.eq(mode.source == Source.VMEM), has_residual.eq((mode.residual != Residual.NONE) & ~mode.wide),
            row_bytes.eq(Mux(mode.wide, mode.cols << 2, mode.cols)),
        ]
        bad_params = beyond(op.a, cfg.param_bytes, "params_end")
        bad_source = Mux(from_vmem, beyond(source_walk.addr, mode.cols, "source_end"), source_walk.addr >= cfg.acc_rows)
        bad_residual = beyond(residual_walk.addr, mode.cols, "residual_end")
        bad_result = beyond(result_walk.addr, row_bytes, "result_end")
        fault_source = Signal()
        fault_residual = Signal()
        fault_result = Signal()
        m.d.comb += [
            fault_source.eq(running & source_walk.valid & bad_source),
            fault_residual.eq(running & residual_walk.valid & bad_residual),
            fault_result.eq(running & result_walk.valid & bad_result),
            params.load.eq(start & is_params & ~bad_params),
        ]
        with m.If(start & is_params & bad_params):
            m.d.comb += [
                unit.fault_valid.eq(1), unit.fault.code.eq(Error.VMEM_RANGE), unit.fault.pc.eq(op.pc),
                unit.fault.info.eq(op.a),
            ]
        with m.Elif(start & is_vector & unset):
            m.d.comb += [
                unit.fault_valid.eq(1), unit.fault.code.eq(Error.ILLEGAL_FIELD), unit.fault.pc.eq(op.pc),
            ]
        with m.Elif(fault_source | fault_residual | fault_result):
            m.d.comb += [
                unit.fault_valid.eq(1), unit.fault.pc.eq(pc),
                unit.fault.code.eq(Mux(fault_source & ~from_vmem, Error.ACC_RANGE, Error.VMEM_RANGE)),
                unit.fault.info.eq(Mux(fault_source, source_walk.addr,
                                       Mux(fault_residual, residual_walk.addr, result_walk.addr))),
            ]
            m.d.sync += running.eq(0)
        healthy = Signal()
        m.d.comb += healthy.eq(running & ~fault_source & ~fault_residual & ~fault_result)

        # -- fetch -----------------------------------------------------------------------------------------------
        # Everything behind the grants has a fixed latency and never stalls: a row is asked for only when its result
        # will find room, and the last row of a window only when its residual row was granted already.
        rows_out = Signal(range(NARROW_ROWS + 1))
        residual_ahead = Signal(range(RESIDUAL_ROWS + 1))
        residual_held = Signal(range(RESIDUAL_ROWS + 1))
        ends, room, ask_source, source_go, residual_go = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            ends.eq(source_walk.last[1]),
            room.eq(rows_out < Mux(mode.wide, WIDE_ROWS, NARROW_ROWS)),
            ask_source.eq(healthy & source_walk.valid & (~ends | (room & (~has_residual | (residual_ahead != 0))))),
            self.acc.req.valid.eq(ask_source & ~from_vmem), self.acc.req.payload.row.eq(source_walk.addr),
            self.source.req.valid.eq(ask_source & from_vmem), self.source.req.payload.addr.eq(source_walk.addr),
            source_go.eq(ask_source & Mux(from_vmem, self.source.req.ready, self.acc.req.ready)),
            source_walk.step.eq(source_go),
            self.residual.req.valid.eq(healthy & residual_walk.valid & (residual_held < RESIDUAL_ROWS)),
            self.residual.req.payload.addr.eq(residual_walk.addr),
            residual_go.eq(self.residual.req.valid & self.residual.req.ready), residual_walk.step.eq(residual_go),
        ]

        # -- lanes -----------------------------------------------------------------------------------------------
        m.submodules.lanes = lanes = Grid(
            cell=EpilogueLane(), name=f"sluice_lanes_{cols}", rows=1, cols=cols, emission=self._emission)
        entered = [Signal(3, name=f"entered{i}") for i in range(VMEM_LATENCY + 1)]
        m.d.comb += entered[0].eq(Cat(source_go, source_walk.first[1], ends))
        for i in range(VMEM_LATENCY):
            m.d.sync += entered[i + 1].eq(entered[i])
        m.d.comb += Cat(lanes.all.valid, lanes.all.first, lanes.all.last).eq(entered[VMEM_LATENCY])
        acc_row = Signal(data.ArrayLayout(32, cols), reset_less=True)
        with m.If(self.acc.rsp_valid):
            m.d.sync += acc_row.eq(self.acc.rsp_data)
        m.d.comb += lanes.col.acc.eq(acc_row)
        mode_fields = isa.word_layout(Op.VECTOR_MODE).members
        for name in [n for n in LANE_BROADCAST if n not in ("valid", "first", "last")]:
            field = "bias" if name == "bias_en" else name
            value = (mode if field in mode_fields else rescale)[field]
            m.d.comb += getattr(lanes.all, name).eq(value & mode.wide if name == "relu" else value)
        m.d.comb += [
            lanes.col.bias.eq(params.active.bias), lanes.col.channel_multiplier.eq(params.active.multiplier),
            lanes.col.channel_shift.eq(params.active.shift),
        ]
        m.d.comb += lanes.col.byte.eq(Cat(self.source.rsp_data[j] for j in range(cols)))

        done = [Signal(name=f"row_done{i}") for i in range(EpilogueLane.RESIDUAL_LATENCY + 1)]
        m.d.comb += done[0].eq(lanes.all.valid & lanes.all.last)
        # A row's mark ends where the row leaves the lanes: the next VECTOR may leave them elsewhere.
        leaves = {EpilogueLane.WIDE_LATENCY: mode.wide, EpilogueLane.NARROW_LATENCY: ~has_residual}
        for i in range(EpilogueLane.RESIDUAL_LATENCY):
            m.d.sync += done[i + 1].eq(done[i] & ~leaves.get(i, Const(0)))

        m.submodules.residual_fifo = residual_fifo = SyncFIFOBuffered(width=8 * cols, depth=RESIDUAL_ROWS)
        take_residual = Signal()
        m.d.comb += [
            residual_fifo.w_en.eq(self.residual.rsp_valid),
            residual_fifo.w_data.eq(Cat(self.residual.rsp_data[j] for j in range(cols))),
            take_residual.eq(done[EpilogueLane.RESIDUAL_AT] & has_residual),
            residual_fifo.r_en.eq(take_residual),
            lanes.col.residual_byte.eq(residual_fifo.r_data),
        ]
        m.d.sync += [
            residual_ahead.eq(residual_ahead + residual_go - (source_go & ends & has_residual)),
            residual_held.eq(residual_held + residual_go - take_residual),
        ]

        # -- results ---------------------------------------------------------------------------------------------
        m.submodules.narrow_fifo = narrow_fifo = SyncFIFOBuffered(width=8 * cols, depth=NARROW_ROWS)
        m.submodules.wide_fifo = wide_fifo = SyncFIFOBuffered(width=32 * cols, depth=WIDE_ROWS)
        m.d.comb += [
            narrow_fifo.w_en.eq(~mode.wide & Mux(
                has_residual, done[EpilogueLane.RESIDUAL_LATENCY], done[EpilogueLane.NARROW_LATENCY])),
            narrow_fifo.w_data.eq(Mux(has_residual, lanes.down.residual_out, lanes.down.narrow)),
            wide_fifo.w_en.eq(mode.wide & done[EpilogueLane.WIDE_LATENCY]),
            wide_fifo.w_data.eq(lanes.down.wide),
        ]
        # An int32 row leaves in four pieces of ``cols`` bytes; pieces beyond ``row_bytes`` are skipped.
        piece = Signal(2)
        piece_at = [Const(i * cols, range(4 * cols + 1)) for i in range(4)]
        wide_row = data.View(data.ArrayLayout(8 * cols, 4), wide_fifo.r_data)
        offset, left = Signal(range(4 * cols + 1)), Signal(range(4 * cols + 1))
        write_go, row_ends = Signal(), Signal()
        with m.Switch(piece):
            for i in range(4):
                with m.Case(i):
                    m.d.comb += offset.eq(piece_at[i])
        m.d.comb += [
            left.eq(row_bytes - offset),
            self.result.req.valid.eq(
                healthy & result_walk.valid & Mux(mode.wide, wide_fifo.r_rdy, narrow_fifo.r_rdy)),
            self.result.req.payload.addr.eq(result_walk.addr + offset),
            self.result.req.payload.data.as_value().eq(Mux(mode.wide, wide_row[piece], narrow_fifo.r_data)),
            self.result.req.payload.mask.eq((Const(1, width + 1) << Mux(left > cols, cols, left)) - 1),
            write_go.eq(self.result.req.valid & self.result.req.ready),
            row_ends.eq(write_go & (~mode.wide | (left <= cols))),
            narrow_fifo.r_en.eq(row_ends & ~mode.wide), wide_fifo.r_en.eq(row_ends & mode.wide),
            result_walk.step.eq(row_ends), self.vector_rows.eq(row_ends),
        ]
        with m.If(write_go & mode.wide):
            m.d.sync += piece.eq(Mux(row_ends, 0, piece + 1))
        m.d.sync += rows_out.eq(rows_out + (source_go & ends) - row_ends)

        # -- finish ----------------------------------------------------------------------------------------------
        finish = Signal()
        m.d.comb += finish.eq(row_ends & result_walk.last[1])
        with m.If(finish):
            m.d.sync += running.eq(0)
        sync_done = Signal()
        m.d.comb += sync_done.eq(start & is_sync)
        # Parameters may be complete in the cycle in which a VECTOR ends; their token then waits for the next cycle.
        with m.If(finish):
            m.d.comb += [unit.give.eq(signal), unit.finished.eq(1), unit.finished_pc.eq(pc)]
        with m.Elif(sync_done):
            m.d.comb += [unit.give.eq(op.signal), unit.finished.eq(1), unit.finished_pc.eq(op.pc)]
        with m.Elif(params.done | params_give):
            m.d.comb += [unit.give.eq(params_signal), unit.finished.eq(1), unit.finished_pc.eq(params_pc)]
            m.d.sync += params_give.eq(0)
        with m.If(params.done & (finish | sync_done)):
            m.d.sync += params_give.eq(1)
        m.d.comb += [
            unit.started.eq(start), unit.started_pc.eq(op.pc),
            unit.idle.eq(quiet),
        ]

        # -- state -----------------------------------------------------------------------------------------------
        waiting_vmem = Signal()
        m.d.comb += waiting_vmem.eq(
            (self.source.req.valid & ~self.source.req.ready) | (self.residual.req.valid & ~self.residual.req.ready)
            | (self.result.req.valid & ~self.result.req.ready) | params.waiting)
        with m.If(source_go | residual_go | write_go | (params.busy & ~params.waiting)):
            m.d.comb += unit.state.eq(Cause.BUSY)
        with m.Elif(waiting_vmem):
            m.d.comb += unit.state.eq(Cause.VMEM)
        with m.Elif(self.acc.req.valid & ~self.acc.req.ready):
            m.d.comb += unit.state.eq(Cause.ACC)
        with m.Elif(running):
            m.d.comb += unit.state.eq(Cause.OUTPUT)
        with m.Elif(unit.take.valid & ~unit.take.ready):
            m.d.comb += unit.state.eq(token_cause(m, isa.Unit.VPU, unit.missing))
        with m.Else():
            m.d.comb += unit.state.eq(Cause.IDLE)
        return m
