"""Which slice and beat of memory a beat on a data stream of the slice port belongs to."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS

__all__ = ["Position"]


class Position(wiring.Component):
    """Follows the trains of one kind from their requests to their last beats.

    Parameters
    ----------
    config : ChipConfig
    depth : int
        Trains that may be under way.

    Members
    -------
    room : Out(1)
        A request may be transferred.
    push, first, count : In
        A request is transferred; one without beats (a write of no slices) must not be pushed.
    step, end : In(1)
        A beat is transferred; it is the last of its train.
    slice, beat : Out
        Where the next beat belongs.
    final : Out(1)
        It is the last one of ``count`` slices.
    """

    def __init__(self, config: ChipConfig, *, depth: int) -> None:
        self._config, self._depth = config, depth
        super().__init__({
            "room": Out(1), "push": In(1), "first": In(ADDR_BITS), "count": In(16), "step": In(1), "end": In(1),
            "slice": Out(ADDR_BITS), "beat": Out(range(max(2, config.slice_beats))), "final": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        beats = self._config.slice_beats
        layout = data.StructLayout({"first": ADDR_BITS, "count": 16})
        m.submodules.trains = trains = SyncFIFO(width=layout.size, depth=self._depth)
        request, train = Signal(layout), data.View(layout, trains.r_data)
        passed = Signal(16)
        ends_slice = self.beat == beats - 1
        m.d.comb += [
            self.room.eq(trains.w_rdy), request.first.eq(self.first), request.count.eq(self.count),
            trains.w_en.eq(self.push), trains.w_data.eq(request), trains.r_en.eq(self.step & self.end),
            self.slice.eq(train.first + passed), self.final.eq(ends_slice & (passed == train.count - 1)),
        ]  # fmt: skip
        with m.If(self.step):
            m.d.sync += self.beat.eq(Mux(ends_slice | self.end, 0, self.beat + 1))
            with m.If(self.end):
                m.d.sync += passed.eq(0)
            with m.Elif(ends_slice):
                m.d.sync += passed.eq(passed + 1)
        return m
