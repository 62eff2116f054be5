"""A stream of blocks that a pass reads, from the accumulators or from VMEM, ahead of the lanes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import Component, In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, VMEM_LATENCY, AccReadSignature, VmemReadSignature
from .blocks import shape_layout
from .formats import expand, pieces, stream_layout
from .stream import StreamWalker

__all__ = ["AHEAD", "Fetcher"]

#: Blocks asked for and not yet called for, at most, of a stream with a block for each row ...
AHEAD = 16
#: ... and of a vector that the rows share.
AHEAD_SHARED = 4


class Fetcher(Component):
    """Asks for a stream's blocks in the order of the walk and holds them.

    A block is called for (``call``) when the one it goes with enters the lanes, and taken (``pop``) then or later, when
    an ALU needs it: ``ready`` promises that it is there.

    Parameters
    ----------
    config : ChipConfig
    depth : int
        Blocks held, at least AHEAD and the most cycles from ``call`` to ``pop``.

    Members
    -------
    start : In(1)
        Takes ``shape``, ``stream`` and ``shared`` (a group has one block for all its rows).
    enable : In(1)
        Nothing is asked for while it is low.
    acc : Out(AccReadSignature(cols)), vmem : Out(VmemReadSignature(word_bytes))
    ahead : Out
        Blocks asked for and not called for.
    ready : Out(1), call : In(1)
    pop : In(1), block : Out(32 * cols)
    fault, from_vmem : Out(1), at : Out(32)
        The next block lies outside of its memory, at this row or byte.
    """

    def __init__(self, config: ChipConfig, *, depth: int) -> None:
        self._config, self._depth = config, depth
        super().__init__({
            "start": In(1), "shape": In(shape_layout()), "stream": In(stream_layout()), "shared": In(1),
            "enable": In(1), "acc": Out(AccReadSignature(config.cols)),
            "vmem": Out(VmemReadSignature(config.word_bytes)), "ahead": Out(range(AHEAD + 1)), "ready": Out(1),
            "call": In(1), "pop": In(1), "block": Out(32 * config.cols), "fault": Out(1), "from_vmem": Out(1),
            "at": Out(ADDR_BITS),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, acc, vmem = self._config, self.acc, self.vmem
        cols, width = config.cols, config.word_bytes

        shared = Signal(reset_less=True)
        m.submodules.walk = walk = StreamWalker(config)
        m.d.comb += [
            walk.start.eq(self.start), walk.shape.eq(self.shape), walk.stream.eq(self.stream),
            walk.shared.eq(self.shared), self.from_vmem.eq(walk.in_vmem), self.at.eq(walk.at),
            self.fault.eq(walk.fault),
        ]  # fmt: skip
        with m.If(self.start):
            m.d.sync += shared.eq(self.shared)

        # Ask. A block of 32-bit values in VMEM may take two accesses.
        # The queue holds all that is asked for: AHEAD blocks, and one for each cycle from a call to its block's taking.
        wants, second, whole, asked = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            wants.eq(self.enable & walk.inside & (self.ahead < Mux(shared, AHEAD_SHARED, AHEAD))),
            acc.req.valid.eq(wants & ~self.from_vmem), acc.req.payload.row.eq(walk.at),
            vmem.req.valid.eq(wants & self.from_vmem), vmem.req.payload.addr.eq(walk.at + Mux(second, width, 0)),
            whole.eq(second | (walk.size <= width) if pieces(config) > 1 else 1),
            asked.eq((acc.req.valid & acc.req.ready) | (vmem.req.valid & vmem.req.ready & whole)), walk.step.eq(asked),
        ]  # fmt: skip
        with m.If(vmem.req.valid & vmem.req.ready):
            m.d.sync += second.eq(~whole)

        # Hold.
        stages: list[Value] = [Cat(whole, second)]
        for k in range(VMEM_LATENCY):
            stage = Signal(2, name=f"said_{k + 1}", reset_less=True)
            m.d.sync += stage.eq(stages[-1])
            stages.append(stage)
        whole_came, second_came = stages[-1]
        read = Value.cast(vmem.rsp_data)
        words: Value = read
        if pieces(config) > 1:
            low = Signal(8 * width, reset_less=True)
            with m.If(vmem.rsp_valid & ~whole_came):
                m.d.sync += low.eq(read)
            words = Cat(Mux(second_came, low, read), read)
        m.submodules.blocks = blocks = SyncFIFOBuffered(width=32 * cols, depth=self._depth)
        pushed = Signal()
        m.d.comb += [
            blocks.w_en.eq(Mux(self.from_vmem, vmem.rsp_valid & whole_came, acc.rsp_valid)),
            blocks.w_data.eq(Mux(self.from_vmem, expand(walk.form, words, read, cols), Value.cast(acc.rsp_data))),
            blocks.r_en.eq(self.pop), self.block.eq(blocks.r_data),
        ]  # fmt: skip
        # A block stands at the queue's end two cycles after it came, if those before it are gone.
        ready = Signal(range(AHEAD + 1))
        m.d.sync += [
            pushed.eq(blocks.w_en), ready.eq(ready + pushed - self.call),
            self.ahead.eq(self.ahead + asked - self.call),
        ]  # fmt: skip
        m.d.comb += self.ready.eq(ready != 0)
        return m
