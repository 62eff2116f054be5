"""The word-level netlist of one small Component, as Yosys sees it after ``proc; opt``."""

import json
import re
from dataclasses import dataclass, field

from amaranth.back import rtlil
from amaranth.back.verilog import find_yosys
from amaranth.lib import wiring

__all__ = ["Bit", "Node", "Register", "Rom", "Netlist", "read_netlist"]

Bit = int | str
"""A net of Yosys's JSON: a number, or "0", "1", "x", "z"."""

_REGISTERS = {"$dff", "$dffe", "$sdff", "$sdffe", "$sdffce"}
_COMBINATIONAL = {
    "$pos", "$not", "$neg", "$reduce_and", "$reduce_or", "$reduce_xor", "$reduce_xnor", "$reduce_bool", "$logic_not",
    "$and", "$or", "$xor", "$xnor", "$logic_and", "$logic_or", "$add", "$sub", "$mul", "$shl", "$sshl", "$shr", "$sshr",
    "$shift", "$shiftx", "$lt", "$le", "$eq", "$ne", "$ge", "$gt", "$mux", "$pmux",
}


@dataclass
class Node:
    """A combinational cell: type, integer parameters, its operands' bits by port name, its result's bits."""

    type: str
    params: dict[str, int]
    inputs: dict[str, list[Bit]]
    y: list[Bit]


@dataclass
class Register:
    """A register bank: ``q`` takes ``d`` where ``enable`` holds, and ``reset_value`` where ``reset`` holds.

    A condition is a bit and the value that makes it hold, or ``None`` for a condition that is not there (an enable
    that always, a reset that never holds). `enable_first` means that a reset counts only where the enable holds.
    """

    name: str
    q: list[Bit]
    d: list[Bit]
    init: int
    enable: tuple[Bit, int] | None = None
    reset: tuple[Bit, int] | None = None
    reset_value: int = 0
    enable_first: bool = False


@dataclass
class Rom:
    """A memory that is only read, without a clock: a node of type ``$rom`` reads it, whose parameter is its number."""

    width: int
    words: list[int]


@dataclass
class Netlist:
    """Ports by flattened name, registers, the combinational cells in an order fit for evaluation, and ROMs."""

    inputs: dict[str, list[Bit]] = field(default_factory=dict)
    outputs: dict[str, list[Bit]] = field(default_factory=dict)
    registers: list[Register] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    roms: list[Rom] = field(default_factory=list)


def _number(text: str | int) -> int:
    return text if isinstance(text, int) else int(re.sub("[^01]", "0", text) or "0", 2)


def _read_rom(netlist: Netlist, cell: dict) -> None:
    """Add a memory without write ports, and a node for each of its read ports."""
    params, ports = cell["parameters"], cell["connections"]
    width, size, depth = (_number(params[name]) for name in ("WIDTH", "ABITS", "SIZE"))
    content = re.sub("[^01]", "0", params["INIT"]).zfill(width * depth)
    words = [int(content[len(content) - (k + 1) * width:len(content) - k * width], 2) for k in range(depth)]
    netlist.roms.append(Rom(width, words))
    for port in range(_number(params["RD_PORTS"])):
        netlist.nodes.append(Node("$rom", {"rom": len(netlist.roms) - 1},
                                  {"A": ports["RD_ADDR"][port * size:(port + 1) * size]},
                                  ports["RD_DATA"][port * width:(port + 1) * width]))


def _sorted_nodes(nodes: list[Node]) -> list[Node]:
    """`nodes`, each behind those whose results it takes. Amaranth has refused combinational loops already."""
    driver = {bit: node for node in nodes for bit in node.y}
    done: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in done:
            for bits in node.inputs.values():
                for bit in bits:
                    if bit in driver:
                        visit(driver[bit])
            done[id(node)] = node

    for node in nodes:
        visit(node)
    return list(done.values())


def read_netlist(component: wiring.Component) -> Netlist:
    """The flat netlist of `component`: registers on the rising edge of ``clk``, and combinational cells.

    Raises
    ------
    ValueError
        If the Component holds anything else (a memory that is written or read at a clock, an instance, a latch,
        another clock, an operator without a rule here): the message names the Component and the cell's type.
    """
    what = type(component).__name__
    text = rtlil.convert(component, name="cell", emit_src=False)
    passes = "hierarchy -top cell; flatten; proc; opt; opt_clean -purge; memory_collect; write_json"
    script = f"read_rtlil <<rtlil\n{text}\nrtlil\n{passes}\n"
    output = find_yosys(lambda version: True).run(["-q", "-"], script, ignore_warnings=True)
    module = json.loads(output)["modules"]["cell"]

    netlist = Netlist()
    for name, port in module["ports"].items():
        {"input": netlist.inputs, "output": netlist.outputs}[port["direction"]][name] = port["bits"]
    names: dict[tuple, str] = {}
    inits: dict[Bit, str] = {}
    for name, net in sorted(module["netnames"].items(), key=lambda item: (item[1]["hide_name"], len(item[0]), item[0])):
        names.setdefault(tuple(net["bits"]), name)
        for bit, init in zip(net["bits"], reversed(net["attributes"].get("init", "")), strict=False):
            inits[bit] = init
    clock = netlist.inputs.get("clk", [None])[0]

    for cell in module["cells"].values():
        kind, ports = cell["type"], cell["connections"]
        params = {key: _number(value) for key, value in cell["parameters"].items()}
        if kind in _REGISTERS:
            if ports["CLK"] != [clock] or not params["CLK_POLARITY"]:
                raise ValueError(f"{what} has a register ({kind}) that is not on the rising edge of clk")
            q = ports["Q"]
            register = Register(
                name=re.sub(r"\W", "_", names.get(tuple(q), f"state{len(netlist.registers)}")), q=q, d=ports["D"],
                init=_number("".join(inits.get(bit, "0") for bit in reversed(q))))
            if "EN" in ports:
                register.enable = (ports["EN"][0], params["EN_POLARITY"])
            if "SRST" in ports:
                register.reset = (ports["SRST"][0], params["SRST_POLARITY"])
                register.reset_value = params["SRST_VALUE"]
                register.enable_first = kind == "$sdffce"
            netlist.registers.append(register)
        elif kind == "$mem_v2" and not params["WR_PORTS"] and not params["RD_CLK_ENABLE"]:
            _read_rom(netlist, cell)
        elif kind in ("$shift", "$shiftx") and params["B_SIGNED"]:
            raise ValueError(f"{what} holds a {kind} by a signed amount, which cannot be emitted in loop form")
        elif kind in _COMBINATIONAL:
            netlist.nodes.append(Node(kind, params, {k: v for k, v in ports.items() if k != "Y"}, ports["Y"]))
        else:
            raise ValueError(f"{what} holds a cell of type {kind!r}, which cannot be emitted in loop form; registers "
                             f"on clk and these can: {', '.join(sorted(_COMBINATIONAL))}")
    netlist.nodes = _sorted_nodes(netlist.nodes)
    return netlist
