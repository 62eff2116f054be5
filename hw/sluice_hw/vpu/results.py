"""What a pass writes: its rows, and the packed values of its reduction."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import Component, In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, AccWriteSignature, VmemWriteSignature
from ..lanes import lanes_below
from .blocks import shape_layout
from .formats import narrow, pieces, stream_layout
from .stream import StreamWalker

__all__ = ["Packer", "RowWriter"]


class RowWriter(Component):
    """Holds blocks and writes them, in the order of the walk.

    Parameters
    ----------
    config : ChipConfig
    depth : int
        Blocks held.

    Members
    -------
    start : In(1)
        Takes ``shape`` and ``stream``.
    enable : In(1)
        Nothing is written while it is low.
    in_valid : In(1), block : In(32 * cols)
        A block to hold; there must be room.
    acc : Out(AccWriteSignature(cols)), vmem : Out(VmemWriteSignature(word_bytes))
    written : Out(1)
        A block is written for good in this cycle.
    ends : Out(1)
        Nothing is left to write behind this cycle.
    fault, to_vmem : Out(1), at : Out(32)
        The next block lies outside of its memory, at this row or byte.
    """

    def __init__(self, config: ChipConfig, *, depth: int) -> None:
        self._config, self._depth = config, depth
        super().__init__({
            "start": In(1), "shape": In(shape_layout()), "stream": In(stream_layout()), "enable": In(1),
            "in_valid": In(1), "block": In(32 * config.cols), "acc": Out(AccWriteSignature(config.cols)),
            "vmem": Out(VmemWriteSignature(config.word_bytes)), "written": Out(1), "ends": Out(1), "fault": Out(1),
            "to_vmem": Out(1), "at": Out(ADDR_BITS),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, acc, vmem = self._config, self.acc, self.vmem
        cols, width = config.cols, config.word_bytes

        m.submodules.walk = walk = StreamWalker(config)
        m.d.comb += [
            walk.start.eq(self.start), walk.shape.eq(self.shape), walk.stream.eq(self.stream),
            self.to_vmem.eq(walk.in_vmem), self.at.eq(walk.at), self.fault.eq(walk.fault), self.ends.eq(walk.ends),
        ]  # fmt: skip
        m.submodules.blocks = blocks = SyncFIFOBuffered(width=32 * cols, depth=self._depth)
        m.d.comb += [blocks.w_en.eq(self.in_valid), blocks.w_data.eq(self.block), blocks.r_en.eq(self.written)]

        ready, second, whole = Signal(), Signal(), Signal()
        m.d.comb += [
            ready.eq(self.enable & walk.inside & blocks.r_rdy),
            acc.req.valid.eq(ready & ~self.to_vmem), acc.req.payload.row.eq(walk.at),
            Value.cast(acc.req.payload.data).eq(blocks.r_data),
        ]  # fmt: skip
        row = Cat(narrow(walk.form, blocks.r_data, cols), Const(0, max(0, 8 * width * pieces(config) - 32 * cols)))
        parts = [row[8 * width * k : 8 * width * (k + 1)] for k in range(pieces(config))]
        left = Signal.like(walk.size)
        m.d.comb += [
            left.eq(walk.size - Mux(second, width, 0)), whole.eq(left <= width),
            vmem.req.valid.eq(ready & self.to_vmem), vmem.req.payload.addr.eq(walk.at + Mux(second, width, 0)),
            Value.cast(vmem.req.payload.data).eq(Mux(second, parts[-1], parts[0])),
            vmem.req.payload.mask.eq(lanes_below(Mux(whole, left, width)[: width.bit_length()], width)),
            self.written.eq((acc.req.valid & acc.req.ready) | (vmem.req.valid & vmem.req.ready & whole)),
            walk.step.eq(self.written),
        ]  # fmt: skip
        with m.If(vmem.req.valid & vmem.req.ready):
            m.d.sync += second.eq(~whole)
        return m


class Packer(Component):
    """Packs the values of rows, a value a lane, into accumulator rows.

    Parameters
    ----------
    config : ChipConfig
    depth : int
        Values held.

    Members
    -------
    start : In(1)
        Takes ``rows`` and ``addr``.
    enable : In(1)
        Nothing is written while it is low.
    in_valid : In(1), value : In(32)
        The next row's value; there must be room.
    taken : Out(1)
        A value leaves the queue.
    acc : Out(AccWriteSignature(cols))
    ends, fault : Out(1), at : Out(32)
        As :class:`RowWriter` has them.
    """

    def __init__(self, config: ChipConfig, *, depth: int) -> None:
        self._config, self._depth = config, depth
        super().__init__({
            "start": In(1), "rows": In(16), "addr": In(ADDR_BITS), "enable": In(1), "in_valid": In(1), "value": In(32),
            "taken": Out(1), "acc": Out(AccWriteSignature(config.cols)), "ends": Out(1), "fault": Out(1),
            "at": Out(ADDR_BITS),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        cols, acc = self._config.cols, self.acc
        m.submodules.values = values = SyncFIFOBuffered(width=32, depth=self._depth)
        m.d.comb += [values.w_en.eq(self.in_valid), values.w_data.eq(self.value), values.r_en.eq(self.taken)]

        left = Signal(16)
        lane = Signal(range(cols))
        row = Signal(32 * cols, reset_less=True)
        full, written, complete = Signal(), Signal(), Signal()
        m.d.comb += [
            self.fault.eq(((left != 0) | full) & (self.at >= self._config.acc_rows)),
            acc.req.valid.eq(self.enable & full & ~self.fault), acc.req.payload.row.eq(self.at),
            Value.cast(acc.req.payload.data).eq(row), written.eq(acc.req.valid & acc.req.ready),
            self.taken.eq(values.r_rdy & (~full | written)), complete.eq((lane == cols - 1) | (left == 1)),
            self.ends.eq((left == 0) & (~full | written)),
        ]  # fmt: skip
        with m.If(self.start):
            m.d.sync += [left.eq(self.rows), self.at.eq(self.addr), lane.eq(0)]
        with m.Else():
            with m.If(written):
                m.d.sync += [self.at.eq(self.at + 1), full.eq(0)]
            with m.If(self.taken):
                m.d.sync += [full.eq(complete), left.eq(left - 1), lane.eq(Mux(complete, 0, lane + 1))]
                with m.If(lane == 0):
                    m.d.sync += row.eq(0)
                m.d.sync += row.word_select(lane, 32).eq(values.r_data)
        return m
