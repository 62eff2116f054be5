"""The square of registers transposes: element i of row j that leaves is element j of row i that entered.

The specification follows one element, any, of every block: what entered at row ``ci``, element ``cj`` (or zero, where
the block has no such row) leaves at row ``cj``, element ``ci``, once, blocks in order, each with as many rows as it has
columns, the last one marked. Rows come and are taken in any cycles.

Bounds: squares of 2 and 3 (3 only in the soak run), elements of one bit, unbounded by induction. Around a square of
which that is true, the rows of weight tiles (:mod:`sluice_hw.turner`): every array row is of the tile whose turn it is,
and the right one of it; arrays of 2 rows and 2 columns, 7 tiles, otherwise unbounded by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Array, Assume, Cat, Const, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import data

from sluice_hw.transpose import TransposeCell, Transposer
from sluice_hw.turner import TileTurner
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal


class PlainGrid(Elaboratable):
    """Cells of a :class:`~sluice_hw.emit.grid.Grid` without its Verilog."""

    last: PlainGrid

    def __init__(self, *, cell: TransposeCell, name: str, rows: int, cols: int, emission: str) -> None:
        width = cell.down.x.shape().width
        self.cells = [[TransposeCell(width=width) for _ in range(cols)] for _ in range(rows)]
        self.all = SimpleNamespace(step=Signal(), right=Signal())
        self.up, self.left = (SimpleNamespace(x=Signal(width * rows)) for _ in range(2))
        self.down, self.right = (SimpleNamespace(x=Signal(width * rows)) for _ in range(2))
        self.width = width
        PlainGrid.last = self

    def value(self, row: int, col: int) -> Signal:
        return self.cells[row][col].down.x

    def elaborate(self, platform) -> Module:
        m = Module()
        size = len(self.cells)
        for r, line in enumerate(self.cells):
            for c, cell in enumerate(line):
                m.submodules[f"cell{r}_{c}"] = cell
                m.d.comb += [
                    cell.all.step.eq(self.all.step), cell.all.right.eq(self.all.right),
                    cell.up.x.eq(self.value(r - 1, c) if r else self.up.x.word_select(c, self.width)),
                    cell.left.x.eq(self.value(r, c - 1) if c else self.left.x.word_select(r, self.width)),
                ]
        m.d.comb += [
            self.down.x.eq(Cat(self.value(size - 1, c) for c in range(size))),
            self.right.x.eq(Cat(self.value(r, size - 1) for r in range(size))),
        ]
        return m


class SquareCheck(Check):
    """A transposer beside its specification."""

    def __init__(self, size: int, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.size = size
        self.unit = altered(Transposer, *bugs, Grid=PlainGrid)

    def describe(self, m: Module) -> None:
        size = self.size
        dut = self.unit(size=size, width=1)
        m.submodules.dut, inside = open_up(dut)
        entering, leaving = dut.input.payload, dut.output.payload
        self.held_stream(m, dut.input, "input")
        m.d.comb += dut.output.ready.eq(self.free(1, "ready"))
        for count in (entering.rows, entering.cols):
            m.d.comb += Assume((count >= 1) & (count <= size))
        ci, cj = self.constant(m, range(size), "ci"), self.constant(m, range(size), "cj")
        m.d.comb += Assume((ci < size) & (cj < size))

        def record(name: str) -> SimpleNamespace:
            shapes = {"valid": 1, "cols": range(size + 1), "value": 1}
            return SimpleNamespace(**{part: Signal(shape, name=f"{name}_{part}") for part, shape in shapes.items()})

        # The block that enters or waits, and the one of which rows have left.
        new, old = record("new"), record("old")
        rows, row, out_row = (Signal(range(size + 1), name=name) for name in ("spec_rows", "spec_row", "out_row"))
        accept, first, ends = Signal(), Signal(), Signal()
        moves, gone, complete = Signal(), Signal(), Signal()
        current = SimpleNamespace(**{
            name: Mux(old.valid, getattr(old, name), getattr(new, name)) for name in ("cols", "value")})
        taken = dut.output.valid & dut.output.ready
        m.d.comb += [
            accept.eq(dut.input.valid & dut.input.ready), first.eq(accept & (row == 0)),
            ends.eq(row + 1 == Mux(row == 0, entering.rows, rows)),
            complete.eq(new.valid & (row == 0)),
            gone.eq(taken & (out_row + 1 == current.cols)), moves.eq(taken & ~old.valid),
        ]
        element = entering.row.bit_select(cj, 1)
        with m.If(moves):
            m.d.sync += new.valid.eq(0)
            with m.If(~gone):
                m.d.sync += [old.valid.eq(1), old.cols.eq(new.cols), old.value.eq(new.value)]
        with m.Elif(gone):
            m.d.sync += old.valid.eq(0)
        with m.If(taken):
            m.d.sync += out_row.eq(Mux(gone, 0, out_row + 1))
        with m.If(accept):
            m.d.sync += row.eq(Mux(ends, 0, row + 1))
            with m.If(first):
                m.d.sync += [rows.eq(entering.rows), new.valid.eq(1), new.cols.eq(entering.cols), new.value.eq(0)]
            with m.If(row == ci):
                m.d.sync += new.value.eq(element)

        with m.If(first):
            self.claim(m, ~new.valid | moves)
        with m.If(dut.output.valid):
            self.claim(m, old.valid | complete)
            self.claim(m, leaving.last == (out_row + 1 == current.cols))
            with m.If(out_row == cj):
                self.claim(m, leaving.row.bit_select(ci, 1) == current.value)
        self.claim_held(m, dut.output, "output")
        if not self.mutant:
            self.link(m, SimpleNamespace(**{name: inside[name] for name in (
                "right", "at", "rows", "cols", "full", "out_cols", "taken")}), new, old, rows, row, out_row, ci, cj,
                complete)  # fmt: skip

    def link(self, m: Module, dut, new, old, rows, row, out_row, ci, cj, complete) -> None:
        """For the induction: where the square is in its move, and where in it the two elements are."""
        size, grid = self.size, PlainGrid.last
        shown, leaves, enters = Signal(range(size + 2)), Signal(), Signal()
        m.d.comb += [
            shown.eq(dut.at + dut.taken),
            leaves.eq((dut.out_cols != 0) & (shown < dut.out_cols)),
            enters.eq((dut.at != 0) & dut.full),
        ]
        self.invariant(m, (dut.at < size) & (dut.out_cols <= size) & (out_row < size) & (row < size))
        self.invariant(m, ~dut.taken | (dut.at < dut.out_cols))
        with m.If(dut.at != 0):
            self.invariant(m, dut.full | (dut.at < dut.out_cols))
        self.invariant(m, old.valid == (leaves & (shown != 0)))
        with m.If(leaves):
            self.invariant(m, out_row == shown)
            with m.If(shown != 0):
                self.invariant(m, old.cols == dut.out_cols)
            with m.Else():
                self.invariant(m, complete & (new.cols == dut.out_cols))
        with m.Else():
            self.invariant(m, out_row == 0)
        with m.If(enters):
            self.invariant(m, new.valid & (new.cols == dut.cols) & (rows == dut.rows))
            self.invariant(m, (rows >= 1) & (rows <= size) & (new.cols >= 1) & (new.cols <= size))
            self.invariant(m, row == Mux(dut.at < dut.rows, dut.at, 0))
        with m.Else():
            self.invariant(m, new.valid == (leaves & (shown == 0)))
            self.invariant(m, row == 0)
            with m.If(dut.at != 0):
                self.invariant(m, dut.rows == 0)
        # A block moves down, or, `right`, to the right, by rows of which element 0 is at the far edge.
        there = Array(Array(grid.value(r, c) for c in range(size)) for r in range(size))

        def cell(along, across, right):
            along, across = ((size - 1 - along if k else along)[: size.bit_length()] for k, along in ((0, along),
                                                                                                     (1, across)))
            return Mux(right, there[across][along], there[along][across])

        with m.If(enters):
            with m.If(ci < dut.at):
                self.invariant(m, cell(dut.at - 1 - ci, cj, dut.right) == new.value)
            with m.Else():
                self.invariant(m, new.value == 0)
        # It came in the other direction, all the way, and has gone `at` steps since.
        with m.If(leaves & (cj >= dut.at)):
            self.invariant(m, cell(size - 1 - cj + dut.at, ci, dut.right) == Mux(old.valid, old.value, new.value))


def test_square():
    prove_checks("transpose", {"size2": SquareCheck(2)}, depth=3)


@pytest.mark.soak
def test_larger_square():
    prove_checks("transpose_soak", {"size3": SquareCheck(3)}, depth=3)


BUGS = {
    "a row is shown twice": ("m.d.sync += taken.eq(1)", "m.d.sync += taken.eq(0)"),
    "rows behind the block's are not zero": ("Mux(wanted, mirrored(entering.row), 0)", "mirrored(entering.row)"),
    "emptied while a block enters": ("(~entry & (at + 1 == out_cols))", "(at + 1 == out_cols)"),
    "not mirrored": ("leaving.row.eq(mirrored(", "leaving.row.eq(Value.cast("),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    prove_bites("transpose_bites", SquareCheck(2, bug), depth=12)


class AnySquare(Transposer):
    """In place of the square, what :class:`SquareCheck` says of it: blocks leave in order, whole, when all their rows
    have come, at any time. Of a block's rows it remembers the last; a row that leaves holds that, and its number."""

    last: AnySquare

    def __init__(self, **how) -> None:
        super().__init__(**how)
        self.any_ready, self.any_valid = Signal(), Signal()
        AnySquare.last = self

    def elaborate(self, platform) -> Module:
        m = Module()
        come, left, row_out, waits = Signal(2), Signal(2), Signal(), Signal()
        self.blocks = blocks = Array(Signal(self.input.payload.shape(), name=f"block{i}") for i in range(2))
        entering, leaving = self.input.payload, self.output.payload
        row, shown = Signal(), data.View(entering.shape(), blocks[left[0]])
        self.come, self.left, self.row, self.row_out, self.waits = come, left, row, row_out, waits
        taken = Signal()
        m.d.comb += [
            self.input.ready.eq(self.any_ready & ((come - left)[:2] != 2)),
            self.output.valid.eq((come != left) & (self.any_valid | waits)),
            leaving.row.eq(Cat(shown.row[:TAG], row_out)), leaving.last.eq(row_out + 1 == shown.cols),
            taken.eq(self.output.valid & self.output.ready),
        ]
        m.d.sync += waits.eq(self.output.valid & ~self.output.ready)
        with m.If(self.input.valid & self.input.ready):
            m.d.sync += row.eq(row + 1)
            with m.If(row + 1 == entering.rows):
                m.d.sync += [row.eq(0), come.eq(come + 1), Value.cast(blocks[come[0]]).eq(entering)]
        with m.If(taken):
            m.d.sync += [row_out.eq(Mux(leaving.last, 0, row_out + 1)), left.eq(left + leaving.last)]
        return m


