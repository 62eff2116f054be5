"""One HBM slice, through which the host reaches memory in pieces smaller than a slice."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, SlicePortSignature
from ..ram import Ram1R1W

__all__ = ["SliceBuffer"]

WORD_BYTES = 8


class SliceBuffer(wiring.Component):
    """A write-back cache of one slice, in words of 8 bytes.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    want, slice : In
        The host needs this slice: held until ``hit`` or ``failed``.
    fresh : In(1)
        Every word of the slice will be written, from the first to the last, so there is no need to read it.
    hit : Out(1)
        The slice is here, and ``write`` or ``read`` may be high in this cycle.
    failed : Out(1)
        High in one cycle: HBM refused to read the slice.
    word, write, write_data : In
        Write a word.
    read, read_data : In, Out
        Read a word; its data follow one cycle later.
    discard : In(1)
        Forget a slice that was taken ``fresh`` and is not complete.
    flush, flushed : In, Out
        Held until ``flushed``: write back what was changed, then forget the slice.
    hold : In(1)
        Begin no train.
    idle : Out(1)
        No train is under way.
    write_error : Out(1)
        High in one cycle: HBM refused to write the slice back; its changes are lost.
    hbm : Out(SlicePortSignature)
    """

    def __init__(self, *, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "want": In(1),
            "slice": In(ADDR_BITS),
            "fresh": In(1),
            "hit": Out(1),
            "failed": Out(1),
            "word": In(range(config.slice_bytes // WORD_BYTES)),
            "write": In(1),
            "write_data": In(64),
            "read": In(1),
            "read_data": Out(64),
            "discard": In(1),
            "flush": In(1),
            "flushed": Out(1),
            "hold": In(1),
            "idle": Out(1),
            "write_error": Out(1),
            "hbm": Out(SlicePortSignature(config)),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        beats = self.config.slice_beats
        lanes = self.config.hbm_beat_bytes // WORD_BYTES
        m.submodules.ram = ram = Ram1R1W(depth=beats, width=64 * lanes, granularity=64)

        # A word's address: lane of the beat, then beat.
        lane_bits = lanes.bit_length() - 1
        lane = Signal(max(1, lane_bits))
        beat = Signal(range(max(2, beats)))
        m.d.comb += Cat(lane[:lane_bits], beat).eq(self.word)
        lane_before = Signal.like(lane)

        tag = Signal(ADDR_BITS)
        valid = Signal()
        dirty = Signal()
        partial = Signal()  # taken fresh, not completely written yet
        index = Signal(range(beats + 1))
        bad = Signal()

        idle = Signal()
        m.d.comb += [
            self.hit.eq(idle & valid & (tag == self.slice) & ~self.flush),
            self.read_data.eq(ram.rdata.word_select(lane_before, 64)),
        ]
        hbm = self.hbm
        m.d.comb += [
            hbm.write.payload.slice.eq(tag),
            hbm.write.payload.count.eq(1),
            hbm.write_data.payload.data.as_value().eq(ram.rdata),
            hbm.read.payload.slice.eq(tag),
            hbm.read.payload.count.eq(1),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [idle.eq(1), self.idle.eq(1)]
                with m.If(self.discard):
                    with m.If(partial):
                        m.d.sync += [valid.eq(0), dirty.eq(0), partial.eq(0)]
                with m.Elif(self.flush):
                    with m.If(~dirty):
                        m.d.comb += self.flushed.eq(1)
                        m.d.sync += valid.eq(0)
                    with m.Elif(~self.hold):
                        m.next = "WRITE"
                with m.Elif(self.want & ~self.hit & dirty):
                    with m.If(~self.hold):
                        m.next = "WRITE"
                with m.Elif(self.want & ~self.hit):
                    m.d.sync += [tag.eq(self.slice), valid.eq(self.fresh), partial.eq(self.fresh)]
                    with m.If(~self.fresh & ~self.hold):
                        m.next = "READ"
                with m.Elif(self.read):
                    m.d.comb += [ram.re.eq(1), ram.raddr.eq(beat)]
                    m.d.sync += lane_before.eq(lane)
                with m.Elif(self.write):
                    m.d.comb += [
                        ram.we.eq(1 << lane if lane_bits else 1),
                        ram.waddr.eq(beat),
                        ram.wdata.eq(self.write_data.replicate(lanes)),
                    ]
                    m.d.sync += dirty.eq(1)
                    with m.If(self.word == self.config.slice_bytes // WORD_BYTES - 1):
                        m.d.sync += partial.eq(0)
            with m.State("WRITE"):
                m.d.comb += [hbm.write.valid.eq(1), ram.re.eq(1), ram.raddr.eq(0)]
                m.d.sync += index.eq(1)
                with m.If(hbm.write.ready):
                    m.next = "WRITE_DATA"
            with m.State("WRITE_DATA"):
                # The RAM shows the beat that is offered; its transfer reads the next one.
                m.d.comb += hbm.write_data.valid.eq(1)
                with m.If(hbm.write_data.ready):
                    m.d.comb += [ram.re.eq(index != beats), ram.raddr.eq(index)]
                    m.d.sync += index.eq(index + 1)
                    with m.If(index == beats):
                        m.next = "WRITE_DONE"
            with m.State("WRITE_DONE"):
                m.d.comb += hbm.write_done.ready.eq(1)
                with m.If(hbm.write_done.valid):
                    m.d.comb += self.write_error.eq(hbm.write_done.payload.error)
                    m.d.sync += dirty.eq(0)
                    m.next = "IDLE"
            with m.State("READ"):
                m.d.comb += hbm.read.valid.eq(1)
                m.d.sync += [index.eq(0), bad.eq(0)]
                with m.If(hbm.read.ready):
                    m.next = "READ_DATA"
            with m.State("READ_DATA"):
                m.d.comb += hbm.read_data.ready.eq(1)
                with m.If(hbm.read_data.valid):
                    m.d.comb += [
                        ram.we.eq(Mux(index < beats, (1 << lanes) - 1, 0)),
                        ram.waddr.eq(index),
                        ram.wdata.eq(hbm.read_data.payload.data),
                    ]
                    m.d.sync += [index.eq(index + 1), bad.eq(bad | hbm.read_data.payload.error)]
                    with m.If(hbm.read_data.payload.last):
                        m.d.sync += valid.eq(~(bad | hbm.read_data.payload.error))
                        m.next = "READ_END"
            with m.State("READ_END"):
                m.d.comb += [self.failed.eq(bad), self.idle.eq(1)]
                m.next = "IDLE"
        return m
