"""The structural form of a grid: the cell's module placed by ``generate`` loops."""

import re

from .plan import OPPOSITE, GridPlan, Port

__all__ = ["emit_structural"]

# Where the neighbour is, and in which case there is none.
_NEIGHBOUR = {
    "left": ("c == 0", "row[r].col[c - 1]"),
    "right": ("c == {length} - 1", "row[r].col[c + 1]"),
    "up": ("r == 0", "row[r - 1].col[c]"),
    "down": ("r == {rows} - 1", "row[r + 1].col[c]"),
}


def _has_port(text: str, port: str) -> bool:
    return re.search(rf"^  input {port};$", text, re.MULTILINE) is not None


def emit_structural(plan: GridPlan, cell_text: str) -> str:
    """Verilog of the grid's module.

    Parameters
    ----------
    plan : GridPlan
        The grid.
    cell_text : str
        The cell's Verilog, to see whether it has a clock and a reset.
    """
    length = plan.length_expression("r")
    lines = []

    def edge(side: str) -> str:
        return "r" if side in ("left", "right", "row") else "c"

    for port in plan.ports:
        width = f"[{port.width - 1}:0] "
        lines.append(f"wire {width}x_{port.name};")
    for port in plan.ports:
        value = plan.element(port, edge(port.side))
        if port.is_input and port.side in OPPOSITE:
            condition, neighbour = _NEIGHBOUR[port.side]
            condition = condition.format(length=length, rows=plan.rows)
            lines += [f"if ({condition}) begin : edge_{port.name}", f"  assign x_{port.name} = {value};",
                      f"end else begin : from_{port.name}",
                      f"  assign x_{port.name} = {neighbour}.x_{plan.source(port).name};", "end"]
        elif port.is_input:
            lines.append(f"assign x_{port.name} = {value};")
        else:
            condition = _NEIGHBOUR[port.side][0].format(length=length, rows=plan.rows)
            lines += [f"if ({condition}) begin : to_{port.name}", f"  assign {value} = x_{port.name};", "end"]
    connections = [f".{name}({name})" for name in ("clk", "rst") if _has_port(cell_text, name)]
    connections += [f".{port.name}(x_{port.name})" for port in plan.ports]
    lines += [f"{plan.cell_name} cell_i (", *(f"  {line}," for line in connections[:-1]), f"  {connections[-1]}", ");"]
    body = "\n".join("        " + line for line in lines)

    through = [port for port in plan.ports if not port.is_input and plan.sink(port)] if 0 in plan.lengths else []
    bypass = "".join(f"        assign {plan.element(port, 'r')} = {plan.element(_input(plan, port), 'r')};\n"
                     for port in through)
    if bypass:
        bypass = f"      if ({length} == 0) begin : none\n{bypass}      end\n"
    return f"""\
// {plan.rows} x {plan.cols} cells {plan.cell}, structural form.
{plan.header()}{plan.length_table()}  genvar r, c;
  generate
    for (r = 0; r < {plan.rows}; r = r + 1) begin : row
{bypass}      for (c = 0; c < {length}; c = c + 1) begin : col
{body}
      end
    end
  endgenerate
endmodule
"""


def _input(plan: GridPlan, port: Port) -> Port:
    sink = plan.sink(port)
    assert sink is not None
    return sink
