"""Grids of cells other than the PE, in both forms, and what is refused."""

import json

import pytest
from amaranth import ClockDomain, ClockSignal, Instance, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.emit.grid import Grid
from sluice_hw.emit.verilog import to_verilog
from verif.harness import run_bench
from verif.unit.emit.both import Both
from verif.unit.emit.cells import Accumulate, AllWays, Broadcast, Everything, Lookup, Maximum, Shift

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

GRIDS = {
    "shift_row": (Shift, 1, 4, None, "shift"),
    "shift_triangle": (Shift, 4, 3, [3, 2, 1, 0], "shift"),
    "shift_ragged": (Shift, 5, 4, [0, 4, 0, 0, 3], "shift"),
    "maximum": (Maximum, 3, 4, None, "maximum"),
    "accumulate": (Accumulate, 4, 3, None, "accumulate"),
    "all_ways": (AllWays, 3, 4, None, ""),
    "broadcast": (Broadcast, 2, 3, None, ""),
    "everything": (Everything, 2, 3, None, ""),
    "lookup": (Lookup, 2, 3, None, ""),
}


def make(name: str):
    cell, rows, cols, lengths, _ = GRIDS[name]
    return lambda emission: Grid(cell=cell(), name=f"{name}_{emission}", rows=rows, cols=cols, row_lengths=lengths,
                                 emission=emission)


@pytest.mark.parametrize("name", GRIDS)
def test_grid(name):
    _, rows, cols, lengths, model = GRIDS[name]
    dut = Both(make(name))
    run_bench(dut, "verif.unit.emit.bench_grid", name=f"grid_{name}", opt="-O0", env={
        "INPUTS": json.dumps(dut.inputs), "OUTPUTS": json.dumps(list(dut.outputs)), "MODEL": model,
        "ROWS": str(rows), "COLS": str(cols), "LENGTHS": json.dumps(lengths or [cols] * rows)})


def test_loop_form_has_no_signal_per_cell():
    """Its text grows with the digits of its size only."""
    texts = [to_verilog(Grid(cell=Maximum(), name="g", rows=n, cols=n, emission="loop"), name="top") for n in (9, 900)]
    assert len(texts[1]) < 1.1 * len(texts[0])


def test_places():
    shift = Grid(cell=Shift(), name="g", rows=2, cols=3)
    assert shift.places(row=1, col=2) == {"first": "row[1].col[2].cell_i.first",
                                          "right__data": "row[1].col[2].x_right__data"}
    assert set(Grid(cell=Shift(), name="g", rows=2, cols=3, emission="loop").places(row=0, col=0).values()) == {
        "s_first[2]", "s_right__data[2]"}
    with pytest.raises(ValueError, match=r"has no cell \(2, 0\)"):
        shift.places(row=2, col=0)


def cell(ports, body):
    """A cell class from a signature and a function that fills its module."""
    class Cell(wiring.Component):
        def __init__(self):
            super().__init__(ports)

        def elaborate(self, platform):
            m = Module()
            body(self, m)
            return m
    return Cell()


def flow(width=4):
    return {"left": In(wiring.Signature({"x": Out(width)})), "right": Out(wiring.Signature({"x": Out(width)}))}


def passes_through(self, m):
    m.d.comb += self.right.x.eq(self.left.x + 1)


def uses_memory(self, m):
    m.submodules.memory = store = memory.Memory(shape=4, depth=16, init=[])
    port, write = store.read_port(), store.write_port()
    m.d.comb += [port.addr.eq(self.left.x), write.addr.eq(self.left.x), write.en.eq(1), write.data.eq(3),
                 self.right.x.eq(port.data)]


def uses_instance(self, m):
    m.submodules.box = Instance("black_box", i_clk=ClockSignal(), i_x=self.left.x, o_y=self.right.x)


def divides(self, m):
    m.d.sync += self.right.x.eq(self.left.x // 3)


def uses_other_edge(self, m):
    m.domains.falling = ClockDomain(clk_edge="neg", local=True)
    m.d.comb += ClockSignal("falling").eq(ClockSignal())
    x = Signal(4)
    m.d.falling += x.eq(self.left.x)
    m.d.comb += self.right.x.eq(x)


@pytest.mark.parametrize("body, message", [
    (passes_through, "Output 'right__x' of cell Cell depends on its input 'left__x' within the cycle"),
    (uses_memory, r"Cell holds a cell of type '\$mem"),
    (uses_instance, "Cell holds a cell of type 'black_box', which cannot be emitted in loop form"),
    (divides, r"Cell holds a cell of type '\$div"),
    (uses_other_edge, r"Cell has a register \(\$dff\) that is not on the rising edge of clk"),
])
def test_loop_form_refuses(body, message):
    grid = Grid(cell=cell(flow(), body), name="g", rows=2, cols=2, emission="loop")
    with pytest.raises(ValueError, match=message):
        grid.verilog_modules()


def sync(self, m):
    pass


@pytest.mark.parametrize("ports, message", [
    ({"x": In(3)}, "Port 'x' of cell Cell has no place in a grid"),
    ({"inner": In(wiring.Signature({"x": Out(3)}))}, "Port 'inner__x' of cell Cell has no place in a grid"),
    ({"left": In(wiring.Signature({"x": Out(3)}))},
     "Port 'left__x' of cell Cell is an input without the output right__x of the neighbour"),
    ({"left": In(wiring.Signature({"x": Out(3)})), "right": Out(wiring.Signature({"x": Out(4)}))},
     "Port 'left__x' of cell Cell has 3 bits, but 'right__x', which it meets, has 4"),
    ({"row": Out(wiring.Signature({"x": Out(3)}))}, "Port 'row__x' of cell Cell is an output"),
    (flow(0), "Port 'left__x' of cell Cell has no bits"),
])
def test_ports_without_a_place(ports, message):
    with pytest.raises(ValueError, match=message):
        Grid(cell=cell(ports, sync), name="g", rows=2, cols=2)


def test_rows_of_different_length():
    with pytest.raises(ValueError, match="Port 'up__x' of cell Maximum needs rows of equal length"):
        Grid(cell=Maximum(), name="g", rows=2, cols=2, row_lengths=[1, 2])
    with pytest.raises(ValueError, match="'down__c' of cell Broadcast needs rows of equal length"):
        Grid(cell=Broadcast(), name="g", rows=2, cols=2, row_lengths=[1, 2])
    with pytest.raises(ValueError, match="row lengths must be as many as the rows, 2, not 3"):
        Grid(cell=Shift(), name="g", rows=2, cols=2, row_lengths=[1, 2, 1])
    with pytest.raises(ValueError, match="row lengths must be at most cols, 2, not 5"):
        Grid(cell=Shift(), name="g", rows=2, cols=2, row_lengths=[5, 2])
    with pytest.raises(ValueError, match="Grid row length must be at least 0, not -1"):
        Grid(cell=Shift(), name="g", rows=2, cols=2, row_lengths=[-1, 2])


def test_bad_parameters():
    with pytest.raises(TypeError, match="Grid cell must be a Component, not 'PE'"):
        Grid(cell="PE", name="g", rows=2, cols=2)
    with pytest.raises(ValueError, match="Grid emission must be one of structural, loop, not 'fast'"):
        Grid(cell=Shift(), name="g", rows=2, cols=2, emission="fast")
    with pytest.raises(ValueError, match="Grid rows must be at least 1, not 0"):
        Grid(cell=Shift(), name="g", rows=0, cols=2)
