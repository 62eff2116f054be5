"""What both DMA engines do with an op before it moves a byte: setup, checks, tokens."""

from amaranth import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .. import isa
from ..config import ChipConfig
from ..interfaces import ADDR_BITS, fault_layout, op_layout
from .walk import rows_layout

__all__ = ["TrainFront", "train_layout"]

UNITS = len(isa.Unit)


def train_layout(config: ChipConfig) -> data.StructLayout:
    """A started op: a train of slices, or with ``sync`` nothing but its tokens."""
    return data.StructLayout({
        "sync": 1, "hbm": ADDR_BITS, "count": 16, "rows": rows_layout(config), "pad": 8, "signal": UNITS, "pc": 16,
    })  # fmt: skip


class TrainFront(wiring.Component):
    """Takes ops, keeps the shape, checks trains, asks for tokens.

    A train is checked at the head of the queue, before its tokens are there, so that the check costs no time when
    the engine waits for something else. From a train's appearance at the head, with its shape set at least a cycle
    before, to ``start`` it takes one cycle, so that trains start every other cycle at most.

    Parameters
    ----------
    config : ChipConfig
    unit : isa.Unit
        LD or ST; decides which op is the train.

    Members
    -------
    op, take : as in UnitSignature
    hbm_lo, hbm_hi : In(32)
        Bounds of the slices, the upper one exclusive.
    room : In(1)
        The engine can take a started op. Once high it stays high until ``start``.
    stop : In(1)
        Take no more ops.
    start : Out(1)
        ``train`` has its tokens and starts, in this cycle only.
    train : Out(train_layout)
    fault_valid, fault : Out
        Instead of ``start``, for a train that failed its check.
    """

    def __init__(self, config: ChipConfig, unit: isa.Unit) -> None:
        self._config, self._unit = config, unit
        self._op = {isa.Unit.LD: isa.Op.HBM_READ_SLICE, isa.Unit.ST: isa.Op.HBM_WRITE_SLICE}[unit]
        super().__init__({
            "op": In(stream.Signature(op_layout())), "take": Out(stream.Signature(unsigned(UNITS))),
            "hbm_lo": In(ADDR_BITS), "hbm_hi": In(ADDR_BITS), "room": In(1), "stop": In(1),
            "start": Out(1), "train": Out(train_layout(config)),
            "fault_valid": Out(1), "fault": Out(fault_layout()),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        op = self.op.payload
        word = data.View(isa.word_layout(self._op), op.word)
        setup_word = data.View(isa.word_layout(isa.Op.DMA_SHAPE), op.word)
        is_setup, is_train = Signal(), Signal()
        m.d.comb += [is_setup.eq(word.opcode == isa.Op.DMA_SHAPE), is_train.eq(word.opcode == self._op)]

        # The shape, and one cycle behind it everything that needs a multiplier. ``total`` is the bytes of all rows;
        # ``first`` and ``beyond`` are the lowest byte and one past the highest, relative to row 0.
        row_bytes, rows, pad = Signal(24), Signal(20), Signal(8)
        pitch = Signal(signed(isa.STRIDE_BITS))
        total = Signal(44, reset_less=True)
        span = Signal(signed(isa.STRIDE_BITS + 20), reset_less=True)
        flat, settled = Signal(reset_less=True), Signal()
        m.d.sync += [
            total.eq(rows * row_bytes),
            span.eq((rows - 1) * pitch),
            flat.eq(pitch == row_bytes),
            settled.eq(1),
        ]
        setup = Signal()
        m.d.comb += setup.eq(self.op.valid & is_setup & ~self.stop)
        with m.If(setup):
            m.d.sync += [
                row_bytes.eq(setup_word.row_bytes), rows.eq(setup_word.rows), pitch.eq(setup_word.pitch),
                pad.eq(setup_word.pad), settled.eq(0),
            ]  # fmt: skip
        train = self.train
        m.d.comb += [
            train.sync.eq(~is_train),
            train.hbm.eq(op.a),
            train.count.eq(word.count),
            train.rows.vmem.eq(op.b),
            # Rows that follow each other without a gap are one long row, which moves a whole line every cycle.
            train.rows.rows.eq(Mux(flat, 1, rows)),
            train.rows.row_bytes.eq(Mux(flat, total, row_bytes)),
            train.rows.pitch.eq(pitch),
            train.pad.eq(pad),
            train.signal.eq(op.signal),
            train.pc.eq(op.pc),
        ]

        # Verdict on the train at the head. Without a shape there are no rows, which would never end: refused as well.
        checked, too_long, hbm_bad, vmem_bad = Signal(), Signal(), Signal(), Signal()
        row0_bad = Signal()
        last_row = Signal(signed(len(span) + 1))
        m.d.comb += last_row.eq(op.b + span)
        row0_out = op.b + row_bytes > config.vmem_bytes
        last_out = (last_row < 0) | (last_row + row_bytes > config.vmem_bytes)
        with m.If(self.op.valid & is_train & settled & ~checked):
            m.d.sync += [
                checked.eq(1),
                too_long.eq((total > (word.count << ceil_log2(config.slice_bytes))) | (total == 0)),
                hbm_bad.eq((op.a < self.hbm_lo) | (op.a + word.count > self.hbm_hi)),
                row0_bad.eq(row0_out),
                vmem_bad.eq(row0_out | last_out),
            ]

        go, granted = Signal(), Signal()
        needs = op.wait.any()
        m.d.comb += [
            go.eq(self.op.valid & ~is_setup & (~is_train | checked) & self.room & ~self.stop),
            self.take.valid.eq(go & needs),
            self.take.payload.eq(op.wait),
            granted.eq(go & (~needs | self.take.ready)),
            self.op.ready.eq(setup | granted),
        ]
        with m.If(granted):
            m.d.sync += checked.eq(0)
        bad = is_train & (too_long | hbm_bad | vmem_bad)
        m.d.comb += [
            self.start.eq(granted & ~bad),
            self.fault_valid.eq(granted & bad),
            self.fault.pc.eq(op.pc),
        ]
        with m.If(too_long):
            m.d.comb += [
                self.fault.code.eq(isa.Error.ILLEGAL_FIELD),
                self.fault.info.eq(isa.field_index(self._op, "count")),
            ]
        with m.Elif(hbm_bad):
            m.d.comb += [self.fault.code.eq(isa.Error.HBM_RANGE), self.fault.info.eq(op.a)]
        with m.Else():
            m.d.comb += [
                self.fault.code.eq(isa.Error.VMEM_RANGE),
                self.fault.info.eq(Mux(row0_bad, op.b, Cat(last_row)[:ADDR_BITS])),
            ]
        return m
