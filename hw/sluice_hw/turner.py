"""Rows of weight tiles in the order in which the array takes them: those of transposed tiles go through a square."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, fifo, stream
from amaranth.lib.wiring import Component, In, Out

from .transpose import Transposer

__all__ = ["TileTurner"]


class TileTurner(Component):
    """Makes ``rows`` array rows of every tile, the tiles in order.

    A direct tile comes as ``rows`` rows, which pass in the cycle in which they come. A transposed tile of k array rows
    and n columns comes as n rows of k elements and leaves as k rows, zero behind element n, and zeros for the others.
    It enters the square while the tile before, if transposed as well, leaves it.

    Parameters
    ----------
    rows, cols
        Of the array.
    width
        Bits of an element.
    tiles
        Tiles that may be announced whose first row has not left.
    emission
        'structural' or 'loop': form of the square.

    Members
    -------
    tile_valid, tile : In
        A tile is announced, before any of its rows come: whether it is transposed, and its ``k``.
    input : In(stream)
        ``row``, and whether it is of a transposed tile; if so, the tile's rows and elements of a row, as it comes.
    output : Out(stream of ``cols`` elements)
    """

    def __init__(
        self, *, rows: int, cols: int, tiles: int, width: int = 16, emission: str = "structural",
    ) -> None:
        self._rows, self._cols, self._width, self._tiles = rows, cols, width, tiles
        size = max(rows, cols)
        self._square = Transposer(size=size, width=width, emission=emission)
        count = size.bit_length()
        super().__init__({
            "tile_valid": In(1),
            "tile": In(data.StructLayout({"transpose": 1, "k": count})),
            "input": In(stream.Signature(data.StructLayout(
                {"row": size * width, "transpose": 1, "rows": count, "cols": count}))),
            "output": Out(stream.Signature(cols * width)),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.square = square = self._square
        m.submodules.tiles = tiles = fifo.SyncFIFO(width=self.tile.as_value().shape().width, depth=self._tiles)
        m.d.comb += [tiles.w_en.eq(self.tile_valid), tiles.w_data.eq(self.tile)]
        row = Signal(range(self._rows))
        tile, kept = Signal(self.tile.shape()), Signal(self.tile.shape(), reset_less=True)
        turned, direct, beyond = Signal(), Signal(), Signal()
        begins, known = row == 0, Signal()
        m.d.comb += [
            known.eq(~begins | tiles.r_rdy),
            tile.eq(Mux(begins, tiles.r_data, kept)),
            turned.eq(known & tile.transpose), direct.eq(known & ~tile.transpose),
            beyond.eq(row >= tile.k),
        ]
        # Rows of later tiles that are direct wait at the input; those of the tile at hand come first.
        entering, to_square = self.input.payload, self.input.payload.transpose
        m.d.comb += [
            square.input.valid.eq(self.input.valid & to_square),
            square.input.payload.row.eq(entering.row),
            square.input.payload.rows.eq(entering.rows), square.input.payload.cols.eq(entering.cols),
            self.input.ready.eq(Mux(to_square, square.input.ready, direct & self.output.ready)),
            square.output.ready.eq(turned & ~beyond & self.output.ready),
        ]
        with m.If(turned):
            m.d.comb += [
                self.output.valid.eq(beyond | square.output.valid),
                self.output.payload.eq(Mux(beyond, 0, square.output.payload.row)),
            ]
        with m.Else():
            m.d.comb += [
                self.output.valid.eq(direct & self.input.valid & ~to_square), self.output.payload.eq(entering.row)]
        leaves = Signal()
        m.d.comb += [leaves.eq(self.output.valid & self.output.ready), tiles.r_en.eq(leaves & begins)]
        with m.If(leaves):
            m.d.sync += row.eq(Mux(row == self._rows - 1, 0, row + 1))
            with m.If(begins):
                m.d.sync += kept.eq(tile)
        return m
