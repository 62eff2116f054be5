"""The vector unit of chips of bf16: passes over rows through floating-point lanes, and transposes.

Ops are worked off one after the other. A block enters the lanes (:class:`~.pipe.FloatPipe`) when everything that it
needs on its way is there and what it gives will find room; behind that nothing waits.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, Out, connect, flipped

from .. import isa
from ..config import ChipConfig
from ..interfaces import (
    ADDR_BITS,
    AccReadSignature,
    AccWriteSignature,
    UnitSignature,
    VmemReadSignature,
    VmemWriteSignature,
)
from ..isa import Cause, Error, Op, Operand, Source, Stream
from ..tokens import token_cause
from ..vector_ops import Reduction
from .alu import AluLane
from .blocks import BlockCounter, BlockWalker
from .column import ColumnReader
from .fetch import AHEAD, Fetcher
from .formats import stream_layout
from .function import FunctionLane
from .pipe import FloatPipe
from .reduce import ReduceLane, reduce_latency
from .results import Packer, RowWriter
from .transpose_op import TransposeOp

__all__ = ["FloatUnit"]


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


#: Blocks held: of operands that the second ALU may need, of results.
OPERAND_BLOCKS = _power_of_two(AluLane.LATENCY + FunctionLane.LATENCY + AHEAD)
RESULT_BLOCKS = _power_of_two(FloatPipe.MAX_LATENCY + 8)
#: Bits that hold a mask's count for any row and block.
_COUNT_BITS = 36


class FloatUnit(Component):
    """Vector unit with floating-point lanes (``docs/vector.md``).

    Parameters
    ----------
    config : ChipConfig
        Of ``dtype`` bf16 and at least two columns.
    emission : 'structural' or 'loop'
        How the lanes are emitted.

    Members
    -------
    unit : queue, tokens and status
    source, residual, params : VMEM read ports, of the streams SOURCE, X and Y
    result : VMEM write port of ``word_bytes``
    acc, acc_write : accumulator ports
    vector_rows : Out(1), pulses per block

    Raises
    ------
    ValueError
        For a chip of int8, or of one column.
    """

    def __init__(self, config: ChipConfig, *, emission: str = "structural") -> None:
        if not config.is_float or config.cols < 2:
            raise ValueError(
                f"FloatUnit needs a chip of bf16 and 2 or more columns, not {config.dtype} and {config.cols}")
        self._config, self._emission = config, emission
        read = VmemReadSignature(config.word_bytes)
        super().__init__({
            "unit": Out(UnitSignature()), "source": Out(read), "residual": Out(read), "params": Out(read),
            "result": Out(VmemWriteSignature(config.word_bytes)), "acc": Out(AccReadSignature(config.cols)),
            "acc_write": Out(AccWriteSignature(config.cols)), "vector_rows": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        cfg, unit = self._config, self.unit
        cols = cfg.cols

        # -- queue head ------------------------------------------------------------------------------------------
        op = unit.op.payload
        word = {o: data.View(isa.word_layout(o), op.word)
                for o in (Op.PASS_SHAPE, Op.PASS_MODE, Op.PASS_STREAM, Op.VECTOR_PASS, Op.TRANSPOSE)}  # fmt: skip
        opcode = word[Op.VECTOR_PASS].opcode
        shape = Signal(isa.word_layout(Op.PASS_SHAPE))
        next_mode = Signal(isa.word_layout(Op.PASS_MODE))
        streams = {s: Signal(stream_layout(), name=f"stream_{s.name.lower()}", reset_less=True) for s in Stream}
        known = Signal(len(Stream))
        is_pass, is_transpose, is_sync, is_setup = Signal(), Signal(), Signal(), Signal()
        running, turning, stopped = Signal(), Signal(), Signal()  # a pass, a transpose; neither any more
        able, start, starts_pass, unusable, fault = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            is_pass.eq(opcode == Op.VECTOR_PASS), is_transpose.eq(opcode == Op.TRANSPOSE),
            is_sync.eq(opcode == Op.SYNC), is_setup.eq(~(is_pass | is_transpose | is_sync)),
            able.eq(unit.op.valid & ~is_setup & ~running & ~turning & ~stopped),
            unit.take.valid.eq(able), unit.take.payload.eq(op.wait), start.eq(able & unit.take.ready),
            unit.op.ready.eq(start | is_setup), starts_pass.eq(start & is_pass & ~unusable),
        ]  # fmt: skip
        with m.If(unit.op.valid & is_setup):
            with m.If(opcode == Op.PASS_SHAPE):
                m.d.sync += shape.eq(word[Op.PASS_SHAPE])
            with m.If(opcode == Op.PASS_MODE):
                m.d.sync += next_mode.eq(word[Op.PASS_MODE])
            with m.If(opcode == Op.PASS_STREAM):
                setup = word[Op.PASS_STREAM]
                for s, stream in streams.items():
                    with m.If(setup.stream == s):
                        m.d.sync += [stream[name].eq(setup[name]) for name in stream.shape().members if name != "addr"]
                        m.d.sync += [stream.addr.eq(op.a), known[s].eq(1)]

        # -- start -----------------------------------------------------------------------------------------------
        mode = Signal(isa.word_layout(Op.PASS_MODE), reset_less=True)
        tail, masked = Signal.like(shape.tail, reset_less=True), Signal(reset_less=True)
        bf16, signal, pc = Signal(reset_less=True), Signal(len(isa.Unit), reset_less=True), Signal(16, reset_less=True)

        def uses(of: Value, operand: Operand) -> tuple[Value, Value]:
            """Whether the first, the second ALU takes an operand."""
            return tuple(of[f"use_{alu}"] & ((of[f"{alu}_b"] == operand) | (of[f"{alu}_c"] == operand))
                         for alu in ("first", "second"))  # type: ignore[return-value]  # fmt: skip

        operands = {Stream.X: Operand.X, Stream.Y: Operand.Y, Stream.COLUMN: Operand.COLUMN}
        # Which streams a pass has, and which of its operands the second ALU takes.
        next_used, used, late = (Signal(len(Stream), name=name) for name in ("next_used", "used", "late"))
        m.d.comb += [
            next_used[Stream.SOURCE].eq(1), next_used[Stream.RESULT].eq(next_mode.store),
            next_used[Stream.REDUCED].eq(next_mode.use_reduce),
        ]  # fmt: skip
        twice = []
        for s, operand in operands.items():
            first, second = uses(next_mode, operand)
            m.d.comb += next_used[s].eq(first | second)
            twice.append(first & second)
            with m.If(starts_pass):
                m.d.sync += late[s].eq(second)
        result = streams[Stream.RESULT]
        m.d.comb += unusable.eq(
            (shape.rows == 0) | ~(next_mode.store | next_mode.use_reduce) | Cat(twice).any()
            | (next_used & ~known).any()
        )  # fmt: skip
        with m.If(starts_pass):
            m.d.sync += [
                running.eq(1), mode.eq(next_mode), tail.eq(shape.tail), masked.eq(shape.masked), used.eq(next_used),
                bf16.eq(next_mode.round | ((result.memory == Source.VMEM) & (result.format == isa.Format.BF16))),
            ]  # fmt: skip
        with m.If(start):
            m.d.sync += [signal.eq(op.signal), pc.eq(op.pc), turning.eq(is_transpose)]

        # -- streams ---------------------------------------------------------------------------------------------
        read_ports = {Stream.SOURCE: self.source, Stream.X: self.residual, Stream.Y: self.params}
        fetchers = {}
        for s, port in read_ports.items():
            depth = AHEAD if s == Stream.SOURCE else OPERAND_BLOCKS
            m.submodules[f"fetch_{s.name.lower()}"] = fetchers[s] = fetch = Fetcher(cfg, depth=depth)
            if s != Stream.SOURCE:
                connect(m, fetch.vmem, flipped(port))
            m.d.comb += [
                fetch.start.eq(starts_pass & next_used[s]),
                *(fetch.shape[name].eq(shape[name]) for name in fetch.shape.shape().members),
                fetch.stream.eq(streams[s]), fetch.enable.eq(running),
                fetch.shared.eq((streams[s].row_step == 0) & (shape.rows != 1) if s != Stream.SOURCE else 0),
            ]  # fmt: skip
        m.submodules.column = column = ColumnReader(cfg, depth=OPERAND_BLOCKS)
        m.submodules.writer = writer = RowWriter(cfg, depth=RESULT_BLOCKS)
        values = _power_of_two(FloatPipe.MAX_LATENCY + reduce_latency(cols) + 8)
        m.submodules.packer = packer = Packer(cfg, depth=values)
        m.d.comb += [
            column.start.eq(starts_pass & next_used[Stream.COLUMN]), column.rows.eq(shape.rows),
            column.addr.eq(streams[Stream.COLUMN].addr), column.enable.eq(running),
            packer.start.eq(starts_pass & next_mode.use_reduce), packer.rows.eq(shape.rows),
            packer.addr.eq(streams[Stream.REDUCED].addr), packer.enable.eq(running),
            writer.start.eq(starts_pass & next_mode.store),
            *(writer.shape[name].eq(shape[name]) for name in writer.shape.shape().members),
            writer.stream.eq(result), writer.enable.eq(running),
        ]  # fmt: skip
        m.submodules.transpose = transpose = TransposeOp(cfg, emission=self._emission)
        m.d.comb += [
            transpose.start.valid.eq(start & is_transpose), transpose.start.payload.src.eq(op.a),
            transpose.start.payload.dst.eq(op.b), transpose.start.payload.pc.eq(op.pc),
            *(transpose.start.payload[name].eq(word[Op.TRANSPOSE][name])
              for name in ("src_pitch", "dst_pitch", "k", "n")),
        ]  # fmt: skip
        self._share_vmem(m, turning, transpose, fetchers[Stream.SOURCE], writer)
        self._share_reads(m, column, fetchers)
        self._share_writes(m, packer, writer)

        # -- issue -----------------------------------------------------------------------------------------------
        # The number that goes along with the walk: lanes of the row that count from this block on.
        m.submodules.walk = walk = BlockWalker(bits=_COUNT_BITS)
        m.submodules.pipe = pipe = FloatPipe(cols=cols, emission=self._emission)
        m.submodules.second_walk = second_walk = BlockCounter()
        blocks_out, values_out = Signal(range(RESULT_BLOCKS + 1)), Signal(range(values + 1))
        issue, apart = Signal(), Signal()
        m.d.comb += [
            walk.start.eq(starts_pass), *(walk.shape[name].eq(shape[name]) for name in walk.shape.shape().members),
            walk.base.eq(shape.mask_base), walk.row_step.eq(shape.mask_step), walk.block_step.eq(-cols),
            walk.step.eq(issue), second_walk.start.eq(starts_pass), second_walk.shape.eq(walk.shape),
            second_walk.step.eq(pipe.second_valid), column.row.eq(walk.row),
            issue.eq(
                running & walk.valid & apart & fetchers[Stream.SOURCE].ready
                & (~used[Stream.X] | fetchers[Stream.X].ready) & (~used[Stream.Y] | fetchers[Stream.Y].ready)
                & (~used[Stream.COLUMN] | column.ready) & (~mode.store | (blocks_out != RESULT_BLOCKS))
                & (~(mode.use_reduce & walk.last_block) | (values_out != values))
            ),
        ]  # fmt: skip
        value_due = issue & mode.use_reduce & walk.last_block
        m.d.sync += [
            blocks_out.eq(blocks_out + (issue & mode.store) - writer.written),
            values_out.eq(values_out + value_due - packer.taken),
        ]  # fmt: skip
        # A reduction takes the next block of a row REVISIT cycles later at the earliest.
        recent: list[Value] = []
        entered = Cat(issue & mode.use_reduce, walk.slot)
        for k in range(1, ReduceLane.REVISIT):
            stage = Signal(len(entered), name=f"entered_{k}")
            m.d.sync += stage.eq(entered)
            recent.append(stage[0] & (stage[1:] == walk.slot))
            entered = stage
        m.d.comb += apart.eq(~(mode.use_reduce & Cat(recent).any()))

        for s, fetch in fetchers.items():
            shared = Signal(name=f"shared_{s.name.lower()}", reset_less=True)
            with m.If(starts_pass):
                m.d.sync += shared.eq(fetch.shared)
            m.d.comb += [
                fetch.call.eq(issue & used[s] & (~shared | walk.last_row)),
                fetch.pop.eq(Mux(
                    late[s], pipe.second_valid & (~shared | second_walk.last_row), fetch.call,
                )),
            ]  # fmt: skip
        column_late = late[Stream.COLUMN]
        m.d.comb += [
            column.at.eq(Mux(column_late, second_walk.row, walk.row)),
            column.release.eq(Mux(
                column_late, pipe.second_valid & second_walk.last_row & second_walk.last_block,
                issue & walk.last_row & walk.last_block,
            )),
        ]  # fmt: skip

        lanes, count = Signal(range(cols + 1)), Signal(range(cols + 1))
        left = Signal(signed(_COUNT_BITS))
        index = Signal(32)
        m.d.comb += [
            left.eq(walk.at), lanes.eq(Mux(walk.last_block, tail, cols)),
            count.eq(Mux(~masked | (left >= lanes), lanes, Mux(left < 0, 0, left))),
        ]  # fmt: skip
        with m.If(starts_pass):
            m.d.sync += index.eq(0)
        with m.Elif(issue & walk.last_row):
            m.d.sync += index.eq(Mux(walk.last_block, 0, index + cols))

        # -- lanes -----------------------------------------------------------------------------------------------
        def operand(name: str) -> Signal:
            value = Signal(32 * cols, name=name)
            with m.Switch(mode[name]):
                for s in (Stream.X, Stream.Y):
                    with m.Case(operands[s]):
                        m.d.comb += value.eq(fetchers[s].block)
                with m.Case(Operand.COLUMN):
                    m.d.comb += value.eq(column.value.replicate(cols))
                with m.Case(Operand.K1):
                    m.d.comb += value.eq(mode.k1.replicate(cols))
                with m.Default():
                    m.d.comb += value.eq(mode.k0.replicate(cols))
            return value

        m.d.comb += [
            *(pipe.mode[name].eq(mode[name]) for name in pipe.mode.shape().members if name != "bf16"),
            pipe.mode.bf16.eq(bf16), pipe.in_valid.eq(issue), pipe.first.eq(walk.first_block),
            pipe.last.eq(walk.last_block), pipe.slot.eq(walk.slot), pipe.base.eq(index), pipe.count.eq(count),
            pipe.a.eq(fetchers[Stream.SOURCE].block), pipe.b.eq(operand("first_b")), pipe.c.eq(operand("first_c")),
            pipe.second_b.eq(operand("second_b")), pipe.second_c.eq(operand("second_c")),
            writer.in_valid.eq(pipe.out_valid & mode.store), writer.block.eq(pipe.row),
            packer.in_valid.eq(pipe.reduced_valid),
            packer.value.eq(Mux(mode.reduction == Reduction.ARGMAX, pipe.index, pipe.value)),
            self.vector_rows.eq(Mux(mode.store, writer.written, pipe.out_valid)),
        ]  # fmt: skip

        # -- faults ----------------------------------------------------------------------------------------------
        watched = [
            *((f.fault, f.from_vmem, f.at) for f in fetchers.values()), (column.fault, 0, column.fault_row),
            (writer.fault, writer.to_vmem, writer.at), (packer.fault, 0, packer.at),
        ]  # fmt: skip
        m.d.comb += [
            fault.eq(running & Cat(bad for bad, _, _ in watched).any() | turning & transpose.fault_valid),
            unit.fault.pc.eq(Mux(running | turning, pc, op.pc)),
            unit.fault_valid.eq(fault | (start & is_pass & unusable)), unit.fault.code.eq(Error.ILLEGAL_FIELD),
        ]  # fmt: skip
        with m.If(turning):
            m.d.comb += [unit.fault.code.eq(Error.VMEM_RANGE), unit.fault.info.eq(transpose.fault.addr)]
        with m.If(running):
            for bad, vmem, at in reversed(watched):
                with m.If(bad):
                    m.d.comb += [
                        unit.fault.code.eq(Mux(vmem, Error.VMEM_RANGE, Error.ACC_RANGE)), unit.fault.info.eq(at)
                    ]
        with m.If(unit.fault_valid):
            m.d.sync += stopped.eq(1)

        # -- finish ----------------------------------------------------------------------------------------------
        finish = Signal()
        m.d.comb += finish.eq(~fault & Mux(turning, transpose.done, running & writer.ends & packer.ends))
        with m.If(finish | fault):
            m.d.sync += [running.eq(0), turning.eq(0)]
        with m.If(finish):
            m.d.comb += [unit.give.eq(signal), unit.finished_pc.eq(pc)]
        with m.Elif(start & is_sync):
            m.d.comb += [unit.give.eq(op.signal), unit.finished_pc.eq(op.pc)]
        m.d.comb += [
            unit.finished.eq(finish | (start & is_sync)), unit.started.eq(start), unit.started_pc.eq(op.pc),
            unit.idle.eq(~running & ~turning),
        ]  # fmt: skip

        # -- state -----------------------------------------------------------------------------------------------
        vmem_ports = [self.source.req, self.residual.req, self.params.req, self.result.req]
        acc_ports = [self.acc.req, self.acc_write.req]
        with m.If(issue | Cat(port.valid & port.ready for port in vmem_ports + acc_ports).any()):
            m.d.comb += unit.state.eq(Cause.BUSY)
        with m.Elif(Cat(port.valid & ~port.ready for port in vmem_ports).any()):
            m.d.comb += unit.state.eq(Cause.VMEM)
        with m.Elif(Cat(port.valid & ~port.ready for port in acc_ports).any()):
            m.d.comb += unit.state.eq(Cause.ACC)
        with m.Elif(running | turning):
            m.d.comb += unit.state.eq(Cause.OUTPUT)
        with m.Elif(unit.take.valid & ~unit.take.ready):
            m.d.comb += unit.state.eq(token_cause(m, isa.Unit.VPU, unit.missing))
        with m.Else():
            m.d.comb += unit.state.eq(Cause.IDLE)
        return m

    def _share_vmem(self, m: Module, turning: Value, transpose: TransposeOp, fetch: Fetcher, writer: RowWriter) -> None:
        """Two ports of VMEM are the transposes' as well, which run between passes."""
        for port, turned, passed in ((self.source, transpose.source, fetch.vmem),
                                     (self.result, transpose.result, writer.vmem)):  # fmt: skip
            m.d.comb += [
                port.req.valid.eq(Mux(turning, turned.req.valid, passed.req.valid)),
                port.req.payload.eq(Mux(turning, turned.req.payload, passed.req.payload)),
                turned.req.ready.eq(turning & port.req.ready), passed.req.ready.eq(~turning & port.req.ready),
            ]  # fmt: skip
        for reader, mine in ((transpose.source, turning), (fetch.vmem, ~turning)):
            m.d.comb += [
                reader.rsp_valid.eq(mine & self.source.rsp_valid), reader.rsp_data.eq(self.source.rsp_data)
            ]

    def _share_reads(self, m: Module, column: ColumnReader, fetchers: dict[Stream, Fetcher]) -> None:
        """One read of the accumulators a cycle: the column's first, then of the stream that is least ahead."""
        acc = self.acc
        readers = [column.acc, *(f.acc for f in fetchers.values())]
        wants = [reader.req.valid for reader in readers]
        ahead = [None, *(f.ahead for f in fetchers.values())]
        grants = []
        for k in range(len(readers)):
            others = []
            for j in range(len(readers)):
                if j != k:
                    before = j == 0 if k == 0 or j == 0 else (ahead[j] <= ahead[k] if j < k else ahead[j] < ahead[k])
                    others.append(wants[j] & before)
            grants.append(~Cat(others).any())
        row = Signal(ADDR_BITS, name="acc_row")
        whose = Signal(len(readers), name="acc_whose", reset_less=True)
        for reader, want, grant in zip(readers, wants, grants, strict=True):
            with m.If(want & grant):
                m.d.comb += row.eq(reader.req.payload.row)
        m.d.comb += [acc.req.valid.eq(Cat(wants).any()), acc.req.payload.row.eq(row)]
        m.d.sync += whose.eq(Cat(want & grant for want, grant in zip(wants, grants, strict=True)))
        for k, reader in enumerate(readers):
            m.d.comb += [
                reader.req.ready.eq(acc.req.ready & grants[k]), reader.rsp_valid.eq(acc.rsp_valid & whose[k]),
                reader.rsp_data.eq(acc.rsp_data),
            ]  # fmt: skip

    def _share_writes(self, m: Module, packer: Packer, writer: RowWriter) -> None:
        """One write of the accumulators a cycle, packed values first: they are few."""
        packed, rows, port = packer.acc.req, writer.acc.req, self.acc_write.req
        m.d.comb += [
            port.valid.eq(packed.valid | rows.valid), port.payload.eq(Mux(packed.valid, packed.payload, rows.payload)),
            packed.ready.eq(port.ready), rows.ready.eq(port.ready & ~packed.valid),
        ]  # fmt: skip
