"""A soft reset that the memory does not see: what is under way is completed, and its answers go nowhere."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .. import isa
from ..config import ChipConfig
from ..interfaces import SlicePortSignature

__all__ = ["SliceDrain"]

#: Trains of a kind that may be under way; requesters and memories hold fewer.
TRAINS = 255


class SliceDrain(wiring.Component):
    """Stands between requesters that are reset by a soft reset and a memory that is not.

    After ``cut`` no request passes. Trains under way are completed: write trains get the beats they are owed, of any
    contents, but a beat that the memory was shown stays as it was; read beats and answers are taken and dropped. When
    nothing is under way, the memory may be reset itself: the way stays closed for ``settle`` cycles more, in the first
    half of which ``reset`` is high. A memory that does not answer keeps it closed.

    Parameters
    ----------
    config : ChipConfig
    settle : int
        From 1.

    Members
    -------
    port : In(SlicePortSignature(config))
    memory : Out(SlicePortSignature(config))
    cut : In(1)
        One cycle, in which transfers count still; the requesters are reset behind it.
    reset : Out(1)
    state : Out(isa.Cause)
        BUSY when a beat is transferred, HBM when a train is under way and none is, else IDLE.
    """

    def __init__(self, config: ChipConfig, *, settle: int = 1) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        if settle < 1:
            raise ValueError(f"settle must be at least 1, not {settle}")
        self._config, self._settle = config, settle
        super().__init__({
            "port": In(SlicePortSignature(config)), "memory": Out(SlicePortSignature(config)), "cut": In(1),
            "reset": Out(1), "state": Out(isa.Cause),
        })  # fmt: skip

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        port, memory = self.port, self.memory
        beats = self._config.slice_beats
        draining, settling = Signal(), Signal(range(self._settle + 1))
        open_ = ~draining & (settling == 0)

        reads, writes = Signal(range(TRAINS + 1)), Signal(range(TRAINS + 1))
        owed = Signal(32)  # beats of write trains
        read, write = Signal(), Signal()
        read_ends, write_ends = Signal(), Signal()
        sent, came = Signal(), Signal()
        kept = Signal(port.write_data.payload.shape(), reset_less=True)  # the beat that stood there at the cut
        for asked, ask, count, passed in (
            (port.read, memory.read, reads, read), (port.write, memory.write, writes, write),
        ):  # fmt: skip
            may = open_ & (count != TRAINS)
            m.d.comb += [
                ask.valid.eq(asked.valid & may), ask.payload.eq(asked.payload), asked.ready.eq(ask.ready & may),
                passed.eq(ask.valid & ask.ready),
            ]  # fmt: skip
        m.d.comb += [
            memory.write_data.valid.eq(Mux(open_, port.write_data.valid, draining & (owed != 0))),
            memory.write_data.payload.eq(Mux(open_, port.write_data.payload, kept)),
            port.write_data.ready.eq(memory.write_data.ready & open_),
            port.read_data.valid.eq(memory.read_data.valid & open_),
            port.read_data.payload.eq(memory.read_data.payload),
            memory.read_data.ready.eq(port.read_data.ready | ~open_),
            port.write_done.valid.eq(memory.write_done.valid & open_),
            port.write_done.payload.eq(memory.write_done.payload),
            memory.write_done.ready.eq(port.write_done.ready | ~open_),
            sent.eq(memory.write_data.valid & memory.write_data.ready),
            came.eq(memory.read_data.valid & memory.read_data.ready),
            read_ends.eq(came & memory.read_data.payload.last),
            write_ends.eq(memory.write_done.valid & memory.write_done.ready),
        ]  # fmt: skip
        m.d.sync += [
            reads.eq(reads + read - read_ends),
            writes.eq(writes + write - write_ends),
            owed.eq(owed + Mux(write, memory.write.payload.count * beats, 0) - sent),
        ]

        none = (reads == 0) & (writes == 0)
        with m.If(settling != 0):
            m.d.sync += settling.eq(settling - 1)
        with m.If(self.cut):
            m.d.sync += draining.eq(1)
            with m.If(open_):
                m.d.sync += kept.eq(port.write_data.payload)
        with m.Elif(draining & none & (owed == 0)):
            m.d.sync += [draining.eq(0), settling.eq(self._settle)]
        m.d.comb += self.reset.eq(settling > self._settle // 2)

        with m.If(sent | came):
            m.d.comb += self.state.eq(isa.Cause.BUSY)
        with m.Elif(~none):
            m.d.comb += self.state.eq(isa.Cause.HBM)
        with m.Else():
            m.d.comb += self.state.eq(isa.Cause.IDLE)
        return m
