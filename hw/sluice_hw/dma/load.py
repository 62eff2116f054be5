"""The load engine: trains of HBM slices to rows in VMEM."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .. import isa
from ..config import ChipConfig
from ..interfaces import ADDR_BITS, SlicePortSignature, UnitSignature, VmemWriteSignature
from ..lanes import bytes_below, lanes_below, rotate_down
from ..tokens import token_cause
from .front import TrainFront, train_layout
from .walk import RowWalk

__all__ = ["DmaLoad"]


def trains_in_flight(config: ChipConfig) -> int:
    """Trains that may be outstanding: enough single slices to cover the latency of HBM, within reason."""
    return min(16, max(4, config.hbm_latency // config.slice_beats + 2))


class DmaLoad(wiring.Component):
    """Executes DMA_SHAPE, HBM_READ_SLICE and SYNC of unit LD.

    Contiguous rows, and rows that start at a multiple of the beat, move a beat a cycle; others lose what does not fit
    into the line (a beat's length, aligned) a row begins or ends in. Trains are requested ahead, so that the latency
    of HBM hides behind the data of earlier ones. After a fault no op is taken until reset.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    unit : Out(UnitSignature())
        Faults: ILLEGAL_FIELD of `count` (too short for the rows), HBM_RANGE with the first slice, VMEM_RANGE with the
        address of row 0 or, where that fits, of the last row: nothing moves. HBM_ERROR with the first slice.
    vmem : Out(VmemWriteSignature(hbm_beat_bytes))
    read, read_data : as in SlicePortSignature
    hbm_lo, hbm_hi : In(32)
        Bounds of the slices that may be read, the upper one exclusive.
    slices : Out(1)
        Pulses for each slice received.
    """

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        port = SlicePortSignature(config).members
        super().__init__({
            "unit": Out(UnitSignature()), "vmem": Out(VmemWriteSignature(config.hbm_beat_bytes)),
            "read": port["read"], "read_data": port["read_data"],
            "hbm_lo": In(ADDR_BITS), "hbm_hi": In(ADDR_BITS), "slices": Out(1),
        })  # fmt: skip

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        config, unit, port = self._config, self.unit, self.read_data
        beat_bytes = config.hbm_beat_bytes
        m.submodules.front = front = TrainFront(config, isa.Unit.LD)
        m.submodules.walk = walk = RowWalk(config)
        layout = train_layout(config)
        m.submodules.trains = trains = SyncFIFO(width=layout.size, depth=trains_in_flight(config))
        train = data.View(layout, trains.r_data)
        stopped = Signal()

        # Started ops go into the queue, and their request into the request register.
        asking = Signal()
        ask = Signal.like(self.read.payload, name="ask", reset_less=True)
        m.d.comb += [
            front.op.payload.eq(unit.op.payload), front.op.valid.eq(unit.op.valid), unit.op.ready.eq(front.op.ready),
            unit.take.payload.eq(front.take.payload), unit.take.valid.eq(front.take.valid),
            front.take.ready.eq(unit.take.ready),
            front.hbm_lo.eq(self.hbm_lo), front.hbm_hi.eq(self.hbm_hi), front.stop.eq(stopped),
            front.room.eq(trains.w_rdy & (~asking | self.read.ready)),
            trains.w_en.eq(front.start), trains.w_data.eq(front.train),
            self.read.valid.eq(asking), self.read.payload.eq(ask),
        ]  # fmt: skip
        with m.If(self.read.ready):
            m.d.sync += asking.eq(0)
        with m.If(front.start & ~front.train.sync):
            m.d.sync += [asking.eq(1), ask.slice.eq(front.train.hbm), ask.count.eq(front.train.count)]

        # The beat held, and the byte of it that comes next. A chunk that goes beyond it takes the rest from the beat
        # on the port, which then takes its place.
        held = Signal.like(port.payload, name="held", reset_less=True)
        holds, drop = Signal(), Signal()
        at = Signal(ceil_log2(beat_bytes))
        end = Signal(len(at) + 2)
        spans, broken, draining = Signal(), Signal(), Signal()
        out_free, move = Signal(), Signal()
        m.d.comb += [
            end.eq(at + walk.size),
            spans.eq(end > beat_bytes),
            broken.eq(walk.active & holds & (held.error | (spans & port.valid & port.payload.error))),
            move.eq(walk.active & holds & ~broken & (~spans | port.valid) & out_free),
            walk.step.eq(move),
            walk.abort.eq(broken),
            # What is left of the beat that ends the rows belongs to nobody.
            drop.eq((move & ((end >= beat_bytes) | walk.last)) | (draining & holds)),
            port.ready.eq(~holds | drop),
        ]
        with m.If(port.ready):
            m.d.sync += holds.eq(port.valid)
        with m.If(port.valid & port.ready):
            m.d.sync += held.eq(port.payload)
        with m.If(move):
            m.d.sync += at.eq(Mux(walk.last, 0, end))
        with m.If(broken):
            m.d.sync += at.eq(0)
        with m.If((move & walk.last & ~held.last) | broken):
            m.d.sync += draining.eq(1)
        with m.Elif(draining & holds & held.last):
            m.d.sync += draining.eq(0)

        # Next train, without a pause behind the last beat of the one before. A SYNC only passes its tokens on.
        now = Signal(data.StructLayout({"hbm": ADDR_BITS, "signal": len(isa.Unit), "pc": 16}), reset_less=True)
        ends, sync = Signal(), Signal()
        m.d.comb += [
            ends.eq(holds & held.last & ((move & walk.last) | draining)),
            walk.load.eq(trains.r_rdy & ~train.sync & ((~walk.active & ~draining) | ends)),
            walk.rows.eq(train.rows),
            sync.eq(trains.r_rdy & train.sync & ~walk.active & ~draining & out_free),
            trains.r_en.eq(walk.load | sync),
        ]
        with m.If(walk.load):
            m.d.sync += [now.hbm.eq(train.hbm), now.signal.eq(train.signal), now.pc.eq(train.pc)]

        # Output register: a line for VMEM, the end of an op, or both.
        writing, marked = Signal(), Signal()
        mark = Signal(data.StructLayout({"signal": len(isa.Unit), "pc": 16}), reset_less=True)
        write = Signal.like(self.vmem.req.payload, name="write", reset_less=True)
        ahead, merged = Signal(8 * beat_bytes), Signal(8 * beat_bytes)
        turn = Signal.like(at)
        m.d.comb += [
            ahead.eq(bytes_below(at, beat_bytes)),
            merged.eq((Value.cast(held.data) & ~ahead) | (Value.cast(port.payload.data) & ahead)),
            turn.eq(at - walk.offset),
        ]
        turned = rotate_down(m, "turned", merged, turn, 8)
        last_lane = Signal(len(at) + 1)
        m.d.comb += [
            last_lane.eq(walk.offset + walk.size),
            out_free.eq(~writing | self.vmem.req.ready),
            self.vmem.req.valid.eq(writing),
            self.vmem.req.payload.eq(write),
        ]
        with m.If(out_free):
            m.d.sync += [writing.eq(move), marked.eq((move & walk.last) | sync)]
        with m.If(move):
            m.d.sync += [
                write.addr.eq(walk.line),
                Value.cast(write.data).eq(turned),
                write.mask.eq(lanes_below(last_lane, beat_bytes) & ~lanes_below(walk.offset, beat_bytes)),
                mark.signal.eq(now.signal), mark.pc.eq(now.pc),
            ]  # fmt: skip
        with m.If(sync):
            m.d.sync += [mark.signal.eq(train.signal), mark.pc.eq(train.pc)]

        m.d.comb += [
            unit.started.eq(front.start), unit.started_pc.eq(front.train.pc),
            unit.finished.eq(marked & out_free), unit.finished_pc.eq(mark.pc),
            unit.give.eq(mark.signal & unit.finished.replicate(len(isa.Unit))),
            unit.idle.eq(~(trains.r_rdy | walk.active | draining | writing | marked | asking)),
        ]  # fmt: skip

        # A train underway fails before the one that the front looks at; one fault is all that the chip keeps.
        m.d.comb += [unit.fault_valid.eq(broken | front.fault_valid), unit.fault.eq(front.fault)]
        with m.If(broken):
            m.d.comb += [
                unit.fault.code.eq(isa.Error.HBM_ERROR), unit.fault.pc.eq(now.pc), unit.fault.info.eq(now.hbm),
            ]  # fmt: skip
        with m.If(unit.fault_valid):
            m.d.sync += stopped.eq(1)

        beat = Signal(max(1, ceil_log2(config.slice_beats)))
        with m.If(port.valid & port.ready & ~port.payload.error):
            m.d.sync += beat.eq(Mux(beat == config.slice_beats - 1, 0, beat + 1))
            m.d.comb += self.slices.eq(beat == config.slice_beats - 1)

        waits = token_cause(m, isa.Unit.LD, unit.missing)
        with m.If(writing & ~self.vmem.req.ready):
            m.d.comb += unit.state.eq(isa.Cause.VMEM)
        with m.Elif(writing | move | marked | (port.valid & port.ready) | (unit.op.valid & unit.op.ready)):
            m.d.comb += unit.state.eq(isa.Cause.BUSY)
        with m.Elif(trains.r_rdy | walk.active | draining | asking):
            m.d.comb += unit.state.eq(isa.Cause.HBM)
        with m.Elif(front.take.valid & ~front.take.ready):
            m.d.comb += unit.state.eq(waits)
        with m.Else():
            m.d.comb += unit.state.eq(isa.Cause.IDLE)
        return m
