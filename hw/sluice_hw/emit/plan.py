"""What both emissions of a grid share: its ports, its flows, the lengths of its rows."""

from dataclasses import dataclass

__all__ = ["OPPOSITE", "Port", "GridPlan"]

OPPOSITE = {"left": "right", "right": "left", "up": "down", "down": "up"}


@dataclass(frozen=True)
class Port:
    """A port of the cell: the side it is on, its name there, bits, direction."""

    side: str
    field: str
    width: int
    is_input: bool

    @property
    def name(self) -> str:
        """The flattened name."""
        return f"{self.side}__{self.field}"


@dataclass(frozen=True)
class GridPlan:
    """A grid to be emitted.

    Attributes
    ----------
    cell : str
        What to call the cell in messages.
    name : str
        The module to be written.
    rows, cols : int
        Size; `cols` is the length of the longest row at least.
    lengths : tuple of int
        Cells in each row.
    ports : tuple of Port
        Of the cell.
    """

    cell: str
    name: str
    rows: int
    cols: int
    lengths: tuple[int, ...]
    ports: tuple[Port, ...]

    @property
    def cell_name(self) -> str:
        """The cell's module."""
        return f"{self.name}_cell"

    @property
    def is_rectangular(self) -> bool:
        """Whether all rows have `cols` cells."""
        return set(self.lengths) == {self.cols}

    def count(self, side: str) -> int | None:
        """Elements of a port of the grid on `side`; None for one port that serves all."""
        return {"left": self.rows, "right": self.rows, "row": self.rows,
                "up": self.cols, "down": self.cols, "col": self.cols, "all": None}[side]

    def source(self, port: Port) -> Port | None:
        """The neighbour's output behind an input on an edge (None for an input that comes from no neighbour)."""
        for other in self.ports:
            if not other.is_input and other.side == OPPOSITE.get(port.side) and other.field == port.field:
                return other
        return None

    def sink(self, port: Port) -> Port | None:
        """The neighbour's input that an output on an edge goes to; None where it leaves at the edge only."""
        for other in self.ports:
            if other.is_input and other.side == OPPOSITE.get(port.side) and other.field == port.field:
                return other
        return None

    def length_expression(self, row: str) -> str:
        """Verilog for the length of row `row`; a list without a rule needs :meth:`length_table` in the module."""
        if self.is_rectangular:
            return str(self.cols)
        first, step = self._progression()
        if step is None:
            return f"LENGTHS[32*{row} +: 32]"
        return f"({first} + {step} * {row})" if step >= 0 else f"({first} - {-step} * {row})"

    def length_table(self) -> str:
        """The declaration that :meth:`length_expression` refers to, or nothing."""
        if self.is_rectangular or self._progression()[1] is not None:
            return ""
        table = ", ".join(f"32'd{length}" for length in reversed(self.lengths))
        return f"  localparam [{32 * self.rows - 1}:0] LENGTHS = {{{table}}};\n"

    def _progression(self) -> tuple[int, int | None]:
        steps = {b - a for a, b in zip(self.lengths, self.lengths[1:], strict=False)}
        return self.lengths[0], (steps or {0}).pop() if len(steps) < 2 else None

    def header(self) -> str:
        """The module's head, up to and with the port list."""
        lines = ["  input clk", "  input rst"]
        for port in self.ports:
            bits = port.width * (self.count(port.side) or 1)
            lines.append(f"  {'input' if port.is_input else 'output'} [{bits - 1}:0] {port.name}")
        return f"module {self.name} (\n" + ",\n".join(lines) + "\n);\n"

    def element(self, port: Port, index: str) -> str:
        """Element `index` of a port of the grid."""
        return port.name if self.count(port.side) is None else f"{port.name}[{index}*{port.width} +: {port.width}]"

    def check(self) -> None:
        """Refuse what no emission can do.

        Raises
        ------
        ValueError
            Naming the cell and the port.
        """
        for port in self.ports:
            what = f"Port {port.name!r} of cell {self.cell}"
            if port.width == 0:
                raise ValueError(f"{what} has no bits")
            if port.side in ("row", "col", "all"):
                if not port.is_input:
                    raise ValueError(f"{what} is an output; outputs of a cell must be on left, right, up or down")
                if port.side == "col" and not self.is_rectangular:
                    raise ValueError(f"{what} needs rows of equal length")
                continue
            if port.side in ("up", "down") and not self.is_rectangular:
                raise ValueError(f"{what} needs rows of equal length")
            other = self.source(port) if port.is_input else self.sink(port)
            if other is None and port.is_input:
                raise ValueError(f"{what} is an input without the output {OPPOSITE[port.side]}__{port.field} of the "
                                 f"neighbour that would feed it")
            if other is None and 0 in self.lengths:
                raise ValueError(f"{what} is an output only, which a row without cells cannot drive")
            if other is not None and other.width != port.width:
                raise ValueError(f"{what} has {port.width} bits, but {other.name!r}, which it meets, has {other.width}")
