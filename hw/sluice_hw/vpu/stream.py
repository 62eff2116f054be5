"""Where a stream's blocks lie, one after the other, and whether its memory reaches so far."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS
from ..isa import Format, Source
from .blocks import BlockWalker, shape_layout
from .formats import block_bytes, stream_layout

__all__ = ["StreamWalker"]


class StreamWalker(Component):
    """The walk of a pass over the blocks of one stream.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    start : In(1)
        Takes ``shape``, ``stream`` and ``shared`` (a group has one block for all its rows).
    step : In(1)
        Goes on to the next block.
    inside, fault : Out(1)
        A block is left, and lies in its memory; is left, and does not.
    ends : Out(1)
        None is left behind this cycle.
    in_vmem : Out(1), form : Out(Format)
        Of the stream, while it is walked.
    at : Out(32), size : Out
        The block's accumulator row or first byte, and its bytes in VMEM.
    """

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "start": In(1), "shape": In(shape_layout()), "stream": In(stream_layout()), "shared": In(1), "step": In(1),
            "inside": Out(1), "fault": Out(1), "ends": Out(1), "in_vmem": Out(1), "form": Out(Format),
            "at": Out(ADDR_BITS), "size": Out(range(4 * config.cols + 1)),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        form, tail = Signal(Format, reset_less=True), Signal.like(self.shape.tail, reset_less=True)
        m.submodules.walk = walk = BlockWalker(bits=ADDR_BITS)
        m.d.comb += [
            walk.start.eq(self.start), walk.shape.eq(self.shape), walk.shared.eq(self.shared),
            walk.base.eq(self.stream.addr), walk.row_step.eq(self.stream.row_step),
            walk.block_step.eq(self.stream.block_step), walk.step.eq(self.step),
        ]  # fmt: skip
        with m.If(self.start):
            m.d.sync += [
                self.in_vmem.eq(self.stream.memory == Source.VMEM), form.eq(self.stream.format),
                tail.eq(self.shape.tail),
            ]  # fmt: skip
        end = Signal(ADDR_BITS + 1)
        beyond = Signal()
        m.d.comb += [
            self.at.eq(walk.at), self.form.eq(form),
            self.size.eq(block_bytes(m, "bytes", Mux(walk.last_block, tail, config.cols), form)),
            end.eq(self.at + self.size),
            beyond.eq(Mux(self.in_vmem, end > config.vmem_bytes, self.at >= config.acc_rows)),
            self.inside.eq(walk.valid & ~beyond), self.fault.eq(walk.valid & beyond),
            self.ends.eq(~walk.valid | (self.step & walk.last)),
        ]  # fmt: skip
        return m
