"""The value per row that a pass reads from packed accumulator rows: kept for the rows under way."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, AccReadSignature
from .blocks import GROUP

__all__ = ["ColumnReader"]


class ColumnReader(Component):
    """Reads the accumulator rows one after the other and keeps their values by row number.

    Parameters
    ----------
    config : ChipConfig
    depth : int
        Values kept, a power of two and more than a group's rows.

    Members
    -------
    start : In(1)
        Takes ``rows`` and ``addr``, the first accumulator row.
    enable : In(1)
        Nothing is asked for while it is low.
    acc : Out(AccReadSignature(cols))
    row : In(16), ready : Out(1)
        The value of this row is there; every row before it must have been there.
    release : In(1)
        The values of a group, the oldest one, are of no more use.
    at : In(16), value : Out(32)
        The value of a row that is there.
    fault : Out(1), fault_row : Out(32)
        The next accumulator row is outside.
    """

    def __init__(self, config: ChipConfig, *, depth: int) -> None:
        if depth & (depth - 1) or depth <= GROUP:
            raise ValueError(f"ColumnReader depth must be a power of two above {GROUP}, not {depth}")
        self._config, self._depth = config, depth
        super().__init__({
            "start": In(1), "rows": In(16), "addr": In(ADDR_BITS), "enable": In(1),
            "acc": Out(AccReadSignature(config.cols)), "row": In(16), "ready": Out(1), "release": In(1),
            "at": In(16), "value": Out(32), "fault": Out(1), "fault_row": Out(ADDR_BITS),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        cols, depth, acc = self._config.cols, self._depth, self.acc

        # Accumulator rows, two at most on their way or waiting.
        unasked = Signal(16)
        addr = Signal(ADDR_BITS, reset_less=True)
        asked, taken, under_way, beyond = Signal(), Signal(), Signal(2), Signal()
        m.submodules.packed = packed = SyncFIFO(width=32 * cols, depth=2)
        m.d.comb += [
            beyond.eq(addr >= self._config.acc_rows),
            self.fault.eq((unasked != 0) & beyond), self.fault_row.eq(addr),
            acc.req.valid.eq(self.enable & (unasked != 0) & ~beyond & (under_way != 2)), acc.req.payload.row.eq(addr),
            asked.eq(acc.req.valid & acc.req.ready),
            packed.w_en.eq(acc.rsp_valid), packed.w_data.eq(acc.rsp_data), packed.r_en.eq(taken),
        ]  # fmt: skip
        m.d.sync += under_way.eq(under_way + asked - taken)

        # One value a cycle, counted modulo 2 depth.
        come, gone = Signal(depth.bit_length()), Signal(depth.bit_length())
        lane = Signal(range(cols))
        unread = Signal(16)
        moves, ends = Signal(), Signal()
        m.d.comb += [
            moves.eq(packed.r_rdy & ((come - gone)[: len(come)] != depth)),
            ends.eq((lane == cols - 1) | (unread == 1)), taken.eq(moves & ends),
            self.ready.eq(come != self.row[: len(come)]),
        ]  # fmt: skip
        m.submodules.values = values = Memory(shape=32, depth=depth, init=[])
        write, read = values.write_port(), values.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(moves), write.addr.eq(come), write.data.eq(Value.cast(packed.r_data).word_select(lane, 32)),
            read.addr.eq(self.at), self.value.eq(read.data),
        ]  # fmt: skip
        with m.If(self.start):
            m.d.sync += [
                unasked.eq(self.rows), unread.eq(self.rows), addr.eq(self.addr), come.eq(0), gone.eq(0), lane.eq(0),
            ]  # fmt: skip
        with m.Else():
            with m.If(asked):
                m.d.sync += [unasked.eq(Mux(unasked > cols, unasked - cols, 0)), addr.eq(addr + 1)]
            with m.If(moves):
                m.d.sync += [come.eq(come + 1), unread.eq(unread - 1), lane.eq(Mux(ends, 0, lane + 1))]
            with m.If(self.release):
                m.d.sync += gone.eq(gone + GROUP)
        return m
