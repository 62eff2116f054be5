"""A regular grid of one Component, described once and emitted twice.

The cell is an ordinary Amaranth Component whose ports say by their first name where they go:

=========================================  ============================================================================
``left__x`` in, ``right__x`` out           flows to the right: ``x`` of a cell comes from its left neighbour
``right__x`` in, ``left__x`` out           flows to the left
``up__x`` in, ``down__x`` out              flows down
``down__x`` in, ``up__x`` out              flows up
an out without the in of the same name     leaves at that edge of the grid only
``row__x``, ``col__x``, ``all__x`` in      one input per row, per column, one for all
=========================================  ============================================================================

The grid has the same ports, an edge port with the bits of all rows or columns, number 0 first.

Two emissions of the same description: **structural**, the cell's module once and ``generate`` loops, for synthesis,
formal and small benches; **loop**, the cell's word-level netlist as the body of loops over register arrays
(:mod:`sluice_hw.emit.loop`), which simulates some ten times faster and builds in seconds at any size.
"""

from collections.abc import Sequence
from functools import cached_property

from amaranth import ClockSignal, Instance, Module, ResetSignal, Shape, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .loop import emit_loop, loop_places
from .netlist import Netlist, read_netlist
from .plan import OPPOSITE, GridPlan, Port
from .structural import emit_structural
from .verilog import to_modules, use_verilog

__all__ = ["EMISSIONS", "Grid"]

EMISSIONS = ("structural", "loop")


def _positive(what: str, value: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an integer, not {value!r}")
    if value < least:
        raise ValueError(f"{what} must be at least {least}, not {value}")
    return value


class Grid(wiring.Component):
    """`rows` x `cols` cells, connected to their neighbours.

    Parameters
    ----------
    cell : wiring.Component
        The cell, in domain ``sync``. In loop form it must consist of registers and combinational operators, and its
        neighbour outputs must not depend combinationally on its inputs.
    name : str
        Name of the Verilog module; the cell's module is called ``name_cell``. It must be the same for equal grids only.
    rows, cols : int
        Size.
    row_lengths : sequence of int, optional
        Cells in each row, at most `cols`, instead of `cols` in all; 0 connects the two ends of a row. Only for cells
        that neither flow up or down nor have inputs per column.
    emission : str
        ``"structural"`` or ``"loop"``.

    Members
    -------
    left, right, up, down : Out(Signature)
        For every edge port ``x`` of the cell an In or Out of ``rows`` (left and right) or ``cols`` (up and down) times
        its bits. They are plain bits, since Amaranth writes out a wire for every element of an array.
    row, col, all : Out(Signature)
        The inputs per row, per column, for all.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not as above, or a port of the cell has no place in a grid. What the loop form cannot emit is
        refused while it is emitted.
    """

    def __init__(self, *, cell: wiring.Component, name: str, rows: int, cols: int,
                 row_lengths: Sequence[int] | None = None, emission: str = "structural") -> None:
        if not isinstance(cell, wiring.Component):
            raise TypeError(f"Grid cell must be a Component, not {cell!r}")
        if emission not in EMISSIONS:
            raise ValueError(f"Grid emission must be one of {', '.join(EMISSIONS)}, not {emission!r}")
        _positive("Grid rows", rows)
        _positive("Grid cols", cols)
        if row_lengths is None:
            lengths = (cols,) * rows
        else:
            lengths = tuple(_positive("Grid row length", length, 0) for length in row_lengths)
            if len(lengths) != rows:
                raise ValueError(f"Grid row lengths must be as many as the rows, {rows}, not {len(lengths)}")
            if max(lengths) > cols:
                raise ValueError(f"Grid row lengths must be at most cols, {cols}, not {max(lengths)}")
        self._cell, self._emission = cell, emission
        self._plan = GridPlan(type(cell).__name__, name, rows, cols, lengths, _ports(cell))
        self._plan.check()
        super().__init__(self._make_signature(cell))

    def _make_signature(self, cell: wiring.Component) -> dict:
        sides: dict[str, dict] = {}
        for path, member, _ in cell.signature.flatten(cell):
            side, name = path[0], "__".join(path[1:])
            count = self._plan.count(side)
            shape = member.shape if count is None else unsigned(Shape.cast(member.shape).width * count)
            sides.setdefault(side, {})[name] = In(shape) if member.flow is In else Out(shape)
        return {side: Out(wiring.Signature(members)) for side, members in sides.items()}

    @property
    def name(self) -> str:
        """Name of the Verilog module."""
        return self._plan.name

    @property
    def emission(self) -> str:
        """``"structural"`` or ``"loop"``."""
        return self._emission

    def verilog_modules(self) -> dict[str, str]:
        """The grid's module, and for the structural form the modules of the cell, by name."""
        if self.emission == "loop":
            return {self.name: emit_loop(self._plan, self._netlist)}
        cells = to_modules(self._cell, name=self._plan.cell_name)
        return {self.name: emit_structural(self._plan, cells[self._plan.cell_name]), **cells}

    def places(self, *, row: int, col: int) -> dict[str, str]:
        """Where the registers and the outputs of a cell are in the grid's Verilog, by name.

        Registers that hold the same in every cycle are one, under one of their names.

        Raises
        ------
        ValueError
            If there is no such cell, or the cell has no loop form.
        """
        if not (0 <= row < self._plan.rows and 0 <= col < self._plan.lengths[row]):
            raise ValueError(f"Grid {self.name} of {self._plan.rows} x {self._plan.cols} has no cell ({row}, {col})")
        places = {name: place(row, col) for name, place in self._loop_places.items()}
        if self.emission == "structural":
            outputs = {port.name for port in self._plan.ports if not port.is_input}
            cell = f"row[{row}].col[{col}]"
            places = {name: f"{cell}.{'x_' if name in outputs else 'cell_i.'}{name}" for name in places}
        return places

    @cached_property
    def _netlist(self) -> Netlist:
        return read_netlist(self._cell)

    @cached_property
    def _loop_places(self) -> dict:
        return loop_places(self._plan, self._netlist)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Cells in each row."""
        return self._plan.lengths

    def elaborate(self, platform) -> Module:
        m = Module()
        use_verilog(platform, self.verilog_modules())
        ports = {f"{'i' if port.is_input else 'o'}_{port.name}": getattr(getattr(self, port.side), port.field)
                 for port in self._plan.ports}
        m.submodules.grid = Instance(self.name, i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)
        return m


def _ports(cell: wiring.Component) -> tuple[Port, ...]:
    what = type(cell).__name__
    ports = []
    for path, member, _ in cell.signature.flatten(cell):
        if len(path) < 2 or path[0] not in (*OPPOSITE, "row", "col", "all"):
            raise ValueError(f"Port {'__'.join(map(str, path))!r} of cell {what} has no place in a grid: a port must "
                             f"be a member of left, right, up, down, row, col or all")
        ports.append(Port(path[0], "__".join(map(str, path[1:])), Shape.cast(member.shape).width, member.flow is In))
    return tuple(ports)