class InOrder(Elaboratable):
    """In place of the queue of announced tiles: the check says what is in it."""

    last: InOrder

    def __init__(self, *, width: int, depth: int) -> None:
        self.w_data, self.w_en = Signal(width), Signal()
        self.r_data, self.r_rdy, self.r_en = Signal(width), Signal(), Signal()
        InOrder.last = self

    def elaborate(self, platform) -> Module:
        return Module()


#: Bits by which a row says what tile it is of.
TAG = 3


class TurnerCheck(Check):
    """Tiles of up to 2 rows and columns, transposed or not, whose rows say of which they are."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(TileTurner, *bugs, Transposer=AnySquare, fifo=SimpleNamespace(SyncFIFO=InOrder))

    def describe(self, m: Module) -> None:
        tiles = (1 << TAG) - 1
        dut = self.unit(rows=2, cols=2, tiles=4, width=2)
        m.submodules.dut, inside = open_up(dut)
        m.d.comb += AnySquare.last.any_ready.eq(self.free(1, "square_ready"))
        m.d.comb += AnySquare.last.any_valid.eq(self.free(1, "square_valid"))
        # Bit i: tile i is transposed, has one row that counts and not two, and likewise columns.
        transposed, short, narrow = (self.constant(m, tiles, name) for name in ("transposed", "short", "narrow"))
        announced, coming, leaving = (Signal(TAG, name=f"{name}_tile") for name in ("next", "in", "out"))
        announces, offers, ready = self.free(1, "announces"), self.free(1, "offers"), self.free(1, "ready")

        def of(flags: Signal, tile: Signal) -> Value:
            return (flags >> tile)[0]

        # Tiles are announced, four at most of which no row has left; rows come of those that were.
        m.d.comb += [
            dut.tile_valid.eq(announces & (announced != tiles) & (announced - leaving < 4)),
            dut.tile.transpose.eq(of(transposed, announced)), dut.tile.k.eq(2 - of(short, announced)),
        ]
        m.d.sync += announced.eq(announced + dut.tile_valid)
        queue, taken_out = InOrder.last, Signal(TAG)
        kept = data.View(dut.tile.shape(), queue.r_data)
        self.claim(m, queue.w_en == dut.tile_valid)
        self.claim(m, ~queue.w_en | (queue.w_data == dut.tile.as_value()))
        m.d.comb += [
            queue.r_rdy.eq(taken_out < announced),
            kept.transpose.eq(of(transposed, taken_out)), kept.k.eq(2 - of(short, taken_out)),
        ]
        m.d.sync += taken_out.eq(taken_out + (queue.r_rdy & queue.r_en))
        row, waits, taken, last = Signal(), Signal(), Signal(), Signal()
        entry, turns = dut.input.payload, of(transposed, coming)
        m.d.comb += [
            dut.input.valid.eq((coming < announced) & (offers | waits)),
            entry.transpose.eq(turns), entry.rows.eq(2 - of(narrow, coming)), entry.cols.eq(2 - of(short, coming)),
            entry.row.eq(Cat(coming, row)), taken.eq(dut.input.valid & dut.input.ready),
            last.eq(row | (turns & of(narrow, coming))),
        ]
        m.d.sync += [waits.eq(dut.input.valid & ~dut.input.ready), coming.eq(coming + (taken & last))]
        with m.If(taken):
            m.d.sync += row.eq(~last)

        out_row, right = Signal(), Signal(TAG + 1)
        m.d.comb += dut.output.ready.eq(ready)
        with m.If(~(of(transposed, leaving) & of(short, leaving) & out_row)):
            m.d.comb += right.eq(Cat(leaving, out_row))
        with m.If(dut.output.valid):
            self.claim(m, leaving < announced)
            self.claim(m, dut.output.payload == right)
            with m.If(ready):
                m.d.sync += [out_row.eq(~out_row), leaving.eq(leaving + out_row)]
        self.claim_held(m, dut.output, "output")
        if self.mutant:
            return

        # For the induction: direct tiles come and leave at once; those that have come and not left are in the square.
        square, behind = AnySquare.last, Signal(TAG)
        m.d.comb += behind.eq(coming - leaving)
        self.invariant(m, (leaving <= coming) & (coming <= announced) & (announced <= tiles))
        self.invariant(m, (inside["row"] == out_row) & (taken_out == leaving + out_row) & (taken_out <= announced))
        self.invariant(m, ~out_row | (inside["kept"].as_value() == Cat(
            of(transposed, leaving), Const(0, 2) | (2 - of(short, leaving)))))
        self.invariant(m, ~(waits | row) | (coming < announced))
        self.invariant(m, ~(row & turns & of(narrow, coming)))
        self.invariant(m, square.row == (row & turns))
        self.invariant(m, ~row | turns | (coming == leaving))
        inside_now = Signal(2)
        m.d.comb += inside_now.eq(square.come - square.left)
        gone = out_row & of(short, leaving)
        with m.If((leaving < announced) & ~of(transposed, leaving)):
            self.invariant(m, (behind == 0) & (row == out_row) & (inside_now == 0))
            self.invariant(m, square.row_out == 0)
        with m.Else():
            self.invariant(m, (inside_now == behind - gone) & (square.row_out == (out_row & ~gone)))
            self.invariant(m, ~out_row | (behind != 0))
        self.invariant(m, (inside_now <= 2) & (~square.waits | (inside_now != 0)))
        for i in range(3):
            with m.If(behind > i):
                self.invariant(m, of(transposed, (leaving + i)[:TAG]))
        for i in range(2):
            block = data.View(square.input.payload.shape(), square.blocks[(square.left + i)[0]])
            tile = Signal(TAG, name=f"tile_of_block{i}")
            m.d.comb += tile.eq(leaving + gone + i)
            with m.If(inside_now > i):
                self.invariant(m, (block.row[:TAG] == tile) & (block.cols == 2 - of(short, tile)))


def test_rows_of_tiles():
    prove_checks("turner", {"turner": TurnerCheck()}, depth=3)


TURNER_BUGS = {
    "a direct tile overtakes": ("Mux(to_square, square.input.ready, direct & self.output.ready)",
                                "Mux(to_square, square.input.ready, self.output.ready)"),
    "rows beyond k are not zero": ("self.output.payload.eq(Mux(beyond, 0, square.output.payload.row))",
                                   "self.output.payload.eq(square.output.payload.row)"),
    "takes a row for nothing": ("square.output.ready.eq(turned & ~beyond & self.output.ready)",
                                "square.output.ready.eq(turned & self.output.ready)"),
    "takes the kind of the tile behind": ("kept.eq(tile)", "kept.eq(tiles.r_data ^ 1)"),
}


@pytest.mark.parametrize("bug", planted(TURNER_BUGS))
def test_bug_of_the_rows_is_found(bug):
    prove_bites("turner_bites", TurnerCheck(bug), depth=14)
