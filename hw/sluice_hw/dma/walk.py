"""The walk over the rows of a train in VMEM, line by line; a line is as long as a beat and aligned."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from ..config import ChipConfig

__all__ = ["RowWalk", "rows_layout"]


def rows_layout(config: ChipConfig) -> data.StructLayout:
    """Rows in VMEM: first byte, number, bytes of a row (1 or more), bytes from row to row modulo 2**n."""
    bits = ceil_log2(config.vmem_bytes)
    return data.StructLayout({"vmem": bits, "rows": 20, "row_bytes": bits_for(config.vmem_bytes), "pitch": bits})


class RowWalk(wiring.Component):
    """Cuts rows into chunks that lie within one line each.

    The chunk shown is bytes ``offset`` to ``offset + size`` of the line at ``line``; ``step`` goes to the next one.
    Rows must lie inside VMEM.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    load : In(1)
        Start with ``rows`` in the next cycle, whatever is under way.
    rows : In(rows_layout)
    step : In(1)
    abort : In(1)
        Be inactive from the next cycle on.
    active : Out(1)
        A chunk is shown.
    line : Out
        Byte address, a multiple of the line's length.
    offset, size : Out
        First byte of the chunk in its line, and its length: 1 to the line's.
    last : Out(1)
        The chunk ends the last row.
    """

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        line_bits = ceil_log2(config.hbm_beat_bytes)
        super().__init__({
            "load": In(1), "rows": In(rows_layout(config)), "step": In(1), "abort": In(1),
            "active": Out(1), "line": Out(ceil_log2(config.vmem_bytes)), "offset": Out(line_bits),
            "size": Out(line_bits + 1), "last": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        line_bytes = self._config.hbm_beat_bytes
        line_bits = ceil_log2(line_bytes)
        row_bytes = Signal.like(self.rows.row_bytes, name="row_bytes", reset_less=True)
        pitch = Signal.like(self.rows.pitch, name="pitch", reset_less=True)
        row = Signal.like(self.rows.vmem, name="row", reset_less=True)
        at = Signal.like(row, name="at", reset_less=True)
        left = Signal.like(row_bytes, name="left", reset_less=True)
        rows_left = Signal.like(self.rows.rows, name="rows_left", reset_less=True)
        to_end = Signal(line_bits + 1)
        fits = Signal()
        next_row = Signal.like(row)
        m.d.comb += [
            self.line.eq(Cat(Const(0, line_bits), at[line_bits:])),
            self.offset.eq(at[:line_bits]),
            to_end.eq(line_bytes - self.offset),
            fits.eq(left <= to_end),
            self.size.eq(Mux(fits, left, to_end)),
            self.last.eq(fits & (rows_left == 1)),
            next_row.eq(row + pitch),
        ]
        with m.If(self.step):
            with m.If(fits):
                m.d.sync += [row.eq(next_row), at.eq(next_row), left.eq(row_bytes), rows_left.eq(rows_left - 1)]
            with m.Else():
                m.d.sync += [at.eq(self.line + line_bytes), left.eq(left - to_end)]
            with m.If(self.last):
                m.d.sync += self.active.eq(0)
        with m.If(self.abort):
            m.d.sync += self.active.eq(0)
        with m.If(self.load):
            m.d.sync += [
                self.active.eq(1),
                row.eq(self.rows.vmem), at.eq(self.rows.vmem), left.eq(self.rows.row_bytes),
                rows_left.eq(self.rows.rows), row_bytes.eq(self.rows.row_bytes), pitch.eq(self.rows.pitch),
            ]  # fmt: skip
        return m
