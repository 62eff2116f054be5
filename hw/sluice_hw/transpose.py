"""Block transposer: rows in, the same block's columns out, a row of either every cycle.

A square of registers moves in one of two directions. While it moves down, a block's rows enter at the top and the block
before, whose rows had entered from the left, leaves row by row at the bottom, transposed; then both change places. So a
block enters while the one before leaves, and no register is there twice.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, Signature

from .emit.grid import Grid

__all__ = ["TransposeCell", "Transposer"]


class TransposeCell(Component):
    """One element: takes its upper neighbour's value, or its left neighbour's, when ``step`` says so."""

    def __init__(self, *, width: int) -> None:
        self._width = width
        element = Signature({"x": Out(width)})
        super().__init__({
            "all": In(Signature({"step": Out(1), "right": Out(1)})),
            "up": In(element), "down": Out(element), "left": In(element), "right": Out(element),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        value = Signal(self._width, reset_less=True)
        with m.If(self.all.step):
            m.d.sync += value.eq(Mux(self.all.right, self.left.x, self.up.x))
        m.d.comb += [self.down.x.eq(value), self.right.x.eq(value)]
        return m


class Transposer(Component):
    """Transposes blocks of up to ``size`` x ``size`` elements, each in ``size`` cycles.

    A block of k rows and n columns leaves as n rows of ``size`` elements: those from number k on are zero. What is in
    the block's rows from column n on does not matter. ``rows`` and ``cols`` come with each of its rows and count with
    the first. Once a block has begun, its rows must come, whatever becomes of the block before: the two move together.

    Parameters
    ----------
    size
        Rows and columns, at least 2.
    width
        Bits of an element.
    emission
        'structural' or 'loop'.

    Members
    -------
    input : In(stream of ``row`` (size * width bits), ``rows`` and ``cols`` (1 to size))
    output : Out(stream of ``row`` (size * width bits) and ``last``, the block's last row)

    Raises
    ------
    ValueError
        For a size or width that cannot be.
    """

    def __init__(self, *, size: int, width: int = 8, emission: str = "structural") -> None:
        for name, value, least in (("size", size, 2), ("width", width, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"Transposer {name} must be an integer of at least {least}, not {value!r}")
        self._size, self._width, self._emission = size, width, emission
        count = unsigned(size.bit_length())
        super().__init__({
            "input": In(stream.Signature(data.StructLayout({"row": size * width, "rows": count, "cols": count}))),
            "output": Out(stream.Signature(data.StructLayout({"row": size * width, "last": 1}))),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        size, width = self._size, self._width
        m.submodules.cells = cells = Grid(
            cell=TransposeCell(width=width), name=f"transpose_{size}x{width}", rows=size, cols=size,
            emission=self._emission,
        )  # fmt: skip
        bits = size.bit_length()
        entering, leaving = self.input.payload, self.output.payload

        def mirrored(row: Value) -> Value:
            """What entered first is at the far edge, so that elements stand the other way round inside."""
            return Cat(row.word_select(size - 1 - k, width) for k in range(size))

        # Which way it moves, and how far it has.
        right, at = Signal(), Signal(range(size))
        # Of the block that enters, if one does; columns of the block that leaves, 0 for none.
        rows, cols, full = Signal(bits), Signal(bits), Signal()
        out_cols = Signal(bits)
        # The row that shows has been taken, but the square could not move.
        taken = Signal()

        first, entry, row_count = Signal(), Signal(), Signal(bits)
        m.d.comb += [
            first.eq(at == 0),
            # A move begins with a block, or without one when another is to leave.
            entry.eq(Mux(first, self.input.valid, full)),
            row_count.eq(Mux(first, Mux(self.input.valid, entering.rows, 0), rows)),
        ]
        wanted, shows, step = Signal(), Signal(), Signal()
        m.d.comb += [
            wanted.eq(at < row_count),
            shows.eq((at < out_cols) & ~taken),
            self.output.valid.eq(shows),
            leaving.last.eq(at + 1 == out_cols),
            leaving.row.eq(mirrored(Mux(right, cells.right.x, cells.down.x))),
            step.eq((entry | (out_cols != 0)) & (~wanted | self.input.valid) & (~shows | self.output.ready)),
            self.input.ready.eq(step & wanted),
            cells.all.step.eq(step), cells.all.right.eq(right),
        ]  # fmt: skip
        new = Signal(size * width)
        m.d.comb += [new.eq(Mux(wanted, mirrored(entering.row), 0)), cells.up.x.eq(new), cells.left.x.eq(new)]
        with m.If(step):
            m.d.sync += taken.eq(0)
        with m.Elif(shows & self.output.ready):
            m.d.sync += taken.eq(1)
        with m.If(step):
            with m.If(first):
                m.d.sync += [rows.eq(row_count), full.eq(entry), cols.eq(entering.cols)]
            # Without a block behind it, the square need not be emptied to the end.
            with m.If((at == size - 1) | (~entry & (at + 1 == out_cols))):
                m.d.sync += [at.eq(0), right.eq(~right), out_cols.eq(Mux(entry, cols, 0))]
            with m.Else():
                m.d.sync += at.eq(at + 1)
        return m
