"""The store engine: rows in VMEM to trains of HBM slices."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .. import isa
from ..config import ChipConfig
from ..interfaces import ADDR_BITS, VMEM_LATENCY, SlicePortSignature, UnitSignature, VmemReadSignature
from ..lanes import bytes_below, lanes_below, rotate_down
from ..tokens import token_cause
from .front import TrainFront
from .walk import RowWalk

__all__ = ["DmaStore"]

#: Chunks read or being read and not yet packed. VMEM_LATENCY + 2 would keep a beat a cycle; the rest is slack for when
#: HBM pauses.
CHUNKS = VMEM_LATENCY + 6
#: Trains between the start and the last beat, enough for a beat a cycle with short ones; and ops not finished.
PACKED, UNFINISHED = 4, 8


class DmaStore(wiring.Component):
    """Executes DMA_SHAPE, HBM_WRITE_SLICE and SYNC of unit ST.

    The rates are those of :class:`~sluice_hw.dma.load.DmaLoad`. A train may start when the one before it has been read
    from VMEM; tokens are given when HBM has answered. After a fault no op is taken until reset.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    unit : Out(UnitSignature())
        Faults as for the load engine.
    vmem : Out(VmemReadSignature(hbm_beat_bytes, masked=True))
    write, write_data, write_done : as in SlicePortSignature
    hbm_lo, hbm_hi : In(32)
        Bounds of the slices that may be written, the upper one exclusive.
    slices : Out(1)
        Pulses for each slice sent.
    """

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        port = SlicePortSignature(config).members
        super().__init__({
            "unit": Out(UnitSignature()), "vmem": Out(VmemReadSignature(config.hbm_beat_bytes, masked=True)),
            "write": port["write"], "write_data": port["write_data"], "write_done": port["write_done"],
            "hbm_lo": In(ADDR_BITS), "hbm_hi": In(ADDR_BITS), "slices": Out(1),
        })  # fmt: skip

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        config, unit = self._config, self.unit
        m.submodules.front = front = TrainFront(config, isa.Unit.ST)
        m.submodules.walk = walk = RowWalk(config)
        stopped = Signal()
        op_layout = data.StructLayout({"sync": 1, "hbm": ADDR_BITS, "signal": len(isa.Unit), "pc": 16})
        m.submodules.unfinished = unfinished = SyncFIFO(width=op_layout.size, depth=UNFINISHED)
        packer = _Packer(config)
        m.submodules.packer = packer

        # Started ops: rows to the walk, request to the request register, beats to the packer, tokens to the end.
        asking = Signal()
        ask = Signal.like(self.write.payload, name="ask", reset_less=True)
        begin = Signal()
        new = Signal(op_layout)
        reads = self.vmem.req.valid & self.vmem.req.ready
        m.d.comb += [
            front.op.payload.eq(unit.op.payload), front.op.valid.eq(unit.op.valid), unit.op.ready.eq(front.op.ready),
            unit.take.payload.eq(front.take.payload), unit.take.valid.eq(front.take.valid),
            front.take.ready.eq(unit.take.ready),
            front.hbm_lo.eq(self.hbm_lo), front.hbm_hi.eq(self.hbm_hi), front.stop.eq(stopped),
            front.room.eq(
                unfinished.w_rdy & packer.room & (~asking | self.write.ready) & (~walk.active | (reads & walk.last))
            ),
            begin.eq(front.start & ~front.train.sync),
            walk.load.eq(begin), walk.rows.eq(front.train.rows), walk.step.eq(reads),
            packer.start.eq(begin), packer.count.eq(front.train.count), packer.pad.eq(front.train.pad),
            new.sync.eq(front.train.sync), new.hbm.eq(front.train.hbm), new.signal.eq(front.train.signal),
            new.pc.eq(front.train.pc), unfinished.w_en.eq(front.start), unfinished.w_data.eq(new),
            self.write.valid.eq(asking), self.write.payload.eq(ask),
        ]  # fmt: skip
        with m.If(self.write.ready):
            m.d.sync += asking.eq(0)
        with m.If(begin):
            m.d.sync += [asking.eq(1), ask.slice.eq(front.train.hbm), ask.count.eq(front.train.count)]

        # Reads go out while the packer's buffer has a place for what comes back.
        last_lane = Signal(len(walk.size))
        beat_bytes = config.hbm_beat_bytes
        m.d.comb += [
            self.vmem.req.valid.eq(walk.active & packer.credit),
            self.vmem.req.payload.addr.eq(walk.line),
            last_lane.eq(walk.offset + walk.size),
            self.vmem.req.payload.mask.eq(
                lanes_below(last_lane, beat_bytes) & ~lanes_below(walk.offset, beat_bytes)
            ),
            packer.ask.eq(reads), packer.offset.eq(walk.offset), packer.size.eq(walk.size), packer.last.eq(walk.last),
            packer.chunk_valid.eq(self.vmem.rsp_valid), packer.chunk.eq(self.vmem.rsp_data),
            self.write_data.valid.eq(packer.beat.valid), self.write_data.payload.eq(packer.beat.payload),
            packer.beat.ready.eq(self.write_data.ready),
        ]  # fmt: skip

        # Ends of ops, in order.
        oldest = data.View(op_layout, unfinished.r_data)
        answer, failed = Signal(), Signal()
        m.d.comb += [
            self.write_done.ready.eq(unfinished.r_rdy & ~oldest.sync),
            answer.eq(self.write_done.valid & self.write_done.ready),
            failed.eq(answer & self.write_done.payload.error),
            unfinished.r_en.eq(unfinished.r_rdy & (oldest.sync | self.write_done.valid)),
            unit.finished.eq(unfinished.r_en & ~failed), unit.finished_pc.eq(oldest.pc),
            unit.give.eq(oldest.signal & unit.finished.replicate(len(isa.Unit))),
            unit.started.eq(front.start), unit.started_pc.eq(front.train.pc),
            unit.idle.eq(~unfinished.r_rdy),
        ]  # fmt: skip

        # An op that ends fails before the one that the front looks at; one fault is all that the chip keeps.
        m.d.comb += [unit.fault_valid.eq(failed | front.fault_valid), unit.fault.eq(front.fault)]
        with m.If(failed):
            m.d.comb += [
                unit.fault.code.eq(isa.Error.HBM_ERROR), unit.fault.pc.eq(oldest.pc), unit.fault.info.eq(oldest.hbm),
            ]  # fmt: skip
        with m.If(unit.fault_valid):
            m.d.sync += stopped.eq(1)

        beat = Signal(max(1, ceil_log2(config.slice_beats)))
        with m.If(self.write_data.valid & self.write_data.ready):
            m.d.sync += beat.eq(Mux(beat == config.slice_beats - 1, 0, beat + 1))
            m.d.comb += self.slices.eq(beat == config.slice_beats - 1)

        waits = token_cause(m, isa.Unit.ST, unit.missing)
        with m.If(
            reads | packer.moves | (self.write_data.valid & self.write_data.ready)
            | (unit.op.valid & unit.op.ready) | unit.finished
        ):
            m.d.comb += unit.state.eq(isa.Cause.BUSY)
        with m.Elif(self.vmem.req.valid):
            m.d.comb += unit.state.eq(isa.Cause.VMEM)
        with m.Elif(unfinished.r_rdy):
            m.d.comb += unit.state.eq(isa.Cause.HBM)
        with m.Elif(front.take.valid & ~front.take.ready):
            m.d.comb += unit.state.eq(waits)
        with m.Else():
            m.d.comb += unit.state.eq(isa.Cause.IDLE)
        return m


class _Packer(wiring.Component):
    """Packs chunks, which stand anywhere in their lines, into a stream of full beats; fills up the last slice.

    Members
    -------
    room, start, count, pad
        A train of ``count`` slices; ``start`` only while ``room`` is high.
    credit, ask, offset, size, last
        A chunk has been asked for (only while ``credit`` is high): its place in the line, and whether it is the train's
        last one.
    chunk_valid, chunk
        The line asked for, in order.
    beat
        The stream.
    moves : Out(1)
        A chunk or padding is packed in this cycle.
    """

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        beat_bits = ceil_log2(config.hbm_beat_bytes)
        line = data.ArrayLayout(8, config.hbm_beat_bytes)
        super().__init__({
            "room": Out(1), "start": In(1), "count": In(16), "pad": In(8),
            "credit": Out(1), "ask": In(1), "offset": In(beat_bits), "size": In(beat_bits + 1), "last": In(1),
            "chunk_valid": In(1), "chunk": In(line),
            "beat": SlicePortSignature(config).members["write_data"], "moves": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        beat_bytes = config.hbm_beat_bytes
        beat_bits = ceil_log2(beat_bytes)
        train_layout = data.StructLayout({"beats": 16 + ceil_log2(config.slice_beats), "pad": 8})
        place_layout = data.StructLayout({"offset": beat_bits, "size": beat_bits + 1, "last": 1})
        m.submodules.trains = trains = SyncFIFO(width=train_layout.size, depth=PACKED)
        m.submodules.places = places = SyncFIFO(width=place_layout.size, depth=CHUNKS)
        m.submodules.chunks = chunks = SyncFIFO(width=8 * beat_bytes, depth=CHUNKS)
        train_in, place_in = Signal(train_layout), Signal(place_layout)
        m.d.comb += [
            train_in.beats.eq(self.count << ceil_log2(config.slice_beats)), train_in.pad.eq(self.pad),
            trains.w_data.eq(train_in), trains.w_en.eq(self.start), self.room.eq(trains.w_rdy),
            place_in.offset.eq(self.offset), place_in.size.eq(self.size), place_in.last.eq(self.last),
            places.w_data.eq(place_in), places.w_en.eq(self.ask), self.credit.eq(places.w_rdy),
            chunks.w_data.eq(self.chunk), chunks.w_en.eq(self.chunk_valid),
        ]  # fmt: skip
        train = data.View(train_layout, trains.r_data)
        place = data.View(place_layout, places.r_data)

        # ``fill`` bytes of a beat are in ``part``. A chunk goes behind them; what does not fit stays for the next beat.
        sent = Signal(len(train.beats))
        fill, part = Signal(beat_bits), Signal(8 * beat_bytes, reset_less=True)
        padding, final, emit, free = Signal(), Signal(), Signal(), Signal()
        end = Signal(beat_bits + 2)
        upto = Signal(beat_bits + 1)
        turn = Signal(beat_bits)
        old, filled = Signal(8 * beat_bytes), Signal(8 * beat_bytes)
        out_valid, out = Signal(), Signal(8 * beat_bytes, reset_less=True)
        m.d.comb += [
            free.eq(~out_valid | self.beat.ready),
            self.moves.eq(trains.r_rdy & (padding | chunks.r_rdy) & free),
            end.eq(fill + Mux(padding, 0, place.size)),
            emit.eq(padding | place.last | (end >= beat_bytes)),
            upto.eq(Mux(end >= beat_bytes, beat_bytes, end)),
            final.eq(emit & (sent == train.beats - 1)),
            turn.eq(place.offset - fill),
            old.eq(bytes_below(fill, beat_bytes)),
            filled.eq(bytes_below(upto, beat_bytes)),
            chunks.r_en.eq(self.moves & ~padding), places.r_en.eq(self.moves & ~padding),
            trains.r_en.eq(self.moves & final),
            self.beat.valid.eq(out_valid), Value.cast(self.beat.payload.data).eq(out),
        ]  # fmt: skip
        turned = rotate_down(m, "turned", chunks.r_data, turn, 8)
        joined = Signal(8 * beat_bytes)
        m.d.comb += joined.eq((part & old) | (turned & ~old))
        with m.If(free):
            m.d.sync += out_valid.eq(self.moves & emit)
        with m.If(self.moves):
            with m.If(emit):
                m.d.sync += [
                    out.eq((joined & filled) | (train.pad.replicate(beat_bytes) & ~filled)),
                    part.eq(turned),
                    fill.eq(Mux((end >= beat_bytes) & ~final, end, 0)),
                    sent.eq(Mux(final, 0, sent + 1)),
                    padding.eq(~final & (padding | place.last)),
                ]  # fmt: skip
            with m.Else():
                m.d.sync += [part.eq(joined), fill.eq(end)]
        return m
